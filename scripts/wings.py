"""The wings of the library, for lint.py and exports.py: which folder of src and which public header is
of which. cmake/rooms.cmake lists them; base is compiled into each, and so is of none.
"""

import os
import re

# In the order of need: each uses what the public headers of those before it say.
LIBRARIES = {"core": "libkvpager", "data": "libkvpager_data", "store": "libkvpager_store",
             "zmq": "libkvpager_zmq"}
PLACE = os.path.join("cmake", "rooms.cmake")
COMMON = ("base", "tool")  # of no wing: compiled into each, and linked with all


class Wings:
    """Who has what: {folder: wing}, {header: wing}, {switch: its headers}."""

    def __init__(self, root):
        try:
            with open(os.path.join(root, PLACE), encoding="utf-8") as file:
                text = re.sub(r"#.*", "", file.read())
        except FileNotFoundError:
            text = ""
        lists = {name: words.split() for name, words in re.findall(r"^set\((\w+) ([^)]*)\)", text, re.MULTILINE)}
        self.folders = {folder: wing for wing in LIBRARIES for folder in lists.get("folders_" + wing, [])}
        self.headers = {header: wing for wing in LIBRARIES for header in lists.get("headers_" + wing, [])}
        self.switches = {}
        for name, (wing, *_) in ((name[5:], words) for name, words in lists.items() if name.startswith("wing_")):
            self.switches[name] = lists.get("headers_" + name, [])
            self.headers.update((header, wing) for header in self.switches[name])

    def of(self, path):
        """The wing of a source or a public header, or None."""
        parts = path.split("/")
        if parts[0] == "src" and len(parts) > 2:
            return self.folders.get(parts[1])
        return self.headers.get(parts[2]) if parts[:2] == ["include", "kvpager"] else None

    def problem(self, path, included):
        """What is wrong with a file of ours that this file includes, or None."""
        mine, other = self.of(path), self.of(included)
        if mine is None or other is None or mine == other:
            return None
        if not included.startswith("include/"):
            return (f"must not include {included}: {LIBRARIES[mine]} and {LIBRARIES[other]} know each other by "
                    "public headers")
        order = list(LIBRARIES)
        if order.index(mine) < order.index(other):
            return f"must not include {included}: {LIBRARIES[mine]} needs no {LIBRARIES[other]}"
        return None

    def check(self, paths):
        """(path, line, message) of each source and public header that is of no wing."""
        for folder in sorted({path.split("/")[1] for path in paths if re.match("src/[^/]+/", path)}):
            if folder not in self.folders and folder not in COMMON:
                yield "src/" + folder, 1, f"is of no wing: {PLACE}"
        for path in paths:
            if re.match(r"include/kvpager/[^/]+\.h$", path) and self.of(path) is None:
                yield path, 1, f"is of no wing: {PLACE}"
