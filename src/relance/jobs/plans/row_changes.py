"""Changes of rows that tasks prepare at a planned version, and the one commit that makes them true.

Which rows and how is in row_deletes and updates. The proof that a change still holds at a later version:
a fragment with the same data files and the same deletion file has the same rows there, so that what was
prepared for it is what would be prepared again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from relance.catalog.context import Context
from relance.catalog.states import new_nonce
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from relance.jobs.base import Effect, Estimate, Figures, TablePlan, Task
from relance.jobs.engine import back_off
from relance.lance_io import checkout, open_at
from relance.operations.data_errors import data_errors
from relance.operations.fields import fields_of_table
from relance.operations.staging.commit import find_marked
from relance.operations.staging.plan import JOB_MARK
from relance.operations.targets import Target, after_write, commit_transaction, open_for_writing


@dataclass(frozen=True, slots=True)
class Pinned:
    """The version of a table that was planned for."""

    table: tuple[str, ...]
    directory: str
    uri: str
    version: int
    fields: str
    """Lance's fields of the table, with their ids."""

    @contextmanager
    def opened(self, options: StorageOptions) -> Iterator[lance.LanceDataset]:
        """Give the dataset at this version, and turn what goes wrong in the block into our errors.

        Raises:
            ConcurrentModificationError: this version was cleaned up, or its table is gone.
        """
        try:
            with data_errors(self._what, options):
                yield self._open(options)
        except RelanceError as failure:
            if not isinstance(failure, ConcurrentModificationError) and self._is_gone(options):
                raise ConcurrentModificationError(
                    f"version {self.version} of {self._what} no longer exists; retry"
                ) from failure
            raise

    @property
    def _what(self) -> str:
        return f"table id '{'$'.join(self.table)}'"

    def _open(self, options: StorageOptions) -> lance.LanceDataset:
        latest = open_at(self.uri, options, "$".join(self.table))
        return checkout(latest, self.version, f"version {self.version} of {self._what}")

    def _is_gone(self, options: StorageOptions) -> bool:
        try:
            self._open(options)
        except RelanceError as failure:
            return isinstance(failure, TableNotFoundError | TableVersionNotFoundError)
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """What was prepared for some fragments: all of it is committed, or nothing."""

    rows: int
    updated: tuple[str, ...] = ()
    """Fragments with their new deletion files, as JSON."""
    removed: tuple[int, ...] = ()
    """Fragments of which no row is left."""
    added: tuple[str, ...] = ()
    """New fragments, as JSON."""

    @property
    def touched(self) -> frozenset[int]:
        """The fragments whose rows it changes."""
        return frozenset(self.removed) | {int(json.loads(each)["id"]) for each in self.updated}


class Rewrite(Protocol):
    """One kind of change. It can be pickled."""

    @property
    def where(self) -> str | None:
        """Which rows; None is all of them."""

    def prepare(self, context: Context, at: Pinned, fragments: Sequence[int]) -> list[Part]:
        """Write what the change needs for these fragments, which nothing mentions yet."""

    def operation(
        self, parts: Sequence[Part], dataset: lance.LanceDataset
    ) -> lance.LanceOperation.BaseOperation:
        """Return what to commit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment as planning sees it."""

    number: int
    state: str
    """Its files, data and deletion: what it takes to have the same rows."""
    rows: int
    deleted: int
    bytes: int


def pin(target: Target) -> Pinned:
    """Return the version that a table was opened at."""
    return Pinned(
        table=tuple(target.found.table_id.parts),
        directory=target.found.directory,
        uri=str(target.dataset.uri),
        version=int(target.dataset.version),
        fields=fields_of_table(target.dataset),
    )


def pieces_of(dataset: lance.LanceDataset) -> list[Piece]:
    """Return all fragments of a version."""
    return [_piece(each.metadata) for each in dataset.get_fragments()]


def _piece(fragment: FragmentMetadata) -> Piece:
    names = [each.path for each in fragment.files]
    if fragment.deletion_file is not None:
        names.append(fragment.deletion_file.path(fragment.id))
    size = sum(each.file_size_bytes or 0 for each in fragment.files)
    deleted = fragment.num_deletions
    return Piece(fragment.id, " ".join(names), fragment.physical_rows - deleted, deleted, size)


def figures_of(pieces: Iterable[Piece]) -> Figures:
    """Return what fragments hold together."""
    seen = list(pieces)
    return Figures(
        rows=sum(each.rows for each in seen),
        deleted_rows=sum(each.deleted for each in seen),
        fragments=len(seen),
        bytes=sum(each.bytes for each in seen),
    )


@dataclass(frozen=True, slots=True)
class Costs:
    """About how many seconds of one core a change takes."""

    fragment: float
    row: float
    byte: float = 0.0

    def of(self, pieces: Iterable[Piece]) -> float:
        return sum(self.fragment + each.rows * self.row + each.bytes * self.byte for each in pieces)


def grouped(pieces: Iterable[Piece], costs: Costs, *, most_seconds: float) -> list[list[Piece]]:
    """Cut fragments into groups of neighbours, each of about that much work."""
    groups: list[list[Piece]] = []
    left = 0.0
    for each in pieces:
        cost = costs.of([each])
        if not groups or cost > left:
            groups.append([])
            left = most_seconds
        groups[-1].append(each)
        left -= cost
    return groups


def fragment_text(fragment: FragmentMetadata) -> str:
    """Return a fragment as JSON."""
    return json.dumps(fragment.to_json())


def fragments_of(texts: Iterable[str]) -> list[FragmentMetadata]:
    """Return fragments from their JSON."""
    return [FragmentMetadata.from_json(each) for each in texts]


def discard(context: Context, directory: str, parts: Iterable[Part]) -> None:
    """Remove the files of parts that are in no version; what cannot be removed is left to the cleanup."""
    keys: list[str] = []
    for part in parts:
        for fragment in fragments_of(part.updated):
            if fragment.deletion_file is not None:
                keys.append(f"{directory}/{fragment.deletion_file.path(fragment.id)}")
        for fragment in fragments_of(part.added):
            keys += [f"{directory}/data/{each.path}" for each in fragment.files]
    with suppress(RelanceError):
        context.storage.delete_many(keys)


def still_holds(part: Part, planned: Mapping[int, str], now: Mapping[int, str]) -> bool:
    """Tell whether the fragments that a part changes are now as they were when it was prepared."""
    return all(number in now and now[number] == planned.get(number) for number in part.touched)


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
class RewritePlan(TablePlan):
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
