"""Drive a real browser over its DevTools protocol, through two pipes; only chromium is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
LOOKS = ("--hide-scrollbars", "--disable-lcd-text", "--remote-debugging-pipe", "about:blank")
SECONDS_MAX = 120.0

_AS_3_AND_4 = (
    "import fcntl, os, sys; r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]);"
    "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""A script that starts a command with two pipes as descriptors 3 and 4.

Chromium reads commands from 3, and writes answers and events to 4.
"""


class Browser:
    """A page of a headless chromium.

    console   messages that the page logged, its exceptions, and violations of its policy
    requests  the addresses that the page requested
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        (commands, self._out), (self._in, answers) = os.pipe(), os.pipe()
        relay_command = [sys.executable, "-c", _AS_3_AND_4, str(commands), str(answers), CHROMIUM]
        self._process = subprocess.Popen(
            [*relay_command, *FLAGS, *LOOKS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _read(self, deadline: float) -> Any:
        """Return the next message: an answer or an event."""
        while b"\0" not in self._buffer:
            readable, _, _ = select.select(
                [self._in], [], [], max(0.0, deadline - time.monotonic())
            )
            assert readable, "chromium does not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        """Add an event to `console` or `requests`, if it belongs there."""
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.console.append(
                str(details.get("exception", {}).get("description", details["text"]))
            )
        elif method == "Log.entryAdded":
            self.console.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
            )
        elif method == "Runtime.consoleAPICalled":
            self.console.append(
                " ".join(str(argument.get("value", "")) for argument in parameters["args"])
            )
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, url: str) -> None:
        """Load a page, also if its address differs from the current one in the fragment only."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, for a promise the value it resolves to.

        The expression may use $ and $$.
        """
        options = {"awaitPromise": True, "returnByValue": True, "includeCommandLineAPI": True}
        done = self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true; while it fails it is not."""
        deadline = time.monotonic() + SECONDS_MAX
        while not self.run(
            f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        ):
            if time.monotonic() > deadline:
                page = self.run("document.body.innerText")
                raise AssertionError(f"expected {condition}, found:\n{page}\n{self.console}")
            time.sleep(0.02)

    def count(self, selector: str, n: int) -> None:
        """Wait until the number of elements is n."""
        self.wait(f"$$({json.dumps(selector)}).length === {n}")

    def shows(self, selector: str, text: str) -> None:
        """Wait until an element contains a text."""
        self.wait(f"$({json.dumps(selector)}).textContent.includes({json.dumps(text)})")

    def text(self, selector: str) -> str:
        """Wait for an element; return the text that it shows."""
        self.wait(element := f"$({json.dumps(selector)})")
        return str(self.run(f"{element}.innerText"))

    def click(self, selector: str) -> None:
        """Wait for an element that is not disabled, and click it."""
        element = f"$({json.dumps(selector)})"
        self.wait(f"{element} && !{element}.disabled")
        self.run(f"{element}.click()")

    def press(self, button: str) -> None:
        """Wait for a visible button or link with this text, and click the first one."""
        element = (
            "$$('button, a, summary')"
            f".find(e => e.innerText.trim() === {json.dumps(button)} && e.checkVisibility() "
            "&& !e.disabled)"
        )
        self.wait(element)
        self.run(f"{element}.click()")

    def fill(self, selector: str, value: str) -> None:
        """Set the value of a field as a user would, with the events `input` and `change`."""
        self.wait(element := f"$({json.dumps(selector)})")
        self.run(
            f"(() => {{ const e = {element}; e.focus(); e.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, "
            "{bubbles: true})); })()"
        )

    def choose_files(self, selector: str, *files: Path) -> None:
        """Choose files for a field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def look(self, width: int = 1200, height: int = 800, *, dark: bool = False) -> None:
        """Set the size of the screen, and whether its colours are light or dark."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path, *, beyond_viewport: bool = False) -> None:
        """Write the visible part of the page as PNG, or the whole page."""
        screenshot = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=beyond_viewport
        )
        file.write_bytes(base64.b64decode(screenshot["data"]))
