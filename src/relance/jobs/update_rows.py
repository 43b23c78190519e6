"""Update rows: set columns to SQL expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relance.jobs.base import Expected, Job, Name, setting
from relance.jobs.settings import Assignments, Text

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.plans.row_changes import RewritePlan


class UpdateRows(Job):
    """Set columns to SQL expressions, in all rows or in those that match a predicate.

    Every expression sees the row as it was, also when another column of it is set.
    """

    kind, label, command, order = "update_rows", "update rows", "update-rows", 35
    in_policy = idempotent = False  # an expression may see what it has set
    needs_names = True
    changes = "rows"

    set: Assignments
    """New value of a column, as COLUMN=EXPRESSION; repeatable."""
    where: Text | None = setting(None)
    """Rows to update; default: all rows."""

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> RewritePlan | None:
        from relance.jobs.plans.row_updates import plan_update

        return plan_update(self, context, table, expect)
