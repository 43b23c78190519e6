"""The plan of a change of rows: tasks by fragments, what a dry run shows, and the commit with its repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import lance
import numpy as np

from relance.catalog.context import Context
from relance.catalog.states import new_nonce
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableVersionNotFoundError,
)
from relance.lance_io import checkout
from relance.maintenance.execute import back_off
from relance.maintenance.rows.row_changes import (
    Costs,
    Part,
    Piece,
    Pinned,
    Rewrite,
    discard,
    figures_of,
    grouped,
    pieces_of,
    pin,
    still_holds,
)
from relance.maintenance.work import Effect, Estimate, Task
from relance.operations.staging.commit import find_marked
from relance.operations.staging.plan import JOB_MARK
from relance.operations.targets import Target, after_write, commit_transaction, open_for_writing

TASK_SECONDS = 4.0
"""About how long one task takes."""

_REPAIRS = 10
"""How often the changed fragments alone are prepared again, before all is planned again."""

_REPAIR_SECONDS = 20.0
"""More work than this is planned again, so that it is done where the tasks are done."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Prepares the change for some fragments."""

    at: Pinned
    rewrite: Rewrite
    fragments: tuple[int, ...]
    weight: float

    def run(self, context: Context) -> list[Part]:
        return self.rewrite.prepare(context, self.at, self.fragments)


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """A change of rows of one table at one version."""

    at: Pinned
    rewrite: Rewrite
    costs: Costs
    pieces: tuple[Piece, ...] = field(repr=False)
    tasks: Sequence[Task] = field(repr=False)
    options: StorageOptions = field(repr=False)
    job: str = field(default_factory=new_nonce)

    @property
    def estimate(self) -> Estimate:
        """Find the rows that match: this reads the columns of the predicate, here."""
        rows, touched = self._matching()
        size = sum(each.bytes for each in self.pieces if each.number in touched)
        what = f"{rows} rows in {len(touched)} of {len(self.pieces)} fragments"
        return Estimate(rows=rows, files=len(touched), bytes=size, note=what)

    def _matching(self) -> tuple[int, set[int]]:
        rows, touched = 0, set[int]()
        if self.rewrite.where is None:
            return sum(each.rows for each in self.pieces), {each.number for each in self.pieces}
        with self.at.opened(self.options) as dataset:
            scanner = dataset.scanner(columns=[], filter=self.rewrite.where, with_row_address=True)
            for batch in scanner.to_batches():
                rows += batch.num_rows
                touched.update(np.unique(batch.column(0).to_numpy() >> 32).tolist())
        return rows, touched

    def finish(self, context: Context, values: Sequence[list[Part]]) -> Effect:
        """Commit what the tasks prepared; what others changed meanwhile is prepared again, and only that."""
        parts = list(chain.from_iterable(values))
        states = {each.number: each.state for each in self.pieces}
        return _Finish(context, self, self.at, states, parts).run()

    def discard(self, context: Context, values: Sequence[list[Part] | None]) -> None:
        """Remove what some tasks prepared, because another one failed."""
        discard(context, self.at.directory, chain.from_iterable(each or [] for each in values))


def plan_rewrite(
    target: Target, rewrite: Rewrite, costs: Costs, tasks: Sequence[Task] | None = None
) -> RewritePlan:
    """Return the plan of a change for all fragments of a table, unless the tasks are known already."""
    with target.errors():
        at, pieces = pin(target), pieces_of(target.dataset)
    if tasks is None:
        tasks = [
            RewriteTask(at, rewrite, tuple(each.number for each in group), costs.of(group))
            for group in grouped(pieces, costs, most_seconds=TASK_SECONDS)
        ]
    return RewritePlan(at, rewrite, costs, tuple(pieces), tuple(tasks), target.options)


@dataclass(slots=True)
class _Finish:
    """A commit on its way: at first of what the tasks prepared, later of what holds of it and the repairs."""

    context: Context
    plan: RewritePlan
    at: Pinned
    states: dict[int, str]
    parts: list[Part]

    def run(self) -> Effect:
        before = figures_of(self.plan.pieces)
        try:
            committed = self._land()
        except OutcomeUnknownError:
            raise  # the files may be in a version
        except RelanceError:
            discard(self.context, self.at.directory, self.parts)
            raise
        if committed is None:
            return Effect(before=before, after=before, note="no matching rows")
        return Effect(
            version=int(committed.version),
            rows=sum(each.rows for each in self.parts),
            before=before,
            after=figures_of(pieces_of(committed)),
        )

    def _land(self) -> lance.LanceDataset | None:
        """Return the committed version; None when there is nothing to commit."""
        attempt = 0
        while self.parts:
            attempt += 1
            target = open_for_writing(self.context, self.at.table)
            try:
                self._repair(target, refused=attempt > 1)
                if self.parts:
                    return self._commit(target)
            except _ReplanError:
                raise
            except ConcurrentModificationError:
                if attempt == _REPAIRS:
                    raise
                back_off(min(attempt, 3))
        return None

    def _repair(self, target: Target, *, refused: bool) -> None:
        """Prepare again what others changed since; the version to commit on is then the latest.

        After a refused commit that is done in any case: Lance refuses some versions, as a restored one,
        whatever they changed.

        Raises:
            ConcurrentModificationError: that is much, or the table has other columns: plan again.
        """
        with target.errors():
            latest, pieces = pin(target), pieces_of(target.dataset)
        if latest.directory != self.at.directory or latest.fields != self.at.fields:
            raise _ReplanError(
                f"table id '{target.found.table_id}' was replaced or its columns were changed; retry"
            )
        now = {each.number: each.state for each in pieces}
        kept, stale = list[Part](), list[Part]()
        for part in self.parts:
            (kept if still_holds(part, self.states, now) else stale).append(part)
        if not (stale or refused) and _is_there(target, self.at.version):
            return  # Lance itself sees to versions that only added something
        touched = frozenset[int]().union(*(each.touched for each in stale))
        changed = [each for each in pieces if each.number in touched or self._differs(each)]
        if self.plan.costs.of(changed) > _REPAIR_SECONDS:
            raise _ReplanError(f"other clients changed much of table id '{target.found.table_id}'; retry")
        self.parts = kept
        discard(self.context, self.at.directory, stale)
        numbers = tuple(each.number for each in changed)
        try:
            self.parts = kept + self.plan.rewrite.prepare(self.context, latest, numbers)
        except ConcurrentModificationError as failure:
            # The stale parts are gone, and with them what another repair would have to do again.
            raise _ReplanError(failure.detail) from failure
        self.at, self.states = latest, now

    def _differs(self, piece: Piece) -> bool:
        return self.states.get(piece.number) != piece.state

    def _commit(self, target: Target) -> lance.LanceDataset:
        with target.errors():
            operation = self.plan.rewrite.operation(self.parts, target.dataset)
        transaction = lance.Transaction(
            self.at.version, operation, transaction_properties={JOB_MARK: self.plan.job}
        )
        try:
            committed = commit_transaction(self.context, target, transaction)
        except RelanceError as failure:
            landed = self._landed(target, failure)
            if landed is None:
                raise
            committed = landed
        _look_again(self.context, target)
        return committed

    def _landed(self, target: Target, failure: RelanceError) -> lance.LanceDataset | None:
        """Return the version that this job has become although the commit failed.

        Raises:
            OutcomeUnknownError: nobody can tell.
        """
        marks = {JOB_MARK: self.plan.job}
        try:
            version = find_marked(self.context, self.at.directory, marks, after=self.at.version)
            if version is None:
                return None
            with target.errors():
                return checkout(target.dataset, version, f"version {version}")
        except RelanceError:
            raise OutcomeUnknownError(failure.detail) from failure


class _ReplanError(ConcurrentModificationError):
    """No repair: all of the table is planned again."""


def _is_there(target: Target, version: int) -> bool:
    """Tell whether a version is still kept, which a commit on it needs."""
    try:
        with target.errors():
            checkout(target.dataset, version, f"version {version}")
    except TableVersionNotFoundError:
        return False
    return True


def _look_again(context: Context, target: Target) -> None:
    """Check that what was committed is still the table.

    Raises:
        OutcomeUnknownError: it is not. To do it again could do it twice.
    """
    try:
        after_write(context, target.found, None)
    except ConcurrentModificationError as failure:
        raise OutcomeUnknownError(failure.detail) from failure
