"""Sessions with the command whose whole output is known: test/golden/command/*.txt.

    golden.py [NAME...]             run these sessions, or all of them
    golden.py --update [NAME...]    write what comes out; read the difference before you commit it

A line that begins with `$ ` is a command of bash, `> ` goes on with it. What it prints follows: its
output, its errors, and `[STATUS]` unless that is 0, byte for byte but for JSON: lines that are
indented deeper than a member or row are joined. Commands of a session run in the same empty folder.
`timeless` takes out what is measured, and PYTHONPATH is test/tools. Lines that begin with `#: `
before a command are notes; `#: needs: COMMAND` in the first line leaves the session out where that
command fails.
"""

import difflib
import glob
import os
import re
import shutil
import subprocess
import sys

from lib_kvpager import KVPAGER, SOURCE, check, directory, finish

BUILD = os.environ.get("KVP_BUILD", os.path.join(SOURCE, "build", "check"))
FOLDER = os.path.join(SOURCE, "test", "golden", "command")
TOOLS = os.path.dirname(os.path.abspath(__file__))
TIMELESS = r"""#!/bin/sh
exec sed -E 's/^(  (replay|open|extend|close)) +[0-9.]+ [num]?s( +[0-9,]+)?/\1 TIME/
s/("(wall_seconds|tokens_per_second|ns_per_[a-z]+|p50_ns|p90_ns|p99_ns)": )[0-9.e+-]+/\1TIME/g
s/^(  [gp][eu]ts +[0-9]+  p50).*/\1 TIME/'
"""


def rows(text):
    return re.sub(r"\n(?: {4,}(?!\{\n)|  (?=[]}]))", " ", text) if text.startswith("{\n") else text


def commands_of(text):
    """The notes and lines of each command as they are, and the command."""
    for notes, typed in re.findall(r"((?:^#: .*\n)*)(^\$ .*\n(?:> .*\n|>\n)*)", text, re.MULTILINE):
        yield notes + typed, re.sub(r"^(\$ |> ?)", "", typed, flags=re.MULTILINE)


def played(text, folder):
    """The session as it is now; None: it needs what is not there."""
    os.makedirs(os.path.join(folder, "bin"))
    os.symlink(os.path.abspath(shutil.which(KVPAGER) or KVPAGER), os.path.join(folder, "bin", "kvpager"))
    with open(os.path.join(folder, "bin", "timeless"), "w", encoding="utf-8") as file:
        file.write(TIMELESS)
        os.fchmod(file.fileno(), 0o700)
    home = os.path.join(folder, "home")
    os.mkdir(home)
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("BASH_ENV", "POSIXLY_CORRECT")}
    environment.update(PATH=f"{folder}/bin:{os.environ['PATH']}", PYTHONPATH=TOOLS,
                       PYTHONDONTWRITEBYTECODE="1", LC_ALL="C", TZ="UTC",
                       KVP_SOURCE=os.path.abspath(SOURCE), KVP_BUILD=os.path.abspath(BUILD))

    def run(command):
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=home, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
    needs = re.match(r"#: needs: (.*)\n", text)
    if needs and run(needs.group(1)).returncode:
        return None
    out = ""
    for typed, command in commands_of(text):
        done = run(command)
        status = f"[{done.returncode}]\n" if done.returncode else ""
        out += typed + rows(done.stdout.decode()) + done.stderr.decode() + status
    return out


def main():
    is_update = sys.argv[1:2] == ["--update"]
    found = {os.path.basename(path)[:-4]: path for path in glob.glob(os.path.join(FOLDER, "*.txt"))}
    names = sys.argv[1 + is_update:] or sorted(found)
    check(names and found.keys() >= set(names), FOLDER, "has", *sorted(found))
    for name, path in ((name, found[name]) for name in names if name in found):
        with open(path, encoding="utf-8") as file:
            expected = file.read()
        with directory() as folder:
            got = played(expected, folder)
        if got is None:
            print(f"{name} is left out: it needs {expected.splitlines()[0][10:]}")
        elif is_update:
            with open(path, "w", encoding="utf-8") as file:
                file.write(got)
        elif not check(got == expected, name, "is not what comes out"):
            figures = [text.replace(", ", ",\n").splitlines(True) for text in (expected, got)]
            sys.stdout.writelines(difflib.unified_diff(*figures, path, "now"))
    finish()


main()
