"""A browser without a window, driven over two pipes (DevTools protocol). Standard library only."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
TIMEOUT = 120  # seconds; for a browser that hangs, nothing waits for it to pass


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, command):
        self.profile = tempfile.TemporaryDirectory(prefix="kvpager-browser-",
                                                   ignore_cleanup_errors=True)
        theirs_in, self.ours_out = os.pipe()
        self.ours_in, theirs_out = os.pipe()
        # The browser reads commands from its descriptor 3 and writes answers to 4.
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["sh", "-c", script, command, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=[theirs_in, theirs_out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")

    def receive(self):
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            if not select.select([self.ours_in], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.ours_in, 1 << 20)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, name):
        while not any(event.get("method") == name for event in self.events):
            self.events.append(self.receive())

    def show(self, path, width, height=900, dark=False):
        """Loads a file. Gives what the browser complains about, and what it asked the net for."""
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        # quote() would hide what a hostile name does
        self.call("Page.navigate", url="file://" + path.replace("%", "%25").replace("#", "%23")
                  .replace("?", "%3f"))
        self.wait_for("Page.loadEventFired")
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        bad = []
        for event in self.events:
            method, what = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                bad.append(what["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled":
                bad.append(what["args"])
            elif method == "Log.entryAdded":
                bad.append(what["entry"])
            elif method == "Page.javascriptDialogOpening":
                bad.append("a dialog")
            elif method == "Network.requestWillBeSent" and \
                    not what["request"]["url"].startswith(("file:", "data:")):
                bad.append(what["request"]["url"])
        return bad

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def screenshot(self, path):
        """Of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        data = base64.b64decode(image["data"])
        with open(path, "wb") as file:
            file.write(data)
        return data

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)
        self.profile.cleanup()
