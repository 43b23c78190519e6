"""Where tasks run: the protocol, threads of this process, the choice. The Spark runner is in spark.runner."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from relance.catalog.context import Context, shared_context
from relance.errors import InternalError, InvalidInputError, RelanceError
from relance.jobs.base import CatalogRef, Task
from relance.storage.failures import error_for_text

_ABOUT = 1 + 1e-9
"""Sums of weights are not exact."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Tasks that one worker does, in their order."""

    tasks: tuple[tuple[int, Task], ...]
    """Each with its number in the run."""
    concurrency: int = 1
    """More than one when the tasks mostly wait: then so many are done at a time, or as many as the store
    takes requests."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one task."""

    number: int
    value: Any = None
    error: RelanceError | None = None


class Runner(Protocol):
    """Runs slices of tasks, wherever."""

    @property
    def name(self) -> str:
        """`local` or `spark`."""

    @property
    def slots(self) -> int:
        """How many slices run at once."""

    @property
    def repeats(self) -> bool:
        """Whether a task may run twice, as when its worker dies before it has told what came of it."""

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        """Run all slices and yield what came of each task as it comes, in any order.

        A task that fails does not stop the others; `what` says in a few words what is going on.
        """


@runtime_checkable
class BatchedTask(Task, Protocol):
    """A task that can be done together with its neighbours, which are of the same kind."""

    def run_batch(self, context: Context, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Do `tasks`, of which this is the first, and yield their positions with what `run` returns for each.

        A task that is left out, also because an unexpected error ended this, is run by itself.
        """


class ThreadRunner:
    """Runs tasks on threads: Lance does its work outside the interpreter's lock."""

    name = "local"
    repeats = False

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots or os.cpu_count() or 2

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        with ThreadPoolExecutor(self.slots, thread_name_prefix=f"relance {what}") as pool:
            yield from as_they_come(pool.submit(run_slice, catalog, each) for each in slices)


def as_they_come(running: Iterable[Future[list[Done]]]) -> Iterator[Done]:
    """Yield what comes of slices and forget it; whoever stops asking cancels those that have not begun."""
    left = set(running)
    try:
        for future in as_completed(left):
            left.discard(future)  # it holds its results
            yield from future.result()
    finally:
        for future in left:
            future.cancel()


def run_slice(catalog: CatalogRef, tasks: Slice) -> list[Done]:
    """Run the tasks of a slice, and keep what goes wrong with one from the others."""
    context = open_catalog(catalog)
    done: list[Done] = []
    left = dict(tasks.tasks)
    first = tasks.tasks[0][1]
    if len(left) > 1 and isinstance(first, BatchedTask):
        with suppress(Exception):  # whose fault it was is seen when each that is left runs by itself
            for position, value in first.run_batch(context, [task for _, task in tasks.tasks]):
                number = tasks.tasks[position][0]
                del left[number]
                done.append(Done(number, value))
    if tasks.concurrency == 1 or not left:
        return done + [_run(context, *numbered) for numbered in left.items()]
    with ThreadPoolExecutor(max(tasks.concurrency, context.storage.requests_at_once)) as pool:
        return done + list(pool.map(lambda numbered: _run(context, *numbered), left.items()))


def _run(context: Context, number: int, task: Task) -> Done:
    try:
        return Done(number, task.run(context))
    except RelanceError as error:
        return Done(number, error=error)
    except Exception as error:  # noqa: BLE001  # one table's unexpected error must not fail the others
        context.lance_options().hide_in(error)
        return Done(number, error=unexpected(error))


def unexpected(error: Exception) -> RelanceError:
    """Return what nobody expected as an error that a result can tell."""
    known = error_for_text(str(error), where="the job") if isinstance(error, OSError) else None
    failure = known or InternalError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def open_catalog(catalog: CatalogRef) -> Context:
    """Return the opened catalog, the same one for all tasks of this process."""
    return shared_context(catalog.properties)


def slices_of(
    tasks: Sequence[Task],
    *,
    slots: int,
    least_seconds: float = 1.0,
    most_seconds: float = 5.0,
    concurrency: int = 1,
) -> list[Slice]:
    """Cut the tasks into slices of about equal weight, neighbours together; each gets the `concurrency`.

    A slice is worth its overhead if it takes `least_seconds`, and its results come when all of it is done,
    so it takes no more than `most_seconds`. There are enough slices for all slots to end at about the same
    time, and a heavy task is a slice of its own.
    """
    total = sum(task.weight for task in tasks)
    share = min(most_seconds, max(least_seconds, total / (slots * 8)))
    if total > share:
        # Even slices in whole rounds, so that no slot waits for the last slice of another one.
        count = math.ceil(total / share)
        count = count if count < slots else math.ceil(count / slots) * slots
        share = total / count * _ABOUT
    slices: list[Slice] = []
    current: list[tuple[int, Task]] = []
    weight = 0.0
    for numbered in enumerate(tasks):
        heavy = numbered[1].weight
        if current and weight + heavy > share:
            slices.append(Slice(tuple(current), concurrency))
            current, weight = [], 0.0
        current.append(numbered)
        weight += heavy
    if current:
        slices.append(Slice(tuple(current), concurrency))
    return slices


_MANY_TABLES = 200
"""From so many tables on it pays to visit them from several machines."""


class Engine(StrEnum):
    """Where to work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where tables are worked on, where the tasks of oversized ones run, and why."""

    table_runner: Runner
    task_runner: Runner
    why: str


def choose(engine: Engine, spark: Runner | None, *, tables: int, local: Runner | None = None) -> Placement:
    """Return where a job over so many tables runs.

    Raises:
        InvalidInputError: Spark is asked for and there is none.
    """
    here = local or ThreadRunner()
    if engine is Engine.SPARK:
        if spark is None:
            raise InvalidInputError("engine 'spark' needs a Spark session: pass one or use engine 'local'")
        return Placement(spark, spark, "spark: requested")
    if engine is Engine.LOCAL or spark is None:
        return Placement(
            here, here, "local: requested" if engine is Engine.LOCAL else "local: no Spark session"
        )
    if spark.slots <= here.slots:
        why = f"local: Spark has no more slots ({spark.slots}) than this machine has threads ({here.slots})"
        return Placement(here, here, why)
    if tables < _MANY_TABLES:
        return Placement(
            here, spark, f"local for {tables} tables, spark ({spark.slots} slots) for very large ones"
        )
    return Placement(spark, spark, f"spark: {tables} tables on {spark.slots} slots")


def parse_engine(text: Engine | str) -> Engine:
    """Return the engine of this name.

    Raises:
        InvalidInputError: there is none.
    """
    try:
        return Engine(text)
    except ValueError:
        raise InvalidInputError(f"unknown engine {text!r}: use one of {', '.join(Engine)}") from None
