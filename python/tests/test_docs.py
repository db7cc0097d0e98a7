"""docs/PYTHON.md, and the Python of docs/EMBEDDING.md, are programs: run, and their output compared
with what is printed there."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re

import pytest


@pytest.mark.parametrize(("name", "n_blocks"), [("PYTHON.md", 16), ("EMBEDDING.md", 16)])
def test_the_page_runs(name: str, n_blocks: int) -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / name
    if not page.exists():
        pytest.skip(f"not in the repository: no docs/{name}")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", page.read_text(),
                        re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    printed, n_seen = io.StringIO(), 0
    for i, (kind, text) in enumerate(blocks):
        # Output that follows no Python is that of the C program.
        if kind == "text" and (i == 0 or blocks[i - 1][0] == "text"):
            continue
        n_seen += 1
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), names)
        else:
            assert printed.getvalue() == text
    assert n_seen >= n_blocks


@pytest.mark.parametrize("name", ["README.md", "python/README.md"])
def test_the_first_example_runs(name: str) -> None:
    page = pathlib.Path(__file__).parents[2] / name
    if not page.exists():
        pytest.skip(f"not in the repository: no {name}")
    (example,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    shown = re.findall(r"^    (\d+ of 100 prompt tokens are cached)$", page.read_text(), re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, name, "exec"), {})
    assert printed.getvalue().splitlines() == shown and len(shown) == 2
