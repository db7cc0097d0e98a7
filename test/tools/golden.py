"""Sessions with the command whose whole output is known: test/golden/command/*.txt, byte for byte.

    golden.py [NAME...]             run these sessions, or all of them
    golden.py --update [NAME...]    write what comes out; read the difference before you commit it

A line that begins with `$ ` is a command of bash, `> ` goes on with it. What it prints follows: its
output, its errors, and `[STATUS]` unless that is 0. Lines of JSON are joined. Commands of a session
run in the same empty folder. `timeless` takes out what is measured, and PYTHONPATH is test/tools.
"""

import difflib
import glob
import os
import re
import subprocess
import sys

from lib_kvpager import KVPAGER, SOURCE, check, directory, finish

BUILD = os.environ.get("KVP_BUILD", os.path.join(SOURCE, "build", "check"))
FOLDER = os.path.join(SOURCE, "test", "golden", "command")
WIDTH = 1000
TOOLS = os.path.dirname(os.path.abspath(__file__))
TIMELESS = r"""#!/bin/sh
exec sed -E 's/^(  (replay|open|extend|close)) +[0-9.]+ [num]?s( +[0-9,]+)?/\1 TIME/
s/("(wall_seconds|tokens_per_second|ns_per_[a-z]+|p50_ns|p90_ns|p99_ns)": )[0-9.]+/\1TIME/g
s/^(  [gp][eu]ts +[0-9]+  p50).*/\1 TIME/'
"""


def rows(text):
    """JSON has as many members in a line as fit."""
    if not text.startswith("{\n"):
        return text
    out = ""
    for piece in re.split(r"\n\s*", text.strip()):
        ends = len(out) - out.rfind("\n") + len(piece) > WIDTH
        out += ("\n" if ends else " ") + piece if out else piece
    return out + "\n"


def commands_of(text):
    """What is typed: the lines of each command as they are, and the command."""
    for typed in re.findall(r"^\$ .*\n(?:> .*\n|>\n)*", text, re.MULTILINE):
        yield typed, re.sub(r"^(\$ |> ?)", "", typed, flags=re.MULTILINE)


def played(text, folder):
    """The session as it is now, with the notes (`# `) before its commands."""
    os.makedirs(os.path.join(folder, "bin"))
    os.symlink(os.path.abspath(KVPAGER), os.path.join(folder, "bin", "kvpager"))
    with open(os.path.join(folder, "bin", "timeless"), "w", encoding="utf-8") as file:
        file.write(TIMELESS)
        os.fchmod(file.fileno(), 0o700)
    home = os.path.join(folder, "home")
    os.mkdir(home)
    environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", PYTHONPATH=TOOLS,
                       PYTHONDONTWRITEBYTECODE="1", LC_ALL="C", TZ="UTC",
                       KVP_SOURCE=os.path.abspath(SOURCE), KVP_BUILD=os.path.abspath(BUILD))
    notes = {typed: note for note, typed in re.findall(r"((?:^# .*\n)+)(\$ .*\n)", text, re.MULTILINE)}
    out = ""
    for typed, command in commands_of(text):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=home, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        status = f"[{done.returncode}]\n" if done.returncode else ""
        out += notes.get(typed.split("\n")[0] + "\n", "") + typed
        out += rows(done.stdout.decode()) + done.stderr.decode() + status
    return out


def main():
    is_update = sys.argv[1:2] == ["--update"]
    names = sys.argv[1 + is_update:]
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.txt"))):
        name = os.path.basename(path)[:-4]
        if names and name not in names:
            continue
        with open(path, encoding="utf-8") as file:
            expected = file.read()
        with directory() as folder:
            got = played(expected, folder)
        if is_update:
            with open(path, "w", encoding="utf-8") as file:
                file.write(got)
        elif not check(got == expected, name, "is not what comes out"):
            figures = [text.replace(", ", ",\n").splitlines(True) for text in (expected, got)]
            sys.stdout.writelines(difflib.unified_diff(*figures, path, "now"))
    finish()


main()
