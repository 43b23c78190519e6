"""Runs again and again in one process: when the next one is due, and a loop that stops when it is told to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType

from relance.clock import Clock, SystemClock
from relance.errors import InvalidInputError
from relance.units import require_duration

SHORTEST = timedelta(seconds=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_time(after: datetime, every: timedelta) -> datetime:
    """Return the first moment after one that is a whole number of spans since 1970.

    So `1h` is on the hour and `1d` at midnight UTC, whenever the process began; a run that takes longer
    than the span leaves out the moments that have passed.

    Raises:
        InvalidInputError: the span is too short or too long.
    """
    if require_duration(every, what="the interval") < SHORTEST:
        raise InvalidInputError(f"interval {every} is too short: at least {SHORTEST.seconds} second")
    return _EPOCH + ((after - _EPOCH) // every + 1) * every


def repeat(
    every: timedelta,
    work: Callable[[], object],
    *,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
    at_once: bool = True,
    told: Callable[[datetime], None] | None = None,
) -> int:
    """Call `work` now, unless not `at_once`, and then at each moment of `next_time`, until `stop` is set.

    What `work` raises ends the loop: whoever wants it to go on catches it there. `told` is called with the
    next moment while the loop waits. Returns how often it was called.

    Raises:
        InvalidInputError: the span is too short.
    """
    next_time(_EPOCH, every)  # before anything is done
    ended, now = stop or threading.Event(), (clock or SystemClock()).now
    done = 0
    if at_once and not ended.is_set():
        work()
        done += 1
    while not ended.is_set():
        due = next_time(now(), every)
        if told is not None:
            told(due)
        # The clock on the wall may be set while we wait, so it is looked at now and then.
        while (left := (due - now()).total_seconds()) > 0:
            if ended.wait(min(left, 30.0)):
                return done
        work()
        done += 1
    return done


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set: what is under way is ended in order. A second one kills.

    Only for the main thread, which alone hears signals.
    """
    stop = threading.Event()
    before: dict[int, object] = {}

    def heard(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])  # type: ignore[arg-type]  # what was there before

    for each in (signal.SIGTERM, signal.SIGINT):
        before[each] = signal.signal(each, heard)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # likewise
