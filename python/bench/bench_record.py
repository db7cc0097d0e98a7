"""Do recordings predict what vLLM hits? bench_record.py KVPAGER [--requests N] [--blocks N] [--clients N]

vLLM on the CPU answers the same requests with N blocks, half and twice as many. Its model has the first layer and the
tokens of SmolLM2-135M, and any weights, since hits do not depend on them. It
records inside (record_only), and `kvpager record` stands before it and reads its KV events; look-ups are
reported in one more run. So many clients ask, one by default; 30 % are exact repeats. What the recordings
made with N blocks say (`kvpager replay --sequential`; of events `kvpager mrc`) is compared with what vLLM
itself counted with each number of blocks, of which it never uses one. Of a prompt that is wholly cached,
kvpager computes the last token and vLLM the last block: that difference is taken off, and is printed. Run
it with the interpreter of `make engines`."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from engine_life import model_folder  # noqa: E402
from engine_server import Server, free_port  # noqa: E402

BLOCK = 32


def prompts(n: int, seed: int) -> list[str]:
    draw, made = random.Random(seed), list[str]()
    words = "river stone market window engine garden letter winter bridge summer doctor paper".split()
    heads = [" ".join(draw.choice(words) for _ in range(100)) for _ in range(6)]
    for _ in range(n):
        if made and draw.random() < 0.3:
            made.append(draw.choice(made))
        else:
            made.append(draw.choice(heads) + " " + " ".join(
                draw.choice(words) for _ in range(draw.randrange(20, 120))))
    return made


def ask(port: int, model: str, prompt: str, reports: bool) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    if reports:
        body["vllm_xargs"] = {"kv_cache_report_mode": "full"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        usage: dict[str, Any] = json.load(answer)["usage"]
    return usage


@contextlib.contextmanager
def recording(kvpager: str, out: pathlib.Path, words: str, *options: str) -> Iterator[str]:
    """`kvpager record`, from when it says these words on, in this line."""
    with subprocess.Popen([kvpager, "record", "--out", str(out), "--block-tokens", str(BLOCK), *options],
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(line for line in process.stderr if words in line)
        finally:
            process.send_signal(signal.SIGINT)
            print(process.stderr.read().strip(), flush=True)


def serve(model: pathlib.Path, folder: pathlib.Path, blocks: int, options: argparse.Namespace, asked: list[str],
          reports: bool = False) -> dict[str, int]:
    """What vLLM counted. reports: of look-ups; else its counters are asked for."""
    folder.mkdir()
    began, url = time.time(), f"tcp://127.0.0.1:{free_port()}"
    replay = f"tcp://127.0.0.1:{free_port()}"
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": url.replace("127.0.0.1", "*"),
              "replay_endpoint": replay.replace("127.0.0.1", "*")}
    with Server(model, folder / "log", {"record_only": True, "record": str(folder)}, "--block-size", str(BLOCK),
                "--num-gpu-blocks-override", str(blocks), "--max-model-len", "1024", "--load-format", "dummy",
                "--hf-overrides", json.dumps({"num_hidden_layers": 1}),
                "--kv-events-config", json.dumps(events)) as server:
        engine = f"http://127.0.0.1:{server.port}"
        more = ["--lookups"] if reports else ["--metrics", engine, "--period", "0.5"]
        with recording(options.kvpager, folder / "events.kvprec", "receives events", "--events", url, "--replay",
                       replay, *more), \
                recording(options.kvpager, folder / "proxy.kvprec", "listening", "--proxy", engine, "--listen",
                          "127.0.0.1:0") as line, \
                concurrent.futures.ThreadPoolExecutor(options.clients) as clients:
            port = int(line.split("127.0.0.1:")[1].split(",")[0])
            usages = list(clients.map(lambda prompt: ask(port, str(model), prompt, reports), asked))
            time.sleep(2)  # the last prompt's tokens, and the counters, are asked for
        text = urllib.request.urlopen(f"{engine}/metrics").read().decode()
    hits, queries = (int(float(re.search(rf"^vllm:prefix_cache_{name}_total\S* (\S+)", text, re.MULTILINE)[1]))
                     for name in ("hits", "queries"))
    told = sum((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0) for usage in usages)
    print(f"{blocks} blocks: {len(asked)} requests in {time.time() - began:.0f} s; hits {hits} of {queries} tokens "
          f"by /metrics, {told} by usage", flush=True)
    return {"hits": hits, "queries": queries}


def predict(kvpager: str, path: pathlib.Path, blocks: int) -> tuple[int, int]:
    """Hit tokens by vLLM's rule and by kvpager's. They differ by BLOCK - 1 for each prompt of whole blocks
    that is all there; only these hits are no multiple of BLOCK."""
    done = subprocess.run([kvpager, "replay", "--sequential", "--json", "--blocks", str(blocks - 1),
                           "--block-tokens", str(BLOCK), str(path)], check=True, capture_output=True, text=True)
    hits = int(json.loads(done.stdout)["hit_tokens"])
    return hits - -hits % BLOCK * (BLOCK - 1), hits


def bounds(kvpager: str, path: pathlib.Path, truth: dict[int, dict[str, int]]) -> None:
    sizes = ",".join(map(str, truth))
    done = subprocess.run([kvpager, "mrc", "--json", "--block-tokens", str(BLOCK), "--sizes", sizes, str(path)],
                          check=True, capture_output=True, text=True)
    for row in json.loads(done.stdout)["sizes"]:
        if row["blocks"] in truth:
            least, most, counted = row["hit_tokens_at_least"], row["hit_tokens_at_most"], truth[row["blocks"]]
            print(f"events  {row['blocks']:6} {counted['hits']:12}  {least} to {most}, width "
                  f"{100 * (most - least) / counted['queries']:.2f} % of the input: "
                  + ("holds" if least <= counted["hits"] <= most else "WRONG"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kvpager")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--blocks", type=int, default=120)
    parser.add_argument("--clients", type=int, default=1)
    options = parser.parse_args()
    asked, truth = prompts(options.requests, 1), {}
    sizes = [options.blocks, options.blocks // 2, options.blocks * 2]
    with tempfile.TemporaryDirectory(prefix="kvpager-") as temporary:
        place = pathlib.Path(temporary)
        for blocks in sizes:
            truth[blocks] = serve(model_folder(), place / str(blocks), blocks, options, asked)
        serve(model_folder(), place / "reports", options.blocks, options, asked, True)
        made = place / str(options.blocks)
        files = {"engine": next(made.glob("vllm-*.kvprec")), "proxy": made / "proxy.kvprec",
                 "lookups": place / "reports" / "events.kvprec"}
        print("source  blocks  vLLM's hits  predicted  difference of the input  by kvpager's rule")
        for source, path in files.items():
            for blocks in sizes:
                (got, own), counted = predict(options.kvpager, path, blocks), truth[blocks]
                print(f"{source:7} {blocks:6} {counted['hits']:12} {got:10} "
                      f"{100 * (got - counted['hits']) / counted['queries']:+9.3f} % {own:18}")
        bounds(options.kvpager, made / "events.kvprec", truth)
        for path in [*files.values(), made / "events.kvprec"]:
            print(subprocess.run([options.kvpager, "events", "check", str(path)], capture_output=True,
                                 text=True).stdout)


if __name__ == "__main__":
    main()
