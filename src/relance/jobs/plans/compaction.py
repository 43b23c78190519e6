"""Compaction: write small fragments, and those with many deleted rows, into fewer and larger ones.

Lance refuses a rewrite of a fragment that others changed since the plan, so deleted rows stay deleted.
It does not notice that another table is in the same place now, so the fragments to replace are compared here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import lance
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, RelanceError
from relance.jobs.base import Effect, Estimate, Expected, Figures, Name, TablePlan, UnfinishedError
from relance.jobs.compact import Compact
from relance.jobs.engine import worth_retrying
from relance.jobs.plans.fragments import (
    bytes_of,
    deleted_share,
    figures_of,
    figures_of_fragments,
)
from relance.jobs.plans.tables import Place, open_expected, open_planned, open_version, place_of
from relance.operations.data_errors import data_errors
from relance.operations.targets import Target, after_write

_BYTES_PER_SECOND = 25_000_000
"""About what one core reads, encodes and writes."""

_TASK_SECONDS = 0.02


def plan_compaction(
    job: Compact, context: Context, table: Name, expect: Expected | None
) -> CompactPlan | None:
    """Return the fragments to rewrite; None when all are as they should be."""
    target = open_expected(context, table, expect)
    place = place_of(context, target)
    with target.errors():
        fragments = [fragment.metadata for fragment in target.dataset.get_fragments()]
        defer = job.defer_index_remap and not target.dataset.has_stable_row_ids
        tasks = Compaction.plan(target.dataset, _options(job, fragments, defer=defer)).tasks
        if not tasks:
            return None
        rewrites = tuple(Rewrite(place, task, _weight(task)) for task in tasks)
        before = figures_of_fragments(fragments)
    return CompactPlan(place, rewrites, before, defer, job.partial_progress)


def _options(job: Compact, fragments: Sequence[FragmentMetadata], *, defer: bool) -> dict[str, Any]:
    rows, size = sum(fragment.physical_rows for fragment in fragments), sum(map(bytes_of, fragments))
    options: dict[str, Any] = {
        "target_rows_per_fragment": job.rows_per_fragment(rows=int(rows), size=size),
        "materialize_deletions": True,
        "materialize_deletions_threshold": job.deletion_threshold,
        "defer_index_remap": defer,
    }
    if job.batch_size is not None:
        options["batch_size"] = job.batch_size
    if job.target_bytes is not None:
        options["excluded_fragment_ids"] = [each.id for each in fragments if _is_large(job, each)]
    return options


def _is_large(job: Compact, fragment: FragmentMetadata) -> bool:
    """Return whether a fragment can stay.

    The average row changes with each compaction: if all below the target were rewritten, then each run
    would rewrite all of the table.
    """
    if deleted_share(fragment) > job.deletion_threshold:
        return False
    return job.target_bytes is not None and bytes_of(fragment) * 2 >= job.target_bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A task that writes the rows of some fragments into new files, which no version names yet."""

    place: Place
    task: CompactionTask
    weight: float

    def run(self, context: Context) -> Rewritten:
        """Do it; what goes wrong is part of the answer, so that what others wrote is not forgotten."""
        try:
            with data_errors(self.place.what, context.lance_options()):
                return Rewritten(self.task.execute(open_version(context, self.place)))
        except RelanceError as error:
            return Rewritten(error=error)


@dataclass(frozen=True, slots=True)
class CompactPlan(TablePlan):
    """What to write anew in one table."""

    place: Place
    tasks: tuple[Rewrite, ...]
    before: Figures
    defer_index_remap: bool
    commit_every: int | None = None

    @property
    def estimate(self) -> Estimate:
        """The fragments that are written anew: their rows, files and bytes."""
        found = figures_of_fragments(old for each in self.tasks for old in each.task.fragments)
        note = f"rewrites {found.fragments} of {self.before.fragments} fragments"
        return Estimate(found.rows or 0, found.files or 0, found.bytes or 0, note=note)

    def commit_partial(self, context: Context, values: Sequence[Any]) -> Sequence[Any]:
        """Commit what fits the table as it is now."""
        return commit_rewrites(context, self.place, values, defer_index_remap=self.defer_index_remap)

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        """Commit what is not yet, and tell what changed.

        Raises:
            ConcurrentModificationError: others changed all that was planned.
            UnfinishedError: others changed some of it, or some failed; the rest is in the table.
            TableNotFoundError: the table was dropped or renamed.
        """
        done: Sequence[Rewritten] = self.commit_partial(context, values)
        landed = [each for each in done if each.version is not None]
        errors = [each.error for each in done if each.error is not None]
        # What a new plan does not mend comes first.
        errors.sort(key=worth_retrying)
        if errors and not landed:
            raise self._cause(context, errors[0])
        effect = self._effect(context, landed)
        if errors:
            raise UnfinishedError(self._cause(context, errors[0]), effect) from errors[0]
        return effect

    def lost(self, error: RelanceError) -> Rewritten:
        """Return what stands for a task whose worker died."""
        return Rewritten(error=error)

    def _cause(self, context: Context, error: RelanceError) -> RelanceError:
        """Return why a task failed: without its table every file that it reads is missing."""
        try:
            open_planned(context, self.place)
        except RelanceError as cause:
            return cause
        return error

    def _effect(self, context: Context, landed: Sequence[Rewritten]) -> Effect:
        version = max(each.version or 0 for each in landed)
        results = [each.result for each in landed if each.result is not None]
        old = figures_of_fragments(each for result in results for each in result.original_fragments)
        return Effect(
            version=version,
            rows=old.rows or 0,
            before=self.before,
            after=self._after(context, version),
            note=f"{old.fragments} fragments became {sum(len(each.new_fragments) for each in results)}",
        )

    def _after(self, context: Context, version: int) -> Figures:
        try:
            with data_errors(self.place.what, context.lance_options()):
                return figures_of(open_version(context, replace(self.place, version=version)))
        except RelanceError:
            return Figures()  # the work is done, whatever became of the table since


def _weight(task: CompactionTask) -> float:
    return _TASK_SECONDS + sum(map(bytes_of, task.fragments)) / _BYTES_PER_SECOND


_COMMITS = 4
"""How often a commit is tried with what others have left unchanged."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What came of one task."""

    result: RewriteResult | None = None
    """What it wrote; None if that failed."""
    version: int | None = None
    """The version that has it."""
    error: RelanceError | None = None

    @property
    def is_waiting(self) -> bool:
        return self.result is not None and self.version is None and self.error is None


def commit_rewrites(
    context: Context, place: Place, values: Sequence[Rewritten], *, defer_index_remap: bool
) -> list[Rewritten]:
    """Make one version of all results that still fit, and return what became of each. Raises nothing.

    A result whose fragments others have changed gets an error, and its files are removed.
    """
    done = list(values)
    for attempt in range(_COMMITS + 1):
        waiting = [number for number, each in enumerate(done) if each.is_waiting]
        if not waiting:
            break
        try:
            target = open_planned(context, place)
            fitting = _fitting(target, [done[number] for number in waiting])
        except RelanceError as error:
            for number in waiting:
                done[number] = _failed(context, place, done[number], error, tried=attempt > 0)
            break
        chosen = [number for number, fits in zip(waiting, fitting, strict=True) if fits]
        if attempt == _COMMITS:
            chosen = []  # an index was made meanwhile, say: nothing but a new plan helps
        for number in set(waiting) - set(chosen):
            done[number] = _refused(context, place, target, done[number])
        if chosen:
            outcome = _commit(context, target, [done[number] for number in chosen], defer_index_remap)
            for number in chosen:
                done[number] = replace(done[number], version=outcome.version, error=outcome.error)
    return done


def _fitting(target: Target, values: Sequence[Rewritten]) -> list[bool]:
    """Tell for each result whether all that it replaces is in the table as it was planned."""
    with target.errors():
        there = {each.fragment_id: _shape(each.metadata) for each in target.dataset.get_fragments()}
    return [
        all(there.get(old.id) == _shape(old) for old in each.result.original_fragments)
        for each in values
        if each.result is not None
    ]


def _shape(fragment: FragmentMetadata) -> tuple[object, ...]:
    """Return the names of a fragment's files: what it holds never changes under the same names."""
    deleted = fragment.deletion_file
    gone = None if deleted is None else (deleted.id, deleted.read_version, deleted.num_deleted_rows)
    return (*(each.path for each in fragment.files), gone)


def _commit(
    context: Context, target: Target, values: Sequence[Rewritten], defer_index_remap: bool
) -> Rewritten:
    """Commit results; without a version and an error it is to be tried again."""
    results = [each.result for each in values]
    try:
        # No unknown outcome: a rewrite cannot take effect twice, so that planning again is always safe.
        with target.errors():
            Compaction.commit(target.dataset, results, {"defer_index_remap": defer_index_remap})
    except ConcurrentModificationError:
        return Rewritten()
    except RelanceError as error:
        return Rewritten(error=error)
    version = int(target.dataset.version)
    try:
        after_write(context, target.found, None)
    except RelanceError as error:
        return Rewritten(version=version, error=error)
    return Rewritten(version=version)


def _refused(context: Context, place: Place, target: Target, value: Rewritten) -> Rewritten:
    """Return what became of a result that does not fit: it may be because it is in the table already.

    A store that lost the answer to a commit, and tried again, reports a conflict with this very commit.
    """
    error = ConcurrentModificationError(
        f"{place.what}: another client changed the fragments to compact; retry"
    )
    try:
        version = _version_with(target, place.version, _files_of(value))
    except RelanceError:
        return replace(value, error=error)  # nobody can tell, so nothing is removed
    if version is not None:
        return replace(value, version=version)
    return _failed(context, place, value, error, tried=False)


def _failed(
    context: Context, place: Place, value: Rewritten, error: RelanceError, *, tried: bool
) -> Rewritten:
    """Note an error, and remove the files unless a commit that was tried may have them."""
    if not tried:
        with suppress(RelanceError):  # they are in nobody's way
            context.storage.delete_many([f"{place.directory}/data/{each}" for each in _files_of(value)])
    return replace(value, error=error)


def _files_of(value: Rewritten) -> list[str]:
    if value.result is None:
        return []
    return sorted(file.path for each in value.result.new_fragments for file in each.files)


def _version_with(target: Target, after: int, files: Sequence[str]) -> int | None:
    """Return a version after `after` that has one of the files.

    Raises:
        RelanceError: a version cannot be read.
    """
    wanted = set(files)
    with target.errors():
        for version in range(int(target.dataset.version), after, -1):
            dataset: lance.LanceDataset = target.dataset.checkout_version(version)
            for each in dataset.get_fragments():
                if not wanted.isdisjoint(file.path for file in each.metadata.files):
                    return version
    return None
