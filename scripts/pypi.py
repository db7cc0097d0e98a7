#!/usr/bin/env python3
"""Downloads one file of a package from the index that pip uses, unless it is there already.

    pypi.py PACKAGE FILE SHA256 FOLDER

For what pip itself does not do: a source archive that is only unpacked. Ends with 1 and a reason where
the file cannot be had, and where it is another one.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request

from pip._internal.models.index import PyPI


def indexes():
    """pip's own, and those that its settings name."""
    def setting(name):
        given = os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if given is None:
            asked = [sys.executable, "-m", "pip", "config", "get", "global." + name]
            given = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        return given.strip("'\n ").split()
    return (setting("index-url") or [PyPI.simple_url]) + setting("extra-index-url")


def links(package, name):
    """Where the indexes have a file of this name."""
    for index in indexes():
        page = f"{index.rstrip('/')}/{package}/"
        try:
            with urllib.request.urlopen(page, timeout=60) as answer:
                text = answer.read().decode()
        except OSError as error:
            print(f"{page}: {error}", file=sys.stderr)
            continue
        for link in re.findall(r'href="([^"#]+)', text):
            if link.split("/")[-1] == name:
                yield urllib.parse.urljoin(page, link)


def main():
    package, name, expected, folder = sys.argv[1:]
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        link = next(links(package, name), None)
        if link is None:
            sys.exit(f"{name} is on no index")
        print(f"kvpager: downloading {name}", file=sys.stderr)
        os.makedirs(folder, exist_ok=True)
        try:
            with urllib.request.urlopen(link, timeout=180) as answer, open(path + ".part", "wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            sys.exit(f"{name} cannot be downloaded: {error}")
        os.replace(path + ".part", path)
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        os.remove(path)
        sys.exit(f"{name} is another file: its SHA-256 is {found}")


main()
