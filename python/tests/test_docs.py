"""docs/PYTHON.md is one program: run, and its output compared with what is printed there."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re

import pytest


def test_the_page_runs() -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "PYTHON.md"
    if not page.exists():
        pytest.skip("not in the repository: no docs/PYTHON.md")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", page.read_text(),
                        re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 10
    names: dict[str, object] = {}
    printed = io.StringIO()
    for kind, text in blocks:
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), names)
        else:
            assert printed.getvalue() == text
