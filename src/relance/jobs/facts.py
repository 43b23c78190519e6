"""What is known of a table when it is decided which jobs are due. Pure: gathering is in gather."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum


class TableState(StrEnum):
    """Whether a table can be used."""

    LIVE = "live"
    DECLARED = "declared"
    """A name without data."""
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table, or one dropped generation of a name. None is not known, or does not apply."""

    table: tuple[str, ...]
    state: TableState = TableState.LIVE
    version: int | None = None
    rows: int | None = None
    deleted_rows: int | None = None
    """Rows that are deleted and whose bytes are still there."""
    fragments: int | None = None
    fragment_deleted_ratio: float | None = None
    """The largest share of deleted rows that one of its fragments has."""
    bytes: int | None = None
    """Of the data files of the latest version."""
    versions: int | None = None
    oldest_version_at: datetime | None = None
    last_write: datetime | None = None
    unindexed_rows: int | None = None
    """The most rows that one of its indexes lacks; 0 when all are covered, None without an index."""
    protected: bool = False
    drop_ttl: str | None = None
    """The table's own, as it is written there."""
    properties: tuple[tuple[str, str], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type, as Arrow writes it."""
    deletion_id: str | None = None
    """Of a dropped table."""
    dropped_at: datetime | None = None
    purge_after: datetime | None = None
    purgeable_at: datetime | None = field(default=None, metadata={"recorded": False})
    """When it can be purged: `purge_after` and how far the catalog's clocks may differ."""
    error: str | None = None
    """Why the table cannot be read; all else is then unknown."""

    @property
    def recorded(self) -> TableFacts:
        """The facts as plans and the history keep them."""
        return replace(self, columns=(), purgeable_at=None)

    @property
    def deleted_ratio(self) -> float:
        """Return which share of the rows in its files is deleted."""
        deleted = self.deleted_rows or 0
        stored = (self.rows or 0) + deleted
        return deleted / stored if stored else 0.0


def expiry_order(facts: TableFacts) -> tuple[bool, float, tuple[str, ...]]:
    """Return the key that sorts dropped tables: first those that expire first, last those that never do."""
    expires = facts.purge_after
    return expires is None, 0.0 if expires is None else expires.timestamp(), facts.table
