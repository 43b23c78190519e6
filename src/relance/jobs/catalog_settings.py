"""Protect and drop TTL: what a policy changes in the catalog, not in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Expected, Job, Name, TablePlan, Task, Verdict, setting
from relance.jobs.settings import DurationText, Flag
from relance.units import parse_duration

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts


class Protect(Job):
    """Refuse drops of the table."""

    kind, label, order = "protect", "protect", 10
    needs_data = False
    needs_names = True
    changes = "manifest"

    on: Flag = setting(True)
    """Whether drops are refused; false removes protection."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if facts.protected == self.on:
            return Verdict(False, "already protected" if self.on else "not protected")
        return Verdict(True, "not protected yet" if self.on else "protected, but should not be")

    def check(self, context: Context, table: Name, expect: Expected) -> None:
        from relance.jobs.plans.tables import find_expected

        find_expected(context, table, expect)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.catalog.register import is_protected
        from relance.jobs.plans.tables import find_expected

        context.require_manifest(to_do="protection")
        found = find_expected(context, table, expect, properties=False)
        if is_protected(context, found.table_id.parts) is self.on:
            return None
        return ProtectPlan(table, self.on)


@dataclass(frozen=True, slots=True)
class ProtectPlan(TablePlan):
    """A table whose protection changes."""

    table: Name
    on: bool
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        return Estimate(note="drops are refused" if self.on else "drops are allowed")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        from relance.catalog.register import set_protection

        set_protection(context, self.table, on=self.on)
        return Effect(note=self.estimate.note)


class DropTtl(Job):
    """How long the table can be undropped after a drop, such as 30d."""

    kind, label, order = "drop_ttl", "drop ttl", 20
    title = "set drop TTL"
    key = "ttl"
    needs_names = True
    changes = "manifest"

    ttl: DurationText
    """How long drops of the table can be undone."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if facts.drop_ttl is None:
            return Verdict(True, "the table sets no drop TTL")
        same = self._is_same(facts.drop_ttl)
        if same is None:
            return Verdict(True, f"{facts.drop_ttl!r} is not a duration")
        if same:
            return Verdict(False, f"already {facts.drop_ttl}")
        return Verdict(True, f"is {facts.drop_ttl}, should be {self.ttl}")

    def _is_same(self, own: str) -> bool | None:
        """Return whether a table's own TTL is as long; None if it is not a duration."""
        try:
            return parse_duration(own, what="drop_ttl") == parse_duration(self.ttl, what="drop_ttl")
        except InvalidInputError:
            return None

    def check(self, context: Context, table: Name, expect: Expected) -> None:
        from relance.jobs.plans.tables import find_expected

        find_expected(context, table, expect)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.jobs.plans.tables import find_expected
        from relance.operations.drop_ttl import own_ttl
        from relance.operations.table.opening import reading

        found = find_expected(context, table, expect)
        config: dict[str, str] = {}
        if found.home is not None and not found.is_only_declared(context.storage):
            with reading(context, table) as dataset:
                config = dict(dataset.config())
        own = own_ttl(found.properties, config, at_home=found.home is not None)
        return None if own is not None and self._is_same(own) else DropTtlPlan(table, self.ttl, own)


@dataclass(frozen=True, slots=True)
class DropTtlPlan(TablePlan):
    """A table whose drop TTL changes."""

    table: Name
    ttl: str
    before: str | None
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        return Estimate(note=f"drops can be undone for {self.ttl}, was {self.before or 'the default'}")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        from relance.operations.drop_ttl import set_drop_ttl

        set_drop_ttl(context, self.table, self.ttl)
        return Effect(note=self.estimate.note)
