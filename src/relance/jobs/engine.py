"""Run a job over tables: small ones whole in one task each, giant ones in many tasks and one commit here."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from relance.catalog.context import Context
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    ThrottlingError,
)
from relance.jobs.base import (
    CatalogRef,
    Discardable,
    Effect,
    GroupingJob,
    Job,
    LandingPlan,
    OnceJob,
    Result,
    TablePlan,
    UnfinishedError,
    WaitingJob,
    joined,
)
from relance.jobs.runner import Runner, open_catalog, slices_of, surprise
from relance.storage.at_once import map_at_once

ATTEMPTS = 10
"""How often a table is planned again when others change it, or the store is busy."""

GIANT_SECONDS = 20.0
"""A plan whose tasks take longer together is cut up; a shorter one is done where it was made."""

_NEVER_THERE = -1.0
"""Every plan takes longer than this: it is committed here, and only once."""

_VISIT_SECONDS = 0.05
"""What a table without work costs."""

_SPREAD_SECONDS = 0.1
"""What the tasks of giant tables are cut into at least: their weights are guesses, which one costly
expression makes wrong by far, so that few of them share a slot however light they seem."""

_GROUPED_SECONDS = 0.0007
"""What a small table costs of which many are done together."""

_ALONE_SECONDS = 1.0
"""The tasks of a lighter plan are done one after another."""

_THREADS = 1 + (os.cpu_count() or 2)
"""One more than there are cores: a task also waits for files."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    job: str
    done: int
    total: int
    """Tables; () when the root itself is worked on."""
    failed: int
    tasks: int = 0
    """Tasks of giant tables that are done."""
    all_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Giant:
    """A plan that is too big for one task."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class Visit:
    """A task that looks at one table and does the job there and then, unless that is too big."""

    job: Job
    table: tuple[str, ...]
    dry_run: bool
    giant_seconds: float = GIANT_SECONDS
    weight: float = _VISIT_SECONDS

    def run(self, context: Context) -> Result | Giant:
        started = time.monotonic()
        context = context.for_looking() if self.dry_run else context
        attempt = 0
        done: Effect | None = None
        while True:
            attempt += 1
            try:
                plan = self.job.plan(context, self.table)
                if plan is not None and not self.dry_run and _weight(plan) > self.giant_seconds:
                    return Giant(plan)
                result = self._done(context, plan)
            except (RelanceError, UnfinishedError) as failure:
                error, part = _parts_of(failure)
                done = joined(done, part)
                if attempt < ATTEMPTS and worth_retrying(error):
                    back_off(attempt)
                    continue
                result = Result(self.job.name, self.table, error=error)
            effect = joined(done, result.effect)
            return replace(result, effect=effect, attempts=attempt, duration=_since(started))

    def _done(self, context: Context, plan: TablePlan | None) -> Result:
        if plan is None:
            return Result(self.job.name, self.table)
        if self.dry_run:
            return Result(self.job.name, self.table, planned=plan.estimate)
        effect = plan.finish(context, _values(plan, context))
        return Result(self.job.name, self.table, effect=effect)


@dataclass(frozen=True, slots=True)
class GroupedVisit(Visit):
    """The same for a job that does small tables together: whoever has several visits to do asks the first."""

    weight: float = _GROUPED_SECONDS

    def run_together(
        self, context: Context, tasks: Sequence[GroupedVisit]
    ) -> Iterator[tuple[int, Result | Giant]]:
        """Do several visits; those worth another attempt are made together again. Leaves out small plans."""
        if self.dry_run or not isinstance(self.job, GroupingJob):
            yield from enumerate(map_at_once(context.storage, lambda each: each.run(context), tasks))
            return
        left, attempt = {task.table: number for number, task in enumerate(tasks)}, 0
        while left:
            attempt, started = attempt + 1, time.monotonic()
            again: dict[tuple[str, ...], int] = {}
            for outcomes in self.job.do_together(context, list(left)):
                share = _since(started) / max(1, len(outcomes))
                for table, outcome in outcomes.items():
                    number = left[table]
                    if isinstance(outcome, RelanceError) and attempt < ATTEMPTS and worth_retrying(outcome):
                        again[table] = number
                    elif isinstance(outcome, RelanceError):
                        result = Result(self.job.name, table, error=outcome)
                        yield number, replace(result, duration=share, attempts=attempt)
                    elif outcome is None or isinstance(outcome, Effect):
                        yield number, Result(self.job.name, table, outcome, duration=share, attempts=attempt)
                    elif _weight(outcome) > self.giant_seconds:
                        yield number, Giant(outcome)
                started = time.monotonic()
            if again:
                back_off(attempt)
            left = again


def _values(plan: TablePlan, context: Context) -> list[Any]:
    """Return what the tasks give, in their order; what takes a while is done by several threads."""
    if _weight(plan) < _ALONE_SECONDS:
        return _one_by_one(plan, context)
    values: dict[int, Any] = {}
    fresh: list[int] = []
    failed: RelanceError | None = None
    with ThreadPoolExecutor(_THREADS) as pool:
        running = [pool.submit(task.run, context) for task in plan.tasks]
        for number, future in enumerate(running):
            if failed is not None and future.cancel():
                continue
            try:
                values[number] = future.result()
            except RelanceError as error:
                failed = failed or error
                continue
            fresh.append(number)
            if failed is None:
                _land(plan, context, values, fresh)
    if failed is not None:
        _discard(context, plan, list(values.values()))
        raise failed
    return [values[number] for number in range(len(running))]


def _one_by_one(plan: TablePlan, context: Context) -> list[Any]:
    """Do the tasks right here: to start a thread would take longer than many a task."""
    values: dict[int, Any] = {}
    fresh: list[int] = []
    try:
        for number, task in enumerate(plan.tasks):
            values[number] = task.run(context)
            fresh.append(number)
            _land(plan, context, values, fresh)
    except RelanceError:
        _discard(context, plan, list(values.values()))
        raise
    return list(values.values())


def _discard(context: Context, plan: TablePlan | None, values: Sequence[Any]) -> None:
    if isinstance(plan, Discardable):
        plan.discard(context, values)


def _land(plan: TablePlan, context: Context, values: dict[int, Any], fresh: list[int]) -> None:
    """Commit the fresh values, if the plan is one that commits as it goes and there are enough of them."""
    if isinstance(plan, LandingPlan) and plan.land_every is not None and len(fresh) >= plan.land_every:
        landed = plan.land(context, [values[number] for number in fresh])
        values.update(zip(fresh, landed, strict=True))
        fresh.clear()


def _parts_of(failure: RelanceError | UnfinishedError) -> tuple[RelanceError, Effect | None]:
    """Return what went wrong, and what was done all the same."""
    return (failure.error, failure.effect) if isinstance(failure, UnfinishedError) else (failure, None)


def worth_retrying(error: RelanceError) -> bool:
    """Tell whether the same may succeed a little later: somebody was faster, or the store is busy."""
    if isinstance(error, OutcomeUnknownError):
        return False  # it may have happened: a person should look
    return isinstance(error, ConcurrentModificationError | ServiceUnavailableError | ThrottlingError)


def back_off(attempt: int) -> None:
    """Wait a random while, longer each time, so that two that meet do not meet again."""
    time.sleep(random.uniform(0.5, 1.0) * min(10.0, 0.05 * 2**attempt))


@dataclass(slots=True)
class _Big:
    """A giant table in the middle of its work."""

    table: tuple[str, ...]
    plan: TablePlan | None
    started: float = field(default_factory=time.monotonic)
    attempt: int = 1
    values: dict[int, Any] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)
    """Numbers of the values of which nothing is committed yet."""
    done: Effect | None = None
    """What was done before it was planned again."""
    error: RelanceError | None = None


@dataclass(slots=True)
class Run:
    """One run of a job. What it yields it forgets, so that memory stays flat with the number of tables."""

    job: Job
    catalog: CatalogRef
    near: Runner
    """Visits the tables."""
    far: Runner
    """Does the tasks of giant ones."""
    dry_run: bool = False
    progress: Callable[[Progress], None] | None = None
    giant_seconds: float = GIANT_SECONDS
    _seen: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._seen = Progress(self.job.name, 0, 0, 0)

    def results(self, tables: Sequence[tuple[str, ...]]) -> Iterator[Result]:
        """Yield the result of each table as it comes."""
        self._report(total=len(tables))
        giant_seconds = self.giant_seconds
        if self.near.repeats and isinstance(self.job, OnceJob) and self.job.only_once:
            giant_seconds = _NEVER_THERE
        visit = GroupedVisit if isinstance(self.job, GroupingJob) else Visit
        visits = [visit(self.job, each, self.dry_run, giant_seconds) for each in tables]
        giants: list[_Big] = []
        what = f"{self.job.name}: {len(tables)} tables"
        at_once = self.job.visits_at_once if isinstance(self.job, WaitingJob) else 1
        slices = slices_of(visits, slots=self.near.slots, at_once=at_once)
        for done in self.near.run(self.catalog, slices, what=what):
            table = tables[done.number]
            if done.error is not None:
                yield self._count(Result(self.job.name, table, error=done.error))
            elif isinstance(done.value, Giant):
                giants.append(_Big(table, done.value.plan))
            else:
                yield self._count(done.value)
        while giants:
            again: list[_Big] = []
            for big in self._round(giants):
                result = self._close(big)
                if result is None:
                    again.append(big)
                else:
                    yield self._count(result)
            giants = [self._plan_again(big) for big in again]

    def _count(self, result: Result) -> Result:
        self._report(done=self._seen.done + 1, failed=self._seen.failed + (result.error is not None))
        return result

    def _report(self, **changes: int) -> None:
        self._seen = replace(self._seen, **changes)  # type: ignore[arg-type]  # the job's name stays
        if self.progress is not None:
            self.progress(self._seen)

    def _round(self, giants: Sequence[_Big]) -> Iterator[_Big]:
        """Run the tasks of all giant tables, a few of each in turn, and yield each table that is through."""
        order: list[tuple[_Big, int]] = []
        for big in giants:
            # Planned again, a table may have become a small one.
            if big.plan is None or big.error is not None or not big.plan.tasks:
                yield big
        waiting = [(big, len(big.plan.tasks)) for big in giants if big.plan is not None and not big.error]
        for number in range(max((count for _, count in waiting), default=0)):
            order += [(big, number) for big, count in waiting if number < count]
        tasks = [big.plan.tasks[number] for big, number in order if big.plan is not None]
        self._report(tasks=0, all_tasks=len(tasks))
        names = ", ".join("$".join(big.table) for big, _ in waiting[:3])
        slices = slices_of(tasks, slots=self.far.slots, least_seconds=_SPREAD_SECONDS)
        what = f"{self.job.name} of {names}: {len(tasks)} tasks"
        for done in self.far.run(self.catalog, slices, what=what):
            big, number = order[done.number]
            self._report(tasks=self._seen.tasks + 1)
            big.values[number] = done.value
            if done.error is not None and isinstance(big.plan, LandingPlan):
                big.values[number] = big.plan.lost(done.error)
            elif done.error is not None:
                big.error = big.error or done.error
            elif big.plan is not None:
                big.fresh.append(number)
                _land(big.plan, open_catalog(self.catalog), big.values, big.fresh)
            if big.plan is not None and len(big.values) == len(big.plan.tasks):
                yield big

    def _close(self, big: _Big) -> Result | None:
        """Commit what the tasks of a giant table gave; None means: plan it again."""
        effect = None
        try:
            if big.error is not None:
                _discard(open_catalog(self.catalog), big.plan, list(big.values.values()))
                raise big.error
            if big.plan is not None:
                values = [big.values[number] for number in range(len(big.plan.tasks))]
                effect = big.plan.finish(open_catalog(self.catalog), values)
        except (RelanceError, UnfinishedError) as failure:
            error, part = _parts_of(failure)
            big.done = joined(big.done, part)
            if big.attempt < ATTEMPTS and worth_retrying(error):
                return None
            return self._result(big, Result(self.job.name, big.table, error=error))
        except Exception as failure:  # noqa: BLE001  # one table's surprise must not fail the others
            return self._result(big, Result(self.job.name, big.table, error=surprise(failure)))
        return self._result(big, Result(self.job.name, big.table, effect=effect))

    def _plan_again(self, big: _Big) -> _Big:
        back_off(big.attempt)
        plan: TablePlan | None = None
        error: RelanceError | None = None
        try:
            plan = self.job.plan(open_catalog(self.catalog), big.table)
        except RelanceError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  # as above
            error = surprise(failure)
        return _Big(big.table, plan, big.started, big.attempt + 1, done=big.done, error=error)

    def _result(self, big: _Big, result: Result) -> Result:
        effect = joined(big.done, result.effect)
        return replace(result, effect=effect, attempts=big.attempt, duration=_since(big.started))


def _weight(plan: TablePlan) -> float:
    return sum(task.weight for task in plan.tasks)


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)
