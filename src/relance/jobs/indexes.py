"""Refresh indexes: have the indexes of tables cover the rows that were written since they were built."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from relance.jobs.base import Expected, Job, Name, Verdict, setting
from relance.jobs.settings import Amount, Count, Share
from relance.units import plural

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts
    from relance.jobs.plans.index_refresh import RefreshPlan


class RefreshIndexes(Job):
    """Extend indexes to rows written since they were built."""

    kind, label, command, order = "refresh_indexes", "refresh indexes", "refresh-indexes", 50
    changes = "rows"

    max_lag_rows: Amount = setting(0)
    """Number of unindexed rows to tolerate."""
    max_lag_ratio: Share = setting(0.0)
    """Share of unindexed rows to tolerate."""
    segment_rows: Count = setting(5_000_000)
    """Build the index in segments once this many rows are unindexed."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if facts.unindexed_rows is None:
            return Verdict(False, "the table has no index")
        limit = self.allowed_lag(facts.rows or 0)
        lag = f"{plural(facts.unindexed_rows, 'unindexed row')}, {limit:,.0f} allowed"
        if facts.unindexed_rows <= limit:
            return Verdict(False, lag if facts.unindexed_rows else "all rows are indexed")
        return Verdict(True, lag)

    def allowed_lag(self, rows: int) -> float:
        """Return how many rows of a table an index may leave out."""
        return max(self.max_lag_rows, self.max_lag_ratio * rows)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> RefreshPlan | None:
        from relance.jobs.plans.index_refresh import plan_refresh

        return plan_refresh(self, context, table, expect)
