"""Forked processes: what a child cannot use is refused in it, before it can hang.

A fork copies one thread only. The threads of Lance and of the client for object stores stay behind in the
parent, and a call that needs them hangs, crashes or damages memory in the child. If they had not been started
yet, the child starts its own, and nothing is refused.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from relance.errors import UnsupportedOperationError

LANCE = "lance"
OBJECT_STORE = "tokio"
"""Libraries with threads of their own, by what the names of these threads begin with."""

_LIBRARIES = {LANCE: "Lance", OBJECT_STORE: "the client for object stores"}

_TASKS = "/proc/self/task"
"""Where Linux shows the threads of this process, so that what was used without Relance counts, too."""

_started: set[str] = set()
"""What this process, or the one that it was forked from, has used through Relance."""
_at_fork: set[str] = set()
"""What had threads when the last fork began."""
_left_behind: set[str] = set()
"""What this process cannot use."""


def check_fork(*libraries: str) -> None:
    """Check that this process can use the libraries.

    Raises:
        UnsupportedOperationError: it was forked after their threads were started.
    """
    for library in libraries:
        if library in _left_behind:
            raise UnsupportedOperationError(
                f"this process was forked after {_LIBRARIES[library]} had been used, whose threads do not "
                "survive a fork: start processes with multiprocessing's 'spawn' or 'forkserver' method, or "
                "fork before a catalog is used for the first time"
            )


def note_use(library: str) -> None:
    """Check as above, and note that the library's threads are started from now on.

    Raises:
        UnsupportedOperationError: as above.
    """
    check_fork(library)
    _started.add(library)


class ProcessLock:
    """A lock that a forked child finds free, whichever thread of the parent held it."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _before_fork() -> None:
    _at_fork.clear()
    _at_fork.update(_started, _running())


def _in_child() -> None:
    _left_behind.update(_at_fork)


def _running() -> set[str]:
    """Return the libraries that have threads in this process, as far as the system shows them."""
    names: list[str] = []
    with suppress(OSError):
        for task in os.listdir(_TASKS):
            with suppress(OSError), open(f"{_TASKS}/{task}/comm") as file:
                names.append(file.read())
    return {library for library in _LIBRARIES if any(name.startswith(library) for name in names)}


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
