"""Purge: delete the files of dropped tables whose retention period has ended, many tables at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from relance.errors import InvalidInputError, InvalidTableStateError, TableNotFoundError
from relance.jobs.base import (
    Effect,
    Estimate,
    Expected,
    Job,
    Name,
    Outcome,
    Scope,
    Step,
    Verdict,
    setting,
)
from relance.jobs.settings import Flag, Moment, Rate, Text, moment_text

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts
    from relance.jobs.plans.expired_drops import PurgePlan


class PurgeDropped(Job):
    """Purge dropped tables whose retention period has ended."""

    kind, label, command, order = "purge", "purge", "purge", 70
    scope = Scope.DROPPED
    irreversible = frees_bytes = batches = True
    changes = "manifest"

    deletion_id: Text | None = setting(None, only="direct")
    """Purge only this drop of the named table."""
    deleted_before: Moment | None = setting(None, only="direct")
    """Purge only tables dropped before this time."""
    force: Flag = setting(False, only="direct")
    """Purge the named tables even if their retention period has not ended."""
    rate_limit: Rate | None = setting(None)
    """Maximum files deleted per second per process."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if facts.protected:
            return Verdict(False, "the dropped table is protected: unprotect it first", refused=True)
        if facts.deletion_id is None:
            return Verdict(False, "the drop has no deletion id", refused=True)
        if facts.purge_after is None:
            return Verdict(False, "the dropped table has no purge date")
        # By the store's clock the period ends so much later, and this clock may be ahead of it.
        if now < (facts.purgeable_at or facts.purge_after):
            return Verdict(False, f"can be undropped until {moment_text(facts.purge_after)}")
        dropped = f"dropped at {moment_text(facts.dropped_at)}, " if facts.dropped_at else ""
        return Verdict(True, f"{dropped}expired at {moment_text(facts.purge_after)}")

    def pin(self, now: datetime, facts: TableFacts | None = None) -> Self:
        return self if facts is None else self.model_copy(update={"deletion_id": facts.deletion_id})

    def check_tables(self, named: Sequence[Name]) -> None:
        if self.force and not named:
            raise InvalidInputError("force requires table names")
        if self.deletion_id is not None and len(named) != 1:
            raise InvalidInputError("deletion_id requires exactly one table")

    def targets(self, context: Context) -> Sequence[Name]:
        from relance.jobs.plans.expired_drops import due_names

        return due_names(self, context)

    def check(self, context: Context, table: Name, expect: Expected) -> None:
        from relance.jobs.plans.expired_drops import is_gone

        is_gone(self, context, table, expect)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> PurgePlan | None:
        from relance.jobs.plans.expired_drops import is_gone, plan_purge

        try:
            return plan_purge(self, context, table)
        except (TableNotFoundError, InvalidTableStateError):
            # A drop that is gone already needs no purge; one that was undropped is none any more.
            if expect is not None and is_gone(self, context, table, expect):
                return None
            raise

    @classmethod
    def run_batch(cls, context: Context, steps: Sequence[Step]) -> Iterator[Mapping[int, Outcome]]:
        from relance.jobs.plans.expired_drops import purge_together

        return purge_together(context, steps)

    def claimed_for(self, context: Context, table: Name) -> timedelta:
        from relance.jobs.plans.expired_drops import claim_left

        return claim_left(self, context, table)

    def is_nothing(self, found: Estimate | Effect) -> bool:
        return False  # a drop without files still has a marker
