"""The protocol of kvpager-serve: every answer is the one that the prompt alone gives."""

import json
import threading

from lib_server import BLOCK, Context, Server, chat_prompt, greedy, log_softmax, tokenize, whole

TEXT = "The quick brown fox jumps over the lazy dog, again and again. "


def completion(server, prompt, **more):
    return server.post("/v1/completions", prompt=prompt, **{"temperature": 0, **more})


def check_plain(server):
    assert json.loads(server.get("/health")) == {"status": "ok"}
    model = json.loads(server.get("/v1/models"))["data"][0]
    assert model["id"] == "tiny" and model["meta"]["n_ctx"] == 2048, model
    assert server.post("/tokenize", content="h\u00e9<|im_end|>")["tokens"] == [104, 195, 169, 258]
    for prompt in ["a", TEXT, TEXT * 3, tokenize(TEXT)]:
        want, tokens, is_over = greedy(prompt, 40)
        found = completion(server, prompt, max_tokens=40)
        assert found["choices"] == [{"index": 0, "text": want, "logprobs": None,
                                     "finish_reason": "stop" if is_over else "length"}], found
        n = len(tokenize(prompt) if isinstance(prompt, str) else prompt)
        assert found["usage"]["prompt_tokens"] == n
        assert found["usage"]["completion_tokens"] == len(tokens)
    for more, reason in [("x", "end"), ("x" * BLOCK, "miss")]:
        usage = completion(server, TEXT * 3 + more, max_tokens=1)["usage"]
        assert usage["prompt_tokens_details"] == {
            "cached_tokens": whole(TEXT * 3), "hit_ended": reason}, usage


def check_chat(server):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    want = greedy(chat_prompt(messages), 30)[0]
    found = server.post("/v1/chat/completions", messages=messages, max_completion_tokens=30,
                        temperature=0)
    assert found["choices"][0]["message"] == {"role": "assistant", "content": want}, found
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    found = server.post("/v1/chat/completions", max_tokens=30, temperature=0,
                        messages=[messages[0], {"role": "user", "content": parts}])
    assert found["choices"][0]["message"]["content"] == want
    events = list(server.stream("/v1/chat/completions", messages=messages, max_tokens=30,
                                temperature=0, stream_options={"include_usage": True}))
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == want
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] > 0
    assert events[-2]["choices"][0]["finish_reason"] in ("stop", "length")


def check_streams(server):
    """Whole characters, and nothing of a stop string, in any event."""
    prompts = [f"{i}: " + TEXT for i in range(40)]
    wanted = {prompt: greedy(prompt, 60)[0] for prompt in prompts}
    wide = [p for p in prompts if any(ord(c) > 127 for c in wanted[p])]
    assert len(wide) > 20, "the fake model writes characters of two bytes"
    for prompt in wide[:6]:
        want = wanted[prompt]
        pieces = [e["choices"][0]["text"] for e in
                  server.stream("/v1/completions", prompt=prompt, max_tokens=60, temperature=0)]
        assert "".join(pieces) == want and "\ufffd" not in want.rstrip("\ufffd"), pieces
        at = next(i for i, c in enumerate(want) if ord(c) > 127)
        for stop in [want[at:at + 3], want[max(0, at - 2):at + 1], want[4:9]]:
            end = want.index(stop)
            events = list(server.stream("/v1/completions", prompt=prompt, max_tokens=60,
                                        temperature=0, stop=["never seen", stop]))
            assert "".join(e["choices"][0]["text"] for e in events) == want[:end], (stop, want)
            assert events[-1]["choices"][0]["finish_reason"] == "stop"
        missed = want[5:9] + "\u2603"
        assert completion(server, prompt, max_tokens=60, stop=missed)["choices"][0]["text"] == want


def penalised(n):
    """Greedy, with a bias of 50 for the letter A and both penalties at 2."""
    context, text = Context(), ""
    for token in tokenize(TEXT):
        context.add(token)
    for _ in range(n):
        values = {token: x + (50 if token == 65 else 0) -
                  (2 * text.count(chr(token)) + 2 if chr(token) in text else 0)
                  for token, x in context.logits().items()}
        token = max(values, key=values.get)
        text += chr(token)
        context.add(token)
    return text.encode("latin-1").decode(errors="replace")


def check_sampling(server):
    want = greedy(TEXT, 20)[0]
    found = completion(server, TEXT, max_tokens=20, n=3)
    assert [c["text"] for c in found["choices"]] == [want] * 3
    warm = {"max_tokens": 20, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0}
    first = completion(server, TEXT, n=3, seed=7, **warm)["choices"]
    assert first == completion(server, TEXT, n=3, seed=7, **warm)["choices"]
    assert first != completion(server, TEXT, n=3, seed=8, **warm)["choices"]
    assert len({c["text"] for c in first}) == 3
    assert completion(server, TEXT, **warm)["choices"] != completion(server, TEXT, **warm)["choices"]
    assert completion(server, TEXT, **{**warm, "top_k": 1})["choices"][0]["text"] == want
    assert completion(server, TEXT, **{**warm, "min_p": 1})["choices"][0]["text"] == want
    assert completion(server, TEXT, **{**warm, "top_p": 0.001})["choices"][0]["text"] == want
    context = Context()
    for token in tokenize(TEXT):
        context.add(token)
    best = sorted(context.logits().items(), key=lambda item: -item[1])
    first, second = best[0][0], best[1][0]
    for bias, token in [({str(first): -100}, second), ({"65": 100}, 65), ({str(second): -5}, first)]:
        found = completion(server, TEXT, max_tokens=1, logit_bias=bias, logprobs=0)
        assert found["choices"][0]["logprobs"]["tokens"] == [chr(token)], (bias, found)
    found = completion(server, TEXT, max_tokens=30, logit_bias={"65": 50}, presence_penalty=2,
                       frequency_penalty=2)["choices"][0]["text"]
    assert found == penalised(30), (found, penalised(30))
    found = completion(server, TEXT, max_tokens=9, temperature=1, grammar='root ::= "yes"')
    assert found["choices"][0] == {"index": 0, "text": "yes", "logprobs": None,
                                   "finish_reason": "stop"}, found


def check_logprobs(server):
    context = Context()
    for token in tokenize(TEXT):
        context.add(token)
    found = completion(server, TEXT, max_tokens=5, logprobs=3)["choices"][0]["logprobs"]
    for i in range(5):
        want = log_softmax(context.logits())
        best = sorted(want, key=want.get, reverse=True)[:3]
        assert abs(found["token_logprobs"][i] - want[best[0]]) < 1e-4
        tops = sorted(found["top_logprobs"][i].values(), reverse=True)
        assert all(abs(a - want[b]) < 1e-4 for a, b in zip(tops, best)), (tops, want)
        context.add(best[0])
    messages = [{"role": "user", "content": "Hi"}]
    found = server.post("/v1/chat/completions", messages=messages, max_tokens=4, temperature=0,
                        logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    tokens = greedy(chat_prompt(messages), 4)[1]
    assert [entry["bytes"] for entry in found] == [[token] for token in tokens]
    assert all(entry["top_logprobs"][0]["bytes"] == entry["bytes"] and
               len(entry["top_logprobs"]) == 2 for entry in found)


def check_tenants(server):
    def cached(**more):
        found = completion(server, "secret " + TEXT, max_tokens=2, **more)
        assert found["choices"][0]["text"] == greedy("secret " + TEXT, 2)[0]
        return found["usage"]["prompt_tokens_details"]["cached_tokens"]
    kept = whole("secret " + TEXT)
    assert [cached(), cached(cache_salt="a"), cached(cache_salt="b"), cached(cache_salt="a"),
            cached(), cached(cache_salt="")] == [0, 0, 0, kept, kept, kept]
    for i in range(70):  # more than there are places
        assert cached(cache_salt=f"tenant {i}") == 0
    assert [cached(cache_salt="a"), cached(cache_salt="tenant 69")] == [0, kept]


REFUSED = [
    ({"prompt": "a", "tools": [{"type": "function"}]}, "tools"),
    ({"prompt": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ({"prompt": "a", "lora": [{"id": 0, "scale": 0.5}]}, "lora"),
    ({"prompt": "a", "suffix": "b"}, "suffix"), ({"prompt": "a", "echo": True}, "echo"),
    ({"prompt": "a", "best_of": 2}, "best_of"), ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": [1, 259]}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": []}, "prompt"),
    ({"prompt": ""}, "prompt"), ({"prompt": 5}, "prompt"), ({}, "prompt"),
    ({"prompt": "a", "n": 0}, "n"), ({"prompt": "a", "n": 33}, "n"),
    ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "temperature": -1}, "temperature"), ({"prompt": "a", "top_p": 2}, "top_p"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens"), ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
    ({"prompt": "a", "stop": ""}, "stop"), ({"prompt": "a", "stop": ["a"] * 17}, "stop"),
    ({"prompt": "a", "stop": "a" * 257}, "stop"), ({"prompt": "a", "stream": 1}, "stream"),
    ({"prompt": "a", "logit_bias": {"259": 1}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"065": 1}}, "logit_bias"),
    ({"prompt": "a", "stream_options": {"include_usage": 1}}, "stream_options"),
    ({"prompt": "a", "stream_options": []}, "stream_options"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"), ({"prompt": "a", "grammar": "bad"}, "grammar"),
    ({"prompt": "a", "cache_salt": "a" * 201}, "cache_salt"),
    ({"prompt": "a" * 2048}, "prompt"), ({"prompt": "a" * 2040, "n": 32}, "prompt"),
]
REFUSED_CHATS = [
    ({}, "messages"), ({"messages": []}, "messages"), ({"messages": ["hi"]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [
        {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages[1].content[1].type"),
    ({"messages": [{"role": "user", "content": [{"type": "a" + "\u00e9" * 60}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]},
     "messages[0].tool_calls"),
    ({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs"),
    ({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}, "tool_choice"),
    ({"messages": [{"role": "user", "content": "a"}], "modalities": ["audio"]}, "modalities"),
]


def check_refusals(server):
    for path, cases in [("/v1/completions", REFUSED), ("/v1/chat/completions", REFUSED_CHATS)]:
        for body, field in cases:
            status, _, answer = server.ask("POST", path, body)
            error = json.loads(answer)["error"]
            assert status == 400 and error["param"] == field, (body, status, error)
            assert error["type"] == "invalid_request_error" and error["message"], error
    with Server(model="fake-model no-template") as other:
        status, _, answer = other.ask("POST", "/v1/chat/completions",
                                      {"messages": [{"role": "user", "content": "a"}]})
        assert status == 400 and b"tiny.gguf has a chat template that is not known" in answer, answer


def check_crowd():
    """Many clients, few cells: requests wait and are preempted, and all answers are right."""
    prompts = [TEXT * (i % 3 + 1) + f"number {i % 7}" for i in range(24)]
    found = [None] * len(prompts)

    def run(server, i):
        found[i] = completion(server, prompts[i], max_tokens=30, ignore_eos=False)

    with Server("-c", "512", "-np", "8", "--block-tokens", "8") as server:
        threads = [threading.Thread(target=run, args=(server, i)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for prompt, answer in zip(prompts, found):
            assert answer["choices"][0]["text"] == greedy(prompt, 30)[0], (prompt, answer)
        metrics = server.metrics()
        assert metrics["requests_ended_total"] == len(prompts)
        assert metrics["cached_tokens_total"] > 0
        assert metrics['blocks{state="held"}'] == 0


def main():
    with Server("-c", "2048", "-a", "tiny") as server:
        check_plain(server)
        check_chat(server)
        check_streams(server)
        check_sampling(server)
        check_logprobs(server)
        check_tenants(server)
        check_refusals(server)
    check_crowd()


if __name__ == "__main__":
    main()
