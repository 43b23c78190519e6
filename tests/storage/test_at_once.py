"""Concurrent requests are sent only to remote stores."""

from __future__ import annotations

import threading

import pytest

from relance.storage.at_once import map_at_once
from relance.storage.memory import MemoryStorage


class _FarAway(MemoryStorage):
    @property
    def requests_at_once(self) -> int:
        return 2


@pytest.mark.parametrize("far_away", [True, False])
def test_requests_run_concurrently_only_on_a_remote_store(far_away: bool) -> None:
    storage = _FarAway() if far_away else MemoryStorage()
    met = threading.Barrier(2, timeout=20 if far_away else 0.1)

    def meet(number: int) -> tuple[int, bool]:
        try:
            met.wait()
        except threading.BrokenBarrierError:
            return number, False
        return number, True

    assert map_at_once(storage, meet, range(4)) == [(number, far_away) for number in range(4)]


def test_single_request_runs_in_the_calling_thread() -> None:
    assert map_at_once(_FarAway(), lambda _: threading.current_thread(), [0]) == [threading.current_thread()]
