"""A real Chromium without a window, driven over its DevTools protocol: NUL-terminated JSON through two pipes."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tembed.cli.cmd_doctor import BROWSERS

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--mute-audio",
    "--hide-scrollbars",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]
PATIENCE = 60.0
"""Seconds to wait for an answer or a condition before the test fails."""


def find_browser() -> str | None:
    """The path of the first browser on the PATH."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """The running browser. Messages go out through file descriptor 3 of the process and come back through 4."""

    def __init__(self, path: str, profile: Path, *flags: str):
        incoming, outgoing = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (outgoing[0], incoming[1])]  # away from 3 and 4

        def connect() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        line = [path, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            line, preexec_fn=connect, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (*ends, outgoing[0], incoming[1]):
            os.close(end)
        self.reading, self.writing = incoming[0], outgoing[1]
        self.rest, self.number = b"", 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.tabs: dict[str, Tab] = {}

    def send(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        number, limit = self.number, time.monotonic() + PATIENCE
        while number not in self.answers:
            assert time.monotonic() < limit, f"no answer to {method}"
            self.receive(1.0)
        answer = self.answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def receive(self, seconds: float) -> None:
        """Read what has arrived, waiting at most ``seconds``; events go to their tab."""
        ready, _, _ = select.select([self.reading], [], [], seconds)
        if not ready:
            return
        arrived = os.read(self.reading, 1 << 20)
        assert arrived, "the browser ended"
        *messages, self.rest = (self.rest + arrived).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.tabs:
                self.tabs[message["sessionId"]].event(message["method"], message["params"])

    def open(self, address: str, width: int = 1200, height: int = 800, **media: str) -> "Tab":
        """A new tab of this size. ``media``: what the user prefers, such as ``color_scheme="dark"``."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = Tab(self, target, session)
        self.tabs[session] = tab
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        tab.send("Emulation.setDeviceMetricsOverride", size)
        if width < 600:
            tab.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
        features = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in media.items()]
        tab.send("Emulation.setEmulatedMedia", {"features": features})
        tab.send("Page.navigate", {"url": address})
        tab.wait("document.readyState === 'complete'")
        return tab

    def close(self) -> None:
        with suppress(AssertionError, OSError):
            self.send("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reading)
        os.close(self.writing)


class Tab:
    """A page. ``problems``: errors of the console; ``requests``: the addresses that it asked for."""

    def __init__(self, browser: Browser, target: str, session: str):
        self.browser, self.target, self.session = browser, target, session
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.loads = 0

    def send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.browser.send(method, parameters, self.session)

    def event(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
        elif method == "Page.loadEventFired":
            self.loads += 1

    def reload(self) -> None:
        """Load the page again. Scripts that run while the browser leaves the old page would get an error."""
        before, limit = self.loads, time.monotonic() + PATIENCE
        self.send("Page.reload")
        while self.loads == before:
            assert time.monotonic() < limit, "the page was not loaded again"
            self.browser.receive(1.0)

    def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answer, f"{script[:200]}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = PATIENCE) -> None:
        """Wait until a condition of the page is true."""
        limit = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < limit, f"never true: {condition}; problems: {self.problems}"
            self.browser.receive(0.05)

    def rest(self) -> None:
        """Wait until nothing moves and the last change is drawn and in the address."""
        self.wait("!tembed.page.map.requested && !Object.keys(tembed.page.map.animations).length")
        self.run(
            "new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 200))"
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", {"type": f"mouse{kind}", "x": x, "y": y, **more})

    def click(self, x: float, y: float) -> None:
        self.mouse("Moved", x, y)
        self.mouse("Pressed", x, y, button="left", clickCount=1)
        self.mouse("Released", x, y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
        self.mouse("Moved", *start, **more)
        self.mouse("Pressed", *start, button="left", clickCount=1, **more)
        for step in (0.25, 0.5, 0.75, 1.0):
            x, y = (a + (b - a) * step for a, b in zip(start, end, strict=True))
            self.mouse("Moved", x, y, button="left", buttons=1, **more)
        self.mouse("Released", *end, button="left", clickCount=1, **more)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        where = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": where})

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, **text})
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def choose(self, selector: str, *paths: Path) -> None:
        """Choose files in a file input."""
        document = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", {"nodeId": document, "selector": selector})["nodeId"]
        self.send("DOM.setFileInputFiles", {"files": [str(path) for path in paths], "nodeId": node})

    def screenshot(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", {"format": "png"})["data"])

    def close(self) -> None:
        self.browser.send("Target.closeTarget", {"targetId": self.target})
        del self.browser.tabs[self.session]


@contextmanager
def running(path: str, profile: Path, *flags: str) -> Iterator[Browser]:
    """A browser that is closed at the end."""
    browser = Browser(path, profile, *flags)
    try:
        yield browser
    finally:
        browser.close()
