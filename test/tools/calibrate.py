"""`python -m kvpager.calibrate` with engines that are made up: its rules are the replay's on random
workloads, and an engine that hits anything else fails. A real vLLM: make calibrate."""

import contextlib
import importlib.util
import io
import os
import random

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, finish


def load():
    path = os.path.join(SOURCE, "python", "kvpager", "calibrate.py")
    spec = importlib.util.spec_from_file_location("calibrate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def engine(calibrate, twice, wrong=None, again=None):
    """One by the rules; of request `wrong` it says a block less or more."""
    def run(_model, blocks, requests, seed):
        pool, n = calibrate.Pool(blocks - 1, twice if again is None else again, twice), 0

        def ask(prompt, n_tokens):
            nonlocal n
            draw = random.Random(repr(prompt))  # the same prompt gets the same answer
            answer = [draw.randrange(100, 40000) for _ in range(n_tokens)]
            cached = pool.serve(prompt, answer[:-1])
            n += 1
            return answer, cached + (calibrate.BLOCK if n - 1 == wrong else 0)
        return list(calibrate.workload(requests, seed, ask))
    return run


def told(calibrate, run, *words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = calibrate.main(["--model", "none", "--kvpager", KVPAGER, "--requests", "120", *words],
                                run)
    return status, out.getvalue()


def main():
    calibrate = load()
    for seed in ("1", "2", "3"):
        status, text = told(calibrate, engine(calibrate, True), "--seed", seed)
        check_equal((status, text.splitlines()[-1]), (0, "PASS"), text)
        check("; 0 unexplained" in text and " 0 differ by rule 2; 0 unexpl" not in text[:200], text)
    status, text = told(calibrate, engine(calibrate, False), "--blocks", "20")
    check_equal((status, text.splitlines()[-1]), (1, "FAIL"), text)
    status, text = told(calibrate, engine(calibrate, True, 70), "--blocks", "40")
    check_equal((status, text.splitlines()[-1]), (1, "FAIL"), text)
    check("1 unexplained\n  request 70: vLLM hits " in text, text)
    for wrong in (None, 70):  # kvpager-serve: integrations/llama/serve/calibrate.py
        served = engine(calibrate, False, wrong, True)("none", 41, 120, 1)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            passed = calibrate.compare(KVPAGER, 40, served, "kvpager-serve", False)
        check_equal(passed, wrong is None, out.getvalue())
        check("hits: kvpager-serve " in out.getvalue(), out.getvalue())
    status, text = told(calibrate, engine(calibrate, True), "--blocks", "4000")
    check_equal((status, text.splitlines()[-1]), (1, "FAIL"), text)
    check("the pool was never full" in text, text)
    finish()


if __name__ == "__main__":
    main()
