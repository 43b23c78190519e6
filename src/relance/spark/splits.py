"""How the rows of a table are shared out to tasks. Pure; reading a split is in scan.

Fragments are laid end to end on a line, each as long as the work it makes, and the line is cut into
equal lengths. So many small fragments share a task, and one huge fragment is cut into row ranges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

DEFAULT_BYTES = 256 << 20
DEFAULT_ROWS = 8_000_000
"""A task takes 25 to 60 ms to start and Spark turns about 3 million narrow rows a second into its own."""

LEAST_BYTES = 8 << 20
LEAST_ROWS = 500_000
"""Smaller tasks cost more to start than they save, also when cores are idle."""

_SLACK = 0.25
"""A cut moves to the end of a fragment that is this near, as a part of a task: ranges cost a scan each."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What matters of a fragment here."""

    id: int
    rows: int
    """All rows, the deleted ones too."""
    deleted: int = 0
    bytes: int = 0

    @property
    def live(self) -> int:
        return self.rows - self.deleted


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment, or the rows `start` to `stop` of it; what they count, the plan says."""

    fragment: int
    start: int = 0
    stop: int | None = None
    """None: to the end."""

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop is None


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads, in this order."""

    pieces: tuple[Piece, ...]
    limit: int | None = None
    """At most so many rows of it."""


@dataclass(frozen=True, slots=True)
class SplitSize:
    """How big a task should be."""

    rows: int | None = None
    bytes: int | None = None
    parallelism: int | None = None
    """How many tasks run at once, if it is known."""

    def tasks_for(self, rows: int, size: int) -> int:
        """Return how many tasks so much work should be."""
        if self.rows is not None or self.bytes is not None:
            by_rows = 0 if self.rows is None else rows / self.rows
            by_bytes = 0 if self.bytes is None else size / self.bytes
            return max(1, math.ceil(max(by_rows, by_bytes)))
        tasks = max(1, math.ceil(max(rows / DEFAULT_ROWS, size / DEFAULT_BYTES)))
        if self.parallelism is None:
            return tasks
        # Whole rounds of tasks: a last one that runs alone leaves the other cores idle.
        even = math.ceil(tasks / self.parallelism) * self.parallelism
        most = max(rows // LEAST_ROWS, size // LEAST_BYTES, 1)
        return max(tasks, min(even, most))


def plan_splits(
    fragments: Sequence[Fragment], size: SplitSize, *, by_address: bool, limit: int | None = None
) -> list[Split]:
    """Return the splits: together they are every live row once, in order.

    With `by_address` the rows of a range are counted as they lie in the fragment, deleted ones too;
    else only live rows are counted. A limit keeps the first rows and needs ranges of live rows.
    """
    if limit is not None:
        assert not by_address, "how many rows of a range are live is not known"
        fragments = _first(fragments, limit)
    filled = [each for each in fragments if each.live > 0]
    rows = sum(each.live for each in filled)
    tasks = size.tasks_for(min(rows, rows if limit is None else limit), sum(each.bytes for each in filled))
    splits = _cut(filled, tasks, by_address=by_address)
    return splits if limit is None else _limited(splits, filled, limit)


def _first(fragments: Sequence[Fragment], limit: int) -> list[Fragment]:
    """Return the fragments that hold the first rows."""
    chosen: list[Fragment] = []
    for fragment in fragments:
        if limit <= 0:
            break
        chosen.append(fragment)
        limit -= fragment.live
    return chosen


def _cut(fragments: Sequence[Fragment], tasks: int, *, by_address: bool) -> list[Split]:
    total = sum(each.live for each in fragments)
    if not total:
        return []
    heavy = sum(each.bytes for each in fragments)

    def length(fragment: Fragment) -> float:
        # Rows and bytes both take time; half of the line is for each.
        return fragment.live / total + (fragment.bytes / heavy if heavy else 0.0)

    task = sum(length(each) for each in fragments) / tasks
    splits: list[Split] = []
    pieces: list[Piece] = []
    room = task
    for fragment in fragments:
        rows = fragment.rows if by_address else fragment.live
        left, start = length(fragment), 0
        per_row = left / rows
        while len(splits) < tasks - 1 and left > room + _SLACK * task:
            stop = start + round(room / per_row)
            if room > _SLACK * task and start < stop < rows:
                pieces.append(Piece(fragment.id, start, stop))
                left, start = left - (stop - start) * per_row, stop
            elif not pieces:
                break  # a single row is more than a task
            splits.append(Split(tuple(pieces)))
            pieces, room = [], task
        pieces.append(Piece(fragment.id, start))
        room -= left
        if len(splits) < tasks - 1 and room <= 1e-9 * task:
            splits.append(Split(tuple(pieces)))
            pieces, room = [], task
    if pieces:
        splits.append(Split(tuple(pieces)))
    return splits


def _limited(splits: Sequence[Split], fragments: Sequence[Fragment], limit: int) -> list[Split]:
    """Return the first splits, the last of which may only read a part of its rows."""
    live = {each.id: each.live for each in fragments}
    kept: list[Split] = []
    for split in splits:
        if limit <= 0:
            break
        rows = sum((live[p.fragment] if p.stop is None else p.stop) - p.start for p in split.pieces)
        kept.append(split if rows <= limit else replace(split, limit=limit))
        limit -= rows
    return kept
