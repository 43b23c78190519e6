"""The memory of the process that drives a job does not grow with the tables."""

from __future__ import annotations

import pytest
from benchmarks.memory import peak_of_maintenance

pytestmark = pytest.mark.deep


def test_memory_does_not_grow_with_the_number_of_tables() -> None:
    # The lower of two for both: a busy machine adds to a peak, and never takes away from it.
    few, many = (min(peak_of_maintenance(tables) for _ in range(2)) for tables in (200, 2_000))
    assert many < 1.05 * few
