"""Merging in this process, with something that happens between the work and the commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from relance.catalog.context import Context
from relance.jobs.merging.merge_commit import Work
from relance.jobs.merging.merge_here import HereEngine
from relance.jobs.merging.merge_plan import Clauses, MergePlan, MergeRequest
from relance.jobs.merging.merge_rows import check_rows, fitted
from relance.jobs.merging.merges import MergeResult, run_merge


class Interrupted(HereEngine):
    """Has done its work, and somebody else comes first."""

    def __init__(self, rows: pa.Table, before_commit: Callable[[], None]) -> None:
        super().__init__(rows, fitted)
        self._before_commit = before_commit

    def work(self, plan: MergePlan) -> Work:
        done = super().work(plan)
        self._before_commit()
        return done


def merge_here(
    context: Context,
    name: str,
    rows: pa.Table,
    on: tuple[str, ...] = ("k",),
    clauses: Clauses | None = None,
    *,
    before_commit: Callable[[], None] = lambda: None,
    dry_run: bool = False,
) -> MergeResult:
    """Merge rows into a table at the root of a catalog."""
    clauses = clauses or Clauses()
    request = MergeRequest((name,), on, clauses, lambda schema: check_rows(rows.schema, schema, clauses))
    return run_merge(context, request, Interrupted(rows, before_commit), dry_run=dry_run)
