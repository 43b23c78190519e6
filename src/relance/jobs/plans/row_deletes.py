"""Delete rows: each task writes the deletion files of its fragments, and one commit deletes them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

import lance
import numpy as np
import numpy.typing as npt
from lance.fragment import FragmentMetadata

from relance.catalog.context import Context
from relance.errors import RelanceError
from relance.jobs.base import Expected, MovedError, Name
from relance.jobs.plans.row_changes import (
    TASK_SECONDS,
    Costs,
    Part,
    Piece,
    Pinned,
    RewritePlan,
    discard,
    fragment_text,
    fragments_of,
    grouped,
    pieces_of,
    plan_rewrite,
)
from relance.jobs.plans.tables import open_expected
from relance.lance_io import transaction_at
from relance.operations.data.expressions import check_expressions
from relance.operations.targets import Target

_COSTS = Costs(fragment=0.005, row=1e-7)

_KNOWN = 5_000_000
"""So many addresses of rows are taken from an index; with more, each task scans its fragments."""

_SPARSE = 0.1
"""Up to this share of a fragment is deleted row by row; more is found faster by a scan of the fragment."""

_SCANNED = 20_000_000
"""So many rows that an index does not know yet may be looked through while planning."""

_THREADS = 4
"""A fragment takes one core, and waits for the store in between."""


MOST_VERSIONS = 500
"""So many versions that came since the plan are looked at; with more it counts as moved."""

_HARMLESS = (
    lance.LanceOperation.Append,
    lance.LanceOperation.Delete,
    lance.LanceOperation.Rewrite,
    lance.LanceOperation.CreateIndex,
    lance.LanceOperation.UpdateConfig,
)
"""After these a row has the values that it had, or is gone."""


def plan_delete(where: str, context: Context, table: Name, expect: Expected | None) -> RewritePlan | None:
    """Look for an index that knows the rows; else each task looks through its fragments.

    Raises:
        InvalidInputError: the predicate cannot be used.
        MovedError: the table was replaced, or its rows were changed, after the plan was made.
    """
    check_expressions([where])
    target = open_unchanged(context, table, expect)
    with target.errors():
        indexes = _indexes(target.dataset, where)
        known = _addresses(target.dataset, where) if indexes else None
    # To ask an index again for every fragment takes longer than a scan, so no fragment asks it.
    # On a line of its own: the predicate may end in a comment.
    rewrite = _Delete(where, f"((\n{where}\n) IS TRUE)" if indexes else where)
    if known is None:
        return plan_rewrite(target, rewrite, _COSTS)
    return _plan_known(target, rewrite, known) if known.size else None


def open_unchanged(context: Context, table: Name, expect: Expected | None) -> Target:
    """Return the latest version of a table, if its rows are those that were planned for, or fewer or more.

    Raises:
        MovedError: it was replaced, or rows of it were changed.
    """
    target = open_expected(context, table, expect)
    if expect is not None and expect.version is not None:
        with target.errors():
            _check_rows(f"table id '{'$'.join(table)}'", target.dataset, expect.version)
    return target


@dataclass(frozen=True, slots=True)
class _Delete:
    """Deletes in each fragment what the predicate selects there."""

    where: str
    scanned: str
    """The same predicate, as the fragments are asked."""

    def prepare(self, context: Context, at: Pinned, fragments: Sequence[int]) -> list[Part]:
        with at.opened(context.lance_options()) as dataset:
            return _in_threads(context, at, [partial(self.delete, dataset, each) for each in fragments])

    def delete(self, dataset: lance.LanceDataset, number: int) -> Part | None:
        """Delete in one fragment; None means that nothing matches there."""
        fragment = dataset.get_fragment(number)
        return _part(fragment, fragment.delete(self.scanned))

    def operation(
        self, parts: Sequence[Part], dataset: lance.LanceDataset
    ) -> lance.LanceOperation.BaseOperation:
        updated = [each for part in parts for each in fragments_of(part.updated)]
        removed = [each for part in parts for each in part.removed]
        return lance.LanceOperation.Delete(updated, removed, self.where)


@dataclass(frozen=True, slots=True)
class _Known:
    """What an index tells about one fragment."""

    number: int
    offsets: bytes | None = None
    """The places of the rows in it, 32 bits each; None means: scan it."""
    whole: bool = False
    """All of its rows."""


@dataclass(frozen=True, slots=True)
class _DeleteKnown:
    """A task that deletes rows by what an index tells."""

    at: Pinned
    rewrite: _Delete
    known: tuple[_Known, ...]
    weight: float

    def run(self, context: Context) -> list[Part]:
        with self.at.opened(context.lance_options()) as dataset:
            calls = [partial(self._delete, dataset, each) for each in self.known]
            return _in_threads(context, self.at, calls)

    def _delete(self, dataset: lance.LanceDataset, known: _Known) -> Part | None:
        if known.offsets is None and not known.whole:
            return self.rewrite.delete(dataset, known.number)
        fragment = dataset.get_fragment(known.number)
        if known.offsets is None:
            return _part(fragment, None)
        return _part(fragment, fragment.delete_rows(np.frombuffer(known.offsets, np.uint32).tolist()))


def _plan_known(target: Target, rewrite: _Delete, addresses: npt.NDArray[np.uint64]) -> RewritePlan:
    plan = plan_rewrite(target, rewrite, _COSTS, [])
    pieces = {each.number: each for each in plan.pieces}
    steps = np.diff(addresses.view(np.int64))
    ordered = addresses if np.all(steps >= 0) else np.sort(addresses)
    cuts = np.flatnonzero(np.diff(ordered >> 32)) + 1
    touched = {int(each[0] >> 32): each for each in np.split(ordered, cuts)}
    groups = grouped((pieces[each] for each in touched), _COSTS, most_seconds=TASK_SECONDS)
    tasks = [
        _DeleteKnown(
            plan.at,
            rewrite,
            tuple(_known(each, touched[each.number]) for each in group),
            _COSTS.of(group),
        )
        for group in groups
    ]
    return replace(plan, tasks=tuple(tasks))


def _known(piece: Piece, addresses: npt.NDArray[np.uint64]) -> _Known:
    if addresses.size == piece.rows:
        return _Known(piece.number, whole=True)
    if addresses.size > _SPARSE * piece.rows:
        return _Known(piece.number)
    return _Known(piece.number, addresses.astype(np.uint32).tobytes())


def _indexes(dataset: lance.LanceDataset, where: str) -> bool:
    """Tell whether indexes answer the predicate, for nearly all rows; Lance refuses what is no predicate."""
    plan = dataset.scanner(columns=[], filter=where, with_row_address=True).explain_plan()
    if "ScalarIndexQuery" not in plan:
        return False
    used = [each for each in dataset.describe_indices() if f"]@{each.name}(" in plan]
    indexed = min((each.num_rows_indexed for each in used), default=0)
    return bool(used) and dataset.count_rows() - indexed <= _SCANNED


def _addresses(dataset: lance.LanceDataset, where: str) -> npt.NDArray[np.uint64] | None:
    """Return where the rows are; None when they are too many."""
    found: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    rows = 0
    for batch in dataset.scanner(columns=[], filter=where, with_row_address=True).to_batches():
        rows += batch.num_rows
        if rows > _KNOWN:
            return None
        found.append(batch.column(0).to_numpy())
    return np.concatenate(found)


def _part(fragment: lance.LanceFragment, after: FragmentMetadata | None) -> Part | None:
    """Return what became of a fragment; None when nothing did."""
    before = fragment.metadata
    if after is None:
        return Part(before.physical_rows - before.num_deletions, removed=(before.id,))
    rows = after.num_deletions - before.num_deletions
    return Part(rows, updated=(fragment_text(after),)) if rows else None


def _in_threads(context: Context, at: Pinned, calls: Sequence[Callable[[], Part | None]]) -> list[Part]:
    """Make the calls, and remove what the others wrote when one fails."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="relance delete") as pool:
        running = [pool.submit(each) for each in calls]
        wait(running, return_when=FIRST_EXCEPTION)
        for future in running:
            future.cancel()  # does nothing to those that are done or under way
    ended = [each for each in running if not each.cancelled()]
    parts = [each.result() for each in ended if each.exception() is None]
    changed = [each for each in parts if each is not None]
    if len(parts) < len(running):
        discard(context, at.directory, changed)
    for each in ended:
        each.result()  # raises what went wrong
    return changed


def _check_rows(what: str, dataset: lance.LanceDataset, planned: int) -> None:
    latest = int(dataset.version)
    if latest - planned > MOST_VERSIONS:
        more = f"{latest - planned} more versions than when the plan was made"
        raise MovedError(f"{what} has {more}, too many to check; re-plan")
    for version in range(planned + 1, latest + 1):
        operation = _operation(dataset, version)
        if not isinstance(operation, _HARMLESS) and not _same_rows(dataset, version):
            name = "an unknown change" if operation is None else type(operation).__name__
            raise MovedError(
                f"{what} was changed after the plan was made (version {version}: {name}), "
                "so different rows may match now; re-plan"
            )


def _same_rows(dataset: lance.LanceDataset, version: int) -> bool:
    """Tell whether a version has the fragments of the one before it: some changes pylance does not name."""
    try:
        before, after = (dataset.checkout_version(each) for each in (version - 1, version))
        return pieces_of(before) == pieces_of(after) and before.schema == after.schema
    except (OSError, ValueError):
        return False  # cleaned up meanwhile: nobody can tell


def _operation(dataset: lance.LanceDataset, version: int) -> object | None:
    try:
        transaction = transaction_at(dataset, version)
    except (OSError, ValueError, RelanceError):
        return None  # cleaned up meanwhile: nobody can tell
    return None if transaction is None else transaction.operation
