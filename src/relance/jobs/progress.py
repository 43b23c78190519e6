"""Shows how far a run has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from relance.jobs.engine import Progress

_WIDTH = 24
_LINE_SECONDS = 10.0
_BAR_SECONDS = 0.1


def line_of(progress: Progress) -> str:
    """Return one line about a run."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    tasks = (
        f"; very large tables: {progress.tasks} of {progress.all_tasks} tasks" if progress.all_tasks else ""
    )
    return f"{progress.job}: {progress.done} of {progress.total} tables{failed}{tasks}"


def bar_of(progress: Progress) -> str:
    """Return the line with a bar in front of it."""
    whole = progress.total + progress.all_tasks
    share = (progress.done + progress.tasks) / whole if whole else 1.0
    filled = round(share * _WIDTH)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%} {line_of(progress)}"


@dataclass(slots=True)
class Display:
    """Given to a run as its `progress`."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    now: Callable[[], float] = time.monotonic
    _shown: float | None = field(default=None, init=False)
    _length: int = field(default=0, init=False)

    def __call__(self, progress: Progress) -> None:
        over = progress.done == progress.total
        every = _BAR_SECONDS if self.stream.isatty() else _LINE_SECONDS
        if not over and self._shown is not None and self.now() - self._shown < every:
            return
        self._shown = self.now()
        if self.stream.isatty():
            text = bar_of(progress)
            self.stream.write("\r" + text.ljust(self._length) + ("\n" if over else ""))
            self._length = 0 if over else len(text)
        else:
            self.stream.write(line_of(progress) + "\n")
        self.stream.flush()
