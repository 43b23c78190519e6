"""What maintenance is made of: a job, its plan for one table, tasks that run anywhere, one commit.

All of these travel between processes, so they are frozen values that can be pickled. Running them is in
execute; where tasks run is a Runner's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from relance.catalog.context import Context
from relance.errors import RelanceError


@dataclass(frozen=True, slots=True)
class Figures:
    """What a table holds, as far as a job looked; None is not known."""

    rows: int | None = None
    deleted_rows: int | None = None
    fragments: int | None = None
    files: int | None = None
    bytes: int | None = None
    versions: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan will touch: rows changed, files and bytes written or removed, as the job means it."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    versions: int = 0
    note: str = ""
    """What the job does to the table, in a few words."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a job did to one table."""

    version: int | None = None
    """The version that it made, if it made one."""
    rows: int = 0
    """Rows deleted, updated, inserted: as the job means it."""
    files: int = 0
    """Files removed."""
    bytes: int = 0
    """Bytes removed."""
    before: Figures = Figures()
    after: Figures = Figures()
    note: str = ""


def joined(first: Effect | None, then: Effect | None) -> Effect | None:
    """Return what two rounds of a job did to one table together."""
    if first is None or then is None:
        return first or then
    return replace(
        then,
        rows=first.rows + then.rows,
        files=first.files + then.files,
        bytes=first.bytes + then.bytes,
        before=first.before,
    )


class UnfinishedError(Exception):
    """A part is done, which `effect` tells; `error` says why the rest is not."""

    def __init__(self, error: RelanceError, effect: Effect) -> None:
        super().__init__(error.detail)
        self.error = error
        self.effect = effect


class Task(Protocol):
    """A part of the work on one table. Running it twice does no harm: a lost task is run again."""

    @property
    def weight(self) -> float:
        """About how many seconds it takes on one core."""

    def run(self, context: Context) -> Any:
        """Do it, and return what the plan's `finish` needs, as a value that can be pickled."""


class TablePlan(Protocol):
    """What a job will do to one table."""

    @property
    def estimate(self) -> Estimate:
        """What a dry run shows."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The parts that can be done anywhere, in any order. There may be none."""

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        """Make one commit of what the tasks gave, which is in the order of the tasks.

        Raises:
            ConcurrentModificationError: somebody changed the same things; plan again.
            UnfinishedError: so it is with a part, or that failed; the rest is done.
        """


@runtime_checkable
class Discardable(Protocol):
    """A plan whose tasks write files that are of no use when another task of it fails."""

    def discard(self, context: Context, values: Sequence[Any]) -> None:
        """Remove what tasks wrote that ended well; there is None for each that did not. Never fails."""


@runtime_checkable
class LandingPlan(TablePlan, Protocol):
    """A plan that commits as it goes, a few tasks at a time, always in one place and one after another."""

    @property
    def land_every(self) -> int | None:
        """After how many tasks; None to leave all to `finish`."""

    def land(self, context: Context, values: Sequence[Any]) -> Sequence[Any]:
        """Commit what some tasks gave, and return for each what `finish` is given instead. Raises nothing."""

    def lost(self, error: RelanceError) -> Any:
        """Return what `finish` is given for a task of which nothing came."""


class Job(Protocol):
    """One kind of maintenance with its settings."""

    @property
    def name(self) -> str:
        """What it is called in results, logs and the Spark UI."""

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        """Return what it works on when nothing is named: the ids of tables, or () for the root itself."""

    def plan(self, context: Context, table: tuple[str, ...]) -> TablePlan | None:
        """Look at one table, and return what to do; None when there is nothing to do. Changes nothing."""


Outcome = Effect | TablePlan | RelanceError | None
"""What became of one of several tables: its effect, None when there was nothing to do, its error, or the
plan of one that is better done by itself, of which nothing was done yet."""


@runtime_checkable
class AgingJob(Job, Protocol):
    """A job with ages, which count from the moment that a run begins, wherever its tables are visited."""

    def pin(self, context: Context) -> Job:
        """Return the job with its ages as moments. Called once, where the run begins.

        Raises:
            InvalidInputError: an age is below the minimum.
        """


@runtime_checkable
class GroupingJob(Job, Protocol):
    """A job that does many small tables at less cost together than one after another."""

    def do_together(
        self, context: Context, tables: Sequence[tuple[str, ...]]
    ) -> Iterator[Mapping[tuple[str, ...], Outcome]]:
        """Do the job with several tables, and yield what became of them by table, as soon as it is known.

        Tables without an outcome, also because an unexpected error ended this, are done one by one.
        """


@runtime_checkable
class WaitingJob(Job, Protocol):
    """A job that mostly waits for the store when it is done with a table of ordinary size."""

    @property
    def visits_at_once(self) -> int:
        """How many tables a worker does at a time at least; where requests take long, it does more."""


@runtime_checkable
class GroupTask(Task, Protocol):
    """A task that can be done together with its neighbours, which are of the same kind."""

    def run_together(self, context: Context, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Do `tasks`, of which this is the first, and yield their positions with what `run` returns for each.

        A task that is left out, also because an unexpected error ended this, is run by itself.
        """


@runtime_checkable
class OnceJob(Job, Protocol):
    """A job that may change more when it is done twice."""

    @property
    def only_once(self) -> bool:
        """Whether it does: then it is committed here, not where it may be run again."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one table: a row of the report."""

    job: str
    table: tuple[str, ...]
    effect: Effect | None = None
    """None when there was nothing to do, or this was a dry run, or it failed before a part of it was done."""
    planned: Estimate | None = None
    """Only of a dry run: what would be done; None when there is nothing to do."""
    error: RelanceError | None = None
    duration: timedelta = timedelta()
    """Of a table that was done together with others: its share of the time."""
    attempts: int = 1

    @property
    def changed(self) -> bool:
        return self.effect is not None


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run."""

    job: str
    engine: str
    """Where it ran, and why there."""
    dry_run: bool
    results: tuple[Result, ...]
    duration: timedelta = timedelta()

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(each for each in self.results if each.error is not None)

    @property
    def changed(self) -> tuple[Result, ...]:
        return tuple(each for each in self.results if each.changed)


@dataclass(frozen=True, slots=True)
class CatalogRef:
    """A catalog that a task opens where it runs; its properties are never shown."""

    properties: tuple[tuple[str, str], ...] = field(repr=False)
