"""What the manifest's rows say of the directory of a root table: drops, and what others wait for."""

from __future__ import annotations

from relance.errors import ConcurrentModificationError
from relance.manifest.entry import Entry
from relance.manifest.store import Snapshot


class PendingChangeError(ConcurrentModificationError):
    """The marker of a root table is about to change: that comes first."""

    def __init__(self, name: str) -> None:
        super().__init__(f"table id '{name}' is being changed by another client; retry")
        self.name = name


def dropped_at_home(snapshot: Snapshot, name: str) -> list[Entry]:
    """Return the rows of drops of this root table that lead to the directory of its name, oldest first."""
    return [each for each in snapshot.dropped(name) if each.has_own_directory]


def announced_row(snapshot: Snapshot, name: str) -> Entry | None:
    """Return the row that tells what is about to happen to the marker of this root table, if one does."""
    live = snapshot.get([name]).get(name)
    there = [live] if live is not None and live.has_own_directory else []
    for each in (*dropped_at_home(snapshot, name), *there):
        if each.announced is not None:
            return each
    return None


def refuse_pending(snapshot: Snapshot, name: str) -> None:
    """Check that nothing is under way with this root table.

    Raises:
        PendingChangeError: its marker is about to change, or it is being renamed.
    """
    live = snapshot.get([name]).get(name)
    if (live is not None and live.moved_to is not None) or announced_row(snapshot, name) is not None:
        raise PendingChangeError(name)
