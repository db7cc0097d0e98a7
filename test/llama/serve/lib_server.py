"""kvpager-serve over the fake llama.cpp: starts it, asks it, and knows what it must answer."""

import http.client
import json
import math
import os
import re
import signal
import subprocess
import tempfile

ALL = 2 ** 64 - 1
BLOCK = 4  # tokens, by default
END, IM_START, IM_END = 256, 257, 258
SPECIALS = {"<end>": END, "<|im_start|>": IM_START, "<|im_end|>": IM_END}
PROGRAM = os.environ.get("KVP_SERVE") or os.path.join(
    os.environ.get("KVP_BUILD", "build/check"), "test", "kvp_serve_fake")


def whole(prompt):
    """Tokens of its whole blocks; the one with the last token is computed again."""
    return (len(prompt) - 1) // BLOCK * BLOCK


class Server:
    """`errors`: what it must write to stderr; None: anything; else nothing."""

    def __init__(self, *options, model="fake-model", program=PROGRAM, path=None, errors="", status=0):
        self.errors, self.status = errors, status
        self.folder = tempfile.TemporaryDirectory(prefix="kvpager-serve-")
        self.is_fake = path is None
        if self.is_fake:
            path = os.path.join(self.folder.name, "tiny.gguf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(model)
        self.process = subprocess.Popen([program, "-m", path, "--port", "0", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://([^/]+):(\d+)/", line)
        if not found:
            raise RuntimeError(line + self.process.stderr.read())
        self.host, self.port = found.group(1).strip("[]"), int(found.group(2))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.process.stdout.close()
        errors = self.process.stderr.read()
        self.process.stderr.close()
        self.folder.cleanup()
        is_wrong = self.is_fake and self.errors is not None and (
            self.errors not in errors or errors and not self.errors)
        if exception[0] is None and (self.process.returncode != self.status or is_wrong):
            raise RuntimeError(f"the server ended with {self.process.returncode}: {errors}")

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=60 if self.is_fake else 600)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        connection = self.connect()
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found

    def get(self, path):
        status, _, body = self.ask("GET", path)
        assert status == 200, (status, body)
        return body

    def post(self, path, **body):
        status, _, answer = self.ask("POST", path, body)
        assert status == 200, (status, answer)
        return json.loads(answer)

    def stream(self, path, **body):
        """The events of a stream, as they come."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type") == "text/event-stream"
        for line in answer:
            if line.startswith(b"data: "):
                text = line[6:].decode("utf-8").strip()
                if text == "[DONE]":
                    break
                yield json.loads(text)
        else:
            raise AssertionError("a stream without [DONE]")
        connection.close()

    def metrics(self):
        found = {}
        for line in self.get("/metrics").decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert re.fullmatch(r'kvpager_\w+(\{\w+="\w+"\})?', name), line
                found[name.removeprefix("kvpager_")] = float(value)
        reasons = self.reasons(found)
        assert sum(reasons.values()) == found["prompt_tokens_total"], found
        assert reasons["hit"] == found["cached_tokens_total"], found
        return found

    @staticmethod
    def reasons(metrics):
        """Tokens of prompts by why they were computed."""
        begin, end = 'prompt_tokens_by_reason_total{reason="', '"}'
        return {name[len(begin):-len(end)]: value for name, value in metrics.items()
                if name.startswith(begin)}


def refused(*options):
    """(status, what it says): of a server that must not start."""
    with subprocess.Popen([PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        line = process.stdout.readline()
        if line:
            process.kill()
        errors = process.stderr.read()
    assert not line, (line, options)
    return process.returncode, errors


# ------------------------------------------------------------------------ what the fake model answers


def mix(x):
    x ^= x >> 31
    x = x * 0x9E3779B97F4A7C15 & ALL
    x ^= x >> 29
    x = x * 0xBF58476D1CE4E5B9 & ALL
    return x ^ x >> 32


def logits(kv, token):
    """Of the tokens that can be sampled: {token: logit}. test/llama/fake/text.c"""
    some = range(0x80, 0xC0) if token == 0xC3 else [*range(0x20, 0x7F), IM_END, 0xC3]
    return {i: 4 * (mix(kv + i + 1 & ALL) >> 40) / 2 ** 24 + (0.5 if i == 0xC3 else 0)
            for i in some}


class Context:
    """A sequence alone: what each token sees of those before it."""

    def __init__(self, shift=0):
        self.seen, self.n, self.kv, self.token = 0, 0, 0, 0
        self.shift = shift  # of an adapter

    def add(self, token):
        self.kv = mix(self.seen ^ mix(token + self.shift << 32 | self.n))
        self.seen = self.seen + mix(self.kv + self.n & ALL) & ALL
        self.n, self.token = self.n + 1, token

    def logits(self):
        return logits(self.kv, self.token)


def tokenize(text):
    tokens = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text):
        tokens += [SPECIALS[part]] if part in SPECIALS else part.encode()
    return tokens


def chat_prompt(messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + \
        "<|im_start|>assistant\n"


def greedy(prompt, n, shift=0):
    """(text, tokens, whether it ended by itself): the most probable continuation."""
    context, tokens = Context(shift), []
    for token in tokenize(prompt) if isinstance(prompt, str) else prompt:
        context.add(token)
    while len(tokens) < n:
        found = context.logits()
        token = max(found, key=found.get)
        tokens.append(token)
        if token in (END, IM_END):
            return bytes(tokens[:-1]).decode(errors="replace"), tokens, True
        context.add(token)
    return bytes(tokens).decode(errors="replace"), tokens, False


def log_softmax(values):
    """The tokens that cannot be sampled have so small logits that they hardly count."""
    most = max(values.values())
    norm = most + math.log(sum(math.exp(x - most) for x in values.values()))
    return {token: x - norm for token, x in values.items()}
