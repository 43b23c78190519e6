"""What every call of the lifecycle answers when calls come one after the other, as a plain dictionary.

The machine that compares it with the real thing is in state_machine. Nothing of the lifecycle's own
code is used here, except its error classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from relance.errors import InvalidTableStateError, RelanceError, TableAlreadyExistsError, TableNotFoundError

DROP_TTL = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=5)
"""By how much the clients' clocks differ; the store's clock decides, so nothing depends on it."""

MARGIN = timedelta(minutes=1)
"""How long after the end of its period a table is still not purged."""

QUARANTINE = timedelta(days=7)
LATE = timedelta(minutes=50)
"""How long after a purge a create that began before it may still commit."""

Error = type[RelanceError] | None
"""The class of the error that is expected, or None for success."""


class Hidden(StrEnum):
    """Why readers do not see a name."""

    DROPPED = "dropped"
    DEREGISTERED = "deregistered"
    PURGED = "purged"


@dataclass(slots=True)
class Entry:
    """All that is known of one name."""

    versions: list[list[int]] = field(default_factory=list)
    """The rows of version 1, 2, and so on."""
    reserved: bool = False
    """It was declared, and not purged since."""
    signed: bool = False
    """The root holds the sign of a declared table."""
    hidden: Hidden | None = None
    was_deregistered: bool = False
    dropped_at: datetime | None = None
    """By the store's clock."""
    ttl: timedelta = DROP_TTL
    dropped_version: int = 0
    written_at: datetime | None = None
    """When the newest version was written."""
    controlled_at: datetime | None = None
    """When the arbiter was last written; None without one. The first drop creates it."""

    @property
    def holds_table(self) -> bool:
        return bool(self.versions) or self.reserved

    @property
    def visible(self) -> bool:
        return self.holds_table and self.hidden is None

    @property
    def live(self) -> bool:
        """It is visible and has data."""
        return self.visible and bool(self.versions)

    @property
    def only_declared(self) -> bool:
        return self.visible and not self.versions

    @property
    def purge_after(self) -> datetime:
        assert self.dropped_at is not None
        return self.dropped_at + self.ttl

    @property
    def expires_at(self) -> datetime:
        """From when it may be purged: its period begins anew with a write after the drop."""
        assert self.dropped_at is not None
        return max(self.dropped_at, self.written_at or self.dropped_at) + self.ttl + MARGIN

    def write(self, rows: list[int], at: datetime) -> None:
        """Note a new version."""
        self.versions.append(rows)
        self.written_at = at


class ReferenceModel:
    """The names of one root. Calls take the time by the store's clock."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.entries = {name: Entry() for name in names}
        self.flagged = False
        """Something was ever created, so the root carries its flag."""

    def visible(self, *, include_declared: bool = True) -> list[str]:
        """Return the names that a listing shows."""
        return sorted(
            name for name, entry in self.entries.items() if entry.live or (include_declared and entry.visible)
        )

    def dropped(self) -> list[str]:
        """Return the dropped names, oldest drop first."""
        found = [name for name, entry in self.entries.items() if entry.hidden is Hidden.DROPPED]
        return sorted(found, key=lambda name: (self.entries[name].dropped_at, name))

    def purgeable(self, at: datetime) -> list[str]:
        """Return the dropped names whose retention period ended."""
        return [name for name in self.dropped() if self.entries[name].expires_at <= at]

    def must_be_visible(self, name: str) -> Error:
        return None if self.entries[name].visible else TableNotFoundError

    def create(self, name: str, mode: str, rows: list[int], at: datetime) -> Error:
        entry = self.entries[name]
        if entry.hidden is Hidden.DEREGISTERED or (entry.live and mode == "create"):
            return TableAlreadyExistsError
        if entry.live and mode == "exist_ok":
            return None
        # An overwrite of a visible table has no business with signs.
        entry.signed = entry.signed and entry.live
        if entry.live or entry.hidden is not None:
            entry.controlled_at = at
        entry.hidden, entry.was_deregistered = None, False
        entry.write(rows, at)
        self.flagged = True
        return None

    def declare(self, name: str, at: datetime) -> Error:
        entry = self.entries[name]
        if entry.visible or entry.hidden in {Hidden.DROPPED, Hidden.DEREGISTERED}:
            return TableAlreadyExistsError
        if entry.hidden is Hidden.PURGED:
            assert entry.controlled_at is not None  # the tombstone
            if at < entry.controlled_at + LATE:
                return TableAlreadyExistsError
            entry.controlled_at, entry.hidden = at, None
        entry.reserved = entry.signed = self.flagged = True
        return None

    def drop(self, name: str, at: datetime, ttl: timedelta | None) -> Error:
        entry = self.entries[name]
        if not entry.visible and entry.hidden is not Hidden.DEREGISTERED:
            return TableNotFoundError
        entry.was_deregistered = entry.hidden is Hidden.DEREGISTERED
        entry.ttl = DROP_TTL if ttl is None else ttl
        entry.dropped_at = entry.controlled_at = at
        entry.dropped_version = len(entry.versions)
        entry.hidden = Hidden.DROPPED
        return None

    def undrop(self, name: str, at: datetime) -> Error:
        entry = self.entries[name]
        if entry.visible or entry.hidden is Hidden.DEREGISTERED:
            return TableAlreadyExistsError
        if entry.hidden is not Hidden.DROPPED:
            return TableNotFoundError
        entry.hidden = Hidden.DEREGISTERED if entry.was_deregistered else None
        entry.controlled_at = at
        return None

    def purge(self, name: str, at: datetime, *, force: bool) -> Error:
        entry = self.entries[name]
        if entry.visible or entry.hidden is Hidden.DEREGISTERED:
            return InvalidTableStateError
        if entry.hidden in {None, Hidden.PURGED}:
            return TableNotFoundError
        if not force and name not in self.purgeable(at):
            return InvalidTableStateError
        entry.versions, entry.written_at = [], None
        entry.reserved = entry.signed = False
        entry.hidden, entry.controlled_at = Hidden.PURGED, at
        return None

    def deregister(self, name: str) -> Error:
        entry = self.entries[name]
        if not entry.visible:
            return TableNotFoundError
        entry.hidden = Hidden.DEREGISTERED
        return None

    def register(self, name: str, mode: str) -> Error:
        entry = self.entries[name]
        if entry.visible:
            return TableAlreadyExistsError if mode == "create" else None
        if entry.hidden is not Hidden.DEREGISTERED:
            return TableNotFoundError
        entry.hidden = None
        return None

    def append(self, name: str, rows: list[int], at: datetime) -> None:
        """Note an append through a handle; handles do not know of the lifecycle."""
        entry = self.entries[name]
        entry.write(sorted(entry.versions[-1] + rows), at)

    def write_declared(self, name: str, rows: list[int], at: datetime) -> None:
        """Note the first write of a client that declared the table and tells nobody when it has written."""
        self.entries[name].write(rows, at)

    def sweepable(self, at: datetime) -> list[str]:
        """Return the names whose arbiter a sweep would remove."""
        return sorted(
            name
            for name, entry in self.entries.items()
            if entry.controlled_at is not None
            and entry.controlled_at + QUARANTINE <= at
            and not entry.holds_table
        )

    def sweep(self, at: datetime) -> list[str]:
        """Remove those arbiters."""
        swept = self.sweepable(at)
        for name in swept:
            entry = self.entries[name]
            entry.controlled_at = entry.hidden = None
        return swept

    def stale_signs(self) -> list[str]:
        """Return the names whose sign of a declared table is older than their data."""
        return sorted(name for name, entry in self.entries.items() if entry.signed and entry.versions)

    def remove_stale_signs(self) -> None:
        for name in self.stale_signs():
            self.entries[name].signed = False

    def files(self) -> set[str]:
        """Return the markers and arbiters that lie at the root."""
        marked = {name for name, entry in self.entries.items() if entry.hidden is Hidden.DROPPED}
        controlled = {name for name, entry in self.entries.items() if entry.controlled_at is not None}
        return {f"{name}.deleted" for name in marked} | {f"{name}.control" for name in controlled}
