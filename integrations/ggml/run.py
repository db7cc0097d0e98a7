#!/usr/bin/env python3
"""Run a program of C inside a process that has llama.cpp, as a Python module carries it.

    run.py LIBRARY PROGRAM.so ARGUMENTS...

The module needs the interpreter's own symbols, so it cannot be linked to a program.
"""

import ctypes
import sys


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    ctypes.CDLL(arguments[0], ctypes.RTLD_GLOBAL)
    program = ctypes.CDLL(arguments[1])
    words = [word.encode() for word in arguments[1:]]
    return program.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
