"""The status of a table name as users see it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from relance.lifecycle.marker import Marker
from relance.lifecycle.retention import purge_after
from relance.lifecycle.states import State


@dataclass(frozen=True, slots=True)
class Exists:
    """The table exists and is visible."""

    id: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SoftDeleted:
    """The table was dropped; its files still exist unless a purge has started."""

    id: tuple[str, ...]
    deleted_at: datetime
    purge_after: datetime | None
    """When its retention period ends and it can be purged."""
    deletion_id: str
    version: int
    """The latest version when it was dropped; 0 if it had none or it is unknown."""
    state: str
    """`deleted`; `purging` while its files are being deleted; `reviving` while a create replaces it."""
    cascade_id: str | None = None
    """The id of the namespace drop that this table was part of."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """The table does not exist, was purged, or is deregistered."""

    id: tuple[str, ...]


TableStatus = Exists | SoftDeleted | NotFound


def soft_deleted(
    table_id: tuple[str, ...], marker: Marker, *, cascade_id: str | None = None
) -> SoftDeleted | None:
    """Return the status of a dropped table, or None if the marker does not belong to a drop."""
    if marker.deleted_at is None or marker.ttl is None:
        return None
    return SoftDeleted(
        id=table_id,
        deleted_at=marker.deleted_at,
        purge_after=purge_after(marker),
        deletion_id=marker.deletion_id,
        version=marker.version,
        state=marker.state.value,
        cascade_id=cascade_id,
    )


def why_hidden(parts: Sequence[str], marker: Marker) -> str:
    """Return the state of a hidden table and how to restore it, as the end of an error message."""
    if marker.state is State.DEREGISTERED:
        return f"is deregistered; to restore it, call register_table with location '{parts[-1]}.lance'"
    if marker.state is State.MOVED:
        return (
            f"is not in '{parts[-1]}.lance': that directory belongs to a table with another name in "
            "the manifest"
        )
    if marker.deleted_at is None or marker.state in {State.PURGED, State.SWEEPING}:
        return "was purged" if marker.deleted_at is not None else "is hidden"
    dropped = f"was dropped on {_second(marker.deleted_at)}"
    if marker.state is State.PURGING:
        return f"{dropped} and is being purged"
    if marker.state is State.REVIVING:
        return f"{dropped} and is being re-created"
    due = purge_after(marker)
    until = "" if due is None else f" until {_second(due)}"
    return f"{dropped} and can be undropped{until}: undrop_table({list(parts)})"


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
