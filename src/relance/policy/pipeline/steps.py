"""The steps of a plan, and the job that dry-runs or does some of them, whatever their kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relance.catalog.context import Context
from relance.jobs.base import Effect, Estimate, TablePlan
from relance.policy.actions import Action, AnyKind, Kind
from relance.policy.pipeline.jobs import Around, job_of
from relance.policy.pipeline.moved import Seen, check_unmoved, is_gone
from relance.policy.records import ActionRecord, Outcome

TOGETHER = 250
"""Steps that are done, and written to the history, together."""

_CHANGING = (Kind.DELETE_ROWS, Kind.COMPACT, Kind.REFRESH_INDEXES)
"""After one of these, what the next of them finds in the same table is not what the dry run saw."""

_IN_MANIFEST = (Kind.PROTECT, Kind.DROP_TTL, Kind.PURGE)

Subject = tuple[tuple[str, ...], str]
"""A table, one dropped generation of a name, or a task of the root: one that fails keeps from no other."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a plan, and what its dry run showed."""

    number: int
    action: Action
    outcome: Outcome = Outcome.PLANNED
    """Planned, nothing to do, failed or skipped. Only planned ones are done."""
    planned: Estimate | None = None
    follows: tuple[Kind, ...] = ()
    """Planned actions that change the same table first; `planned` is as the table is before them."""
    error: str | None = None
    seen: Seen = field(default_factory=Seen)

    @property
    def key(self) -> tuple[str, ...]:
        """What results of the step are found by."""
        return (*self.action.table, f"#{self.number}")

    @property
    def subject(self) -> Subject:
        if not self.action.table:
            return (), self.action.kind
        return self.action.table, str(self.action.settings.get("deletion_id", ""))

    @property
    def record(self) -> ActionRecord:
        """The step as a dry run shows it."""
        return ActionRecord(self.action, self.outcome, planned=self.planned, error=self.error)


@dataclass(frozen=True, slots=True)
class StepsJob:
    """Does a few steps: for each, its own job, after a look whether its table moved."""

    name: str
    steps: Mapping[tuple[str, ...], Step]
    run: str
    check: bool = True
    """Look whether the table is as it was planned for."""
    look_only: bool = False
    """Do nothing else."""

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        return list(self.steps)

    def plan(self, context: Context, table: tuple[str, ...]) -> TablePlan | None:
        """Return what to do for a step.

        Raises:
            MovedError: its table is not what was planned for.
        """
        step = self.steps[table]
        action = step.action
        if self.check:
            check_unmoved(context, action, step.seen)
            if self.look_only:
                return None
            if action.kind is Kind.PURGE and is_gone(context, action):
                return None
        around = Around(self.run, step.seen.version)
        return job_of(action, around).plan(context, action.table)


def in_order(actions: Sequence[tuple[Action, Seen]]) -> list[Step]:
    """Return the steps of a plan in the order in which they are done: by kind, then by table."""
    kinds: dict[AnyKind, int] = {kind: number for number, kind in enumerate(Kind)}

    def place(each: tuple[Action, Seen]) -> tuple[int, tuple[str, ...], str]:
        return kinds[each[0].kind], each[0].table, str(each[0].settings.get("deletion_id", ""))

    return [
        Step(number, action, seen=seen) for number, (action, seen) in enumerate(sorted(actions, key=place))
    ]


def chunks_of(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps to be done, of one kind at a time, a few together; the same for the same plan."""
    chunk: list[Step] = []
    for step in steps:
        if step.outcome is not Outcome.PLANNED:
            continue
        if chunk and (len(chunk) == TOGETHER or chunk[0].action.kind is not step.action.kind):
            yield chunk
            chunk = []
        chunk.append(step)
    if chunk:
        yield chunk


def earlier_kinds(step: Step, planned: Mapping[tuple[str, ...], Sequence[AnyKind]]) -> tuple[Kind, ...]:
    """Return which planned kinds change first what a step works on; `planned` is by table."""
    if step.action.kind is Kind.MAINTAIN_MANIFEST:
        found = {kind for kinds in planned.values() for kind in kinds}
        return tuple(kind for kind in _IN_MANIFEST if kind in found)
    if step.action.kind not in _CHANGING:
        return ()
    earlier = planned.get(step.action.table, ())
    return tuple(kind for kind in _CHANGING if kind in earlier)


def finds_nothing(kind: AnyKind, found: Estimate | None) -> bool:
    """Tell whether a dry run shows that there is nothing to do."""
    if found is None:
        return True
    match kind:
        case Kind.DELETE_ROWS:
            return not found.rows
        case Kind.CLEAN_UP | Kind.REMOVE_ORPHANS:
            return not found.files and not found.versions
    return False


def did_nothing(kind: AnyKind, effect: Effect | None) -> bool:
    """Tell whether there turned out to be nothing to do."""
    if effect is None:
        return True
    match kind:
        case Kind.DELETE_ROWS:
            return not effect.rows
        case Kind.CLEAN_UP | Kind.REMOVE_ORPHANS:
            return not effect.files
    return False
