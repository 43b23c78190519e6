"""Repeated runs: when they are due, and how the loop ends."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest

from relance.errors import InvalidInputError
from relance.policy.schedule import next_time, repeat, stopped_by_signals

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "every", "due"),
    [
        (NOON, HOUR, NOON + HOUR),
        (NOON + timedelta(minutes=59, seconds=59), HOUR, NOON + HOUR),
        (NOON, timedelta(minutes=15), NOON + timedelta(minutes=15)),
        (NOON, timedelta(days=1), datetime(2026, 3, 2, tzinfo=UTC)),
        (NOON + timedelta(hours=5, minutes=1), HOUR, NOON + 6 * HOUR),
    ],
)
def test_next_run_is_due_at_a_multiple_of_the_interval(
    after: datetime, every: timedelta, due: datetime
) -> None:
    assert next_time(after, every) == due


def test_interval_below_one_second_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 1 second"):
        next_time(NOON, timedelta(milliseconds=10))


class _Clock:
    """Goes on by a quarter of a second at each look, so that nothing has to wait for long."""

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        self.moment += timedelta(seconds=0.25)
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Nothing waits."""

    def at_store(self, moment: datetime) -> datetime:
        return moment


def test_repeat_works_immediately_and_then_at_intervals_until_stopped() -> None:
    stop, done, due = threading.Event(), [], list[datetime]()

    def work() -> None:
        done.append(1)
        if len(done) == 3:
            stop.set()

    count = repeat(timedelta(seconds=1), work, stop=stop, clock=_Clock(), told=due.append)
    assert count == 3
    assert due == [NOON + timedelta(seconds=1), NOON + timedelta(seconds=2)]


def test_repeat_with_too_short_an_interval_does_no_work() -> None:
    done: list[int] = []
    with pytest.raises(InvalidInputError, match="at least 1 second"):
        repeat(timedelta(0), lambda: done.append(1))
    assert not done


def test_exception_in_the_work_ends_the_loop() -> None:
    def work() -> None:
        raise InvalidInputError("no")

    with pytest.raises(InvalidInputError):
        repeat(HOUR, work)


def test_signal_ends_the_wait_for_the_next_run() -> None:
    done: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        count = repeat(HOUR, lambda: done.append(1), stop=stop)
    assert count == 1
    assert signal.getsignal(signal.SIGTERM) == before
