"""Purge: the files of dropped tables go when their time has passed, many tables at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from relance.catalog.context import Context, table_id_of
from relance.catalog.purge import (
    MOST_TABLES,
    PurgeOptions,
    PurgeResult,
    Ready,
    dropped_before,
    dropped_generations,
    is_due,
    make_ready,
    purge_generations,
    purge_ready,
    would_purge,
)
from relance.catalog.resolve import Generation, all_generations
from relance.clock import require_moment
from relance.errors import InvalidInputError, RelanceError
from relance.maintenance.removal.pacing import purge_options
from relance.maintenance.work import Effect, Estimate, TablePlan, Task
from relance.storage.at_once import map_at_once
from relance.storage.ballast import emptying


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
    name: str = field(default="purge", init=False)

    def __post_init__(self) -> None:
        if self.deleted_before is not None:
            require_moment(self.deleted_before, what="deleted_before")
        if self.rate_limit is not None and self.rate_limit <= 0:
            raise InvalidInputError(f"rate_limit must be above 0, got {self.rate_limit}")

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        """Return the names with a dropped table whose time has passed, oldest drop first."""
        context = context.for_looking()
        due = [each for each in all_generations(context, abandoned=True) if self._is_due(context, each)]
        return list(dict.fromkeys(tuple(each.table_id.parts) for each in due))

    @emptying()
    def plan(self, context: Context, table: tuple[str, ...]) -> PurgePlan | None:
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
        ready = None
        if context.manifest is None:
            ready = make_ready(context, chosen[0], force=self.force)  # there is but one
        options = PurgeOptions(force=self.force, rate_limit=self.rate_limit)
        return PurgePlan(context, tuple(chosen), options, ready)

    @emptying()
    def do_together(
        self, context: Context, tables: Sequence[tuple[str, ...]]
    ) -> list[Effect | TablePlan | RelanceError | None]:
        """Purge tables; each that fails gets its error."""

        def look(table: tuple[str, ...]) -> PurgePlan | RelanceError | None:
            try:
                return self.plan(context, table)
            except RelanceError as error:
                return error

        done: list[Effect | TablePlan | RelanceError | None] = []
        for start in range(0, len(tables), MOST_TABLES):
            plans = map_at_once(context.storage, look, tables[start : start + MOST_TABLES])
            effects = iter(_finish(context, [each for each in plans if isinstance(each, PurgePlan)]))
            done += [next(effects) if isinstance(each, PurgePlan) else each for each in plans]
        return done

    def _is_old(self, generation: Generation) -> bool:
        return self.deleted_before is None or dropped_before(generation, self.deleted_before)

    def _is_due(self, context: Context, generation: Generation) -> bool:
        due = is_due(context, generation) and self._is_old(generation)
        return due and self.deletion_id in {None, generation.deletion_id}


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The dropped tables of one name. There are no tasks, so this is never sent anywhere."""

    context: Context
    generations: tuple[Generation, ...]
    options: PurgeOptions
    ready: Ready | None = None
    """The one generation, as it was found; None when the manifest has to be asked too."""
    tasks: Sequence[Task] = ()

    @property
    def estimate(self) -> Estimate:
        if self.ready is not None and self.ready.files is not None:
            files = self.ready.files
            return Estimate(files=len(files), bytes=sum(info.size for info in files))
        done = _effect([would_purge(self.context, each, self.options) for each in self.generations])
        return Estimate(files=done.files, bytes=done.bytes)

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        (outcome,) = _finish(context, [self])
        if isinstance(outcome, RelanceError):
            raise outcome
        return outcome


def _finish(context: Context, plans: Sequence[PurgePlan]) -> list[Effect | RelanceError]:
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


def _effect(results: Sequence[PurgeResult]) -> Effect:
    failed = [each.error for each in results if each.error is not None]
    if failed:
        raise failed[0]
    return Effect(files=sum(each.files for each in results), bytes=sum(each.bytes for each in results))
