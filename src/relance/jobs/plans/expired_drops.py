"""Purge: the files of dropped tables go when their time has passed, many tables at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from relance.catalog.context import Context, table_id_of
from relance.catalog.purge import (
    MOST_TABLES,
    PurgeOptions,
    PurgeResult,
    Ready,
    claimed_for,
    dropped_before,
    dropped_generations,
    interruption_of,
    is_due,
    make_ready,
    purge_generations,
    purge_ready,
    would_purge,
)
from relance.catalog.resolve import Generation, all_generations, state_of_name
from relance.errors import RelanceError, TableNotFoundError
from relance.jobs.base import Effect, Estimate, Expected, MovedError, Name, Outcome, Step, TablePlan, Task
from relance.jobs.purge import PurgeDropped
from relance.operations.cleaning.pacing import purge_options
from relance.storage.at_once import map_at_once
from relance.storage.ballast import emptying


def due_names(job: PurgeDropped, context: Context) -> list[Name]:
    """Return the names with a dropped table whose retention period has ended, oldest drop first."""
    context = context.for_looking()
    due = [each for each in all_generations(context, abandoned=True) if _is_due(job, context, each)]
    return list(dict.fromkeys(tuple(each.table_id.parts) for each in due))


@emptying()
def plan_purge(job: PurgeDropped, context: Context, table: Name) -> PurgePlan | None:
    """Look how much there is to delete.

    Raises:
        InvalidTableStateError: the table is live, or its retention period has not ended.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another purge has it.
    """
    dropped = [
        each
        for each in dropped_generations(context, table_id_of(context, table), job.deletion_id)
        if dropped_before(each, job.deleted_before)
    ]
    # When none is due, they are tried all the same: the purge then says why not.
    chosen = [each for each in dropped if job.force or _is_due(job, context, each)] or dropped
    if not chosen:
        return None
    ready = None
    if context.manifest is None:
        ready = make_ready(context, chosen[0], force=job.force)  # there is but one
    return PurgePlan(context, tuple(chosen), PurgeOptions(force=job.force, rate_limit=job.rate_limit), ready)


def is_gone(job: PurgeDropped, context: Context, table: Name, expect: Expected) -> bool:
    """Return whether the drop that was planned for is gone already, which needs no purge.

    Raises:
        MovedError: it was undropped after the plan was made.
    """
    state = state_of_name(context, table_id_of(context, table))
    left = [*state.dropped, *([state.abandoned] if state.abandoned is not None else [])]
    if any(each.deletion_id == job.deletion_id for each in left):
        return False
    home = state.home
    undid = home.marked.control.undid if home is not None and home.marked is not None and home.is_live else ""
    rows = [] if context.manifest is None else context.manifest.latest().sharing([expect.directory])
    back = any(
        row.is_visible and not row.is_home and row.normalized_location == expect.directory for row in rows
    )
    if back or (undid and undid == job.deletion_id):
        raise MovedError(f"table id '{'$'.join(table)}' was undropped after the plan was made; re-plan")
    return True


def claim_left(job: PurgeDropped, context: Context, table: Name) -> timedelta:
    """Return how long the claim of another purge still holds the drop."""
    state = state_of_name(context, table_id_of(context, table))
    for each in state.dropped:
        if each.deletion_id == job.deletion_id:
            return claimed_for(context, each)
    return timedelta(0)


@emptying()
def purge_together(context: Context, steps: Sequence[Step]) -> Iterator[dict[int, Outcome]]:
    """Purge tables; each that fails gets its error."""
    for start in range(0, len(steps), MOST_TABLES):
        numbers = range(start, min(start + MOST_TABLES, len(steps)))
        looked = map_at_once(context.storage, lambda number: _look(context, steps[number]), numbers)
        found = dict(zip(numbers, looked, strict=True))
        yield {number: each for number, each in found.items() if not isinstance(each, PurgePlan)}
        plans = {number: each for number, each in found.items() if isinstance(each, PurgePlan)}
        try:
            for order in _with_same_options(plans):
                for outcomes in _finish(context, [plans[number] for number in order]):
                    done: dict[int, Outcome] = {order[at]: outcome for at, outcome in outcomes.items()}
                    for number in done:
                        del plans[number]
                    yield done
        except Exception:
            # What is gone was purged before that: done again by itself, it would not be found.
            yield {
                number: _remembered(plan)
                for number, plan in plans.items()
                if isinstance(_look(context, steps[number]), TableNotFoundError | None)
            }
            raise


def _with_same_options(plans: Mapping[int, PurgePlan]) -> list[list[int]]:
    """Return the numbers of the plans, those with the same options together."""
    groups: dict[tuple[bool, float | None], list[int]] = {}
    for number, plan in plans.items():
        groups.setdefault((plan.options.force, plan.options.rate_limit), []).append(number)
    return list(groups.values())


def _look(context: Context, step: Step) -> TablePlan | RelanceError | None:
    try:
        return step.plan(context)
    except RelanceError as error:
        return error


def _is_due(job: PurgeDropped, context: Context, generation: Generation) -> bool:
    due = is_due(context, generation) and dropped_before(generation, job.deleted_before)
    return due and job.deletion_id in {None, generation.deletion_id}


@dataclass(frozen=True, slots=True)
class PurgePlan(TablePlan):
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
    # The result of a job has its effect beside the error, and a purge in part can always be repeated.
    failed = [interruption_of(each.error) for each in results if each.error is not None]
    if failed:
        raise failed[0]
    return Effect(files=sum(each.files for each in results), bytes=sum(each.bytes for each in results))
