"""kvpager-serve with llama.cpp and a real model: real.py SERVER MODEL"""

import os
import random
import struct
import sys
import tempfile
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


def write_adapter(path, size, n_embd=576, n_layers=30, rank=4):
    """A LoRA adapter of SmolLM2-135M's queries as GGUF, with numbers up to `size`."""
    def text(word):
        return struct.pack("<Q", len(word)) + word.encode()
    source = random.Random(3)
    values = [("general.type", 8, text("adapter")), ("general.architecture", 8, text("llama")),
              ("adapter.type", 8, text("lora")), ("adapter.lora.alpha", 6, struct.pack("<f", rank))]
    tensors, data, n = b"", b"", n_embd * rank  # a whole number of 32 bytes
    for i in range(n_layers):
        for part, dimensions in [("a", (n_embd, rank)), ("b", (rank, n_embd))]:
            tensors += text(f"blk.{i}.attn_q.weight.lora_{part}") + \
                struct.pack("<IQQIQ", 2, *dimensions, 0, len(data))
            data += struct.pack(f"<{n}f", *(source.uniform(-size, size) for _ in range(n)))
    head = b"GGUF" + struct.pack("<IQQ", 3, 2 * n_layers, len(values))
    head += b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in values)
    head += tensors
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


def check_restart(program, model):
    """Cached prefixes survive, for the same adapter only. One of zeros computes what none does."""
    prompt = SYSTEM * 2 + "And now"
    with tempfile.TemporaryDirectory(prefix="kvpager-real-") as folder:
        zeros, some = os.path.join(folder, "zeros.gguf"), os.path.join(folder, "some.gguf")
        write_adapter(zeros, 0)
        write_adapter(some, 0.5)
        options = ["-c", "2048", "-t", "2", "-fa", "on", "--host-memory", "64M", "--idle-cells", "1024",
                   "--snapshot", os.path.join(folder, "kept")]
        found = []
        for more in [[], [], ["--lora", zeros], ["--lora", some], ["--lora", some]]:
            with Server(*options, *more, program=program, path=model) as server:
                answer = server.post("/v1/completions", prompt=prompt, max_tokens=1, temperature=0,
                                     logprobs=0)
                cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                found.append((cached > 0, answer["choices"][0]["logprobs"]["token_logprobs"][0]))
        assert [is_cached for is_cached, _ in found] == [False, True, False, False, True], found
        assert found[0][1] == found[2][1] != found[3][1], found
        print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
    check_restart(*sys.argv[1:])
