"""How fast files are deleted: one pace for all threads of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache

BATCH = 1000
"""Files per delete request."""


class Pacer:
    """Lets so many files a second go, whichever thread deletes them."""

    def __init__(
        self,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._free = 0.0
        self._lock = threading.Lock()

    def wait(self, files: int) -> None:
        """Wait until so many files may go."""
        with self._lock:
            now = self._now()
            begin = max(now, self._free)
            self._free = begin + files / self._rate
        if begin > now:
            self._sleep(begin - now)


@lru_cache(maxsize=16)
def pacer(rate: float) -> Pacer:
    """Return the pacer of this process for a rate: all that are limited to the same rate share it."""
    return Pacer(rate)


def batch_size(rate: float | None) -> int:
    """Return how many files go at once: at most a second's worth."""
    return BATCH if rate is None else max(1, min(BATCH, int(rate)))
