"""kvpager-serve with llama.cpp and a real model: real.py SERVER MODEL"""

import sys
import threading

from lib_server import Server

SYSTEM = "You are a teacher of geography. Answer in a single short sentence. " * 4


def ask(server, question, **more):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return server.post("/v1/chat/completions", messages=messages, **{"temperature": 0, "max_tokens": 12,
                                                                     **more})


def main(program, model):
    with Server("-c", "2048", "-t", "2", "-np", "8", program=program, path=model) as server:
        tokens = server.post("/tokenize", content="Hello <|im_end|>")["tokens"]
        assert tokens[-1] == 2 and len(tokens) < 5, tokens
        answers = {}
        questions = ["What is the capital of France?", "What is the capital of Italy?"]
        threads = [threading.Thread(target=lambda q=q: answers.update({q: ask(server, q)}))
                   for q in questions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts = [answers[q]["choices"][0]["message"]["content"] for q in questions]
        assert "Paris" in texts[0] and "Italy" in texts[1], texts
        cached = [answers[q]["usage"]["prompt_tokens_details"]["cached_tokens"] for q in questions]
        assert sorted(cached)[0] == 0 and sorted(cached)[1] >= 48, cached  # one had the other's prefix
        again = ask(server, questions[0], n=2)["choices"]
        assert again[0]["message"] == again[1]["message"] and "Paris" in again[0]["message"]["content"]
        messages = [{"role": "user", "content": "Say: \u00e9t\u00e9 \U0001f600"}]
        events = list(server.stream("/v1/chat/completions", messages=messages, max_tokens=12, seed=3,
                                    temperature=0.7, stop=["\n"]))
        assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")
        found = server.post("/v1/completions", prompt="Is water wet? Answer:", max_tokens=4,
                            grammar='root ::= " yes" | " no"', logprobs=2)["choices"][0]
        assert found["text"] in (" yes", " no") and found["finish_reason"] == "stop", found
        status, _, body = server.ask("POST", "/v1/completions", {"prompt": "a", "grammar": 'root ::= "a'})
        assert status == 400 and b'"param":"grammar"' in body
        metrics = server.metrics()
        assert metrics["requests_ended_total"] == 5 and metrics["failed_decodes_total"] == 0
        print(texts, cached)


if __name__ == "__main__":
    main(*sys.argv[1:])
