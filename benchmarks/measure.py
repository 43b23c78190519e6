"""Taking samples: seconds of calls made in turns, and the peak memory of a process."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

from benchmarks.results import Sample

_REPOSITORY = Path(__file__).resolve().parent.parent
_PROCESS_STATUS = Path("/proc/self/status")


def in_turns(
    *calls: Callable[[], object], repeats: int, calls_per_repeat: int = 1, warm_up: bool = True
) -> tuple[Sample, ...]:
    """Return the seconds that one call of each of `calls` takes, in their order.

    Every repeat times all of them one after the other and the next repeat in the opposite order, so
    that whatever else the machine does falls on all of them alike.
    """
    if warm_up:
        for call in calls:
            call()
    gc.collect()
    seconds: list[list[float]] = [[] for _ in calls]
    turns = list(zip(calls, seconds, strict=True))
    for _ in range(repeats):
        for call, values in turns:
            values.append(_seconds_of(call, calls_per_repeat))
        turns.reverse()
    return tuple(Sample(tuple(values)) for values in seconds)


def _seconds_of(call: Callable[[], object], times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def peak_rss() -> int:
    """Return the largest resident size that this process has had so far, in bytes."""
    if _PROCESS_STATUS.exists():
        # Not getrusage: on Linux its maximum starts with the size of the process that started this one.
        lines = _PROCESS_STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(slots=True)
class Memory:
    """What a process had of its own, without pages of files, which the system takes back when it needs to."""

    before: int
    peak: int


@contextmanager
def watch_memory() -> Iterator[Memory]:
    """Watch this process's own memory during a block, many times a second; on Linux."""
    seen = Memory(_own_memory(), 0)
    done = Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.peak = max(seen.peak, _own_memory())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def _own_memory() -> int:
    lines = _PROCESS_STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def run_module(module: str, arguments: Sequence[str]) -> Any:
    """Run a module in a fresh process and return what it prints, which is JSON.

    Raises:
        CalledProcessError: the process failed; what it said went to standard error.
    """
    command = [sys.executable, "-m", module, *arguments]
    finished = subprocess.run(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(finished.stdout)
