"""The server's page in a browser: light and dark, at the width of a desk and of a phone. It draws what
the server says, asks for two users, and shows what they share. Skipped where there is no Chromium."""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.environ.get("KVP_SOURCE", "."), "test", "tools"))
from lib_browser import Browser, find_browser  # noqa: E402 (its folder is known now)
from lib_server import Server, chat_prompt, greedy  # noqa: E402

PICTURES = os.environ.get("KVP_BUILD", ".")
SIZES = [(1280, False), (1280, True), (390, False), (390, True)]
WIDE = """(() => { const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll") &&
    e.getBoundingClientRect().width > 0 && (e.getBoundingClientRect().right > wide + 0.5 || e.getBoundingClientRect().left < -0.5))
    .map((e) => e.tagName + " " + e.textContent.slice(0, 40)); })()"""
WAIT = """new Promise((done) => { let n = 0; const look = () => { if (%s) done(true);
  else if (++n > 600) done(false); else setTimeout(look, 20); }; look(); })"""
COLOURS_OF_MAP = """(() => { const c = document.getElementById("map");
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add([d[i], d[i + 1], d[i + 2]].join());
  return seen.size; })()"""

# What scrolls and does not say so, or says so and does not; and whether each scrolls.
SCROLLS = """[...document.querySelectorAll(".scroll")].map((e) => [e.id, e.tabIndex === 0 &&
  e.nextElementSibling.getBoundingClientRect().height > 0,
  e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1])"""

SHARED = """[...document.querySelectorAll("#tree .node")].some((n) =>
  n.querySelectorAll(".chip").length === 2)"""


def wait(browser, condition):
    assert browser.evaluate(WAIT % condition), condition


def check_page(browser, server, width, dark):
    browser.events = []
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                 mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    browser.call("Page.navigate", url=f"http://{server.host}:{server.port}/")
    browser.wait_for("Page.loadEventFired")
    wait(browser, 'document.querySelector("#tiles .card")')
    # Both run: the blocks that they share are drawn with both. An answer may be too short to be seen.
    for _ in range(20):
        browser.evaluate('document.getElementById("send").click()')
        wait(browser, f'{SHARED} || !document.getElementById("send").disabled')
        if browser.evaluate(SHARED):
            break
    assert browser.evaluate(SHARED)
    assert browser.evaluate(COLOURS_OF_MAP) >= 3
    wait(browser, '!document.getElementById("send").disabled')
    system = browser.evaluate('document.getElementById("system").value')
    for number in (1, 2):
        asked = browser.evaluate(f'document.getElementById("ask{number}").value')
        note = browser.evaluate(f'document.getElementById("note{number}").textContent')
        assert "prompt tokens came from the cache" in note, note
        assert len(chat_prompt([{"role": "system", "content": system}, {"role": "user", "content": asked}])) > 300
        assert browser.evaluate(f'document.getElementById("answer{number}").textContent')
    wait(browser, 'document.getElementById("requests").textContent.includes("done")')
    assert browser.evaluate('document.getElementById("legend").textContent.includes("tenant 1")')
    assert browser.evaluate('document.getElementById("tree").textContent.includes("system You")')
    assert not browser.evaluate('document.body.textContent.includes("hidden words")')
    back = browser.evaluate('getComputedStyle(document.body).backgroundColor')
    assert (back == "rgb(16, 18, 22)") == dark, back
    assert browser.evaluate(WIDE) == [], browser.evaluate(WIDE)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    scrolls = browser.evaluate(SCROLLS)
    assert len(scrolls) == 2 and all(said == does for _, said, does in scrolls), scrolls
    bad = [event for event in browser.events if event.get("method") in (
        "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]
    assert not bad, bad
    asked = {event["params"]["request"]["url"] for event in browser.events
             if event.get("method") == "Network.requestWillBeSent"}
    here = f"http://{server.host}:{server.port}/"
    assert all(url.startswith((here, "data:")) for url in asked), asked
    browser.screenshot(os.path.join(PICTURES, f"serve-{width}-{'dark' if dark else 'light'}.png"))
    return {does for _, _, does in scrolls}


def check_key(browser):
    with Server("--api-key", "sesame") as server:
        browser.events = []
        browser.call("Page.navigate", url=f"http://{server.host}:{server.port}/")
        browser.wait_for("Page.loadEventFired")
        wait(browser, '!document.getElementById("ask-key").hidden')
        browser.evaluate('document.getElementById("key").value = "sesame";'
                         'document.getElementById("key").dispatchEvent(new Event("change"))')
        wait(browser, 'document.getElementById("ask-key").hidden')
        wait(browser, 'document.querySelector("#tiles .card")')


def main():
    found = find_browser()
    if found is None:
        print("skipped: no Chromium")
        sys.exit(77)
    browser = Browser(found)
    with Server("-c", "4096", "--temp", "0", "--seed", "1", model="fake-model step_us=20000") as server:
        server.post("/v1/completions", prompt="hidden words of a tenant" * 3, max_tokens=2, cache_salt="x")
        assert greedy("x", 1)[0]
        seen = set()
        for width, dark in SIZES:
            seen |= check_page(browser, server, width, dark)
            for row in range(8):
                server.post("/v1/completions", prompt=f"row {row}", max_tokens=1)
        assert seen == {False, True}, seen
    check_key(browser)
    browser.close()
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
