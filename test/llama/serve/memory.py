"""--host-memory and --idle-cells: where cached prefixes are, and how many."""

import os
import tempfile

from lib_server import BLOCK, Server, greedy, refused, tokenize, whole

HOST = ["-c", "512", "-fa", "on", "-np", "4", "--host-memory"]
FIRST = "The first prompt, which is long enough to be evicted and to come back. " * 3
SECOND = "Another prompt, which needs so many cells that the first one has to go. " * 4 + "End"


def cached(server, prompt):
    """Of the prompt's tokens, when the answer is right."""
    found = server.post("/v1/completions", prompt=prompt, max_tokens=4, temperature=0)
    assert found["choices"][0]["text"] == greedy(prompt, 4)[0], (prompt, found)
    return found["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_host(folder):
    """What was evicted is hit from the host; without a host tier it is gone."""
    for options, kept in [(["-c", "384"], False), ([*HOST, "1M"], True)]:
        with Server(*options) as server:
            assert [cached(server, FIRST), cached(server, SECOND)] == [0, 0]
            metrics = server.metrics()
            assert metrics["evicted_blocks_total"] > 0 and (metrics["host_bytes"] > 0) == kept, metrics
            n = cached(server, FIRST)
            assert (n == whole(FIRST)) == kept, n
            metrics = server.metrics()
            assert (metrics["host_pieces_in_total"] > 0) == kept, metrics
            for name in "host_unkept_blocks_total", "host_evicted_blocks_total", "short_of_ids_blocks_total":
                assert metrics[name] == 0, metrics
    options = [*HOST, "1M", "--snapshot", os.path.join(folder, "kept")]
    with Server(*options) as server:  # the cells are saved, and what is on the host is not
        assert [cached(server, FIRST), cached(server, SECOND)] == [0, 0]
    with Server(*options) as server:
        assert cached(server, SECOND) == whole(SECOND)
        assert cached(server, FIRST) < whole(FIRST)


def check_reasons():
    """What was evicted is told from what is new, also behind an answer; whose it is, counts."""
    with Server("-c", "384") as server:
        server.post("/v1/completions", prompt=FIRST, max_tokens=40, temperature=0, ignore_eos=True)
        assert cached(server, SECOND) == 0
        before = server.reasons(server.metrics())
        assert before == {**dict.fromkeys(before, 0), "last": 2, "new": len(FIRST + SECOND) - 2}, before
        asked = tokenize(FIRST) + greedy(FIRST, 37)[1]  # its last block is not full
        n, known = cached(server, asked), len(asked) // BLOCK * BLOCK
        after = server.reasons(server.metrics())
        found = {name: after[name] - before[name] for name in after}
        assert n < len(FIRST) and known < len(asked) - 1 and found == {
            **dict.fromkeys(after, 0), "hit": n, "evicted": known - n, "last": 1,
            "grid": len(asked) - known - 1}, (n, found)
        server.post("/v1/completions", prompt=asked, max_tokens=1, cache_salt="another")
        assert server.reasons(server.metrics())["new"] - after["new"] == len(asked) - 1


def check_idle():
    """64 cells are some blocks. The end of a prefix goes first."""
    with Server("-c", "1024", "--idle-cells", "64") as server:
        assert [cached(server, FIRST), cached(server, FIRST)] == [0, 64]
        metrics = server.metrics()
        assert metrics["idle_blocks_total"] >= len(FIRST) // BLOCK - 64 // BLOCK, metrics
    with Server("-c", "1024", "--idle-cells", "0") as server:
        assert [cached(server, FIRST), cached(server, FIRST)] == [0, whole(FIRST)]
        assert server.metrics()["idle_blocks_total"] == 0


def check_refused(folder):
    model = os.path.join(folder, "model")
    with open(model, "w", encoding="utf-8") as file:
        file.write("fake-model")
    for options, sentence in [([*HOST, "63B"], "--host-memory: 63 bytes are no blocks: a block has 64 "),
                              ([*HOST, "512G"], "bytes are too many blocks")]:
        status, said = refused("-m", model, *options)
        assert status == 1 and sentence in said, said
    with open(model, "w", encoding="utf-8") as file:
        file.write("fake-model architecture=mamba")
    assert "recurrent" in refused("-m", model, *HOST, "1M")[1]
    with Server(*HOST, "64B") as server:  # one block
        assert [cached(server, FIRST), cached(server, SECOND)] == [0, 0]
        assert server.metrics()["host_evicted_blocks_total"] > 0


def main():
    with tempfile.TemporaryDirectory(prefix="kvpager-memory-") as folder:
        check_host(folder)
        check_reasons()
        check_idle()
        check_refused(folder)


if __name__ == "__main__":
    main()
