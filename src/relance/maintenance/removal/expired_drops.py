"""Purge: the files of dropped tables go when their time has passed, many tables at once, or one giant one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from relance.catalog.context import Context, table_id_of
from relance.catalog.purge import (
    MOST_TABLES,
    PurgeOptions,
    PurgeResult,
    Ready,
    SharedPurge,
    dropped_generations,
    finish_shared,
    hold_shared,
    is_due,
    is_never_named_twice,
    is_shared,
    make_ready,
    purge_generations,
    purge_ready,
    share_purge,
    would_purge,
)
from relance.catalog.resolve import Generation, all_generations
from relance.catalog.states import State, new_nonce
from relance.clock import require_moment
from relance.errors import InvalidInputError, RelanceError
from relance.maintenance.removal.pacing import paced, purge_options
from relance.maintenance.removal.retired_files import Removed
from relance.maintenance.work import Effect, Estimate, TablePlan
from relance.storage.at_once import map_at_once

GIANT_FILES = 20_000
"""From so many files on they are deleted in tasks."""

_PER_TASK = 10_000
_SECONDS_PER_FILE = 0.002
_RATED_TASKS = 4


@dataclass(frozen=True, slots=True)
class PurgeDropped:
    """Purges dropped tables whose time has passed: all of them, or those that are named.

    A table that a purge holds whose process is gone is taken over when its lease is over.
    """

    deleted_before: datetime | None = None
    """Only drops before this moment."""
    deletion_id: str | None = None
    """Only the drop of this id, whatever else of the name is dropped."""
    force: bool = False
    """Purge tables that are named also before their time has passed."""
    rate_limit: float | None = None
    """Files per second in each process."""
    giant_files: int = GIANT_FILES
    run: str = field(default_factory=new_nonce)
    """Names the claim that the tasks of a giant table share."""
    name: str = field(default="purge", init=False)

    def __post_init__(self) -> None:
        if self.deleted_before is not None:
            require_moment(self.deleted_before, what="deleted_before")
        if self.rate_limit is not None and self.rate_limit <= 0:
            raise InvalidInputError(f"rate_limit must be above 0, got {self.rate_limit}")

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        """Return the names with a dropped table whose time has passed, oldest drop first."""
        due = [each for each in all_generations(context, abandoned=True) if self._is_due(context, each)]
        return list(dict.fromkeys(tuple(each.table_id.parts) for each in due))

    def plan(self, context: Context, table: tuple[str, ...]) -> PurgedInPlace | PurgedInTasks | None:
        """Look how much there is to delete.

        Raises:
            InvalidTableStateError: the table is live, or its time has not passed.
            TableNotFoundError: there is nothing to purge.
            ConcurrentModificationError: another purge has it.
        """
        dropped = [
            each
            for each in dropped_generations(context, table_id_of(context, table), self.deletion_id)
            if self._is_old(each)
        ]
        # When none is due, they are tried all the same: the purge then says why not.
        chosen = [each for each in dropped if self.force or self._is_due(context, each)] or dropped
        if not chosen:
            return None
        if any(self._is_ours(each) for each in chosen):
            # Begun in tasks, it goes on so: only they know the claim.
            return self._plan_tasks(context, chosen)
        options = PurgeOptions(force=self.force, rate_limit=self.rate_limit)
        if context.manifest is None:
            ready = self._look(context, chosen[0])  # there is but one
            if ready.inside.count <= self.giant_files:
                return PurgedInPlace(context, tuple(chosen), options, ready)
        elif not self._is_giant(context, chosen) or _keep_files(context, chosen):
            return PurgedInPlace(context, tuple(chosen), options)
        return self._plan_tasks(context, chosen)

    def do_together(
        self, context: Context, tables: Sequence[tuple[str, ...]]
    ) -> list[Effect | TablePlan | RelanceError | None]:
        """Purge tables of ordinary size; a giant one gets its plan, each that fails its error."""

        def look(table: tuple[str, ...]) -> PurgedInPlace | PurgedInTasks | RelanceError | None:
            try:
                return self.plan(context, table)
            except RelanceError as error:
                return error

        done: list[Effect | TablePlan | RelanceError | None] = []
        for start in range(0, len(tables), MOST_TABLES):
            plans = map_at_once(context.storage, look, tables[start : start + MOST_TABLES])
            effects = iter(_finish(context, [each for each in plans if isinstance(each, PurgedInPlace)]))
            done += [next(effects) if isinstance(each, PurgedInPlace) else each for each in plans]
        return done

    def _look(self, context: Context, generation: Generation) -> Ready:
        return make_ready(
            context,
            generation,
            force=self.force,
            count_to=self.giant_files,
        )

    def _is_giant(self, context: Context, chosen: list[Generation]) -> bool:
        found = (info for each in chosen for info in context.storage.list_recursive(each.directory))
        return sum(1 for _ in islice(found, self.giant_files + 1)) > self.giant_files

    def _plan_tasks(self, context: Context, chosen: list[Generation]) -> PurgedInTasks:
        shared = [
            share_purge(context, each, token=f"{self.run}{each.deletion_id}", force=self.force)
            for each in chosen
        ]
        # The marker was read before its directory is listed, and is claimed as it was then: all that is
        # listed here was dropped.
        tasks: list[DeletePart] = []
        files = size = 0
        for purge in shared:
            found: list[tuple[str, int]] = []
            for info in context.storage.list_recursive(purge.directory):
                files, size = files + 1, size + info.size
                if is_never_named_twice(purge.directory, info.key):
                    found.append((info.key, info.size))
            count = max(1, -(-len(found) // _PER_TASK))
            rate = self.rate_limit
            if rate is not None:
                count = min(count, _RATED_TASKS)
                rate /= count
            parts = [tuple(found[number::count]) for number in range(count)]
            tasks += [DeletePart(purge, part, rate, _weight(len(part), rate)) for part in parts]
        return PurgedInTasks(tuple(shared), tuple(tasks), files, size, self.rate_limit)

    def _is_old(self, generation: Generation) -> bool:
        before = self.deleted_before
        at = generation.dropped_at or generation.control.deleted_at
        return before is None or (at is not None and at < before)

    def _is_due(self, context: Context, generation: Generation) -> bool:
        due = self._is_ours(generation) or is_due(context, generation)
        return due and self._is_old(generation) and self.deletion_id in {None, generation.deletion_id}

    def _is_ours(self, generation: Generation) -> bool:
        control = generation.control
        return control.state is State.PURGING and control.token.startswith(self.run)


def _keep_files(context: Context, generations: Sequence[Generation]) -> bool:
    """Tell whether something else leads to the files of a table, so that a purge may delete none of them."""
    snapshot = context.latest()
    rows = [each.row for each in generations if each.row is not None]
    return snapshot is not None and any(is_shared(context, snapshot, row) for row in rows)


def _weight(files: int, rate: float | None) -> float:
    return max(files * _SECONDS_PER_FILE, files / rate if rate else 0.0)


@dataclass(frozen=True, slots=True)
class PurgedInPlace:
    """Tables of ordinary size: there are no tasks, so this is never sent anywhere."""

    context: Context
    generations: tuple[Generation, ...]
    options: PurgeOptions
    ready: Ready | None = None
    """The one generation, as it was found; None when the manifest has to be asked too."""
    tasks: Sequence[DeletePart] = ()

    @property
    def estimate(self) -> Estimate:
        if self.ready is not None and self.ready.inside.files is not None:
            return Estimate(files=self.ready.inside.count, bytes=self.ready.inside.bytes)
        done = _effect([would_purge(self.context, each, self.options) for each in self.generations])
        return Estimate(files=done.files, bytes=done.bytes)

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        (outcome,) = _finish(context, [self])
        if isinstance(outcome, RelanceError):
            raise outcome
        return outcome


def _finish(context: Context, plans: Sequence[PurgedInPlace]) -> list[Effect | RelanceError]:
    """Purge what was planned, together what was found ready, and return what became of each plan."""
    if not plans:
        return []
    options = purge_options(force=plans[0].options.force, rate=plans[0].options.rate_limit)
    ready = [each.ready for each in plans if each.ready is not None]
    purged = iter(purge_ready(context, ready, options))
    others = [each for plan in plans if plan.ready is None for each in plan.generations]
    asked = iter(purge_generations(context, others, options))
    done: list[Effect | RelanceError] = []
    for plan in plans:
        results = [next(asked) for _ in plan.generations] if plan.ready is None else [next(purged)]
        try:
            done.append(_effect(results))
        except RelanceError as error:
            done.append(error)
    return done


@dataclass(frozen=True, slots=True)
class PurgedInTasks:
    """Tables of which one is giant."""

    shared: tuple[SharedPurge, ...]
    tasks: tuple[DeletePart, ...]
    files: int
    bytes: int
    rate_limit: float | None

    @property
    def estimate(self) -> Estimate:
        return Estimate(files=self.files, bytes=self.bytes, note=f"{len(self.tasks)} tasks")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        removed: list[Removed] = list(values)
        options = purge_options(force=False, rate=self.rate_limit)
        done = [PurgeResult((), each.files, each.bytes) for each in removed]
        return _effect(done + [finish_shared(context, each, options) for each in self.shared])


def _effect(results: Sequence[PurgeResult]) -> Effect:
    failed = [each.error for each in results if each.error is not None]
    if failed:
        raise failed[0]
    return Effect(files=sum(each.files for each in results), bytes=sum(each.bytes for each in results))


@dataclass(frozen=True, slots=True)
class DeletePart:
    """Deletes some of the files whose names never come again, once the table is claimed."""

    purge: SharedPurge
    files: tuple[tuple[str, int], ...]
    rate: float | None
    weight: float

    def run(self, context: Context) -> Removed:
        hold_shared(context, self.purge)
        for batch in paced(self.files, self.rate):
            if self.rate is not None:
                hold_shared(context, self.purge)  # a slow purge keeps its claim
            context.storage.delete_many(key for key, _ in batch)
        return Removed(len(self.files), sum(each[1] for each in self.files))
