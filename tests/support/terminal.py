"""Commands on a terminal of 80 columns and 24 lines, as a person sees them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import environment

COLUMNS, LINES = 80, 24

_MARK = "\x1eran "
_RAN = re.compile(rf"{_MARK}(-?\d+)\r?\n")

# One process for all command lines: most of what a command costs is starting Python.
_DRIVER = f"""
import json, sys
from relance.cli.app import app
for args in json.loads(sys.argv[1]):
    try:
        app.main(args)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        print({_MARK!r} + str(ended.code), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Screen:
    """What a command left on the terminal."""

    args: tuple[str, ...]
    exit_code: int
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines that stay; a carriage return begins a line again."""
        return [line.rpartition("\r")[2].rstrip() for line in self.text.replace("\r\n", "\n").splitlines()]

    @property
    def shown(self) -> str:
        return "\n".join(self.lines)


def on_terminal(folder: Path, *commands: Sequence[str], keys: str = "", **variables: str) -> list[Screen]:
    """Run commands one after another on a terminal; `keys` are typed at once."""
    screen, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    settings = {**environment(**variables), "TERM": "xterm", "NO_COLOR": "1"}
    settings.pop("COLUMNS", None)
    settings.pop("LINES", None)
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, json.dumps([list(each) for each in commands])],
        cwd=folder,
        env=settings,
        stdin=keyboard,
        stdout=keyboard,
        stderr=keyboard,
        start_new_session=True,
    )
    os.close(keyboard)
    os.write(screen, keys.encode())
    text = _read_all(screen)
    os.close(screen)
    assert process.wait(timeout=100) == 0, text
    parts = _RAN.split(text)
    assert len(parts) == 2 * len(commands) + 1, text
    return [
        Screen(tuple(args), int(parts[2 * number + 1]), parts[2 * number])
        for number, args in enumerate(commands)
    ]


def _read_all(screen: int) -> str:
    data = b""
    while True:
        try:
            found = os.read(screen, 65536)
        except OSError:  # the last process that had it has ended
            return data.decode()
        if not found:
            return data.decode()
        data += found
