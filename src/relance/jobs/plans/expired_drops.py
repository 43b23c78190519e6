"""Purge: the files of dropped tables go when their time has passed, many tables at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from relance.errors import InvalidInputError, RelanceError, TableNotFoundError
from relance.jobs.base import Effect, Estimate, Outcome, Task
from relance.operations.cleaning.pacing import purge_options
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
    ) -> Iterator[Mapping[tuple[str, ...], Outcome]]:
        """Purge tables; each that fails gets its error."""
        for start in range(0, len(tables), MOST_TABLES):
            group = tables[start : start + MOST_TABLES]
            looked = map_at_once(context.storage, lambda table: self._look(context, table), group)
            found = dict(zip(group, looked, strict=True))
            yield {table: each for table, each in found.items() if not isinstance(each, PurgePlan)}
            plans = {table: each for table, each in found.items() if isinstance(each, PurgePlan)}
            names = list(plans)
            try:
                for outcomes in _finish(context, list(plans.values())):
                    done = {names[number]: outcome for number, outcome in outcomes.items()}
                    plans = {table: plan for table, plan in plans.items() if table not in done}
                    yield done
            except Exception:
                # What is gone was purged before that: done again by itself, it would not be found.
                yield {
                    table: _remembered(plan) for table, plan in plans.items() if self._is_gone(context, table)
                }
                raise

    def _look(self, context: Context, table: tuple[str, ...]) -> PurgePlan | RelanceError | None:
        try:
            return self.plan(context, table)
        except RelanceError as error:
            return error

    def _is_gone(self, context: Context, table: tuple[str, ...]) -> bool:
        return isinstance(self._look(context, table), TableNotFoundError)

    def _is_old(self, generation: Generation) -> bool:
        return dropped_before(generation, self.deleted_before)

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
        (outcome,) = [outcome for outcomes in _finish(context, [self]) for outcome in outcomes.values()]
        if isinstance(outcome, RelanceError):
            raise outcome
        return outcome


def _finish(context: Context, plans: Sequence[PurgePlan]) -> Iterator[dict[int, Effect | RelanceError]]:
    """Purge what was planned, together what was found ready, and yield what became of plans by position."""
    if not plans:
        return
    options = purge_options(force=plans[0].options.force, rate=plans[0].options.rate_limit)
    ready = {number: plan.ready for number, plan in enumerate(plans) if plan.ready is not None}
    purged = purge_ready(context, list(ready.values()), options)
    yield {number: _outcome([result]) for number, result in zip(ready, purged, strict=True)}
    others = {number: plan.generations for number, plan in enumerate(plans) if plan.ready is None}
    asked = iter(purge_generations(context, [each for some in others.values() for each in some], options))
    yield {number: _outcome([next(asked) for _ in some]) for number, some in others.items()}


def _outcome(results: Sequence[PurgeResult]) -> Effect | RelanceError:
    try:
        return _effect(results)
    except RelanceError as error:
        return error


def _remembered(plan: PurgePlan) -> Effect:
    """Return the effect of a purge whose own figures were lost: those of the plan, where it has any."""
    files = plan.ready.files if plan.ready is not None else None
    if files is None:
        return Effect(note="purged; an unexpected error lost its figures")
    return Effect(files=len(files), bytes=sum(info.size for info in files))


def _effect(results: Sequence[PurgeResult]) -> Effect:
    failed = [each.error for each in results if each.error is not None]
    if failed:
        raise failed[0]
    return Effect(files=sum(each.files for each in results), bytes=sum(each.bytes for each in results))
