"""Reading a report: the data inside the page, with nothing but the page's text."""

import json
import re

from lib_kvpager import check, check_equal, run


def make_page(path, *arguments):
    """Runs a command with --report; gives the page's data."""
    command, *rest = arguments
    done = run(command, "--report", path, *rest)
    check_equal(done.returncode, 0, arguments, done.stderr)
    return read_page(path)


def read_page(path):
    with open(path, "rb") as file:
        text = file.read().decode("utf-8")
    check(text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n"), path, "is cut")
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    check_equal(len(found), 1, path, "data elements")
    check(re.search(r'(src|href)="(?!data:)', text) is None, path, "names another file")
    check("<" not in found[0] and ">" not in found[0] and "&" not in found[0], path, "not escaped")
    return json.loads(found[0])
