"""--lora: all KV is the adapter's, and never what the model alone or another adapter has computed."""

import os
import tempfile

from lib_server import Server, chat_prompt, greedy, refused, whole

TEXT = "A system prompt that many requests share, and that is worth keeping. "
KEPT = whole(TEXT)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def cached(server, shift, **more):
    found = server.post("/v1/completions", prompt=TEXT, max_tokens=9, temperature=0, **more)
    assert found["choices"][0]["text"] == greedy(TEXT, 9, shift)[0], found
    return found["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_answers(adapter):
    assert len({greedy(TEXT, 9, shift)[0] for shift in (0, 7, 8)}) == 3
    with Server("-c", "1024", "--lora", adapter) as server:
        assert [cached(server, 7), cached(server, 7), cached(server, 7, cache_salt="a"),
                cached(server, 7, cache_salt="a")] == [0, KEPT, 0, KEPT]
        messages = [{"role": "user", "content": "Hi"}]
        found = server.post("/v1/chat/completions", messages=messages, max_tokens=9, temperature=0)
        want = greedy(chat_prompt(messages), 9, 7)[0]
        assert found["choices"][0]["message"]["content"] == want, found


def check_snapshots(folder, adapter, other):
    """A snapshot is of the adapter."""
    options = ["-c", "1024", "--snapshot", os.path.join(folder, "kept")]
    errors = ""
    for more, shift in [([], 0), (["--lora", adapter], 7), (["--lora", other], 8), ([], 0)]:
        with Server(*options, *more, errors=errors) as server:
            assert [cached(server, shift), cached(server, shift)] == [0, KEPT]
        with Server(*options, *more) as server:
            assert cached(server, shift) == KEPT
        errors = "it is of another model or adapter"


def check_refused(folder):
    model, adapter = os.path.join(folder, "model"), os.path.join(folder, "wrong")
    write(model, "fake-model")
    for text, sentence in [(None, "cannot load it for this model"), ("x", "cannot load it"),
                           ("fake-adapter 7 2", "activated by tokens")]:
        if text is not None:
            write(adapter, text)
        status, said = refused("-m", model, "--lora", adapter)
        assert status == 1 and said.startswith("kvpager-serve: --lora: ") and sentence in said, said


def main():
    with tempfile.TemporaryDirectory(prefix="kvpager-lora-") as folder:
        adapter, other = os.path.join(folder, "seven"), os.path.join(folder, "eight")
        write(adapter, "fake-adapter 7 0")
        write(other, "fake-adapter 8 0")
        check_answers(adapter)
        check_snapshots(folder, adapter, other)
        check_refused(folder)


if __name__ == "__main__":
    main()
