"""Run steps: small tables whole in one task each, oversized ones in many tasks and one commit here."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from relance.catalog.context import Context, table_id_of
from relance.catalog.states import new_nonce
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    ThrottlingError,
)
from relance.jobs.base import (
    CatalogRef,
    Effect,
    Job,
    Name,
    Report,
    Result,
    Step,
    TablePlan,
    UnfinishedError,
    merge_effects,
)
from relance.jobs.runner import (
    Engine,
    Placement,
    Runner,
    choose,
    open_catalog,
    parse_engine,
    slices_of,
    unexpected,
)
from relance.namespace import DirectoryNamespace
from relance.storage.at_once import map_at_once

ATTEMPTS = 10
"""How often a table is planned again when others change it, or the store is busy."""

OVERSIZED_SECONDS = 20.0
"""A plan whose tasks take longer together is cut up; a shorter one is done where it was made."""

_NEVER_THERE = -1.0
"""Every plan takes longer than this: it is committed here, and only once."""

_TABLE_SECONDS = 0.05
"""What a table without work costs."""

_SPREAD_SECONDS = 0.1
"""What the tasks of oversized tables are cut into at least: their weights are guesses, which one costly
expression makes wrong by far, so that few of them share a slot however light they seem."""

_BATCHED_SECONDS = 0.0007
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
    """Tasks of oversized tables that are done."""
    all_tasks: int = 0


@dataclass(frozen=True, slots=True)
class OversizedPlan:
    """A plan that is too big for one task."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class TableTask:
    """Runs one step where it is sent, unless its plan is too big for one task."""

    step: Step
    dry_run: bool
    oversized_seconds: float = OVERSIZED_SECONDS
    weight: float = _TABLE_SECONDS

    def run(self, context: Context) -> Result | OversizedPlan:
        started = time.monotonic()
        context = context.for_looking() if self.dry_run else context
        attempt = 0
        done: Effect | None = None
        while True:
            attempt += 1
            try:
                plan = self.step.plan(context)
                if plan is not None and not self.dry_run and _weight(plan) > self.oversized_seconds:
                    return OversizedPlan(plan)
                result = self._done(context, plan)
            except (RelanceError, UnfinishedError) as failure:
                error, part = _parts_of(failure)
                done = merge_effects(done, part)
                if attempt < ATTEMPTS and worth_retrying(error):
                    back_off(attempt)
                    continue
                result = result_of(self.step, error=error)
            effect = merge_effects(done, result.effect)
            return replace(result, effect=effect, attempts=attempt, duration=_since(started))

    def _done(self, context: Context, plan: TablePlan | None) -> Result:
        if plan is None:
            return result_of(self.step)
        if self.dry_run:
            return replace(result_of(self.step), planned=plan.estimate)
        return result_of(self.step, effect=plan.finish(context, _values(plan, context)))


@dataclass(frozen=True, slots=True)
class BatchTask(TableTask):
    """The same for a kind that does small tables together: whoever has several of these asks the first."""

    weight: float = _BATCHED_SECONDS

    def run_batch(
        self, context: Context, tasks: Sequence[BatchTask]
    ) -> Iterator[tuple[int, Result | OversizedPlan]]:
        """Do several steps; those worth another attempt are made together again. Leaves out small plans."""
        if self.dry_run:
            yield from enumerate(map_at_once(context.storage, lambda task: task.run(context), tasks))
            return
        left, attempt = list(range(len(tasks))), 0
        while left:
            attempt, started = attempt + 1, time.monotonic()
            again: list[int] = []
            steps = [tasks[number].step for number in left]
            for outcomes in type(self.step.job).run_batch(context, steps):
                share = _since(started) / max(1, len(outcomes))
                for at, outcome in outcomes.items():
                    number, step = left[at], steps[at]
                    if isinstance(outcome, RelanceError) and attempt < ATTEMPTS and worth_retrying(outcome):
                        again.append(number)
                    elif isinstance(outcome, RelanceError):
                        failed = result_of(step, error=outcome)
                        yield number, replace(failed, duration=share, attempts=attempt)
                    elif outcome is None or isinstance(outcome, Effect):
                        done = result_of(step, effect=outcome)
                        yield number, replace(done, duration=share, attempts=attempt)
                    elif _weight(outcome) > self.oversized_seconds:
                        yield number, OversizedPlan(outcome)
                started = time.monotonic()
            if again:
                back_off(attempt)
            left = again


def result_of(step: Step, *, effect: Effect | None = None, error: RelanceError | None = None) -> Result:
    """Return what became of a step."""
    return Result(step.job.label, step.table, effect, error=error)


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
                _commit_partial(plan, context, values, fresh)
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
            _commit_partial(plan, context, values, fresh)
    except RelanceError:
        _discard(context, plan, list(values.values()))
        raise
    return list(values.values())


def _discard(context: Context, plan: TablePlan | None, values: Sequence[Any]) -> None:
    if plan is not None:
        plan.discard(context, values)


def _commit_partial(plan: TablePlan, context: Context, values: dict[int, Any], fresh: list[int]) -> None:
    """Commit the fresh values, if the plan is one that commits as it goes and there are enough of them."""
    if plan.commit_every is not None and len(fresh) >= plan.commit_every:
        committed = plan.commit_partial(context, [values[number] for number in fresh])
        values.update(zip(fresh, committed, strict=True))
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
class _Oversized:
    """An oversized table in the middle of its work."""

    number: int
    step: Step
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
    """Runs steps of one kind, and forgets what it yields: memory stays flat with the number of tables."""

    name: str
    catalog: CatalogRef
    where: Placement
    dry_run: bool = False
    progress: Callable[[Progress], None] | None = None
    oversized_seconds: float = OVERSIZED_SECONDS
    _seen: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._seen = Progress(self.name, 0, 0, 0)

    def results(self, steps: Sequence[Step]) -> Iterator[tuple[int, Result]]:
        """Yield the position and the result of each step as it comes."""
        self._report(total=len(steps))
        if not steps:
            return
        kind, runner = type(steps[0].job), self.where.table_runner
        seconds = self.oversized_seconds
        if runner.repeats and not kind.idempotent:
            seconds = _NEVER_THERE
        task_type = BatchTask if kind.batches else TableTask
        tasks = [task_type(step, self.dry_run, seconds) for step in steps]
        oversized: list[_Oversized] = []
        what = f"{self.name}: {len(steps)} tables"
        slices = slices_of(tasks, slots=runner.slots, concurrency=kind.concurrency)
        for done in runner.run(self.catalog, slices, what=what):
            step = steps[done.number]
            if done.error is not None:
                yield self._count(done.number, result_of(step, error=done.error))
            elif isinstance(done.value, OversizedPlan):
                oversized.append(_Oversized(done.number, step, done.value.plan))
            else:
                yield self._count(done.number, done.value)
        while oversized:
            again: list[_Oversized] = []
            for table in self._round(oversized):
                result = self._close(table)
                if result is None:
                    again.append(table)
                else:
                    yield self._count(table.number, result)
            oversized = [self._plan_again(table) for table in again]

    def _count(self, number: int, result: Result) -> tuple[int, Result]:
        self._report(done=self._seen.done + 1, failed=self._seen.failed + (result.error is not None))
        return number, result

    def _report(self, **changes: int) -> None:
        self._seen = replace(self._seen, **changes)  # type: ignore[arg-type]  # the name stays
        if self.progress is not None:
            self.progress(self._seen)

    def _round(self, tables: Sequence[_Oversized]) -> Iterator[_Oversized]:
        """Run the tasks of all oversized tables, a few of each in turn; yield each table that is through."""
        order: list[tuple[_Oversized, int]] = []
        for table in tables:
            # Planned again, a table may have become a small one.
            if table.plan is None or table.error is not None or not table.plan.tasks:
                yield table
        waiting = [
            (each, len(each.plan.tasks)) for each in tables if each.plan is not None and not each.error
        ]
        for number in range(max((count for _, count in waiting), default=0)):
            order += [(table, number) for table, count in waiting if number < count]
        tasks = [table.plan.tasks[number] for table, number in order if table.plan is not None]
        self._report(tasks=0, all_tasks=len(tasks))
        names = ", ".join("$".join(table.step.table) for table, _ in waiting[:3])
        runner = self.where.task_runner
        slices = slices_of(tasks, slots=runner.slots, least_seconds=_SPREAD_SECONDS)
        what = f"{self.name} of {names}: {len(tasks)} tasks"
        for done in runner.run(self.catalog, slices, what=what):
            table, number = order[done.number]
            self._report(tasks=self._seen.tasks + 1)
            assert table.plan is not None  # only tables with a plan have tasks
            table.values[number] = done.value
            if done.error is None:
                table.fresh.append(number)
                _commit_partial(table.plan, open_catalog(self.catalog), table.values, table.fresh)
            else:
                try:
                    table.values[number] = table.plan.lost(done.error)
                except RelanceError as error:
                    table.error = table.error or error
            if len(table.values) == len(table.plan.tasks):
                yield table

    def _close(self, table: _Oversized) -> Result | None:
        """Commit what the tasks of an oversized table gave; None means: plan it again."""
        effect = None
        try:
            if table.error is not None:
                _discard(open_catalog(self.catalog), table.plan, list(table.values.values()))
                raise table.error
            if table.plan is not None:
                values = [table.values[number] for number in range(len(table.plan.tasks))]
                effect = table.plan.finish(open_catalog(self.catalog), values)
        except (RelanceError, UnfinishedError) as failure:
            error, part = _parts_of(failure)
            table.done = merge_effects(table.done, part)
            if table.attempt < ATTEMPTS and worth_retrying(error):
                return None
            return self._result(table, error=error)
        except Exception as failure:  # noqa: BLE001  # an unexpected error of one table must not fail the others
            return self._result(table, error=unexpected(failure))
        return self._result(table, effect=effect)

    def _plan_again(self, table: _Oversized) -> _Oversized:
        back_off(table.attempt)
        plan: TablePlan | None = None
        error: RelanceError | None = None
        try:
            plan = table.step.plan(open_catalog(self.catalog))
        except RelanceError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  # as above
            error = unexpected(failure)
        attempt = table.attempt + 1
        return _Oversized(
            table.number, table.step, plan, table.started, attempt, done=table.done, error=error
        )

    def _result(
        self, table: _Oversized, *, effect: Effect | None = None, error: RelanceError | None = None
    ) -> Result:
        result = result_of(table.step, effect=merge_effects(table.done, effect), error=error)
        return replace(result, attempts=table.attempt, duration=_since(table.started))


def _weight(plan: TablePlan) -> float:
    return sum(task.weight for task in plan.tasks)


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Started:
    """A run whose results come one by one."""

    engine: str
    tables: int
    results: Iterator[Result]


def start(
    catalog: DirectoryNamespace | CatalogRef,
    job: Job,
    tables: Sequence[Sequence[str]] | None = None,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Started:
    """Start a job over the named tables, or over all it applies to; results arrive as tables finish.

    Raises:
        InvalidInputError: an id, the engine or a setting of the job is invalid.
    """
    reference = catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)
    context = open_catalog(reference)
    if tables is None:
        chosen = list(job.targets(context))
    else:
        chosen = [tuple(table_id_of(context, each).parts) for each in tables]
    if len(set(chosen)) != len(chosen):
        raise InvalidInputError(f"table '{_repeated(chosen)}' is named twice")
    where = choose(parse_engine(engine), spark, tables=len(chosen))
    steps = steps_of(job, context.for_looking() if dry_run else context, chosen)
    run = Run(job.label, reference, where, dry_run=dry_run, progress=progress)
    return Started(where.why, len(chosen), (result for _, result in run.results(steps)))


def steps_of(job: Job, context: Context, tables: Sequence[Name]) -> list[Step]:
    """Return the steps of a direct run, with ages as moments.

    Raises:
        InvalidInputError: an age is below the minimum.
    """
    pinned = job.pin(job.now(context)).for_run(new_nonce())
    return [Step(pinned, table) for table in tables]


def _repeated(tables: Sequence[Name]) -> str:
    """Return the first table that is named more than once."""
    return "$".join(next(each for each in tables if tables.count(each) > 1))


def maintain(
    catalog: DirectoryNamespace | CatalogRef,
    job: Job,
    tables: Sequence[Sequence[str]] | None = None,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Run a job over the named tables, or over all it applies to, and return a result for each.

    A failing table does not affect the others: its error is in its result. A dry run returns the plan.

    Raises:
        InvalidInputError: an id, the engine or a setting of the job is invalid.
    """
    began = time.monotonic()
    started = start(catalog, job, tables, engine=engine, spark=spark, dry_run=dry_run, progress=progress)
    results = tuple(sorted(started.results, key=lambda each: each.table))
    duration = timedelta(seconds=time.monotonic() - began)
    return Report(job.label, started.engine, dry_run, results, duration)
