"""The report pages in a real browser: no error on the console, nothing asked of the network, no
text beyond its card or the window, at the width of a desk and of a phone, light and dark. Hostile
names stay texts. The pictures are left in the build folder, to be looked at.

Skipped where there is no Chromium.
"""

import json
import os

from lib_browser import Browser, find_browser
from lib_kvpager import SOURCE, check, check_equal, directory, finish, mooncake, run, skip

MIXED = os.path.join(SOURCE, "data", "mixed-small.jsonl")
LOAD = ["--speedup", 3, "--blocks", 9000, "--preempt", "swap", "--host-memory", "16GiB"]
SEQUENTIAL = ["--blocks", 6000]
# With the whole cache audited after each call, a replay takes a hundred times as long.
if int(os.environ.get("KVP_CHECK", "0")) > 0:
    SEQUENTIAL = ["--limit", 60, "--block-tokens", 128, "--blocks", 640]
    LOAD = [*SEQUENTIAL, "--speedup", 50, "--preempt", "swap", "--host-blocks", 700]
PICTURES = os.environ.get("KVP_BUILD", ".")
SIZES = [(1280, False), (1280, True), (820, False), (390, False), (390, True), (320, False)]

# Elements that stick out: of the window, or, for texts of a drawing, of their card.
OVERFLOWING = """
(() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const e of document.querySelectorAll("main *")) {
    if (e.closest(".scroll") && !e.classList.contains("scroll")) continue;
    const rect = e.getBoundingClientRect();
    if (rect.width > 0 && (rect.right > wide + 0.5 || rect.left < -0.5))
      found.push(e.tagName + " " + e.textContent.slice(0, 40));
  }
  for (const e of document.querySelectorAll(".card svg text")) {
    const rect = e.getBoundingClientRect(), card = e.closest(".card").getBoundingClientRect();
    if (rect.right > card.right || rect.left < card.left || rect.bottom > card.bottom)
      found.push("text " + e.textContent + " in " + e.closest(".card").textContent.slice(0, 20));
  }
  for (const e of document.querySelectorAll(".tile, .card > h3, .card > p, td, dd, h1"))
    if (e.scrollWidth > e.clientWidth + 1)
      found.push("cut " + e.tagName + " " + e.textContent.slice(0, 40));
  if (document.documentElement.scrollWidth > wide) found.push("the page");
  if (wide > 1000)
    for (const e of document.querySelectorAll(".scroll"))
      if (e.scrollWidth > e.clientWidth + 1) found.push("a table " + e.textContent.slice(0, 40));
  return found;
})()
"""

# Labels of an axis that stand on each other.
CROWDED = """
[...document.querySelectorAll(".card svg")].flatMap((drawing) => {
  const texts = [...drawing.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]);
  const found = [];
  texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
    if (p.left < q.right && q.left < p.right && p.top + 3 < q.bottom && q.top + 3 < p.bottom)
      found.push(a.textContent + " on " + b.textContent);
  }));
  return found;
})
"""

# What says nothing: a card without a drawing, a table or words to look up; a column of dashes; a
# number of the configuration without its unit; a table that scrolls and does not say so.
IDLE = """
(() => {
  const found = [];
  for (const e of document.querySelectorAll(".card"))
    if (!e.querySelector("svg, table, dl")) found.push("empty: " + e.textContent);
  for (const table of document.querySelectorAll("table")) {
    const rows = [...table.querySelectorAll("tr")].filter((row) => row.querySelector("td"));
    for (let i = 0; rows.length && i < rows[0].children.length; i++)
      if (rows.every((row) => ["-", ""].includes(row.children[i].textContent.trim())))
        found.push("dashes: " + table.textContent.slice(0, 60));
  }
  for (const row of document.querySelectorAll("table.wrap tbody tr")) {
    const [name, value] = [...row.children].map((cell) => cell.textContent);
    if (/^-?[\\d.,]+$/.test(value) && !/seed|distinct/.test(name)) found.push(name + " is " + value);
  }
  for (const e of document.querySelectorAll(".scroll")) {
    const hint = e.nextElementSibling;
    if ((e.scrollWidth > e.clientWidth + 1) !== (hint.getBoundingClientRect().height > 0))
      found.push("scrolls: " + e.textContent.slice(0, 40));
  }
  for (const e of document.querySelectorAll(".tile span"))
    if (/p99/.test(e.textContent) && !/median/.test(e.textContent)) found.push(e.textContent);
  if (/[/]/.test(document.querySelector("h1").textContent)) found.push("a path in the heading");
  return found;
})()
"""

# What is read out when the pointer is in the middle of each drawing.
HOVER = """
[...document.querySelectorAll(".card")].filter((c) => c.querySelector(":scope > .legend"))
  .map((card) => {
    const drawing = card.querySelector("svg"), rect = drawing.getBoundingClientRect();
    drawing.dispatchEvent(new PointerEvent("pointermove",
      { clientX: rect.left + rect.width / 2, clientY: rect.top + 50 }));
    const shown = card.querySelector(".legend .soft").textContent;
    drawing.dispatchEvent(new PointerEvent("pointerleave"));
    return shown !== "" && card.querySelector(".legend .soft").textContent === "";
  })
"""


def look(browser, path, name, charts):
    """All that must hold of a page, at every size."""
    pictures = set()
    for width, dark in SIZES:
        what = (name, width, "dark" if dark else "light")
        check_equal(browser.show(path, width, dark=dark), [], *what)
        check_equal(browser.evaluate(OVERFLOWING), [], *what, "overflows")
        check_equal(browser.evaluate(CROWDED), [], *what, "crowded")
        check_equal(browser.evaluate(IDLE), [], *what, "says nothing")
        drawn = browser.evaluate('[...document.querySelectorAll(".card svg")].map(e => '
                                 'e.querySelectorAll("path, rect, circle").length)')
        check_equal(len(drawn), charts, *what, "drawings")
        check(all(n > 0 for n in drawn), *what, "an empty drawing", drawn)
        hovers = browser.evaluate(HOVER)
        check(hovers and all(hovers), *what, "nothing is read out", hovers)
        back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        shade = sum(int(part) for part in back[4:-1].split(","))
        check((shade < 150) == dark, *what, "background", back)
        picture = os.path.join(PICTURES, f"report_{name}_{width}{'_dark' if dark else ''}.png")
        pictures.add(browser.screenshot(picture))
    check_equal(len(pictures), len(SIZES), name, "two sizes look the same")


# Of each map of what was learned: its marks, and what is read out at the middle of a row's cell.
MAPS = """
[...document.querySelectorAll(".card")].filter((c) => c.querySelector(":scope > .readout"))
  .map((card) => {
    const drawing = card.querySelector("svg"), rect = drawing.getBoundingClientRect();
    const marks = [...drawing.querySelectorAll("rect")].filter((e) => e.getAttribute("fill") !== "none");
    const gray = marks.filter((e) => e.getAttribute("fill") === "var(--c6)").length;
    const cell = (card.clientWidth - 28 - 46) / 17, read = [];
    for (let row = 0; row < 64; row++)
      for (let age = 0; age < 17; age++) {
        drawing.dispatchEvent(new PointerEvent("pointermove", {
          clientX: rect.left + 46 + (age + 0.5) * cell,
          clientY: rect.top + Math.floor(row / 16) * 120 + 20 + (row % 16 + 0.5) * 6 }));
        read.push(card.querySelector(".readout .soft").textContent);
      }
    return [gray, marks.length - gray, read];
  })
"""


def maps(browser, path):
    """A mark for each class and age of which something was seen, and none for others; what is read
    out is what the data has."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split('<script type="application/json" id="data">')[1]
    learned = json.loads(text.split("</script>")[0])["result"]["learned"]
    classes = {(c["least_uses"], c["least_output_tokens"], c["least_new_tokens"]): c
               for c in learned["classes"]}
    rows = [classes.get((uses, output, new)) for uses in (1, 2, 3, 5)
            for output in (0, 32, 256, 512) for new in (0, 513, 4097, 32769)]
    seen = sum(n > 0 for c in learned["classes"] for n in c["seen"])
    used = sum(n > 0 for c in learned["classes"] for n in c["used"])
    check(0 < used < seen < 64 * 17, used, seen)
    for width in (1280, 390):
        check_equal(browser.show(path, width), [], width)
        (gray, strong, read), (gray_too, dense, _) = browser.evaluate(MAPS)
        check_equal((gray, strong, gray_too), (seen, used, seen), width)
        check_equal(dense, sum(n > 0 and d > 0 for c in learned["classes"]
                               for n, d in zip(c["seen"], c["density"])), width)
        for i, text in enumerate(read):
            row, age = rows[i // 17], i % 17
            n = row["seen"][age] if row is not None else 0
            check(("never seen" in text) == (n == 0), width, i, text, n)
            if n > 0:
                share = 100 * row["used"][age] / n
                check(abs(float(text.split(": ")[1].split(" %")[0]) - share) < 0.06, i, text, share)
        for at, words in [((32 + 5) * 17 + 7, "used 3 or 4 times, output < 256, new 513 to 4,096; "
                           "C/2 to 3 C/4: "), (0, "used once, output < 32, new at most 512; 0 to C/16: "),
                          (64 * 17 - 1, "used 5 times or more, output more, new more than 32,768; "
                           "12 C to 16 C: ")]:
            check_equal(read[at][:len(words)], words, width)


def make(*arguments, stdin=None):
    """A page; also of a replay under load in which nothing can be served, which ends with 1."""
    done = run(*arguments, stdin=stdin)
    serves_nothing = arguments[0] == "replay" and stdin and "--sequential" not in arguments
    check_equal(done.returncode, 1 if serves_nothing else 0, arguments, done.stderr)


def hostile(browser, folder):
    """Names that would be markup or script, of the trace and of the model."""
    names = ['x</script><script>console.error("in")</script>',
             '<img src=x onerror=alert(1)>"\'&amp;\\u003c<!--', "]]><svg onload=alert(2)>%3Cb%3E",
             "<!--<script x", "</title <img src=x>"]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
              "intermediate_size": 14336, "vocab_size": 1000, "torch_dtype": "bfloat16"}
    page = os.path.join(folder, "hostile.html")
    for name in names:
        path = os.path.join(folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(mooncake(i * 1000, 600, 20, [1, i + 2]) for i in range(20)))
        model = path + ".json"
        with open(model, "w", encoding="utf-8") as file:
            json.dump(config, file)
        for options in [["replay", "--model-config", model], ["replay", "--sequential"],
                        ["mrc", "--model-config", model]]:
            make(*options, "--report", page, path)
            check_equal(browser.show(page, 1280), [], options, name)
            check_equal(browser.evaluate("document.querySelectorAll('script').length"), 2, name)
            check_equal(browser.evaluate("document.querySelectorAll('img, main svg svg').length"),
                        0, name)
            title = "kvpager: " + os.path.basename(path)
            check_equal(browser.evaluate("document.querySelector('h1').textContent"), title, name)
            check_equal(browser.evaluate("document.title"), title, name)
            check_equal(browser.evaluate(OVERFLOWING), [], options, name)
    path = os.path.join(folder.encode(), b"\xff<b>\xfe.jsonl")
    with open(path, "wb") as file:
        file.write(mooncake(0, 600, 20, [1, 2]).encode())
    make("replay", "--report", page, os.fsdecode(path))
    check_equal(browser.show(page, 1280), [], "bytes that are not UTF-8")
    check_equal(browser.evaluate("document.querySelector('h1').textContent"),
                "kvpager: ?<b>?.jsonl")


SERVED = {"cells": 64, "block_tokens": 8, "blocks": "0123" * 2, "tenants": "AAAABBBB"}


def server(browser):
    """In the legend of kvpager-serve's page no two kinds of blocks look alike."""
    browser.show(os.path.join(SOURCE, "integrations", "llama", "serve", "page.html"), 390)
    looks = browser.evaluate("""(() => { drawMap(%s);
      return [...document.querySelectorAll("#legend i")].slice(0, 4).map((e) => {
        const s = getComputedStyle(e);
        return [s.backgroundColor, s.opacity, s.borderTopWidth].join();
      }); })()""" % json.dumps(SERVED))
    check_equal(len(set(looks)), 4, "free, cached, held, shared:", looks)


def main():
    command = find_browser()
    if command is None:
        skip("no Chromium (scripts/setup.sh browser installs it)")
    browser = Browser(command)
    try:
        with directory() as folder:
            page = os.path.join(folder, "page.html")
            make("replay", "--no-measure", "--report", page, *LOAD, MIXED)
            look(browser, page, "load", 18)
            make("replay", "--no-measure", "--report", page, "--limit", 3, MIXED)
            check_equal(browser.show(page, 390), [], "three requests")
            make("replay", "--report", page, "--sequential", *SEQUENTIAL, MIXED)
            look(browser, page, "sequential", 7)
            for kind, charts in [("--sequential", 1), ("--no-measure", 1)]:
                make("replay", "--report", page, kind, "--policy", "learned,lru", *SEQUENTIAL, MIXED)
                look(browser, page, "policies" + kind, charts)
            make("replay", "--report", page, "--sequential", "--policy", "learned", *SEQUENTIAL, MIXED)
            look(browser, page, "learned", 11)
            maps(browser, page)
            make("mrc", "--report", page, "--model", "llama-3.1-8b", "--device", "h100", MIXED)
            look(browser, page, "mrc", 1)
            make("mrc", "--report", page, "--sample", "0.1", "--only-lru", MIXED)
            check_equal(browser.show(page, 390), [], "a sampled curve")
            check_equal(browser.evaluate(OVERFLOWING), [], "a sampled curve")
            empty = mooncake(0, 0, 0, []).encode()
            for options in [["mrc"], ["replay", "--sequential"], ["replay"]]:
                make(*options, "--report", page, "-", stdin=empty)
                check_equal(browser.show(page, 390), [], options, "a trace without tokens")
            server(browser)
            hostile(browser, folder)
    finally:
        browser.close()
    finish()


if __name__ == "__main__":
    main()
