"""A model with a sliding window gives what it gives without a cache: after hits, evictions and
restarts, from host memory and from a disk.

    window.py                           over the fake llama.cpp, to the bit
    window.py SERVER MODEL REAL_TEST    with llama.cpp, and the model that REAL_TEST makes (window_model.h)
"""

import os
import random
import subprocess
import sys
import tempfile
import threading

from lib_server import Server, greedy

WINDOW = 128
MOST_APART = 0.2   # log probabilities, with flash attention; one wrong block of 16 gives 4


class Fake:
    model, folder = f"fake-model n_swa={WINDOW}", None

    def start(self, *options):
        return Server(*options, model=self.model)

    def tokens(self, seed, n):
        return [random.Random(f"{seed} {i}").randrange(0x20, 0x7F) for i in range(n)]

    def check(self, server, prompt):
        found = server.post("/v1/completions", prompt=prompt, max_tokens=4, temperature=0)
        assert found["choices"][0]["text"] == greedy(prompt, 4)[0], (len(prompt), found)
        return found["usage"]["prompt_tokens_details"]["cached_tokens"]


class Real:
    def __init__(self, program, path):
        self.program, self.path = program, path
        self.right = {}
        self.alone = self.start("-c", "2048", "-np", "1")

    def start(self, *options):
        return Server("-t", "1", "-fa", "on", "-ctk", "f32", "-ctv", "f32", *options,
                      program=self.program, path=self.path)

    def tokens(self, seed, n):
        return [random.Random(f"{seed} {i}").randrange(1000, 40000) for i in range(n)]

    def ask(self, server, prompt, **more):
        found = server.post("/v1/completions", prompt=prompt, max_tokens=1, temperature=0, logprobs=5, **more)
        return (found["choices"][0]["logprobs"]["top_logprobs"][0],
                found["usage"]["prompt_tokens_details"]["cached_tokens"])

    def check(self, server, prompt):
        found, cached = self.ask(server, prompt)
        right, none = self.ask(self.alone, prompt, cache_salt=str(random.random()))
        assert none == 0
        apart = [abs(right[token] - found[token]) for token in right if token in found]
        assert len(apart) >= 3 and max(apart) < MOST_APART, (len(prompt), cached, right, found)
        return cached


def check_cells(kind):
    """Hits, evictions, many at once."""
    shared = kind.tokens("shared", 300)
    with kind.start("-c", "1024", "-np", "4") as server:
        assert kind.check(server, shared) == 0
        assert kind.check(server, shared) >= 292
        for i in range(6):
            kind.check(server, kind.tokens(i, 200 + 40 * i))
        kind.check(server, shared)
        prompts = [shared + kind.tokens(i, 20) for i in range(4)]
        threads = [threading.Thread(target=kind.check, args=(server, prompt)) for prompt in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(kind.check(server, prompt) >= 300 for prompt in prompts)
        assert kind.check(server, shared[:200]) >= 192  # a hit that ends long before others
        server.post("/v1/completions", prompt=shared, max_tokens=20, temperature=1, seed=3, n=4)
        assert kind.check(server, shared) >= 292
        assert server.metrics()["failed_decodes_total"] == 0


def check_snapshot(kind, folder):
    prompts = [kind.tokens(i, 300) for i in range(2)]
    options = ["-c", "1024", "-np", "4", "--snapshot", os.path.join(folder, "kept")]
    with kind.start(*options) as server:
        assert [kind.check(server, prompt) for prompt in prompts] == [0, 0]
    with kind.start(*options) as server:
        assert all(kind.check(server, prompt) >= 292 for prompt in prompts)


def check_host_and_disk(kind, folder):
    """A disk's records have as many tokens as the window."""
    prompts = [kind.tokens(i, 420) for i in range(4)]
    options = ["-c", "1280", "-np", "2", "-fa", "on", "--host-memory", "16M", "--cache-disk", folder]
    with kind.start(*options) as server:
        assert [kind.check(server, prompt) for prompt in prompts] == [0] * 4
        for prompt in prompts:
            kind.check(server, prompt)
        metrics = server.metrics()
        assert metrics["disk_records"] == 12 and metrics["failed_decodes_total"] == 0, metrics
        assert metrics["host_bytes"] > 0
    with kind.start(*options) as server:
        assert kind.check(server, prompts[0]) == 384  # the first reading is always tried
        for prompt in prompts:
            kind.check(server, prompt)


def main(kind):
    with tempfile.TemporaryDirectory(prefix="kvpager-window-") as folder:
        check_cells(kind)
        check_snapshot(kind, folder)
        check_host_and_disk(kind, folder)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main(Fake())
    else:
        with tempfile.TemporaryDirectory(prefix="kvpager-window-") as made:
            model = os.path.join(made, "window.gguf")
            subprocess.run([sys.argv[3], sys.argv[2], "save", model], check=True)
            real = Real(sys.argv[1], model)
            with real.alone:
                main(real)
