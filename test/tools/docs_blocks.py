"""Code on the pages: every ```c block compiles, every ```python block is Python, the commands on the
pages name subcommands, options and make targets that exist, and so do the names of the library.

C blocks of a page are compiled in one of three ways. No marker is needed to choose:

  program   a block whose braces do not close is continued by the next C blocks, until they do
  file      a block with #include or a function definition is a file
  fragment  other blocks are statements in a function that has the names of SETUP

A comment directly before a block adds what it needs, or opts out and says why:

  <!-- setup: kvp_copier *mine; int n = 3; -->
  <!-- not compiled: the struct of another engine -->

python/tests/test_docs.py runs the pages that are Python programs, programs.sh those in C, and
scripts/rust.sh those in Rust.
"""

import glob
import os
import re
import shlex
import subprocess
import sys

from lib_blocks import blocks_of, commands_of, unquoted
from lib_kvpager import SOURCE, check, check_equal, directory, finish, run

BUILD = os.environ.get("KVP_BUILD", os.path.join(SOURCE, "build", "check"))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import headers  # noqa: E402

LANGUAGES = {"", "c", "python", "rust", "sh", "console", "text", "json", "cmake", "diff", "ini", "toml",
             "mermaid", "html", "yaml"}

# What a fragment may use without declaring it.
SETUP = """
static int fragment(kvp_cache *cache, kvp_config config, kvp_ns ns, kvp_ns model, kvp_prompt prompt,
                    kvp_seq seq, kvp_seq *seqs, uint32_t n_seqs, int32_t *tokens, uint32_t n_tokens,
                    int32_t next_token, kvp_open_info info, kvp_batch batch, kvp_copy *copies,
                    kvp_copier *copier, kvp_sched *sched, kvp_status status)
{
    {
"""
WARNINGS = ["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
LENIENT = ["-Wno-unused-parameter", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
           "-Wno-unused-function", "-Wno-unused-value"]


def setup_of(block):
    """What the marker declares; None if it opts out. Also: what is wrong with the marker."""
    kind, _, rest = block.marker.partition(":")
    if kind == "not compiled":
        return None, None if len(rest.split()) >= 3 else "opts out without a reason"
    if kind == "setup":
        return rest, None
    return "", None


# ------------------------------------------------------------------------------------------------ C


def depth(text):
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', "", text,
                  flags=re.DOTALL)
    return code.count("{") - code.count("}")


def preamble():
    headers = sorted(glob.glob(os.path.join(SOURCE, "include", "kvpager", "*.h"))
                     + glob.glob(os.path.join(SOURCE, "include", "kvpager", "store", "*.h")))
    names = [os.path.relpath(header, os.path.join(SOURCE, "include")) for header in headers]
    return "".join(f"#include <{name}>\n" for name in ["stdio.h", "stdlib.h", "string.h", *names])


def compiler():
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as cache:
        found = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache.read(), re.MULTILINE)
    return found[1] if found else "cc"


def compile_c(folder, text, lenient):
    path = os.path.join(folder, "block.c")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([compiler(), *WARNINGS, *(LENIENT if lenient else []), "-I",
                           os.path.join(SOURCE, "include"), path], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def whole(text):
    return "#include" in text or re.search(r"^\w[^;={}]*\)\n\{", text, re.MULTILINE)


def c_errors(folder, blocks):
    """(place, message) of each C block, or run of blocks, that does not compile."""
    program, first = "", None
    for block in blocks:
        setup, wrong = setup_of(block)
        if wrong:
            yield block.place, wrong
        if block.language != "c" or setup is None:
            continue
        program, first = program + block.text, first or block
        if depth(program) > 0:
            continue  # the next block goes on
        if "#include" in program:
            text, lenient = setup + program, False
        elif whole(program):
            text, lenient = preamble() + setup + "\n" + program, True
        else:
            text, lenient = f"{preamble()}{SETUP}{setup}\n{program}    }}\n    return 0;\n}}\n", True
        errors = compile_c(folder, text, lenient)
        if errors:
            yield first.place, errors
        program, first = "", None
    if program:
        yield first.place, "its braces do not close"


def python_errors(blocks):
    for block in blocks:
        if block.language == "python" and setup_of(block)[0] is not None:
            try:
                compile(block.text, block.place, "exec")
            except SyntaxError as error:
                yield block.place, str(error)


# ------------------------------------------------------------------------------------- the commands


HELP = {}


def help_of(words):
    """The help of a subcommand; "" if there is none."""
    key = tuple(words)
    if key not in HELP:
        done = run(*words, "--help")
        HELP[key] = done.stdout.decode() if done.returncode == 0 else ""
    return HELP[key]


def targets():
    with open(os.path.join(SOURCE, "Makefile"), encoding="utf-8") as makefile:
        names = re.search(r"^\.PHONY:((?:[^\\\n]|\\\n)*)", makefile.read(), re.MULTILINE)[1]
    return set(names.replace("\\\n", " ").split())


def command_error(command):
    """What a command names that does not exist, or None."""
    if "?" in unquoted(command) and re.match(r"(build/release/)?kvpager |vllm |redis-cli ", command):
        return "an unquoted ?, which zsh takes for a pattern"
    command = re.split(r"\||>|;|&&", command)[0]
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that a later line closes
        words = command.split()
    if not words:
        return None
    if words[0] == "make" and len(words) > 1 and re.fullmatch(r"[a-z][a-z-]+", words[1]):
        return None if words[1] in targets() else f"there is no target {words[1]}"
    if os.path.basename(words[0]) != "kvpager" or not re.match(r"-|[a-z]+$", "".join(words[1:2])):
        return None
    path = [word for word in words[1:2] if not word.startswith("-")]
    if path == ["trace"] and len(words) > 2:
        path.append(words[2])
    text = help_of(path)
    if not text:
        return f"there is no command kvpager {' '.join(path)}"
    for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", command):
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", text):
            return f"kvpager {' '.join(path)} has no option {option}"
    return None


# ---------------------------------------------------------------------------------------- the names

# Pages that speak of names which are gone.
OLD_NAMES = ["CHANGELOG.md"]


def build_names():
    """Switches, programs and variables of the environment: what the build and the tests name."""
    names = set()
    for pattern in ("CMakeLists.txt", "*/CMakeLists.txt", "cmake/*", "test/**/*.cmake",
                    "test/**/*.py", "test/**/*.sh", "python/**/*.py", "python/*.sh"):
        for path in glob.glob(os.path.join(SOURCE, pattern), recursive=True):
            if os.path.isfile(path) and os.path.basename(path) != os.path.basename(__file__):
                with open(path, encoding="utf-8") as file:
                    names |= set(re.findall(r"\b(?:kvp|KVP)_\w+", file.read()))
    return names


REFERENCE = headers.Reference(os.path.join(SOURCE, "include", "kvpager"))
BUILD_NAMES = build_names()


def name_errors(page, text):
    if page in OLD_NAMES:
        return
    for offset, message in headers.check_names(REFERENCE, text):
        if not re.search(r"no (?:name|status) (\w+)", message) \
                or re.search(r"\w+$", message)[0] not in BUILD_NAMES:
            yield f"{page}:{1 + text.count(chr(10), 0, offset)}", message


# ----------------------------------------------------------------------------------------- the test


def errors_of(folder, page, text):
    blocks = blocks_of(page, text)
    yield from ((block.place, f"a block of language {block.language!r}") for block in blocks
                if block.language not in LANGUAGES)
    yield from c_errors(folder, blocks)
    yield from python_errors(blocks)
    for line, command, _ in commands_of(text):
        error = command_error(command)
        if error:
            yield f"{page}:{line}", error
    yield from name_errors(page, text)


GOOD = """
```c
#include <stdio.h>
int main(void)
{
    int n = 3;
```
and then
```c
    printf("%d}\\n", n);
    return 0;
}
```
```c
kvp_stats stats;
if (kvp_cache_stats_get(cache, &stats))
    return 1;
```
```c
static int twice(int n)
{
    return 2 * n;
}
```
<!-- setup: int mine = 0; -->

```c
mine++;
```
<!-- not compiled: it is another engine's -->
```c
Whatever();
```
```python
async def f(): await g()
```
```console
$ kvpager replay --blocks 10 --store 'file:/a?size=1GiB' FILE
kvpager nonsense
```

    kvpager trace show --count 5 it.kvplog     can't be right: --never
    make test    and `make fuzz FUZZ_SECONDS=3`
    make         build everything
    cmake -DKVP_WERROR=ON of kvp_model, KVP_E_NO_BLOCKS, `kvp_config.n_blocks`, kvp_seq_close()
    add_subdirectory(
        kvpager EXCLUDE_FROM_ALL)
"""
# Each of these must be found: (page, part of the message).
BAD = [
    ("```c\nkvp_nonsense(cache);\n```\n", "kvp_nonsense"),
    ("```c\nmine++;\n```\n", "mine"),
    ("```c\nint f(void)\n{\n    return x;\n}\n```\n", "x"),
    ("```c\n#include <stdio.h>\nint main(void)\n{\n    int unused;\n}\n```\n", "unused"),
    ("```c\nif (n_seqs) {\n```\n", "braces"),
    ("<!-- setup: int mine = 0; -->\n```c\nmine++;\n```\n```c\nmine++;\n```\n", "mine"),
    ("<!-- not compiled: no -->\n```c\nWhatever();\n```\n", "without a reason"),
    ("```C\nx\n```\n", "language 'C'"),
    ("```python\nif True print(1)\n```\n", "invalid syntax"),
    ("```sh\nkvpager replay --blcks 10\n```\n", "no option --blcks"),
    ("```console\n$ kvpager replays\n```\n", "no command kvpager replays"),
    ("    kvpager trace shows it\n", "no command kvpager trace shows"),
    ("see `build/release/kvpager gen --requestz 3`\n", "no option --requestz"),
    ("    kvpager gen \\\n        --requestz 3\n", "no option --requestz"),
    ("use `make everything`\n", "no target everything"),
    ("`kvp_seq_opened` opens\n", "no name kvp_seq_opened"),
    ("    kvpager store scan file:/a?size=1GiB\n", "an unquoted ?"),
    ("is KVP_E_NOTHING\n", "no status KVP_E_NOTHING"),
    ("`kvp_config.n_blcks`\n", "no field n_blcks"),
    ("`kvp_seq_close(cache, seq)`\n", "takes 3 arguments, not 2"),
]


def main():
    pages = sorted(path for folder in ("", "docs", "python", "bench", "examples")
                   for path in glob.glob(os.path.join(SOURCE, folder, "*.md")))
    n_blocks = 0
    with directory() as folder:
        check_equal(list(errors_of(folder, "good", GOOD)), [])
        for text, message in BAD:
            found = list(errors_of(folder, "bad", text))
            check(any(message in error for _, error in found), "not found:", message, found)
        for path in pages:
            page = os.path.relpath(path, SOURCE)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            n_blocks += sum(block.language in ("c", "python") for block in blocks_of(page, text))
            for place, error in errors_of(folder, page, text):
                check(False, f"{place}: {error}")
    check(n_blocks >= 40, "only", n_blocks, "blocks were found")
    finish()


main()
