"""Where tasks run: the protocol, and threads of this process. The Spark runner is in spark.runner."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from relance.catalog.context import Context, shared_context
from relance.errors import InternalError, RelanceError
from relance.jobs.base import CatalogRef, GroupTask, Task
from relance.storage.failures import error_for_text

_ABOUT = 1 + 1e-9
"""Sums of weights are not exact."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Tasks that one worker does, in their order."""

    tasks: tuple[tuple[int, Task], ...]
    """Each with its number in the run."""
    at_once: int = 1
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
    if len(left) > 1 and isinstance(first, GroupTask):
        with suppress(Exception):  # whose fault it was is seen when each that is left runs by itself
            for position, value in first.run_together(context, [task for _, task in tasks.tasks]):
                number = tasks.tasks[position][0]
                del left[number]
                done.append(Done(number, value))
    if tasks.at_once == 1 or not left:
        return done + [_run(context, *numbered) for numbered in left.items()]
    with ThreadPoolExecutor(max(tasks.at_once, context.storage.requests_at_once)) as pool:
        return done + list(pool.map(lambda numbered: _run(context, *numbered), left.items()))


def _run(context: Context, number: int, task: Task) -> Done:
    try:
        return Done(number, task.run(context))
    except RelanceError as error:
        return Done(number, error=error)
    except Exception as error:  # noqa: BLE001  # one table's surprise must not fail the others
        context.lance_options().hide_in(error)
        return Done(number, error=surprise(error))


def surprise(error: Exception) -> RelanceError:
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
    at_once: int = 1,
) -> list[Slice]:
    """Cut the tasks into slices of about equal weight, neighbours together; `at_once` is for each of them.

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
            slices.append(Slice(tuple(current), at_once))
            current, weight = [], 0.0
        current.append(numbered)
        weight += heavy
    if current:
        slices.append(Slice(tuple(current), at_once))
    return slices
