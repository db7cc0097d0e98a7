"""Do recordings predict what vLLM hits? bench_record.py KVPAGER [--requests N] [--blocks N]

vLLM on the CPU with SmolLM2-135M answers the same requests with N blocks, half and twice as many. It
records inside (record_only), and `kvpager record` stands before it. One request comes at a time; 30 % are
exact repeats. What `kvpager replay --sequential` says of the two recordings that were made with N blocks
is compared with what vLLM itself counted with each number of blocks. Of a prompt that is wholly cached,
kvpager computes the last token and vLLM the last block: that difference is taken off, and is printed. Run
it with the interpreter of `make engines`."""

from __future__ import annotations

import argparse
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
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from engine_life import model_folder  # noqa: E402
from engine_server import Server  # noqa: E402

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


def ask(port: int, model: str, prompt: str) -> dict[str, Any]:
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body.encode(),
                                   {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        usage: dict[str, Any] = json.load(answer)["usage"]
    return usage


def proxy(kvpager: str, port: int, out: pathlib.Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([kvpager, "record", "--proxy", f"http://127.0.0.1:{port}", "--listen", "127.0.0.1:0",
                                "--out", str(out), "--block-tokens", str(BLOCK)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, int(process.stderr.readline().split("127.0.0.1:")[1].split(",")[0])


def run(model: pathlib.Path, folder: pathlib.Path, blocks: int, kvpager: str, asked: list[str]) -> dict[str, int]:
    """What vLLM counted."""
    folder.mkdir()
    began = time.time()
    with Server(model, folder / "log", {"record_only": True, "record": str(folder)}, "--block-size", str(BLOCK),
                "--num-gpu-blocks-override", str(blocks), "--max-model-len", "1024") as server:
        between, port = proxy(kvpager, server.port, folder / "proxy.kvprec")
        usages = [ask(port, str(model), prompt) for prompt in asked]
        time.sleep(1)  # the last prompt's tokens are asked for
        between.send_signal(signal.SIGINT)
        between.wait(60)
        text = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read().decode()
    hits, queries = (int(float(re.search(rf"^vllm:prefix_cache_{name}_total\S* (\S+)", text, re.MULTILINE)[1]))
                     for name in ("hits", "queries"))
    told = sum((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0) for usage in usages)
    print(f"{blocks} blocks: {len(asked)} requests in {time.time() - began:.0f} s; hits {hits} of {queries} tokens "
          f"by /metrics, {told} by usage", flush=True)
    return {"hits": hits, "queries": queries}


def predict(kvpager: str, path: pathlib.Path, blocks: int) -> tuple[int, int]:
    """Hit tokens by vLLM's rule and by kvpager's. They differ by BLOCK - 1 for each prompt of whole blocks
    that is all there; only these hits are no multiple of BLOCK."""
    done = subprocess.run([kvpager, "replay", "--sequential", "--json", "--blocks", str(blocks), "--block-tokens",
                           str(BLOCK), str(path)], check=True, capture_output=True, text=True)
    hits = int(json.loads(done.stdout)["hit_tokens"])
    return hits - -hits % BLOCK * (BLOCK - 1), hits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kvpager")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--blocks", type=int, default=120)
    options = parser.parse_args()
    asked, truth = prompts(options.requests, 1), {}
    sizes = [options.blocks, options.blocks // 2, options.blocks * 2]
    with tempfile.TemporaryDirectory(prefix="kvpager-") as temporary:
        place = pathlib.Path(temporary)
        for blocks in sizes:
            truth[blocks] = run(model_folder(), place / str(blocks), blocks, options.kvpager, asked)
        made = place / str(options.blocks)
        files = {"engine": next(made.glob("vllm-*.kvprec")), "proxy": made / "proxy.kvprec"}
        print("source  blocks  vLLM's hits  predicted  difference of the input  by kvpager's rule")
        for source, path in files.items():
            for blocks in sizes:
                (got, own), counted = predict(options.kvpager, path, blocks), truth[blocks]
                print(f"{source:7} {blocks:6} {counted['hits']:12} {got:10} "
                      f"{100 * (got - counted['hits']) / counted['queries']:+9.3f} % {own:18}")
        for path in files.values():
            print(subprocess.run([options.kvpager, "events", "check", str(path)], capture_output=True,
                                 text=True).stdout)


if __name__ == "__main__":
    main()
