"""The actions of a plan with what its dry run showed, and as steps that the engine runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relance.jobs.base import Estimate, Expected, Step, job_from, kind_of, kind_order
from relance.policy.actions import Action
from relance.policy.records import ActionRecord, Outcome

TOGETHER = 250
"""Actions that are done, and written to the history, together."""

Subject = tuple[tuple[str, ...], str]
"""A table, one dropped generation of a name, or a task of the root: one that fails keeps from no other."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One action of a plan, and what its dry run showed."""

    number: int
    action: Action
    outcome: Outcome = Outcome.PLANNED
    """Planned, nothing to do, failed or skipped. Only planned ones are done."""
    planned: Estimate | None = None
    follows: tuple[str, ...] = ()
    """Planned kinds that change the same table first; `planned` is as the table is before them."""
    error: str | None = None
    seen: Expected = field(default_factory=Expected)

    @property
    def subject(self) -> Subject:
        if not self.action.table:
            return (), self.action.kind
        return self.action.table, str(self.action.settings.get("deletion_id", ""))

    @property
    def record(self) -> ActionRecord:
        """The action as a dry run shows it."""
        return ActionRecord(self.action, self.outcome, planned=self.planned, error=self.error)

    def step(self, run: str, *, expected: bool) -> Step:
        """Return what the engine runs; jobs with the same `run` may share what they find out.

        Raises:
            InvalidInputError: the kind or one of its settings is unknown or has an unusable value.
        """
        job = job_from(self.action.kind, self.action.settings).for_run(run)
        return Step(job, self.action.table, self.seen if expected else None)


def in_order(actions: Sequence[tuple[Action, Expected]]) -> list[PlannedAction]:
    """Return the actions of a plan in the order in which they are done: by kind, then by table."""

    def place(each: tuple[Action, Expected]) -> tuple[tuple[int, str], tuple[str, ...], str]:
        action = each[0]
        return kind_order(action.kind), action.table, str(action.settings.get("deletion_id", ""))

    return [
        PlannedAction(number, action, seen=seen)
        for number, (action, seen) in enumerate(sorted(actions, key=place))
    ]


def chunks_of(actions: Sequence[PlannedAction]) -> Iterator[list[PlannedAction]]:
    """Yield the actions to be done, of one kind at a time, a few together; the same for the same plan."""
    chunk: list[PlannedAction] = []
    for action in actions:
        if action.outcome is not Outcome.PLANNED:
            continue
        if chunk and (len(chunk) == TOGETHER or chunk[0].action.kind != action.action.kind):
            yield chunk
            chunk = []
        chunk.append(action)
    if chunk:
        yield chunk


def earlier_kinds(action: PlannedAction, planned: Mapping[tuple[str, ...], Sequence[str]]) -> tuple[str, ...]:
    """Return which planned kinds change first what an action works on; `planned` is by table."""
    what, table = kind_of(action.action.kind).changes, action.action.table
    if what is None or (table and what == "manifest"):
        return ()
    earlier = planned.get(table, ()) if table else {kind for kinds in planned.values() for kind in kinds}
    return tuple(sorted((kind for kind in earlier if kind_of(kind).changes == what), key=kind_order))
