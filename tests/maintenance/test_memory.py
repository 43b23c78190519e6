"""The memory of the process that drives a job does not grow with the tables."""

from __future__ import annotations

from benchmarks.memory import peak_of_maintenance


def test_ten_times_the_tables_take_no_more_memory() -> None:
    few = peak_of_maintenance(200)
    peaks = (peak_of_maintenance(2_000) for _ in range(3))  # a busy machine adds to one; what is kept, to all
    assert any(peak < 1.05 * few for peak in peaks)
