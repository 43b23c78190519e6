"""Clients that write to a table all the time, and a history of what they were told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support.jobs.rows import rows
from tests.support.roots import Place, ipc

from relance.errors import RelanceError

FIRST = 120
"""Rows that the table begins with."""
OWN = FIRST // 3
DELETED, UPDATED, OURS = (range(number, FIRST, 3) for number in range(3))
"""What clients delete, what they update, and what the job under test may change: all in the same fragments.

Each kind of change has rows for itself, so that one row has one history.
"""
ADDED = 1000
"""The first id of rows that clients add."""


@dataclass(slots=True)
class History:
    """The rows by what was acknowledged, and those of calls that failed: they may have happened."""

    numbers: dict[int, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)

    def check(self, table: Any) -> None:
        """Check that a table holds each row that was acknowledged once and as it was, and no other."""
        found = table.to_table(columns=["id", "n"])
        numbers = dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
        assert len(numbers) == found.num_rows, "a row is there twice"
        certain = {row: n for row, n in self.numbers.items() if row not in self.doubtful}
        assert {row: n for row, n in numbers.items() if row not in self.doubtful} == certain


@dataclass(slots=True)
class Clients:
    """Append to, delete from and update the table `t`, drop and undrop it, and give it another name."""

    place: Place
    history: History
    stop: threading.Event = field(default_factory=threading.Event)
    done: dict[str, int] = field(default_factory=dict)
    """How often each kind of change was acknowledged."""

    @property
    def have_all_done_something(self) -> bool:
        return len(self.done) == len(self._kinds)

    @property
    def _kinds(self) -> tuple[Callable[[int], None], ...]:
        return (self.append, self.delete, self.update, self.swing)

    def append(self, number: int) -> None:
        ids = range(ADDED + 5 * number, ADDED + 5 * number + 5)
        with self._doubt(ids):
            self.place.open().insert_into_table({"id": ["t"]}, ipc(rows(ids.start, len(ids))))
            self.history.numbers.update(dict.fromkeys(ids, 0))

    def delete(self, number: int) -> None:
        row = DELETED[number % OWN]
        with self._doubt([row]):
            self.place.open().delete_from_table({"id": ["t"], "predicate": f"id = {row}"})
            self.history.numbers.pop(row, None)

    def update(self, number: int) -> None:
        row = UPDATED[number % OWN]
        request = {"id": ["t"], "predicate": f"id = {row}", "updates": [["n", "n + 100"]]}
        with self._doubt([row]):
            self.place.open().update_table(request)
            self.history.numbers[row] += 100

    def swing(self, number: int) -> None:
        """Take the table away for a moment."""
        catalog, started = self.place.open(), time.monotonic()
        if number % 2:
            catalog.drop_table({"id": ["t"]})
            catalog.undrop_table(["t"])
        else:
            catalog.rename_table({"id": ["t"], "new_table_name": "u"})
            catalog.rename_table({"id": ["u"], "new_table_name": "t"})
        # So that some work is done in between, also where the store is slow.
        time.sleep(max(0.15, 3 * (time.monotonic() - started)))

    @contextmanager
    def _doubt(self, ids: Any) -> Iterator[None]:
        try:
            yield
        except RelanceError:
            self.history.doubtful.update(ids)
            raise

    def _keep_doing(self, what: Callable[[int], Any]) -> None:
        for number in count():
            if self.stop.wait(0.01):
                return
            try:
                what(number)
            except RelanceError:
                if what == self.swing:
                    raise  # whatever others do, the table can be dropped and renamed
                continue  # it was told that nothing is certain
            self.done[what.__name__] = self.done.get(what.__name__, 0) + 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have all of them write during the block."""
        with ThreadPoolExecutor(len(self._kinds)) as pool:
            running: list[Future[None]] = [pool.submit(self._keep_doing, each) for each in self._kinds]
            try:
                yield
            finally:
                self.stop.set()
            for each in running:
                each.result()
