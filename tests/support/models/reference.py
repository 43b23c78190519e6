"""What every call of the lifecycle answers when calls come one after the other, as a plain dictionary.

The machine that compares it with the real thing is in state_machine. Nothing of the lifecycle's own
code is used here, except its error classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from relance.errors import InvalidTableStateError, RelanceError, TableAlreadyExistsError, TableNotFoundError

DROP_TTL = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=5)
QUARANTINE = timedelta(days=7)
CREATORS_GONE = timedelta(minutes=22)
"""How long after a drop a create that began before it may still commit."""

AGE_TOLERANCE = timedelta(minutes=1)
"""The store stamps a marker with its own time, a little before or after we look at ours."""

Error = type[RelanceError] | None
"""The class of the error that is expected, or None for success."""


class Hidden(StrEnum):
    """Why readers do not see a name that has a marker."""

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
    deleted_at: datetime | None = None
    ttl: timedelta = DROP_TTL
    dropped_version: int = 0
    purged_at: datetime | None = None
    marker_written: datetime | None = None
    """When the marker was last written by the store's time; None without a marker."""

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
        assert self.deleted_at is not None
        return self.deleted_at + self.ttl

    def mark(self, hidden: Hidden | None) -> None:
        """Note that the marker was written."""
        self.hidden = hidden
        self.marker_written = datetime.now(UTC)


class ReferenceModel:
    """The names of one root. Every call takes the time of the client that makes it."""

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
        return sorted(found, key=lambda name: (self.entries[name].deleted_at, name))

    def purgeable(self, at: datetime) -> list[str]:
        """Return the dropped names whose time has passed."""
        return [name for name in self.dropped() if self.entries[name].purge_after <= at - CLOCK_SKEW]

    def must_be_visible(self, name: str) -> Error:
        return None if self.entries[name].visible else TableNotFoundError

    def create(self, name: str, mode: str, rows: list[int]) -> Error:
        entry = self.entries[name]
        if entry.hidden is Hidden.DEREGISTERED or (entry.live and mode == "create"):
            return TableAlreadyExistsError
        if entry.live and mode == "exist_ok":
            return None
        # An overwrite of a visible table has no business with signs.
        entry.signed = entry.signed and entry.live
        if entry.live or entry.hidden is not None:
            entry.mark(None)
        entry.versions.append(rows)
        self.flagged = True
        return None

    def declare(self, name: str, at: datetime) -> Error:
        entry = self.entries[name]
        if entry.visible or entry.hidden in {Hidden.DROPPED, Hidden.DEREGISTERED}:
            return TableAlreadyExistsError
        if entry.hidden is Hidden.PURGED:
            assert entry.deleted_at is not None
            if at <= entry.deleted_at + CREATORS_GONE:
                return TableAlreadyExistsError
            entry.mark(None)
        entry.reserved = entry.signed = self.flagged = True
        return None

    def drop(self, name: str, at: datetime, ttl: timedelta | None) -> Error:
        entry = self.entries[name]
        if not entry.visible and entry.hidden is not Hidden.DEREGISTERED:
            return TableNotFoundError
        entry.was_deregistered = entry.hidden is Hidden.DEREGISTERED
        entry.deleted_at, entry.ttl = at, DROP_TTL if ttl is None else ttl
        entry.dropped_version = len(entry.versions)
        entry.mark(Hidden.DROPPED)
        return None

    def undrop(self, name: str) -> Error:
        entry = self.entries[name]
        if entry.visible:
            return TableAlreadyExistsError
        if entry.hidden is not Hidden.DROPPED:
            return TableNotFoundError
        entry.mark(Hidden.DEREGISTERED if entry.was_deregistered else None)
        return None

    def purge(self, name: str, at: datetime, *, force: bool) -> Error:
        entry = self.entries[name]
        if entry.visible:
            return InvalidTableStateError
        if entry.hidden in {None, Hidden.PURGED}:
            return TableNotFoundError
        if not force and name not in self.purgeable(at):
            return InvalidTableStateError
        entry.versions = []
        entry.reserved = entry.signed = False
        entry.purged_at = at
        entry.mark(Hidden.PURGED)
        return None

    def deregister(self, name: str, at: datetime) -> Error:
        entry = self.entries[name]
        if not entry.visible:
            return TableNotFoundError
        entry.deleted_at = at
        entry.mark(Hidden.DEREGISTERED)
        return None

    def register(self, name: str, mode: str) -> Error:
        entry = self.entries[name]
        if entry.visible:
            return TableAlreadyExistsError if mode == "create" else None
        if entry.hidden is not Hidden.DEREGISTERED:
            return TableNotFoundError
        entry.mark(None)
        return None

    def append(self, name: str, rows: list[int]) -> None:
        """Note an append through a handle; handles do not know of the lifecycle."""
        entry = self.entries[name]
        entry.versions.append(sorted(entry.versions[-1] + rows))

    def write_declared(self, name: str, rows: list[int]) -> None:
        """Note the first write of a client that declared the table and tells nobody when it is done."""
        self.entries[name].versions.append(rows)

    def sweepable(self, at: datetime) -> list[str]:
        """Return the names whose markers a sweep would remove."""
        return sorted(name for name, entry in self.entries.items() if self._is_sweepable(entry, at))

    def age_is_unclear(self, at: datetime) -> bool:
        """Tell whether some marker is so near the end of its quarantine that the store's clock decides."""
        ages = (at - QUARANTINE - marked for marked in self._marked())
        return any(abs(age) < AGE_TOLERANCE for age in ages)

    def sweep(self, at: datetime) -> list[str]:
        """Remove those markers."""
        swept = self.sweepable(at)
        for name in swept:
            self.entries[name].marker_written = self.entries[name].hidden = None
        return swept

    def _marked(self) -> Iterator[datetime]:
        return (entry.marker_written for entry in self.entries.values() if entry.marker_written is not None)

    @staticmethod
    def _is_sweepable(entry: Entry, at: datetime) -> bool:
        oldest = at - QUARANTINE
        if entry.marker_written is None or entry.marker_written >= oldest:
            return False
        if entry.hidden is Hidden.PURGED:
            return entry.purged_at is not None and entry.purged_at < oldest
        return entry.hidden is None

    def stale_signs(self) -> list[str]:
        """Return the names whose sign of a declared table is older than their data."""
        return sorted(name for name, entry in self.entries.items() if entry.signed and entry.versions)

    def remove_stale_signs(self) -> None:
        for name in self.stale_signs():
            self.entries[name].signed = False
