#!/usr/bin/env python3
"""Which features go together: checks test/combinations.txt, and makes docs/COMBINATIONS.md of it.

    combinations.py [ROOT]           check the list and the page (default: the tree of this script)
    combinations.py --write          write the page
    combinations.py --drawn PROGRAM  does kvp_model draw each pair that the list says it tests?
    combinations.py --self-test      show that each rule fires on a planted violation

Prints a line for each finding; exit status 1 if there is any. The list says how its lines look.
"""

import glob
import itertools
import os
import re
import subprocess
import sys
import tempfile

LIST, PAGE = "test/combinations.txt", "docs/COMBINATIONS.md"
# Pairs without an answer. The number falls; it never rises.
MAX_OPEN = 0
# Configurations of kvp_model that must have a pair for its runs to be a test of it.
LEAST_DRAWN = 5
CONFIG_CHECK = "kvp_config_check"
LINE = re.compile(r"(feature|test|tested|refused|nature|open) (.*)")

HEAD = """# Which features go together

Each pair of features has one answer. A number is a test that uses both and judges the result, R is
refused, and N is "by nature": nothing can happen. `scripts/combinations.py` makes this page from
`test/combinations.txt`. `test_combinations` calls `kvp_config_check` with each pair that can be
configured: exactly the pairs marked R are refused, with the text below.
"""


class Table:
    """The list: features in order, tests by number, and the answer of each pair."""

    def __init__(self, text):
        self.features, self.tests, self.cells, self.more, self.wrong = {}, {}, {}, [], []
        for number, line in enumerate(text.splitlines(), 1):
            match = LINE.fullmatch(line)
            if match:
                self.add(number, match[1], match[2])
            elif line and not line.startswith("#"):
                self.wrong.append(f"{LIST}:{number}: not a line of the list")
        for pair in itertools.combinations(self.features, 2):
            if pair not in self.cells:
                self.wrong.append(f"{LIST}: no answer for {pair[0]} and {pair[1]}")

    def add(self, number, kind, rest):
        if kind == "feature":
            name, words = rest.split(": ", 1)
            self.features[name] = words
        elif kind == "test":
            label, name = rest.split(" ", 1)
            self.tests[label] = name
        else:
            before, _, text = rest.partition(": ")
            words = before.split()
            names = tuple(itertools.takewhile(self.features.__contains__, words))
            self.answer(number, kind, names, words[len(names):], text)

    def answer(self, number, kind, names, words, text):
        place = f"{LIST}:{number}"
        order = list(self.features)
        if len(names) < 2 or list(names) != sorted(set(names), key=order.index):
            self.wrong.append(f"{place}: not two features in the order of the list")
        elif names in self.cells:
            self.wrong.append(f"{place}: a second answer for {' and '.join(names)}")
        elif kind == "tested" and (len(words) != 1 or words[0] not in self.tests):
            self.wrong.append(f"{place}: not one test of the list")
        elif kind != "tested" and not text:
            self.wrong.append(f"{place}: no reason")
        elif len(names) == 2:
            self.cells[names] = (kind, words, text)
        else:
            self.more.append((names, (kind, words, text)))

    def refusals(self):
        """(features, status, where, text) of each."""
        for names, (kind, words, text) in [*self.cells.items(), *self.more]:
            if kind == "refused":
                if words[1:] == [CONFIG_CHECK]:
                    yield names, words[0], CONFIG_CHECK, text
                else:  # FILE: FUNCTION: text
                    function, _, text = text.partition(": ")
                    yield names, words[0], f"{words[-1]}: {function}", text


# --------------------------------------------------------------------------------- is it all true


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def ctest_names(root):
    """A pattern for the names of all tests: those that CMake files add, and unit_X of test_X.c."""
    names = {"unit_" + os.path.basename(path)[5:-2]
             for path in glob.glob(os.path.join(root, "test/unit/test_*.c"))}
    for path in glob.glob(os.path.join(root, "test/*/tests.cmake")):
        names.update(re.findall(r"kvp_add_test\(NAME (\S+)", read("", path)))
    return re.compile("|".join(re.sub(r"\\\$\\\{\w+\\\}", r"\\w+", re.escape(n)) for n in names))


def missing_test(root, names, test):
    path, _, function = test.partition(": ")
    if not function:
        return None if names.fullmatch(test) else f"ctest has no {test}"
    if not os.path.isfile(os.path.join(root, path)):
        return f"there is no {path}"
    found = re.search(rf"^TEST(_WITH)?\({re.escape(function)}\b", read(root, path), re.M)
    return None if found else f"{path} does not run {function}"


def sentences(root):
    """All of src and include, without line breaks in strings and comments."""
    texts = [read("", path) for top in ("src", "include")
             for path in glob.glob(os.path.join(root, top, "**/*.[ch]"), recursive=True)]
    text = re.sub(r'"\n\s+"', "", "\n".join(texts).replace("\n *", "\n"))
    return " ".join(text.split())


def missing_text(text, said):
    """The field or the sentence that nothing in src or include says; numbers are of the example."""
    field, _, rest = text.partition(" is ")
    field = field if rest else text.partition(": ")[0]
    sentence = text.rpartition(": ")[2]
    if re.fullmatch(r"[a-z_]+", field) and f'"{field}"' not in said:
        return field
    is_range = re.fullmatch(r"\w+ is \d+, expected .*", sentence)
    return None if is_range or sentence in said else sentence


def findings(root):
    table = Table(read(root, LIST))
    found = list(table.wrong)
    names = ctest_names(root)
    used = {words[0] for kind, words, _ in table.cells.values() if kind == "tested"}
    found += [f"{LIST}: test {label} is of no pair" for label in table.tests if label not in used]
    tests = list(table.tests.values())
    said = sentences(root)
    for features, status, where, text in table.refusals():
        lost = missing_text(text, said)
        if lost:
            found.append(f"{LIST}: {' and '.join(features)}: nothing in src says '{lost}'")
        if f"X({status[4:]}, " not in said:
            found.append(f"{LIST}: {' and '.join(features)}: there is no {status}")
        tests += [where] if where != CONFIG_CHECK else []
    found += [f"{LIST}: {lost}" for test in tests if (lost := missing_test(root, names, test))]
    n_open = sum(kind == "open" for kind, _, _ in table.cells.values())
    if n_open > MAX_OPEN:
        found.append(f"{LIST}: {n_open} pairs are open, at most {MAX_OPEN} may be")
    if not found and (not os.path.isfile(os.path.join(root, PAGE)) or
                      read(root, PAGE) != page(table)):
        found.append(f"{PAGE}: not what the list gives; run scripts/combinations.py --write")
    return found


# -------------------------------------------------------------------------------------- the page


def cell(table, a, b):
    kind, words, _ = table.cells.get((a, b)) or table.cells.get((b, a)) or ("", [""], "")
    return words[0] if kind == "tested" else {"": "-"}.get(kind, kind[:1].upper())


def pairs_in_words(pairs):
    """{A with B, C}: the pairs of one answer, by the feature that most of them have."""
    pairs, parts = list(pairs), []
    while pairs:
        most = max((name for pair in pairs for name in pair),
                   key=lambda name: sum(name in pair for pair in pairs))
        parts.append(f"{most} with " + ", ".join(
            " and ".join(n for n in pair if n != most) for pair in pairs if most in pair))
        pairs = [pair for pair in pairs if most not in pair]
    return "; ".join(parts)


def grouped(items):
    """- `text`: the pairs with it, in the order of the list."""
    by_text = {}
    for names, text in items:
        by_text.setdefault(text, []).append(names)
    return "".join(f"- {pairs_in_words(pairs)}: {text}\n" for text, pairs in by_text.items())


def page(table):
    letters = dict(zip(table.features, "abcdefghijklmnopqrstuvwxyz"))
    text = HEAD + "\n|feature|what||" + "|".join(letters.values()) + "|\n"
    text += "|---|---" + "|-" * (len(letters) + 1) + "|\n"
    for a, words in table.features.items():
        cells = "|".join(cell(table, a, b) for b in table.features)
        text += f"|{a}|{words}|{letters[a]}|{cells}|\n"
    text += "\n## Tests\n\nNames are of ctest, or a file and a function in it.\n\n"
    text += "".join(f"{number}. `{name}`\n" for number, name in table.tests.items())
    text += "\n## Refused\n\n`kvp_config_check` and `kvp_cache_create` return `KVP_E_ARG`; "
    text += "`kvp_why` has the text.\n\n"
    text += grouped((names, f"`{said}`") for names, _, where, said in table.refusals()
                    if where == CONFIG_CHECK)
    others = [(names, f"`{status}`: {said} (`{where}`)")
              for names, status, where, said in table.refusals() if where != CONFIG_CHECK]
    text += ("\nOther calls:\n\n" + grouped(others)) if others else ""
    for kind, title in (("nature", "By nature"), ("open", "Open")):
        answers = [(names, said) for names, (of, _, said) in table.cells.items() if of == kind]
        text += f"\n## {title}\n\n" + grouped(answers) if answers else ""
    return text


# ------------------------------------------------------------------------------- what is drawn


def features_of(line):
    """The features of a configuration, as kvp_model --verbose prints it."""
    number = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)\b", line)}
    windows = re.findall(r"\{(\d+),(\d+),(\d+)\}", line)
    chunks = [w for w in windows if w[0] == str(2 ** 32 - 1)]
    states = number["states"] > 0
    return {name for name, has in {
        "groups": len(windows) > 1, "chunks": chunks, "states": states, "rings": states,
        "windows": any(w[1] != "0" and w not in chunks for w in windows),
        "trees": number["tree"] > 0, "host": number["host"] > 0, "once": " keep once" in line,
        "keep": re.search(r"copies \d+ keep ", line), "steps": "steps overlapped" in line,
        "quotas": " quotas" in line, "policy": " learned" in line,
        "units": 0 < number["unit"] < number["block"], "log": number["configuration"] % 2 == 1,
        "stores": number["loads"] > 0, "events": number["events"] > 0,
        "sizes": any(w[2] not in ("0", str(number["block"])) for w in windows),
        "retained": number["retain"] > 0 and any(w[1] != "0" for w in windows)}.items() if has}


def drawn(root, program):
    """Pairs of kvp_model's first run that fewer than LEAST_DRAWN of its configurations have."""
    cmake = read(root, "test/model/tests.cmake")
    seed = re.search(r"foreach\(seed (\d+)", cmake)[1]
    n_configs = int(re.search(r"set\(ops (\d+)", cmake)[1]) // 2000 + 1
    text = subprocess.run([program, "--seed", seed, "--ops", "1", "--configs", str(n_configs),
                           "--verbose", "--no-coverage"], check=True, stdout=subprocess.PIPE,
                          encoding="utf-8").stdout
    configs = [features_of(line) for line in text.splitlines() if line.startswith("configuration ")]
    table = Table(read(root, LIST))
    found = [] if len(configs) == n_configs else [f"{program} prints {len(configs)} configurations"]
    for pair, (kind, words, _) in table.cells.items():
        n = sum(set(pair) <= config for config in configs)
        if kind == "tested" and table.tests[words[0]] == "model_random_1" and n < LEAST_DRAWN:
            found.append(f"{pair[0]} and {pair[1]}: in {n} of {n_configs} configurations of seed "
                         f"{seed}, fewer than {LEAST_DRAWN}")
    return found


# ------------------------------------------------------------------------------------- self-test

GOOD = """feature a: first
feature b: second
feature c: third
test 1 unit_x
test 2 test/unit/test_x.c: test_both
tested a b 1
refused a c KVP_E_ARG kvp_config_check: field: not with c
nature b c: they never meet
tested a b c 2
"""


def plant(root, text):
    files = {LIST: text, "src/x.c": 'X(E_ARG, 1) why("field", "not "\n    "with c");',
             "test/unit/test_x.c": "TEST(test_both)", PAGE: page(Table(text))}
    for path, content in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(content)


def self_test():
    good = GOOD.replace("tested a b c 2\n", "").replace("tested a b 1", "tested a b 2")
    good = good.replace("test 1 unit_x\n", "")
    planted = [
        (good, None), (good.replace("nature b c: they never meet\n", ""), "no answer for b and c"),
        (good + "tested a b 2\n", "a second answer"), (good + "nature b a: x\n", "in the order"),
        (good.replace("test_both", "test_one"), "does not run test_one"),
        (good.replace("test_x.c:", "test_y.c:"), "there is no test/unit/test_y.c"),
        (good + "test 3 unit_x\n", "test 3 is of no pair"),
        (GOOD.replace("tested a b c 2\n", "").replace("unit_x", "unit_y"), "ctest has no unit_y"),
        (good.replace("tested a b 2", "tested a b 9"), "not one test"),
        (good.replace("KVP_E_ARG", "KVP_E_ARC"), "there is no KVP_E_ARC"),
        (good.replace("not with c", "not with d"), "nothing in src says 'not with d'"),
        (good.replace(": field:", ": other:"), "nothing in src says 'other'"),
        (good.replace("nature b c: they never meet", "open b c: unknown"), "pairs are open"),
        (good.replace("nature b c: they never meet", "nature b c"), "no reason"),
        (good + "what is this\n", "not a line"),
    ]
    wrong = []
    for text, expected in planted:
        with tempfile.TemporaryDirectory() as root:
            plant(root, text)
            found = findings(root)
        if bool(found) != bool(expected) or not any((expected or "") in f for f in found or [""]):
            wrong.append(f"expected {expected}, found {found}")
    with tempfile.TemporaryDirectory() as root:
        plant(root, good)
        with open(os.path.join(root, PAGE), "a", encoding="utf-8") as file:
            file.write("more\n")
        if "not what the list gives" not in " ".join(findings(root)):
            wrong.append("a page that is another is not found")
    line = ("configuration 3: block 4 unit 2 host 5 keep once steps overlapped 2 events 0 tree 0 "
            "loads 0 of 0 states 8 retain 4 groups {0,0,0} {4294967295,6,0}")
    if features_of(line) != set("groups chunks states rings host once steps units log "
                                "retained".split()):
        wrong.append(f"features of a configuration: {sorted(features_of(line))}")
    for text in wrong:
        print(f"combinations.py --self-test: {text}", file=sys.stderr)
    return 1 if wrong else 0


def main(arguments):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if arguments == ["--self-test"]:
        return self_test()
    if arguments == ["--write"]:
        with open(os.path.join(root, PAGE), "w", encoding="utf-8") as file:
            file.write(page(Table(read(root, LIST))))
        return 0
    if arguments[:1] == ["--drawn"]:
        found = drawn(root, arguments[1])
    else:
        found = findings(arguments[0] if arguments else root)
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
