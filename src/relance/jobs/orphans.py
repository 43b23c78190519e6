"""Remove orphans: directories that no row, marker or table names, of creates and jobs that died."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from relance.jobs.base import Effect, Estimate, Expected, Job, Name, Scope, TablePlan, Verdict, setting
from relance.jobs.cleanup import FLOOR, TOO_YOUNG
from relance.jobs.settings import Duration, Flag, Moment, Rate, SettingError, moment_text

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts


class RemoveOrphans(Job):
    """Remove old directories that nothing in the catalog refers to."""

    kind, label, command, order = "remove_orphans", "remove orphans", "remove-orphans", 80
    scope = Scope.ROOT
    irreversible = frees_bytes = True

    older_than: Duration | None = setting(FLOOR)
    """Remove a directory only if all its files are older than this."""
    allow_young: Flag = setting(False)
    """Allow older_than below 24 hours; only safe while no tables are being created."""
    with_versions: Flag = setting(False)
    """Also remove directories that contain a version."""
    rate_limit: Rate | None = setting(None)
    """Maximum files deleted per second per process."""
    before: Moment | None = setting(None, only="plan")
    """Instead of `older_than`, the moment that it led to where the run was planned."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.older_than is None and self.before is None:
            raise SettingError("is required", key="older_than")
        if self.older_than is not None and self.older_than < FLOOR and not self.allow_young:
            raise SettingError(TOO_YOUNG, key="older_than")
        return self

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        return Verdict(True, f"unreferenced directories from before {moment_text(self.cutoff(now))}")

    def now(self, context: Context) -> datetime:
        from relance.storage.ballast import emptying

        with emptying():
            return context.store_now()

    def pin(self, now: datetime, facts: TableFacts | None = None) -> Self:
        return self.model_copy(update={"before": self.cutoff(now), "older_than": None})

    def cutoff(self, now: datetime) -> datetime:
        """Return the moment before which directories may go."""
        return self.before if self.before is not None else now - (self.older_than or timedelta(0))

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.jobs.plans.orphans import plan_orphans

        return plan_orphans(self, context, table)

    def is_nothing(self, found: Estimate | Effect) -> bool:
        return not found.files
