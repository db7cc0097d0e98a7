"""The Python of each page of docs/ is one program: run, and its output compared with what is printed
there."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import pytest


DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if "\n```python\n" in page.read_text())


def test_the_pages_are_there() -> None:
    if not DOCS.exists():
        pytest.skip("not in the repository: no docs")
    assert {"KERNELS.md", "PYTHON.md"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / name
    if "kvpager import store" in page.read_text():
        pytest.importorskip("kvpager.store", exc_type=ImportError)
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
    assert n_seen >= 2


@pytest.mark.parametrize("name", ["README.md", "python/README.md"])
def test_the_first_example_runs(name: str) -> None:
    page = pathlib.Path(__file__).parents[2] / name
    if not page.exists():
        pytest.skip(f"not in the repository: no {name}")
    example = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)[0]
    shown = re.findall(r"^    (\d+ of 100 prompt tokens are cached)$", page.read_text(), re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, name, "exec"), {})
    assert printed.getvalue().splitlines() == shown and len(shown) == 2


def test_the_example_of_stores_runs() -> None:
    pytest.importorskip("kvpager.store", exc_type=ImportError)
    page = pathlib.Path(__file__).parents[1] / "README.md"
    first, second = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    shown = re.findall(r"^    (\d of 2 records were there)$", page.read_text(), re.MULTILINE)
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(first, str(page), "exec"), names)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(second, str(page), "exec"), names)
    assert printed.getvalue().splitlines() == shown and len(shown) == 2


def test_the_packages_of_the_readme_are_enough_for_stores() -> None:
    """KvpagerConnector needs libcrypto; without its headers the package is built without stores."""
    page = pathlib.Path(__file__).parents[2] / "README.md"
    if not page.exists():
        pytest.skip("not in the repository: no README.md")
    row, = re.findall(r"^\| Python 3.*$", page.read_text(), re.MULTILINE)
    assert {"build-essential", "pkg-config", "libxxhash-dev", "libssl-dev"} <= set(row.split())
