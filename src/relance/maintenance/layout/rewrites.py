"""Commit what the tasks of a compaction have written. Planning it is in compaction.

Lance refuses a rewrite of a fragment that others changed since the plan, so deleted rows stay deleted.
It does not notice that another table is in the same place now, so what is replaced is compared here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import lance
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, RewriteResult

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, RelanceError
from relance.maintenance.planned import Place, open_planned
from relance.operations.targets import Target, after_write

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
