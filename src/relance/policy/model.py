"""What a policy file says: rules in their order, each with jobs, and limits for a run. Pure.

Reading a file is in parse, what follows for a table is in evaluate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict

from relance.jobs.base import Job
from relance.jobs.settings import Amount, LargeSize
from relance.policy.patterns import TablePattern, fits
from relance.policy.windows import Window

DEFAULTS = "defaults"
"""The name of the rule that `[defaults]` makes; no other may have it."""

Off = Literal[False]
"""A rule that switches something off which an earlier rule asked for."""


@dataclass(frozen=True, slots=True)
class PropertyCondition:
    """What a rule asks of a property of the table."""

    name: str
    value: str | bool
    """A text in which `*` stands for any; True is any value, False is that the property is not set."""

    def holds(self, properties: Mapping[str, str]) -> bool:
        """Tell whether a table with these properties meets it."""
        if isinstance(self.value, bool):
            return (self.name in properties) is self.value
        return self.name in properties and fits(self.value.split("*"), properties[self.name])

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return f"property {self.name!r} is {'set' if self.value else 'not set'}"
        return f"property {self.name!r} is {self.value!r}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What should hold for the tables that it is about. A part that is not there leaves earlier rules."""

    name: str
    tables: tuple[TablePattern, ...]
    """One of them must match."""
    properties: tuple[PropertyCondition, ...] = ()
    """All of them must hold."""
    jobs: Mapping[str, Job | Off] = field(default_factory=dict)
    """By kind."""
    window: Window | Off | None = None
    rate_limit: int | Off | None = None
    """Files deleted per second, where the part itself says nothing."""
    line: int = 0
    """Where it stands in the file."""

    def applies(self, table: Sequence[str], properties: Mapping[str, str]) -> bool:
        """Tell whether it is about a table."""
        return any(pattern.matches(table) for pattern in self.tables) and all(
            condition.holds(properties) for condition in self.properties
        )

    @property
    def is_for_all(self) -> bool:
        """Tell whether it is about every table, and so may be about the lake as a whole."""
        return not self.properties and any(pattern.is_any for pattern in self.tables)


class Limits(BaseModel):
    """How much one run may do; a run that would do more does nothing. None is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_tables: Amount | None = None
    """Maximum number of tables a run may act on."""
    max_bytes_deleted: LargeSize | None = None
    """Maximum bytes a run may delete."""
    max_rows_deleted: Amount | None = None
    """Maximum rows a run may delete."""

    def why_exceeded(self, *, tables: int, bytes_deleted: int, rows_deleted: int) -> str | None:
        """Return which limit a plan with these figures exceeds, and by how much; None when it keeps all."""
        for name, limit, planned in (
            ("max_tables", self.max_tables, tables),
            ("max_bytes_deleted", self.max_bytes_deleted, bytes_deleted),
            ("max_rows_deleted", self.max_rows_deleted, rows_deleted),
        ):
            if limit is not None and planned > limit:
                return f"the run would exceed limits.{name}: {planned:,} planned, {limit:,} allowed"
        return None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file that was read without a complaint."""

    file: str
    rules: tuple[Rule, ...] = ()
    """In the order of the file; that of `[defaults]`, if there is one, is the first."""
    limits: Limits = field(default_factory=Limits)
    hints: tuple[str, ...] = ()
    """What could be said more simply, with file, line and key."""
