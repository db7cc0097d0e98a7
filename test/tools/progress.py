"""The line on the terminal that says how far things are: shown by each command that may take long, and
wiped in the end; nothing of it where stderr is no terminal. No clock: KVPAGER_PROGRESS_NS is 0."""

import os
import subprocess
import sys

from lib_kvpager import KVPAGER, check, directory, finish, mooncake, run, skip

if not hasattr(os, "openpty"):
    skip("no terminals")


def on_terminal(*words):
    """What a terminal shows as stderr, and whether the command did its work."""
    master, slave = os.openpty()
    environment = dict(os.environ, KVPAGER_PROGRESS_NS="0")
    with subprocess.Popen([KVPAGER, *words], stdout=subprocess.DEVNULL, stderr=slave,
                          env=environment) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(master)
    check(process.returncode == 0, words, process.returncode, shown[-200:])
    return shown


def main():
    with directory() as folder:
        trace = os.path.join(folder, "trace")
        with open(trace, "w", encoding="utf-8") as file:
            file.writelines(mooncake(i, 600, 1, [i % 2, 9]) for i in range(4))
        log = os.path.join(folder, "log")
        sequential = ["replay", "--sequential", "--blocks", "400", "--record", log, trace]
        for words, lines in [
                (["gen", "--requests", "4", "-o", log], [b"writing requests: "]),
                (sequential, [b"replaying requests: 4 of 4"]),
                (["replay", trace], [b"replaying requests: 4 of 4 (100 %)"]),
                (["mrc", "--policy", "fifo,learned", "--host-sizes", "99", trace],
                 [b"hashing requests: 4", b"stack distances of requests: 4", b"tiers at sizes: ",
                  b"learned policy at sizes: ", b"other policies at sizes: "]),
                (["trace", "replay", log], [b"replaying, bytes: "])]:
            shown = on_terminal(*words)
            for line in lines:
                check(line in shown, words, line, "is not in", shown[:2000])
            check(shown.endswith(b"\r\x1b[K"), words, "is not wiped", shown[-80:])
            check(run(*words, env={"KVPAGER_PROGRESS_NS": "0"}).stderr == b"", words, "no terminal")
    finish()


if sys.platform != "win32":
    main()
