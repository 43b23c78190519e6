"""The team of racing processes survives a race that goes wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.racing import declare_it, team
from tests.support.roots import local_place

PATIENCE = 3.0


def hang(catalog: Any, name: str, process: int) -> None:
    """Never come to an end in one of the processes."""
    if process == 0:
        time.sleep(3600)


def die(catalog: Any, name: str, process: int) -> None:
    """Take the process down."""
    if process == 1:
        os._exit(7)


@pytest.mark.parametrize("trouble", [hang, die])
def test_a_race_that_times_out_fails_alone(trouble: Any, tmp_path: Path) -> None:
    properties = local_place(tmp_path / "root").properties
    with team(2) as racers:
        racers.race(properties, declare_it, rounds=1)  # so that all are up when the clock starts
        with pytest.raises(AssertionError, match=r"1 of 2 outcomes.*Outcome\(round=0"):
            racers.race(properties, trouble, rounds=1, timeout=PATIENCE)
        raced = racers.race(properties, declare_it, rounds=3)
    assert [sorted(each.won for each in raced[name]) for name in ("t1", "t2")] == [[False, True]] * 2
