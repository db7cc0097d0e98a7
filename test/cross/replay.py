#!/usr/bin/env python3
"""The same calls give the same operation log here and on aarch64, under qemu, and each machine replays
the other's. Both have the one-file build, with checks at level 1.

    replay.py FOLDER     work in this folder, which is made anew

Status 77 where there is no compiler for aarch64, or no qemu.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from ports import Failed, Skipped, Work, aarch64_programs, one_file  # noqa: E402


def main():
    folder = os.path.abspath(sys.argv[1])
    work = Work(os.path.basename(folder), os.path.dirname(folder))
    try:
        compiler, runner = aarch64_programs()
        one_file(work, "aarch64", compiler, runner, examples=[])
    except Skipped as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    except Failed as reason:
        with open(work.log) as log:
            print(log.read()[-4000:])
        sys.exit(f"cross: {reason}")
    print(work.note)


main()
