"""What a policy file says: rules in their order, each with parts, and limits for a run. Pure.

Reading a file is in parse, what follows for a table is in evaluate. The fields of the parts and their
defaults are those of the jobs in relance.jobs, so that a plan does what the policy shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from relance.config import require_duration
from relance.policy.actions import Kind
from relance.policy.patterns import TablePattern, fits
from relance.policy.windows import Window

DEFAULTS = "defaults"
"""The name of the rule that `[defaults]` makes; no other may have it."""

FLOOR = timedelta(hours=24)
"""What is younger stays, unless a part says `allow_young`."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Whether drops of the table are refused."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class DropTtl:
    """How long the table can be undropped after a drop."""

    ttl: timedelta
    text: str
    """As the policy writes it."""

    def __post_init__(self) -> None:
        require_duration(self.ttl, what="the drop TTL")


@dataclass(frozen=True, slots=True)
class RowRetention:
    """Which rows go."""

    delete_where: str
    time_column: str | None = None
    """Must be there and hold times or dates; needed when the predicate depends on the time of the run."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """When fragments are merged, and to which size."""

    target_rows: int = 1024 * 1024
    target_bytes: int | None = None
    deletion_threshold: float = 0.1
    partial_progress: int | None = None
    defer_index_remap: bool = False
    batch_size: int | None = None
    min_fragments: int = 2
    """With fewer, only deleted rows are a reason."""


@dataclass(frozen=True, slots=True)
class IndexRefresh:
    """How many rows an index may leave out."""

    max_lag_rows: int = 0
    max_lag_ratio: float = 0.0
    segment_rows: int = 5_000_000


@dataclass(frozen=True, slots=True)
class VersionRetention:
    """Which versions stay: a version goes only if all that is set lets it go, and tagged ones never do."""

    older_than: timedelta | None = None
    retain_versions: int | None = None
    allow_young: bool = False
    ignore_clones: bool = False
    rate_limit: int | None = None

    def __post_init__(self) -> None:
        if self.older_than is not None:
            require_duration(self.older_than, what="older_than")


@dataclass(frozen=True, slots=True)
class Purge:
    """Dropped tables go when their time has passed."""

    rate_limit: int | None = None


@dataclass(frozen=True, slots=True)
class OrphanRemoval:
    """Directories that nothing names go when they are old."""

    older_than: timedelta = FLOOR
    allow_young: bool = False
    with_versions: bool = False
    rate_limit: int | None = None

    def __post_init__(self) -> None:
        require_duration(self.older_than, what="older_than")


@dataclass(frozen=True, slots=True)
class ManifestUpkeep:
    """The manifest of the catalog is kept in shape."""


Part = (
    Protection
    | DropTtl
    | RowRetention
    | Compaction
    | IndexRefresh
    | VersionRetention
    | Purge
    | OrphanRemoval
    | ManifestUpkeep
)
"""What a rule can ask for."""

Off = Literal[False]
"""A rule that switches something off which an earlier rule asked for."""

ROOT_KINDS = (Kind.REMOVE_ORPHANS, Kind.MAINTAIN_MANIFEST)
"""Parts that are about the lake as a whole; only rules for all tables may have them."""

TABLE_KINDS = tuple(kind for kind in Kind if kind not in ROOT_KINDS)

PARTS: Mapping[Kind, type[Part]] = {
    Kind.PROTECT: Protection,
    Kind.DROP_TTL: DropTtl,
    Kind.DELETE_ROWS: RowRetention,
    Kind.COMPACT: Compaction,
    Kind.REFRESH_INDEXES: IndexRefresh,
    Kind.CLEAN_UP: VersionRetention,
    Kind.PURGE: Purge,
    Kind.REMOVE_ORPHANS: OrphanRemoval,
    Kind.MAINTAIN_MANIFEST: ManifestUpkeep,
}


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
    parts: Mapping[Kind, Part | Off] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may do; a run that would do more does nothing. None is no limit."""

    max_tables: int | None = None
    """Tables with at least one action."""
    max_bytes_deleted: int | None = None
    """By clean up, purge and orphans together."""
    max_rows_deleted: int | None = None

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
    limits: Limits = Limits()
