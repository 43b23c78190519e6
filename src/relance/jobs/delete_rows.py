"""Delete rows: those that a predicate selects, or that are older than a span by a time column."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Expected, Job, Name, Verdict, setting
from relance.jobs.predicates import age_of, check_predicate, older_rows, pin_time
from relance.jobs.settings import Duration, SettingError, Text
from relance.units import exact_duration

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts
    from relance.jobs.plans.row_changes import RewritePlan


class DeleteRows(Job):
    """Delete the rows that match a predicate."""

    kind, label, command, order = "delete_rows", "delete rows", "delete-rows", 30
    irreversible = needs_names = deletes_rows = True
    one_of = (("where",), ("delete_where",), ("time_column", "older_than"))
    changes = "rows"

    where: Text | None = setting(None)
    """Rows to delete, as an SQL predicate such as "day < date '2026-01-01'"."""
    time_column: Text | None = setting(None)
    """Timestamp or date column that older_than, or now() in the predicate, is compared with."""
    older_than: Duration | None = setting(None)
    """Delete only rows whose time_column is older than this."""
    delete_where: Text | None = setting(None, only="policy")
    """The same as where."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.where is not None and self.delete_where is not None:
            raise SettingError("means the same as where: set only one of them", key="delete_where")
        if self.older_than is not None and self.time_column is None:
            raise SettingError("requires time_column, the column that it is compared with", key="older_than")
        if self.predicate is None and self.older_than is None:
            raise SettingError("is required", key="where")
        return self

    def check_rule(self) -> None:
        if self.predicate is None:
            return
        key = "where" if self.delete_where is None else "delete_where"
        try:
            check_predicate(self.predicate, None if self.older_than is not None else self.time_column)
        except InvalidInputError as error:
            raise SettingError(error.detail, key=key) from None

    def simpler(self) -> str:
        found = age_of(self.predicate or "")
        if found is None or self.older_than is not None or found[0] != self.time_column:
            return ""
        return f'time_column = "{found[0]}", older_than = "{found[1]}"'

    @property
    def predicate(self) -> str | None:
        return self.delete_where if self.where is None else self.where

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if facts.rows == 0:
            return Verdict(False, "the table has no rows")
        if self.time_column is not None:
            holds = dict(facts.columns).get(self.time_column)
            if holds is None:
                return Verdict(False, f"column {self.time_column!r} does not exist", refused=True)
            if not holds.startswith(("timestamp", "date32", "date64")):
                why = f"column {self.time_column!r} is {holds}, not a timestamp or date"
                return Verdict(False, why, refused=True)
        try:
            self.pin(now, facts)
        except InvalidInputError as error:
            return Verdict(False, error.detail, refused=True)
        rows = "" if facts.rows is None else f" (of {facts.rows:,})"
        return Verdict(True, f"{self._what()}{rows}")

    def _what(self) -> str:
        old = ""
        if self.older_than is not None:
            old = f"rows whose {self.time_column} is older than {exact_duration(self.older_than)}"
        if self.predicate is None:
            return old
        return f"{old}, matching {self.predicate}" if old else f"rows matching {self.predicate}"

    def pin(self, now: datetime, facts: TableFacts | None = None) -> Self:
        where = None if self.predicate is None else pin_time(self.predicate, now)
        if self.older_than is not None and self.time_column is not None:
            old = older_rows(self.time_column, now, self.older_than)
            # On a line of its own: the predicate may end in a comment.
            where = old if where is None else f"{old} AND (\n{where}\n)"
        pinned = {"where": where, "delete_where": None, "time_column": None, "older_than": None}
        return self.model_copy(update=pinned)

    def check(self, context: Context, table: Name, expect: Expected) -> None:
        from relance.jobs.plans.row_deletes import open_unchanged

        open_unchanged(context, table, expect)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> RewritePlan | None:
        from relance.jobs.plans.row_deletes import plan_delete

        job = self if self.older_than is None else self.pin(self.now(context))
        assert job.where is not None  # as pinned jobs have it, and checked ones
        return plan_delete(job.where, context, table, expect)

    def is_nothing(self, found: Estimate | Effect) -> bool:
        return not found.rows
