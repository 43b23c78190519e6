"""Counts what each verb asks of the store: calls of the storage protocol on disk, HTTP requests on S3."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.net.verbs import MODES, Counts, Record, tell
from tests.support.patches import substituted
from tests.support.roots import S3Place, local_place
from tests.support.servers import S3Server, count_requests, start_moto

from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import ObjectStorage

AT_MOST = "at most"
"""Key of a record whose counts vary: they are upper bounds."""
_TIMES = 3
_NO_REQUESTS = frozenset({"name", "cheap_lookups", "requests_at_once", "reserve", "keep_ballast"})
"""Also what a disk does once for a root, and then no more."""

Recorded = dict[str, dict[str, Record]]
"""What each step cost, by mode and step."""


class CountingStorage:
    """Hands every call on to a storage and counts it; calls that the storage makes itself do not count."""

    def __init__(self, inner: ObjectStorage) -> None:
        """Wrap a storage."""
        self._inner = inner
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _NO_REQUESTS or not callable(found):
            return found

        def counted(*args: Any, **options: Any) -> Any:
            with self._lock:
                self._counts[name] += 1
            return found(*args, **options)

        return counted

    def take(self) -> Counts:
        """Return the calls since the last time."""
        with self._lock:
            counts, self._counts = dict(self._counts), Counter()
        return counts


def on_disk(folder: Path, mode: str) -> dict[str, Record]:
    """Return what each step costs on local disk in one mode."""
    storages: list[CountingStorage] = []

    def counting(directory: str, *, keeps_ballast: bool = False) -> CountingStorage:
        storages.append(CountingStorage(LocalDiskStorage(directory, keeps_ballast=keeps_ballast)))
        return storages[-1]

    def count() -> Counts:
        return dict(sum((Counter(each.take()) for each in storages), Counter()))

    with substituted("connect.local_disk", counting):
        return tell(local_place(folder, MODES[mode]), count, mode)


def on_s3(server: S3Server, mode: str) -> dict[str, Record]:
    """Return what each step costs on S3 in one mode."""
    with count_requests(server) as counter:

        def count() -> Counts:
            counts = Counter(method for method, _ in counter.requests)
            counter.reset()
            return dict(counts)

        place = S3Place(counter.server, server.make_bucket("net"), "lake", MODES[mode])
        return tell(place, count, mode, brief=True)


def record_disk() -> Recorded:
    """Measure every mode on disk several times."""

    def measure(mode: str) -> dict[str, Record]:
        with TemporaryDirectory() as folder:
            return on_disk(Path(folder, "lake"), mode)

    return _several_times(measure)


def record_s3() -> Recorded:
    """Measure every mode on S3 several times."""
    with start_moto() as server:
        return _several_times(lambda mode: on_s3(server, mode))


def _several_times(measure: Callable[[str], dict[str, Record]]) -> Recorded:
    return {mode: _joined([measure(mode) for _ in range(_TIMES)]) for mode in MODES}


def _joined(runs: list[dict[str, Record]]) -> dict[str, Record]:
    """Return the records that all runs agree on, and upper bounds where they do not."""
    return {step: _joined_step([run[step] for run in runs]) for step in runs[0]}


def _joined_step(records: list[Record]) -> Record:
    if all(each == records[0] for each in records):
        return records[0]
    names = sorted({name for each in records for name in each} - {"raises"})
    bounds = {name: max(each.get(name, 0) for each in records) for name in names}
    raised = {each["raises"] for each in records if "raises" in each}
    return {AT_MOST: bounds, **({"raises": " or ".join(sorted(raised))} if raised else {})}


def within(found: Record, recorded: Record) -> bool:
    """Tell whether a step cost what is recorded."""
    bounds = recorded.get(AT_MOST)
    if bounds is None:
        return found == recorded
    counts = {name: value for name, value in found.items() if name != "raises"}
    return found.get("raises") == recorded.get("raises") and all(
        value <= bounds.get(name, 0) for name, value in counts.items()
    )
