"""--record: what was asked is in the file, whose hits are the server's own; answers belong to what later
prompts have; salts are apart; a server that is ended ends its file."""

import os
import sys
import tempfile

from lib_server import BLOCK, Server, refused, whole

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from lib_recording import read  # noqa: E402

PROMPT = "A prompt that is long enough for some blocks, and is asked again and again. "


def complete(server, prompt, most, **more):
    answer = server.post("/v1/completions", prompt=prompt, max_tokens=most, temperature=0, **more)
    return answer["choices"][0]["text"], answer["usage"]


def hits(requests):
    """Tokens that a cache without end has of each prompt: whole blocks, but not its last token."""
    seen, found = set(), []
    for of in requests:
        blocks = [first + i for first, n in of["blocks"] for i in range(n)]
        usable = (of["input_tokens"] - 1) // BLOCK
        n = 0
        while n < min(usable, len(blocks)) and blocks[n] in seen:
            n += 1
        found.append(n * BLOCK)
        seen.update(blocks)
    return found


def check_recorded(folder):
    path = os.path.join(folder, "asked.kvprec")
    usages = []
    with Server("-c", "2048", "--record", path) as server:
        text, usage = complete(server, PROMPT, 30)
        usages.append(usage)
        for prompt, most, more in ((PROMPT, 1, {}), (PROMPT + text + " and a next turn", 9, {}),
                                (PROMPT[:30], 5, {}), (PROMPT, 7, {"cache_salt": "s"}),
                                (PROMPT, 7, {"cache_salt": "s"}), (PROMPT, 3, {"n": 2})):
            usages.append(complete(server, prompt, most, **more)[1])
    with open(path, "rb") as file:
        header, requests, counts = read(file.read())
    assert (header["source"], header["block_tokens"], header["engine"]) == (1, BLOCK, "kvpager-serve"), header
    assert (len(requests), counts["lost"]) == (len(usages), 0), (requests, counts)
    for of, usage in zip(requests, usages):
        assert of["input_tokens"] == usage["prompt_tokens"], (of, usage)
        assert of["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"], (of, usage)
        assert 0 <= of["first_us"] <= of["last_us"] < 60e6, of
    assert [of["output_tokens"] for of in requests] == \
        [usage["completion_tokens"] for usage in usages[:-1]] + [usages[-1]["completion_tokens"] // 2]
    assert hits(requests) == [of["cached_tokens"] for of in requests], (hits(requests), requests)
    assert requests[2]["cached_tokens"] > whole(PROMPT)  # the answer, too
    assert requests[4]["scope"] == requests[5]["scope"] and "scope" not in requests[0]
    assert requests[4]["cached_tokens"] == 0 < requests[5]["cached_tokens"]


def check_refused(folder):
    model, path = os.path.join(folder, "model"), os.path.join(folder, "there")
    for name in (model, path):
        with open(name, "w", encoding="utf-8") as file:
            file.write("fake-model")
    status, said = refused("-m", model, "--record", path)
    assert status != 0 and "--record" in said and "is there already" in said, said


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_recorded(folder)
        check_refused(folder)


main()
