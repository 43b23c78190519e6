"""How fast files are deleted: one pace for all threads of a process, and for all tasks of a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from time import monotonic, sleep
from typing import TypeVar

from relance.catalog.purge import PurgeOptions

_BATCH = 1000
"""Files per delete request."""

_T = TypeVar("_T")


class Pacer:
    """Lets so many files a second go, whichever thread deletes them."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def wait(self, files: int) -> None:
        """Wait until so many files may go."""
        with self._lock:
            now = monotonic()
            begin = max(now, self._free)
            self._free = begin + files / self._rate
        if begin > now:
            sleep(begin - now)


@lru_cache(maxsize=16)
def _pacer(rate: float) -> Pacer:
    """Return the pacer of this process for a rate: all that are limited to the same rate share it."""
    return Pacer(rate)


def paced(files: Sequence[_T], rate: float | None, *, tasks: int = 1) -> Iterator[Sequence[_T]]:
    """Yield the files in batches, each when it may go.

    So many `tasks` keep the rate together, wherever they run. And all that this process deletes at the
    same rate keeps it together.
    """
    if rate is None:
        yield from (files[start : start + _BATCH] for start in range(0, len(files), _BATCH))
        return
    own = Pacer(rate / tasks)
    size = max(1, min(_BATCH, int(rate / tasks)))  # at most a second's worth
    for start in range(0, len(files), size):
        batch = files[start : start + size]
        own.wait(len(batch))
        _pacer(rate).wait(len(batch))
        yield batch


def purge_options(*, force: bool, rate: float | None) -> PurgeOptions:
    """Return how to purge at the pace of this process."""
    if rate is None:
        return PurgeOptions(force=force)
    pace = _pacer(rate)
    return PurgeOptions(force=force, rate_limit=rate, sleep=lambda seconds: pace.wait(round(seconds * rate)))
