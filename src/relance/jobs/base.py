"""What a kind of work is: its settings, when it is due, how it plans a table, what the engine may do with it.

A kind is one class in one module. Policy files, plans, the command line, the docs and the history derive
from the class. Kinds import the catalog and Lance inside functions: reading a policy takes none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic._internal._model_construction import ModelMetaclass

from relance.errors import InvalidInputError, InvalidTableStateError, RelanceError
from relance.jobs.settings import SettingError, shown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from relance.catalog.context import Context as Context  # kinds take it from here
    from relance.jobs.facts import TableFacts

Name = tuple[str, ...]
"""The parts of a table's id; () is the catalog as a whole."""

Use = Literal["direct", "policy", "plan"]


class Scope(StrEnum):
    """What a kind works on."""

    TABLES = "tables"
    DROPPED = "dropped tables"
    ROOT = "the catalog"


class MovedError(InvalidTableStateError):
    """The table changed after the plan was made; nothing was done to it. Re-plan."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A table as it was planned for."""

    directory: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job is due for a table, and the figures that decided."""

    due: bool
    why: str
    refused: bool = False
    """A rule asks for it and it cannot be done: somebody should look."""


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


def merge_effects(first: Effect | None, then: Effect | None) -> Effect | None:
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
    """Only a part is done: `effect` is its effect, `error` why the rest is not."""

    def __init__(self, error: RelanceError, effect: Effect) -> None:
        super().__init__(error.detail)
        self.error = error
        self.effect = effect


class Task(Protocol):
    """A part of the work on one table, pickled to wherever it runs. Running it twice is harmless."""

    @property
    def weight(self) -> float:
        """Roughly the seconds it takes on one core."""

    def run(self, context: Context) -> Any:
        """Do it, and return what the plan's `finish` needs, as a value that can be pickled."""


class TablePlan:
    """What a job will do to one table: tasks that run anywhere, then one commit."""

    __slots__ = ()

    tasks: Sequence[Task]
    commit_every: int | None = None
    """Commit after this many tasks, always in one place and one after another; None commits in `finish`."""

    @property
    def estimate(self) -> Estimate:
        """What a dry run shows. Refuses what the run would refuse."""
        raise NotImplementedError

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        """Commit what the tasks returned, which is in the order of the tasks.

        Raises:
            ConcurrentModificationError: somebody changed the same things; plan again.
            UnfinishedError: so it is with a part, or that failed; the rest is done.
        """
        raise NotImplementedError

    def commit_partial(self, context: Context, values: Sequence[Any]) -> Sequence[Any]:
        """Commit what some tasks returned; return for each what `finish` gets instead. Raises nothing."""
        return values

    def lost(self, error: RelanceError) -> Any:
        """Return what `finish` gets for a task that failed; by default the table fails."""
        raise error

    def discard(self, context: Context, values: Sequence[Any]) -> None:
        """Remove files that tasks wrote after another one failed. Raises nothing."""


def setting(default: Any = ..., *, only: Use | None = None) -> Any:
    """Return a setting; `only` keeps it to one use: policies (when it is due), direct runs or plans (pin)."""
    return Field(default, json_schema_extra={"only": only} if only else None)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class _JobType(ModelMetaclass):
    if not TYPE_CHECKING:

        def __call__(cls, *args, **settings):  # noqa: N805  # of a metaclass
            try:
                return super().__call__(*args, **settings)
            except ValidationError as error:
                told = "; ".join(" ".join(filter(None, each)) for each in complaints_of(error))
                raise InvalidInputError(told) from None


class Job(BaseModel, metaclass=_JobType):
    """One kind of work with its settings. The docstrings are help text, schema and documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: ClassVar[str]
    """The key in policy files, saved plans and history rows; never changes."""
    label: ClassVar[str]
    """How people read it, and `job` in JSON."""
    order: ClassVar[int]
    """A policy run does kinds in this order."""
    title: ClassVar[str]
    """What reports call it; by default the label."""
    command: ClassVar[str | None] = None
    """Of the command line; None for kinds that only policies ask for."""
    in_policy: ClassVar[bool] = True
    scope: ClassVar[Scope] = Scope.TABLES
    needs_data: ClassVar[bool] = True
    """If False, it also applies to tables that are only declared."""
    needs_names: ClassVar[bool] = False
    """If True, a direct run names its tables: it never runs on all of them."""
    key: ClassVar[str | None] = None
    """The setting that a policy gives as the value of the kind itself, instead of a table."""
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Settings of which a policy needs at least one, as groups that go together."""
    irreversible: ClassVar[bool] = False
    """The command line asks first."""
    frees_bytes: ClassVar[bool] = False
    """Its bytes are gone afterwards; other kinds rewrite theirs."""
    deletes_rows: ClassVar[bool] = False
    """A policy's limits count its rows."""
    changes: ClassVar[str | None] = None
    """What it changes: a dry run of a later kind that changes the same cannot know its exact figures."""
    idempotent: ClassVar[bool] = True
    """If False, the driver commits: a worker may run a task again."""
    concurrency: ClassVar[int] = 1
    """Tables that one worker handles at a time at least; more for kinds that mostly wait for the store."""
    batches: ClassVar[bool] = False
    """Whether `run_batch` does small tables together."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls
            if "title" not in cls.__dict__:
                cls.title = cls.label

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        """Decide from facts alone, without IO."""
        return Verdict(True, "the job decides what is due when it runs")

    def now(self, context: Context) -> datetime:
        """Return the moment from which ages of a direct run count."""
        return context.clock.now()

    def pin(self, now: datetime, facts: TableFacts | None = None) -> Self:
        """Replace ages by moments, so that the job means the same on any machine and at any later time.

        A policy has `facts`, a direct run has none.

        Raises:
            InvalidInputError: an age is below the minimum.
        """
        return self

    def for_run(self, run: str) -> Self:
        """Return the job as one of several of a run, which may share what they find out."""
        return self

    def check_rule(self) -> None:
        """Check what a rule says, beyond what is checked for every use.

        Raises:
            SettingError: it cannot be used.
        """

    def simpler(self) -> str:
        """Return how a rule could say the same more simply; empty if it cannot."""
        return ""

    def check_tables(self, named: Sequence[Name]) -> None:
        """Check that the tables that are named go with the settings.

        Raises:
            InvalidInputError: they do not.
        """

    def targets(self, context: Context) -> Sequence[Name]:
        """Return what it works on when no table is named.

        Raises:
            InvalidInputError: it never runs on all tables.
        """
        if self.scope is Scope.ROOT:
            return [()]
        if self.needs_names:
            raise InvalidInputError(
                f"{self.label}: name at least one table; this job never runs on all tables"
            )
        from relance.jobs.plans.tables import all_tables

        return all_tables(context)

    def check(self, context: Context, table: Name, expect: Expected) -> None:
        """Check that a step of a plan still means what it meant when it was planned.

        Raises:
            MovedError: it does not.
        """
        if table:
            from relance.jobs.plans.tables import open_expected

            open_expected(context, table, expect)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        """Inspect one table and return what to do; None if there is nothing to do. Changes nothing.

        Raises:
            MovedError: the table is not the one that `expect` describes.
        """
        raise NotImplementedError

    @classmethod
    def run_batch(cls, context: Context, steps: Sequence[Step]) -> Iterator[Mapping[int, Outcome]]:
        """Do steps together, and yield the outcomes by position, as soon as they are known.

        Steps without an outcome, also because an unexpected error ended this, are done one by one.
        """
        raise NotImplementedError

    def claimed_for(self, context: Context, table: Name) -> timedelta:
        """Return how long a process that was stopped may keep others from this work."""
        return timedelta(0)

    def is_nothing(self, found: Estimate | Effect) -> bool:
        """Return whether a plan or an effect with these figures counts as nothing to do."""
        return False

    @property
    def settings(self) -> dict[str, Any]:
        """All that a plan needs, defaults too: it means the same after a release changes a default."""
        decided = {name for name, each in type(self).model_fields.items() if only_for(each) == "policy"}
        return self.model_dump(mode="json", exclude_none=True, exclude=decided)


_KINDS: dict[str, type[Job]] = {}


def forget(kind: type[Job]) -> None:
    """Take a kind out of the registry again, as a test does that adds one."""
    _KINDS.pop(kind.kind, None)


def kind_order(kind: str) -> tuple[int, str]:
    """Return the key that sorts names of kinds as a run does them, those of a newer release last."""
    return (_KINDS[kind].order, kind) if kind in _KINDS else (sys.maxsize, kind)


def deletes_files(kind: str) -> bool:
    """Return whether a kind deletes files that somebody may miss: a policy's limits count their bytes."""
    return kind in _KINDS and _KINDS[kind].frees_bytes and _KINDS[kind].irreversible


def says_enough(kind: type[Job]) -> bool:
    """Return whether `true` is enough for a policy to ask for a kind."""
    return kind.key is None and not kind.one_of


def kinds() -> list[type[Job]]:
    """Return all kinds, in the order in which a policy run does them."""
    return sorted(_KINDS.values(), key=lambda kind: kind.order)


def policy_kinds(scope: Scope | None = None) -> list[type[Job]]:
    """Return the kinds that a policy can ask for, in the order in which a run does them."""
    return [kind for kind in kinds() if kind.in_policy and scope in (None, kind.scope)]


def kind_of(name: str) -> type[Job]:
    """Return the kind of this name.

    Raises:
        InvalidInputError: this release has none.
    """
    if name not in _KINDS:
        raise InvalidInputError(
            f"unknown kind of job {shown(name)}; this release has {', '.join(sorted(_KINDS))}"
        )
    return _KINDS[name]


def job_from(kind: str, settings: Mapping[str, Any]) -> Job:
    """Return the job of a plan's action.

    Raises:
        InvalidInputError: the kind or one of its settings is unknown or has an unusable value.
    """
    try:
        return kind_of(kind).model_validate(dict(settings))
    except ValidationError as error:
        told = "; ".join(" ".join(filter(None, each)) for each in complaints_of(error))
        raise InvalidInputError(f"invalid settings for {kind}: {told}") from error


def only_for(field: FieldInfo) -> Use | None:
    """Return the only use of a setting; None if it has all."""
    extra = field.json_schema_extra
    return extra.get("only") if isinstance(extra, dict) else None  # type: ignore[return-value]  # see setting


def settings_for(kind: type[Job], use: Use) -> dict[str, FieldInfo]:
    """Return the settings of a kind that a use has."""
    return {name: each for name, each in kind.model_fields.items() if only_for(each) in (None, use)}


def complaints_of(error: ValidationError) -> list[tuple[str, str]]:
    """Return what is wrong with settings: the name, if there is one, and the text after it."""
    told = []
    for each in error.errors(include_url=False):
        key, cause = ".".join(map(str, each["loc"])), each.get("ctx", {}).get("error")
        if isinstance(cause, SettingError):
            told.append((key or cause.key, cause.message))
        elif each["type"] == "missing":
            told.append((key, "is required"))
        elif each["type"] == "extra_forbidden":
            told.append((key, "is not a setting of this job"))
        else:
            told.append((key, f"is invalid: {each['msg'].lower()}, got {shown(each['input'])}"))
    return told


@dataclass(frozen=True, slots=True)
class Step:
    """One job for one table: what the engine runs, so that no wrapper hides what a kind is capable of."""

    job: Job
    table: Name
    expect: Expected | None = None
    """The table as it was planned; another one under its name is left alone."""

    def plan(self, context: Context) -> TablePlan | None:
        """Inspect the table and return what to do; see Job.plan."""
        return self.job.plan(context, self.table, self.expect)


Outcome = Effect | TablePlan | RelanceError | None
"""What became of one of several steps: its effect, None when there was nothing to do, its error, or the
plan of one that is better done by itself, of which nothing was done yet."""


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
