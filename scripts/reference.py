#!/usr/bin/env python3
"""Render the public headers as pages: build/reference/index.html.

    reference.py [OUT]        write the pages to OUT (default: build/reference)
    reference.py --self-test  show that each check fires on a planted mistake

Every call is listed with its comment, again by status (from its Returns paragraph), and again by
struct (from its parameters). The pages need no JavaScript and nothing from the network.

The headers are checked first. If one is wrong, nothing is written. A call needs a comment; a call
that returns a status needs a Returns paragraph. Each status, type, call, constant and field that a
comment names must exist. A call in an example must have the right number of arguments. Exit status 1,
and `file:line: message` for each finding.
"""

import collections
import html
import html.parser
import os
import re
import sys
import tempfile

from headers import Reference, check, split_form, text_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Statuses that comments do not repeat, because a rule at the top of a header gives them to all calls.
RULES = {"KVP_E_ARG": "Every call that returns a status can return it.",
         "KVP_E_HANDLE": "Every call that takes a handle can return it.",
         "KVP_E_BUSY": "Every call with <b>Thread: cache</b> can return it."}

# --------------------------------------------------------------------------------------- rendering

STYLE = """:root { color-scheme: light dark; --dim: #59636e; --line: #d1d9e0; --back: #f6f8fa;
  --link: #0550ae; --mark: #fff8c5; }
@media (prefers-color-scheme: dark) { :root { --dim: #9198a1; --line: #3d444d; --back: #151b23;
  --link: #4c9dff; --mark: #3a3010; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 0 1rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
nav { border-bottom: 1px solid var(--line); padding: .7rem 0; } nav a { margin-right: 1rem; }
pre { background: var(--back); border: 1px solid var(--line); border-radius: 6px; padding: .6rem;
  overflow-x: auto; font-size: 13px; line-height: 1.4; } pre i { color: var(--dim); font-style: normal; }
code { font-size: .9em; } section { border-top: 1px solid var(--line); margin-top: 2rem; }
h2, h3 { margin-bottom: .3rem; } table { border-collapse: collapse; width: 100%; }
th { width: 1%; } td table { width: auto; } td table tr:last-child > * { border: 0; }
td, th { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
  border-bottom: 1px solid var(--line); } th { white-space: nowrap; font-weight: 600; }
td p { margin: 0; } .dim { color: var(--dim); } :target { background: var(--mark); }
"""


def page_of(file):
    return file[:-2].replace("/", "-") + ".html"


class Renderer:
    def __init__(self, reference):
        self.reference = reference

    def link(self, name, text=None):
        item = self.reference.home.get(name)
        text = html.escape(text or name)
        return f'<a href="{page_of(item.file)}#{name}">{text}</a>' if item else text

    def inline(self, text):
        """Text with names as links, and `code` as code."""
        def word(match):
            if match[1]:
                return f"<code>{self.inline(match[1])}</code>"
            if match[2] in self.reference.heads:
                return f'<a href="{page_of(match[2])}">{match[2]}</a>'
            return self.link(match[0])
        escaped = re.split(r"(`[^`\n]*`|\bkvp_\w+|\bKVP_\w+|\b[a-z_/]+\.h\b)", text)
        out = [re.sub(r"(?s)`([^`]*)`|([a-z_/]+\.h)|\w+", word, part) if i % 2 else html.escape(part)
               for i, part in enumerate(escaped)]
        return "".join(out)

    def code(self, text, names=()):
        """C source: comments dimmed, names as links, `names` as places to link to."""
        out = []
        for part in re.split(r"(/\*.*?\*/|\b(?:kvp|KVP)_\w+\b)", text, flags=re.DOTALL):
            if part.startswith("/*"):
                out.append(f"<i>{self.inline(part)}</i>")
            elif part in names:
                out.append(f'<b id="{part}">{part}</b>')
                names = [name for name in names if name != part]
            else:
                out.append(self.link(part) if part in self.reference.home else html.escape(part))
        # Rows of an X-macro declare names that the source does not write out.
        for name in names:
            short = re.sub(r"^KVP_(CALL_)?", "", name)
            out = [re.sub(rf"X\({short},", f'X(<b id="{name}">{short}</b>,', part) for part in out]
        return f"<pre>{''.join(out)}</pre>"

    def items_of(self, lines):
        """The items of a list as texts, or None when the indented lines are none."""
        column = min(len(line) - len(line.lstrip()) for line in lines)
        items = []
        for line in lines:
            match = re.match(r" {%d}(-|\d+\.) +(\S.*)" % column, line)
            if match:
                items.append([match[2]])
                text_column = match.start(2)
            elif not items or len(line) - len(line.lstrip()) != text_column:
                return None
            else:
                items[-1].append(line.strip())
        return [" ".join(item) for item in items]

    def terms_of(self, lines):
        """[[term, text]] of indented lines that explain words in a column, or None."""
        first = re.match(r" *\S+(?: \S+){0,3} {2,}(?=\S)", lines[0])
        terms = []
        for line in lines:
            match = re.match(r"( *)(\S+(?: \S+){0,3}) {2,}(\S.*)", line)
            if match and first and match.start(3) == first.end() and len(match[1]) < first.end() - 2:
                terms.append([match[2], match[3]])
            elif terms and len(line) - len(line.lstrip()) == first.end():
                terms[-1][1] += " " + line.strip()
            else:
                return None
        return terms if len(terms) < len(lines) else None

    def table(self, rows):
        return "<table>" + "".join(f"<tr><th><code>{self.inline(name)}</code></th>"
                                   f"<td>{self.inline(text)}</td></tr>"
                                   for name, text in rows) + "</table>"

    def prose(self, text):
        """Paragraphs, lists, and what is indented: code, tables and drawings, as they stand."""
        out = []
        for block in re.split(r"\n\s*\n", text.strip("\n")):
            for indented, run in groups(block.split("\n")):
                items = self.items_of(run) if indented else None
                terms = self.terms_of(run) if indented else None
                if terms:
                    out.append(self.table(terms))
                elif items:
                    out.append("<ul>" + "".join(f"<li>{self.inline(item)}</li>" for item in items)
                               + "</ul>")
                elif indented:
                    out.append(f"<pre>{self.inline(dedent(run))}</pre>")
                else:
                    out.append(f"<p>{self.inline(' '.join(run))}</p>")
        return "".join(out)

    def section(self, text):
        """One thing a line, two spaces, and what it is (Takes, Gives); else prose."""
        first, *rest = text.split("\n")
        column = len(first) - len(first.lstrip())
        entries = []
        for line in [first, *rest]:
            match = re.match(r"( *)((?:\w+)(?:, \w+)*(?: \.\.\.)?)(?: {2,}(.*)|$)", line)
            if match and len(match[1]) == column:
                entries.append([match[2], match[3] or ""])
            elif entries and len(line) - len(line.lstrip()) > column:
                entries[-1][1] += " " + line.strip()
            else:
                return self.inline(" ".join(text.split()))
        return self.table(entries)

    def places(self, item):
        """The names that this item is the home of: others declare a name again (#else)."""
        return [name for name in item.names if self.reference.home[name] is item]

    def item(self, item):
        if item.kind == "define" and not item.comment and "\n" not in item.text:
            return self.code(item.text, self.places(item))
        before, sections = split_form(text_of(item.comment))
        title = item.name + (", ..." if item.kind == "enum" and len(item.names) > 2 else "")
        out = [f"<section><h3>{title}</h3>", self.code(item.text, self.places(item))]
        out.append(self.prose(before) if before else "")
        rows = "".join(f"<tr><th>{name}</th><td>"
                       + (self.section(text) if name in ("Takes", "Gives")
                          else self.inline(" ".join(text.split()))) + "</td></tr>"
                       for name, text in sections.items())
        return "".join(out) + (f"<table>{rows}</table>" if rows else "") + "</section>"

    def frame(self, title, body):
        links = "".join(f'<a href="{target}.html">{text}</a>' for target, text in
                        [("index", "Calls"), ("statuses", "Statuses"), ("structs", "Structs")])
        return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
                '<meta name="viewport" content="width=device-width">'
                f'<link rel="stylesheet" href="style.css"></head><body><nav><b>kvpager</b>&ensp;{links}'
                f"</nav><main>\n{body}\n</main></body></html>\n")

    def header(self, file):
        head = self.head(file)
        items = [item for item in self.reference.items if item.file == file]
        return self.frame(file, f"<h1>{file}</h1>" + self.prose(head)
                          + "".join(self.item(item) for item in items))

    def head(self, file):
        """A header's comment, which begins with "kvpager/x.h: what it is."."""
        text = text_of(self.reference.heads[file]).split(": ", 1)[-1]
        return text[:1].upper() + text[1:]

    def summary(self, text):
        """The first sentence."""
        text = split_form(text)[0].split("\n\n")[0]
        return re.match(r"(?s).*?[.:?](?= [A-Z]|$)|.*", " ".join(text.split()))[0]

    def index(self):
        heads = "".join(f'<tr><th><a href="{page_of(file)}">{file}</a></th><td>'
                        f"{self.inline(self.summary(self.head(file)))}</td></tr>"
                        for file in self.reference.heads)
        calls = "".join(f"<tr><th><code>{self.link(name)}</code></th>"
                        f"<td>{self.inline(self.summary(text_of(item.comment)))}</td></tr>"
                        for name, item in sorted(self.reference.calls.items()))
        return self.frame("kvpager reference", f"<h1>Reference</h1><h2>Headers</h2><table>{heads}"
                          f"</table><h2>Calls</h2><table>{calls}</table>")

    def links(self, names):
        return ", ".join(f"<code>{self.link(name)}</code>" for name in sorted(names))

    def status_page(self):
        returned = collections.defaultdict(set)
        for name in self.reference.calls:
            for status in self.reference.returned(name):
                returned[status].add(name)
        table = self.reference.home["KVP_STATUS_TABLE"].text
        out = []
        for status in self.reference.statuses:
            number, kind, text = re.search(rf'X\({status[4:]}, (-?\d+), (\w+),\s*"(.*?)"', table).groups()
            named = returned[status]
            out.append(f"<section><h3>{self.link(status)}</h3><p>{number}, class "
                       f"{self.link('KVP_CLASS_' + kind)}: {html.escape(text)}.</p>"
                       + (f"<p>Returned by {self.links(named)}.</p>"
                          if named and status != "KVP_OK" else ""))
            if status in RULES:
                more = set(self.reference.by_rule(status)) - named
                out.append(f'<p class="dim">{RULES[status]} Their comments do not repeat it: '
                           f"{self.links(more)}.</p>")
            out.append("</section>")
        return self.frame("Statuses", "<h1>Calls by status</h1><p>From the Returns paragraphs, those "
                          "of calls that they refer to included.</p>" + "".join(out))

    def struct_page(self):
        out = []
        for name, item in sorted(self.reference.types.items()):
            rows = {"Taken by": set(), "Changed by": set(), "Given by": set()}
            for call in self.reference.calls.values():
                if call.result == name:
                    rows["Given by"].add(call.name)
                for kind, parameter, constant, stars in call.parameters:
                    if kind == name:
                        rows["Given by" if parameter.startswith("out_") else "Changed by"
                             if item.kind == "struct" and stars and not constant
                             else "Taken by"].add(call.name)
            rows["Part of"] = {other for other, it in self.reference.types.items()
                               if name in it.fields.values()}
            table = "".join(f"<tr><th>{how}</th><td>{self.links(names)}</td></tr>"
                            for how, names in rows.items() if names)
            out.append(f"<section><h3>{self.link(name)}</h3><p>"
                       f"{self.inline(self.summary(text_of(item.comment)))}</p><table>{table}</table>"
                       "</section>")
        return self.frame("Structs", "<h1>Calls by struct</h1>" + "".join(out))

    def pages(self):
        pages = {page_of(file): self.header(file) for file in self.reference.heads}
        pages.update({"index.html": self.index(), "statuses.html": self.status_page(),
                      "structs.html": self.struct_page(), "style.css": STYLE})
        return pages


def groups(lines):
    """[(indented?, lines)]: runs of lines that are indented alike."""
    out = []
    for line in lines:
        indented = line.startswith("  ")
        if not out or out[-1][0] != indented:
            out.append((indented, []))
        out[-1][1].append(line)
    return out


def dedent(lines):
    column = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[column:] for line in lines)


# ------------------------------------------------------------------------------ the pages as HTML


class Page(html.parser.HTMLParser):
    """Tags that do not match, places to link to, and links of one page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.hrefs, self.wrong = [], [], [], []
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "href" in attrs:
            self.hrefs.append(attrs["href"])
        if tag == "script" or "src" in attrs:
            self.wrong.append(f"<{tag}> needs JavaScript or another file")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


def check_pages(pages):
    parsed = {name: Page(text) for name, text in pages.items() if name.endswith(".html")}
    for name, page in parsed.items():
        yield from (f"{name}: {message}" for message in page.wrong)
        yield from (f"{name}: {place} is there twice" for place, n in
                    collections.Counter(page.ids).items() if n > 1)
        for href in page.hrefs:
            target, _, place = href.partition("#")
            if target not in pages or place and place not in parsed[target].ids:
                yield f"{name}: the link {href} leads nowhere"


# --------------------------------------------------------------------------------------- self-test

PLANTED = """/* kvpager/x.h: what is planted. See kvp_x_open.
 *
 *   kvp_x_open(&config, name, &x);     open it
 */
#ifndef KVPAGER_X_H
#define KVPAGER_X_H

/* X(name, number, class, text). */
#define KVP_STATUS_TABLE(X)                                                                        \\
    X(OK, 0, OK, "success")                                                                        \\
    X(E_ARG, -1, CALLER, "wrong < argument")                                                       \\
    X(E_IO, -2, SYSTEM, "no & disk")

enum { KVP_CLASS_OK = 0, KVP_CLASS_CALLER = 1, KVP_CLASS_SYSTEM };
typedef enum kvp_status { KVP_STATUS_TABLE(KVP_STATUS_ENUM) } kvp_status;

typedef struct kvp_x kvp_x;

/* How it is opened. */
typedef struct kvp_x_config {
    size_t struct_size; /* set by kvp_x_init */
    const char *names[4], *more;
    int (*read)(void *context, int n); /* see kvp_x_config.more */
} kvp_x_config;

/* Fill `config`. Thread: pure. */
KVP_API void kvp_x_init(kvp_x_config *config);

/* Open it.
 *
 * In order:
 *   1. look: a < b
 *      and see
 *   2. open
 *
 * Takes:   config       copied
 *          name         NUL-terminated,
 *                       not empty
 * Gives:   out_x
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_IO: it is gone
 * Thread:  any. Cost: O(1)
 */
KVP_API kvp_status kvp_x_open(const kvp_x_config *config, const char *name, kvp_x **out_x);

/* Open it again. Returns: as kvp_x_open, but never KVP_E_ARG. */
KVP_API kvp_status kvp_x_again(kvp_x *x);
KVP_API kvp_status kvp_x_once_more(kvp_x *x);

#endif
"""
# (what is replaced, by what, what the finding says)
MISTAKES = [
    ("/* Fill `config`. Thread: pure. */\n", "", "x.h:26: kvp_x_init has no comment"),
    ("KVP_E_IO: it is gone", "KVP_E_GONE: it is gone", "x.h:40: there is no status KVP_E_GONE"),
    ("look: a < b", "look: kvp_x_look", "there is no name kvp_x_look"),
    ("look: a < b", "look: KVP_X_...", "nothing begins with KVP_X_"),
    ("config, const char *name", "config, const kvp_y *name", "there is no type kvp_y"),
    ("const char *names[4]", "const kvp_y *names[4]", "kvp_x_config: there is no type kvp_y"),
    ("KVP_API kvp_status kvp_x_again", "KVP_API kvp_state kvp_x_again", "there is no type kvp_state"),
    ("Returns: as kvp_x_open", "Gives as kvp_x_open", "kvp_x_again has no Returns paragraph"),
    ("kvp_x_config.more", "kvp_x_config.less", "kvp_x_config has no field less"),
    ("set by kvp_x_init", "set by kvp_x_start", "there is no name kvp_x_start"),
    ("See kvp_x_open.", "See kvp_x_close.", "x.h:1: there is no name kvp_x_close"),
    ("(&config, name, &x)", "(&config, &x)", "x.h:3: kvp_x_open takes 3 arguments, not 2"),
]


def planted(folder, text):
    with open(os.path.join(folder, "x.h"), "w", encoding="utf-8") as stream:
        stream.write(text)
    return Reference(folder)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        reference = planted(folder, PLANTED)
        assert check(reference) == [], check(reference)
        assert sorted(reference.calls) == ["kvp_x_again", "kvp_x_init", "kvp_x_once_more",
                                           "kvp_x_open"]
        assert reference.statuses == ["KVP_OK", "KVP_E_ARG", "KVP_E_IO"]
        assert list(reference.types["kvp_x_config"].fields) == ["struct_size", "names", "more", "read"]
        assert reference.returned("kvp_x_again") == {"KVP_OK", "KVP_E_IO"}
        assert reference.returned("kvp_x_once_more") == {"KVP_OK", "KVP_E_IO"}
        pages = Renderer(reference).pages()
        assert list(check_pages(pages)) == []
        x = pages["x.html"]
        assert "<li>look: a &lt; b and see</li><li>open</li>" in x
        assert "<th><code>name</code></th><td>NUL-terminated, not empty</td>" in x
        assert '<a href="x.html#KVP_E_IO">KVP_E_IO</a>: it is gone' in x and 'id="KVP_E_IO"' in x
        gone = pages["statuses.html"].split("no &amp; disk")[1]
        assert "kvp_x_open</a>" in gone and "kvp_x_again</a>" in gone and "kvp_x_init" not in gone
        config = pages["structs.html"].split(">kvp_x_config</a></h3>")[1]
        assert re.search("Taken by.*kvp_x_open.*Changed by.*kvp_x_init", config)
        assert "Given by</th><td>" in pages["structs.html"].split(">kvp_x</a></h3>")[1]
        for old, new, message in MISTAKES:
            assert PLANTED.count(old) == 1, old
            found = check(planted(folder, PLANTED.replace(old, new)))
            assert any(message in line for line in found), (message, found)
        assert make(folder, os.path.join(folder, "out")) and not os.path.exists(folder + "/out")
    for text, message in [("<p><b>x</p>", "</p> closes"), ("<p>", "<p> is not"),
                          ('<p id="a"></p><p id="a"></p>', "a is there twice"),
                          ('<a href="b.html"></a>', "b.html leads nowhere"),
                          ('<a href="a.html#b"></a>', "a.html#b leads nowhere"),
                          ("<script></script>", "needs JavaScript")]:
        assert any(message in line for line in check_pages({"a.html": text})), message
    print("reference: self-test passed")


# ------------------------------------------------------------------------------------------- main


def make(include, out):
    """Writes the pages; gives what is wrong, and then writes nothing."""
    reference = Reference(include)
    wrong = check(reference)
    if wrong:
        return wrong
    pages = Renderer(reference).pages()
    wrong = list(check_pages(pages))
    if not wrong:
        os.makedirs(out, exist_ok=True)
        for name, text in pages.items():
            with open(os.path.join(out, name), "w", encoding="utf-8") as stream:
                stream.write(text)
        print(f"{os.path.relpath(out)}/index.html: {len(reference.calls)} calls, "
              f"{len(reference.types)} types, {len(reference.statuses)} statuses")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) > 2 or sys.argv[1:2] and sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = sys.argv[1] if len(sys.argv) == 2 else os.path.join(ROOT, "build", "reference")
    wrong = make(os.path.join(ROOT, "include", "kvpager"), out)
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
