"""A real browser for the tests: Chromium without a window, driven through a pipe, so that no port is opened.

Its own protocol (JSON messages that end in a zero byte) is all that is needed to open a page at a width, ask
for boxes, see which requests it makes, and take pictures and prints of it.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.services import ServiceUnavailable

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ANSWER_SECONDS = 60.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

# The browser reads its commands from descriptor 3 and answers on 4.
_PLACE_PIPES = """
import os, sys
for source, wanted in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(source, wanted)
    os.close(source)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass(slots=True)
class Tab:
    """One page of the browser."""

    _to: int
    _from: int
    _session: str | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _events: list[dict[str, Any]] = field(default_factory=list)
    _unread: bytes = b""

    def open(self, page: Path, *, width: int, dark: bool = False, media: str = "screen") -> list[str]:
        """Load a file at a width, wait until it is whole, and return the address of each request it made."""
        self._events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        self._wait_for("Page.loadEventFired")
        # A request that a page starts as it is drawn comes a moment after the load.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 150)))")
        sent = [each["params"] for each in self._events if each["method"] == "Network.requestWillBeSent"]
        return [str(each["request"]["url"]) for each in sent]

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; the page's own policy does not hinder it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, target: Path, *, full: bool = True) -> None:
        """Save what the page looks like, as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        target.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed on A4."""
        self.call("Emulation.setEmulatedMedia", media="")
        answer = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=False)
        return base64.b64decode(answer["data"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        _write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._events.append(answer)

    def attach(self) -> None:
        """Take over the page that the browser starts with."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")

    def _wait_for(self, event: str) -> None:
        while not any(each.get("method") == event for each in self._events):
            self._events.append(self._read())

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(until - time.monotonic(), 0))
            received = os.read(self._from, 1 << 20) if ready else b""
            if not received:
                raise TimeoutError("the browser does not answer, or has ended")
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def browser() -> Iterator[Tab]:
    """Start a browser with a fresh profile, and end it afterwards.

    Raises:
        ServiceUnavailable: none is installed.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise ServiceUnavailable("Chromium is not installed: run make services")
    commands_out, commands_in = _pipe()
    answers_out, answers_in = _pipe()
    with tempfile.TemporaryDirectory(prefix="relance-browser-", ignore_cleanup_errors=True) as profile:
        place = [sys.executable, "-c", _PLACE_PIPES, str(commands_out), str(answers_in)]
        process = subprocess.Popen(
            [*place, program, *FLAGS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            pass_fds=(commands_out, answers_in),
        )
        os.close(commands_out)
        os.close(answers_in)
        try:
            tab = Tab(commands_in, answers_out)
            tab.attach()
            yield tab
        finally:
            os.close(commands_in)
            os.close(answers_out)
            _stop(process)


def _pipe() -> tuple[int, int]:
    """Return a pipe whose ends are out of the way of descriptors 3 and 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in ends]
    for each in ends:
        os.close(each)
    return moved[0], moved[1]


def _stop(process: subprocess.Popen[bytes]) -> None:
    # It ends by itself when its pipe is closed.
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)


def _write(descriptor: int, message: bytes) -> None:
    while message:
        message = message[os.write(descriptor, message) :]
