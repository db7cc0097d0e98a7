"""OpenAI's own Python client against kvpager-serve. Skipped where it is not installed (make llama gets
it)."""

import sys

from lib_server import Server, chat_prompt, greedy

try:
    import openai
except ImportError:
    print("skipped: no openai")
    sys.exit(77)

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]


def check_chats(client):
    want, tokens, is_over = greedy(chat_prompt(MESSAGES), 40)
    found = client.chat.completions.create(model="any", messages=MESSAGES, temperature=0,
                                           max_completion_tokens=40, logprobs=True, top_logprobs=2)
    assert found.choices[0].message.content == want and found.choices[0].message.role == "assistant"
    assert found.choices[0].finish_reason == ("stop" if is_over else "length")
    assert found.usage.completion_tokens == len(tokens)
    assert found.usage.prompt_tokens_details.cached_tokens == 0
    entries = found.choices[0].logprobs.content
    assert [entry.bytes for entry in entries] == [[t] for t in tokens if t < 256]
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in entries)
    text, usage = "", None
    for chunk in client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, stream=True,
                                                max_tokens=40, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == want and usage.prompt_tokens_details.cached_tokens > 0


def check_completions(client):
    want = greedy("Once upon a time", 20)[0]
    found = client.completions.create(model="any", prompt="Once upon a time", max_tokens=20,
                                      temperature=0, n=2, extra_body={"cache_salt": "me"})
    assert [choice.text for choice in found.choices] == [want, want]
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model="any", prompt="Once upon a time", max_tokens=20, temperature=0, stop=want[5:8],
        stream=True))
    assert text == want[:want.index(want[5:8])]
    assert [model.id for model in client.models.list()] == ["tiny"]


def check_errors(client):
    for more, field in [({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
                        ({"response_format": {"type": "json_object"}}, "response_format")]:
        try:
            client.chat.completions.create(model="any", messages=MESSAGES, **more)
            raise AssertionError(field)
        except openai.BadRequestError as error:
            assert error.param == field, error
    wrong = openai.OpenAI(base_url=str(client.base_url), api_key="wrong", max_retries=0)
    try:
        wrong.models.list()
        raise AssertionError("a wrong key")
    except openai.AuthenticationError:
        pass
    stream = client.chat.completions.create(model="any", messages=MESSAGES, stream=True,
                                            max_tokens=900, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()  # the client goes away



def main():
    with Server("-a", "tiny", "--api-key", "sesame", model="fake-model step_us=1000") as server:
        client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="sesame",
                               max_retries=0)
        check_chats(client)
        check_completions(client)
        check_errors(client)
    print(f"openai {openai.__version__}: chats, completions, streams, errors")


if __name__ == "__main__":
    main()
