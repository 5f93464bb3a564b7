# SPDX-License-Identifier: LGPL-2.1-or-later
"""A browser without a window, driven by the DevTools protocol over a pipe: no other library is needed."""
import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time

from mounts import LIMIT

PROGRAM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
OPTIONS = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
           "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync", "--mute-audio", "--hide-scrollbars",
           "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")
KEYS = {"Enter": (13, "\r"), "Tab": (9, None), "Escape": (27, None), "ArrowUp": (38, None), "ArrowDown": (40, None), "ArrowLeft": (37, None),
        "ArrowRight": (39, None), "Home": (36, None), "End": (35, None), "PageUp": (33, None), "PageDown": (34, None), " ": (32, " ")}


def high_pipe():
    """A pipe whose ends are neither 3 nor 4, which the browser takes."""
    low = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low]
    for fd in low:
        os.close(fd)
    return high


class Chromium:
    """A browser with one page at a time. Each fault of a page (an exception, a refused script) is kept in `faults`."""

    def __init__(self, profile):
        commands, self.writing = high_pipe()
        self.reading, answers = high_pipe()
        # bash, because dash has no file numbers of two digits.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers} {commands}<&- {answers}>&-', "bash", PROGRAM, *OPTIONS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=dict(os.environ, HOME=str(profile), TZ="UTC", LC_ALL="C.UTF-8"))
        os.close(commands)
        os.close(answers)
        self.stream = os.fdopen(self.reading, "rb", buffering=0)
        self.left, self.number, self.session, self.faults, self.asked = b"", 0, None, [], []
        self.downloads = {}

    def read(self):
        while b"\0" not in self.left:
            more = self.stream.read(1 << 16)
            assert more, "the browser has ended"
            self.left += more
        message, _, self.left = self.left.partition(b"\0")
        return json.loads(message)

    def note(self, message):
        method, about = message.get("method"), message.get("params", {})
        if message.get("sessionId", self.session) != self.session:
            return  # of a former page, which may still be at work
        if method == "Runtime.exceptionThrown":
            self.faults.append(about["exceptionDetails"])
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error" and about["entry"].get("source") != "network":
            self.faults.append(about["entry"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(about["request"])
        elif method == "Browser.downloadProgress":
            self.downloads[about["guid"]] = about["state"]

    def call(self, method, **arguments):
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments}
        if self.session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.note(answer)

    def open(self, url, width=1280, height=900, dark=False):
        """A new page, without what former pages kept."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.faults.clear()
        self.asked.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.context = context
        self.call("Page.navigate", url=url)
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def run(self, expression):
        """The value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    def wait(self, expression):
        """Until it is true; its value."""
        deadline = time.monotonic() + LIMIT / 10
        while not (value := self.run(f"(() => {{ try {{ const v = {expression}; return v instanceof Node || v }} catch (e) {{ return false }} }})()")):
            assert time.monotonic() < deadline, (expression, self.run("document.body && document.body.innerText"), self.faults)
            time.sleep(0.02)
        return value

    def key(self, *names):
        for name in names:
            shift, name = name.startswith("Shift+"), name.removeprefix("Shift+")
            code, text = KEYS.get(name, (ord(name[0].upper()), name))
            arguments = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0, "code": name if name in KEYS else ""}
            if text:
                arguments["text"] = text
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **arguments)
            arguments.pop("text", None)
            self.call("Input.dispatchKeyEvent", type="keyUp", **arguments)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """With the mouse, in its middle, as a user does it."""
        box = self.wait(f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect(); "
                        f"return b.width && [b.x + b.width / 2, b.y + b.height / 2] }})(document.querySelector({json.dumps(selector)}))")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def download_to(self, directory):
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory), eventsEnabled=True,
                  browserContextId=self.context)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(data))

    def end(self):
        with contextlib.suppress(AssertionError, OSError):
            self.session = None
            self.call("Browser.close")
        os.close(self.writing)
        self.stream.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
