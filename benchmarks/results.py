"""What a benchmark is, what it yields and when a target is met. Taking the samples is in measure. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a sample counts."""

    SECONDS = "seconds"
    REQUESTS = "requests"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Sample:
    """The values that repeats of one thing gave."""

    values: tuple[float, ...]

    @property
    def best(self) -> float:
        """The smallest value: the one that other work on the machine disturbed least."""
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be, in words and as a check of (ours, native)."""

    text: str
    is_met: Callable[[float, float | None], bool]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    what: str
    unit: Unit
    ours: Sample
    native: Sample | None = None
    target: Target | None = None
    """None for figures that are shown for information."""
    by_median: bool = False
    """Shows and judges the median: the best of calls whose cost varies by itself would flatter."""

    @property
    def our_figure(self) -> float:
        return self.ours.median if self.by_median else self.ours.best

    @property
    def native_figure(self) -> float | None:
        if self.native is None:
            return None
        return self.native.median if self.by_median else self.native.best

    @property
    def ratio(self) -> float | None:
        """How many times of ours native takes: above 1 we are ahead."""
        return (
            None
            if self.native_figure is None or not self.our_figure
            else self.native_figure / self.our_figure
        )

    @property
    def meets_target(self) -> bool | None:
        """Whether the target is met, or None when there is none."""
        return None if self.target is None else self.target.is_met(self.our_figure, self.native_figure)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named group of measurements that share what they set up."""

    name: str
    summary: str
    run: Callable[[], Iterator[Result]]


def times_faster(times: float) -> Target:
    """Return the target that native takes at least `times` as long as we do."""
    return Target(
        f"at least {times:g}x faster", lambda ours, native: native is not None and native >= times * ours
    )


def times_slower(times: float) -> Target:
    """Return the target that we take at most `times` as long as native."""
    return Target(
        f"at most {times:g}x slower", lambda ours, native: native is not None and ours <= times * native
    )


def at_most(limit: float, text: str) -> Target:
    """Return the target that our figure is no larger than `limit`."""
    return Target(text, lambda ours, native: ours <= limit)


def times_its_own(times: float) -> Target:
    """Return the target that what is shown as ours takes at most `times` of what is shown beside it."""
    return Target(f"at most {times:g}x", lambda ours, beside: beside is not None and ours <= times * beside)
