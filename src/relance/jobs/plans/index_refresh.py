"""Index refresh: have the indexes of tables cover the rows that were written since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lance
from lance.fragment import FragmentMetadata

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, RelanceError
from relance.jobs.base import Effect, Estimate, Expected, Figures, Name, TablePlan
from relance.jobs.engine import worth_retrying
from relance.jobs.indexes import RefreshIndexes
from relance.jobs.plans.tables import Place, open_expected, open_planned, open_version, place_of
from relance.operations.data_errors import data_errors
from relance.operations.targets import Target, after_write

_SEGMENTED = {"BTree": "BTREE", "Bitmap": "BITMAP"}
"""Kinds that have no settings, so that parts built apart are parts of one index; others Lance extends."""

_SCALAR_SECONDS = 0.4e-6
_OTHER_SECONDS = 5e-6
"""About what a row costs on one core."""


@dataclass(frozen=True, slots=True)
class Lag:
    """An index and the fragments that it does not cover, in their order."""

    name: str
    column: str
    kind: str
    fragments: tuple[tuple[int, int], ...]
    """Each with its live rows."""

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.fragments)


def plan_refresh(
    job: RefreshIndexes, context: Context, table: Name, expect: Expected | None
) -> RefreshPlan | None:
    """Return what to extend; None when no index lags."""
    target = open_expected(context, table, expect)
    place = place_of(context, target)
    with target.errors():
        fragments = [fragment.metadata for fragment in target.dataset.get_fragments()]
        rows = sum(fragment.num_rows for fragment in fragments)
        limit = job.allowed_lag(rows)
        lags = tuple(lag for lag in lags_of(target.dataset, fragments) if lag.rows > limit)
        columns = set(target.dataset.schema.names)
    if not lags:
        return None
    return RefreshPlan(place, lags, tuple(_tasks(place, lags, columns, job.segment_rows)), rows)


def _tasks(
    place: Place, lags: Sequence[Lag], columns: set[str], segment_rows: int
) -> Iterator[Build | Extend]:
    """Yield tasks: indexes over `segment_rows` or more new rows are built in parts if their type allows it.

    All others, vector indexes among them, are extended by Lance in one task for the table.
    """
    # The address of a column inside another is not always its name.
    big = [
        lag for lag in lags if lag.rows >= segment_rows and lag.kind in _SEGMENTED and lag.column in columns
    ]
    for lag in big:
        for part in _parts(lag.fragments, segment_rows):
            weight = sum(rows for _, rows in part) * _SCALAR_SECONDS
            yield Build(place, lag, tuple(number for number, _ in part), weight)
    if small := [lag for lag in lags if lag not in big]:
        weight = sum(lag.rows * _seconds(lag.kind) for lag in small)
        yield Extend(place, tuple(lag.name for lag in small), weight)


def _seconds(kind: str) -> float:
    return _SCALAR_SECONDS if kind in _SEGMENTED else _OTHER_SECONDS


def lags_of(dataset: lance.LanceDataset, fragments: Sequence[FragmentMetadata]) -> Iterator[Lag]:
    """Yield each index that does not cover all of these fragments; nothing of it is read."""
    for index in dataset.describe_indices():
        if index.name.startswith("__"):
            continue  # Lance's own notes
        covered = {number for segment in index.segments for number in segment.fragment_ids}
        missing = tuple((each.id, each.num_rows) for each in fragments if each.id not in covered)
        if missing:
            yield Lag(index.name, index.field_names[0], index.index_type, missing)


def _parts(fragments: Sequence[tuple[int, int]], rows: int) -> Iterator[list[tuple[int, int]]]:
    """Cut fragments into runs of neighbours with about this many rows: compaction joins only those."""
    part: list[tuple[int, int]] = []
    for each in fragments:
        if part and sum(number for _, number in part) + each[1] > rows:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class Built:
    """What came of a task."""

    segment: Any = None
    """A part of an index, which no version names yet."""
    index: str = ""
    error: RelanceError | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """A task that builds the part of an index over some fragments."""

    place: Place
    lag: Lag
    fragments: tuple[int, ...]
    weight: float

    def run(self, context: Context) -> Built:
        """Do it; what goes wrong is part of the answer, so that what others built is not forgotten."""
        try:
            with data_errors(self.place.what, context.lance_options()):
                segment = open_version(context, self.place).create_index_uncommitted(
                    self.lag.column,
                    _SEGMENTED[self.lag.kind],
                    name=self.lag.name,
                    replace=True,  # else the name is taken; nothing is replaced before the commit
                    fragment_ids=list(self.fragments),
                )
        except RelanceError as error:
            return Built(error=error)
        return Built(segment, self.lag.name)


@dataclass(frozen=True, slots=True)
class Extend:
    """A task that has Lance extend indexes, and commits that; done again, it finds nothing to do."""

    place: Place
    names: tuple[str, ...]
    weight: float

    def run(self, context: Context) -> Built:
        """Do it."""
        try:
            target = open_planned(context, self.place)
            with target.errors():
                there = {each.name for each in target.dataset.describe_indices()}
                names = [each for each in self.names if each in there]
                if names:
                    target.dataset.optimize.optimize_indices(index_names=names)
            after_write(context, target.found, None)
        except RelanceError as error:
            return Built(error=error)
        return Built()


@dataclass(frozen=True, slots=True)
class RefreshPlan(TablePlan):
    """The indexes of one table that lag."""

    place: Place
    lags: tuple[Lag, ...]
    tasks: tuple[Build | Extend, ...]
    rows: int

    @property
    def estimate(self) -> Estimate:
        """The rows that are put into indexes, once for each."""
        names = ", ".join(f"{each.name} ({each.rows} rows)" for each in self.lags)
        return Estimate(rows=sum(each.rows for each in self.lags), note=f"extends {names}")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        """Commit the parts of each index that was built in parts.

        Raises:
            ConcurrentModificationError: the index, or the fragments under it, changed meanwhile.
            TableNotFoundError: the table was dropped or renamed.
        """
        built: Sequence[Built] = values
        errors = [each.error for each in built if each.error is not None]
        for lag in self.lags:
            parts = tuple(each.segment for each in built if each.index == lag.name)
            if not parts:
                continue
            wanted = sum(isinstance(each, Build) and each.lag == lag for each in self.tasks)
            segments = Segments(lag.name, lag.column, parts, is_whole=len(parts) == wanted)
            try:
                commit_segments(context, self.place, segments)
            except RelanceError as error:
                errors.append(error)
        target = open_planned(context, self.place)  # what tells most if the table is gone
        if errors:
            raise min(errors, key=worth_retrying)  # what a new plan does not mend comes first
        return Effect(
            version=int(target.dataset.version),
            rows=sum(each.rows for each in self.lags),
            before=Figures(rows=self.rows),
            after=Figures(rows=int(target.dataset.count_rows())),
            note=f"extended {', '.join(each.name for each in self.lags)}",
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of one index, which no version names yet."""

    index: str
    column: str
    parts: tuple[Any, ...]
    is_whole: bool
    """False when a task failed: then nothing is committed."""


def commit_segments(context: Context, place: Place, segments: Segments) -> None:
    """Merge the parts into one and add it to the index; parts that are not used are removed.

    The commit is based on the planned version, so that Lance refuses it when the fragments were rewritten
    or the index was changed or dropped since.

    Raises:
        ConcurrentModificationError: that happened.
        TableNotFoundError: the table was dropped or renamed.
    """
    if not segments.is_whole:
        _remove(context, place, segments.parts)
        return
    try:
        target = open_planned(context, place)
    except RelanceError:
        _remove(context, place, segments.parts)
        raise
    merged = _merge(context, place, target, segments)
    try:
        with target.errors():
            dataset = open_version(context, place)
            dataset.commit_existing_index_segments(segments.index, segments.column, [merged])
    except ConcurrentModificationError:
        # A store that lost the first answer reports a conflict with this very commit.
        if not _is_in_table(context, place, segments.index, merged):
            _remove(context, place, [merged])
            raise
    after_write(context, target.found, None)


def _merge(context: Context, place: Place, target: Target, segments: Segments) -> Any:
    """Return one part of all: a query looks into each part of an index."""
    if len(segments.parts) == 1:
        return segments.parts[0]
    try:
        with target.errors():
            return open_version(context, place).merge_existing_index_segments(list(segments.parts))
    finally:
        _remove(context, place, segments.parts)


def _is_in_table(context: Context, place: Place, index: str, part: Any) -> bool:
    target = open_planned(context, place)
    with target.errors():
        found = [each for each in target.dataset.describe_indices() if each.name == index]
    return any(str(segment.uuid) == str(part.uuid) for each in found for segment in each.segments)


def _remove(context: Context, place: Place, parts: Iterable[Any]) -> None:
    keys = [f"{place.directory}/_indices/{each.uuid}/{file.path}" for each in parts for file in each.files]
    with suppress(RelanceError):  # they are in nobody's way
        context.storage.delete_many(keys)
