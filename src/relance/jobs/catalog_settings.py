"""What a policy changes in the catalog, not in a table, as jobs: protection and drop TTLs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from relance.catalog.context import Context, table_id_of
from relance.catalog.register import is_protected, set_protection
from relance.catalog.resolve import find_table
from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Task
from relance.operations.drop_ttl import own_ttl, set_drop_ttl
from relance.operations.table.opening import reading


@dataclass(frozen=True, slots=True)
class SetProtection:
    """Refuses drops of tables from now on, or allows them."""

    on: bool
    name: ClassVar[str] = "protect"

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        raise InvalidInputError("protect: name at least one table; this job never runs on all tables")

    def plan(self, context: Context, table: tuple[str, ...]) -> _Protection | None:
        """Return what to do; None when the table is as it should be.

        Raises:
            TableNotFoundError: there is no such table.
            UnsupportedOperationError: the catalog has no manifest.
        """
        context.require_manifest(to_do="protection")
        table_id = table_id_of(context, table)
        find_table(context, table_id, properties=False)
        return None if is_protected(context, table_id.parts) is self.on else _Protection(table, self.on)


@dataclass(frozen=True, slots=True)
class _Protection:
    table: tuple[str, ...]
    on: bool
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        return Estimate(note="drops are refused" if self.on else "drops are allowed")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        set_protection(context, self.table, on=self.on)
        return Effect(note=self.estimate.note)


@dataclass(frozen=True, slots=True)
class SetDropTtl:
    """Says how long drops of tables can be undone."""

    ttl: str
    name: ClassVar[str] = "drop ttl"

    def __post_init__(self) -> None:
        parse_duration(self.ttl, what="the drop TTL")

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        raise InvalidInputError("drop ttl: name at least one table; this job never runs on all tables")

    def plan(self, context: Context, table: tuple[str, ...]) -> _Ttl | None:
        """Return what to do; None when the table says so itself.

        Raises:
            TableNotFoundError: there is no such table.
        """
        found = find_table(context, table_id_of(context, table))
        config: dict[str, str] = {}
        if found.home is not None and not found.is_only_declared(context.storage):
            with reading(context, table) as dataset:
                config = dict(dataset.config())
        own = own_ttl(found.properties, config, at_home=found.home is not None)
        return None if _same(own, self.ttl) else _Ttl(table, self.ttl, own)


def _same(own: str | None, wanted: str) -> bool:
    if own is None:
        return False
    try:
        return parse_duration(own, what="") == parse_duration(wanted, what="")
    except InvalidInputError:
        return False


@dataclass(frozen=True, slots=True)
class _Ttl:
    table: tuple[str, ...]
    ttl: str
    before: str | None
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        return Estimate(note=f"drops can be undone for {self.ttl}, was {self.before or 'the default'}")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        set_drop_ttl(context, self.table, self.ttl)
        return Effect(note=self.estimate.note)
