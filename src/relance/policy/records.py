"""What a run of a policy did, or what a dry run would do: the source of reports and of the history. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from relance.jobs.base import Effect, Estimate
from relance.jobs.facts import TableFacts, TableState
from relance.policy.actions import Action, Unknown


class Outcome(StrEnum):
    """What became of one action."""

    PLANNED = "planned"
    DONE = "done"
    NOTHING = "nothing to do"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Outside its time window, or the run ended before it."""


class RunState(StrEnum):
    """What became of a run."""

    PLANNED = "planned"
    """A dry run."""
    RUNNING = "running"
    """In progress; in the history also a run that was killed."""
    INTERRUPTED = "interrupted"
    """It was killed, and can be resumed. Only what is read from the history has this state."""
    DONE = "done"
    FAILED = "failed"
    """It came to its end, and some actions failed."""
    REFUSED = "refused"
    """A limit was exceeded: nothing was done."""


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One action of a run."""

    action: Action
    outcome: Outcome | Unknown
    planned: Estimate | None = None
    effect: Effect | None = None
    error: str | None = None
    started_at: datetime | None = None
    duration: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table before and after a run; `after` is None in a dry run, and for a table that is purged."""

    before: TableFacts
    after: TableFacts | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """All tables of a lake together."""

    tables: int = 0
    dropped: int = 0
    unreadable: int = 0
    rows: int = 0
    deleted_rows: int = 0
    fragments: int = 0
    bytes: int = 0
    versions: int = 0

    def plus(self, facts: TableFacts) -> Totals:
        """Return the totals with one more table."""
        if facts.state is TableState.DROPPED:
            return replace(self, dropped=self.dropped + 1)
        return replace(
            self,
            tables=self.tables + 1,
            unreadable=self.unreadable + (facts.error is not None),
            rows=self.rows + (facts.rows or 0),
            deleted_rows=self.deleted_rows + (facts.deleted_rows or 0),
            fragments=self.fragments + (facts.fragments or 0),
            bytes=self.bytes + (facts.bytes or 0),
            versions=self.versions + (facts.versions or 0),
        )


@dataclass(frozen=True, slots=True)
class MoreDropped:
    """Dropped tables without an action that a plan or a record only counts."""

    tables: int = 0
    due: int = 0
    """How many of them could have been purged when the run was planned."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a policy over a lake."""

    run: str
    root: str
    """Without secrets."""
    policy: str
    """The file's name."""
    actor: str
    """Who ran it: user@host, or as told."""
    state: RunState | Unknown
    engine: str
    """Where it ran, and why there."""
    started_at: datetime
    ended_at: datetime | None
    before: Totals
    after: Totals | None
    actions: tuple[ActionRecord, ...]
    changes: tuple[TableChange, ...]
    """Only tables with an action, and the dropped tables that expire first."""
    message: str = ""
    """Why it was refused or failed."""
    more_dropped: MoreDropped = MoreDropped()
