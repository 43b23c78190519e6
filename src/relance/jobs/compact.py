"""Compact: rewrite small fragments, and those with many deleted rows, into fewer and larger ones."""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from relance.jobs.base import Expected, Job, Name, Verdict, setting
from relance.jobs.settings import Count, Flag, Share, Size
from relance.units import plural

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts
    from relance.jobs.plans.compaction import CompactPlan

TARGET_ROWS = 1024 * 1024
"""Rows of a fragment that is large enough, as Lance has it."""


class Compact(Job):
    """Merge small fragments and rewrite those with many deleted rows."""

    kind, label, command, order = "compact", "compact", "compact", 40
    changes = "rows"

    target_rows: Count = setting(TARGET_ROWS)
    """Target number of rows per fragment."""
    target_bytes: Size | None = setting(None)
    """Target size of a fragment."""
    deletion_threshold: Share = setting(0.1)
    """Rewrite fragments whose share of deleted rows exceeds this."""
    partial_progress: Count | None = setting(None)
    """Commit whenever this many tasks have finished."""
    defer_index_remap: Flag = setting(False)
    """Do not update indexes; record which rows moved instead."""
    batch_size: Count | None = setting(None)
    """Rows read per batch."""
    min_fragments: Count = setting(2, only="policy")
    """Below this many fragments, compact only above the deletion threshold."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        fragments, ratio = facts.fragments, facts.fragment_deleted_ratio
        if fragments is None:
            return Verdict(True, "number of fragments unknown")
        # As the plan has it, per fragment: one with many deleted rows hardly shows in the table's share.
        if ratio is not None and ratio > self.deletion_threshold:
            limit = f"{self.deletion_threshold:.1%}"
            return Verdict(True, f"a fragment with {ratio:.1%} of rows deleted, more than {limit}")
        many, deleted = plural(fragments, "fragment"), f"{facts.deleted_ratio:.1%} of rows deleted"
        if fragments < self.min_fragments:
            return Verdict(False, f"{many}, fewer than {self.min_fragments}, and {deleted}")
        enough = self._fewest(facts)
        if enough is not None and fragments <= enough:
            return Verdict(False, f"{many}, no more than its rows need, and {deleted}")
        needed = "" if enough is None else f" where {enough:,} would do"
        return Verdict(True, f"{many}{needed}, and {deleted}")

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> CompactPlan | None:
        from relance.jobs.plans.compaction import plan_compaction

        return plan_compaction(self, context, table, expect)

    def rows_per_fragment(self, *, rows: int, size: int) -> int:
        """Return how many rows of a table make a fragment of the target size, deleted ones included."""
        if self.target_bytes is None or not size:
            return self.target_rows
        return max(1, min(self.target_rows, self.target_bytes * rows // size))

    def _fewest(self, facts: TableFacts) -> int | None:
        """Return how many fragments the rows need."""
        if facts.rows is None:
            return None
        rows = facts.rows + (facts.deleted_rows or 0)
        return ceil(rows / self.rows_per_fragment(rows=rows, size=facts.bytes or 0))
