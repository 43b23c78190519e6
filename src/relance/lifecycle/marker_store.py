"""Read a table's marker, and swap it for the next one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from relance.errors import KeyNotFoundError, RelanceError
from relance.lifecycle.marker import Marker, decode, encode
from relance.lifecycle.moves import state_of
from relance.lifecycle.states import State
from relance.locations import MARKER_SUFFIX
from relance.storage.protocol import ObjectStorage, Replacement, Version
from relance.storage.readback import create_once, replace_many_once, replace_once


@dataclass(frozen=True, slots=True)
class StoredMarker:
    """A marker as it was read, with the version that a swap must find unchanged."""

    marker: Marker
    version: Version


class SeenMarkers:
    """The markers this client itself cleared, so that its next drop need not read them.

    A swap over one that has changed since is refused, so an old entry costs a request and no more.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._cleared: dict[str, StoredMarker] = {}
        self._lock = threading.Lock()

    def note(self, name: str, stored: StoredMarker) -> None:
        """Remember a marker that was just written, if it is a cleared one."""
        with self._lock:
            self._cleared.pop(name, None)
            if stored.marker.state is State.CLEARED:
                if len(self._cleared) >= self._most:
                    del self._cleared[next(iter(self._cleared))]
                self._cleared[name] = stored

    def take(self, name: str) -> StoredMarker | None:
        """Return what was remembered, and forget it."""
        with self._lock:
            return self._cleared.pop(name, None)


def new_nonce() -> str:
    """Return a text that no other marker holds: equal bodies have equal versions on S3."""
    return secrets.token_hex(12)  # short: a cleared marker holds two of them in 64 bytes


def read_marker(storage: ObjectStorage, name: str) -> StoredMarker | None:
    """Return the marker of table `name`, or None when there is none.

    Raises:
        InvalidTableStateError: it cannot be understood.
    """
    try:
        stored = storage.read(name + MARKER_SUFFIX)
    except KeyNotFoundError:
        return None
    return StoredMarker(decode(stored.body, name=name), stored.version)


def put_marker(
    storage: ObjectStorage, name: str, marker: Marker, *, over: StoredMarker | None
) -> StoredMarker:
    """Write `marker` if what `over` says is still what is there.

    Raises:
        KeyExistsError: a marker came up meanwhile.
        KeyChangedError: the marker changed meanwhile.
        OutcomeUnknownError: no answer, and reading back did not settle it.
    """
    key = name + MARKER_SUFFIX
    if over is None:
        # Create-only: if two race, exactly one writes the marker.
        return StoredMarker(marker, create_once(storage, key, encode(marker)))
    return StoredMarker(marker, replace_once(storage, key, encode(marker), expected=over.version))


def swap_markers(
    storage: ObjectStorage, swaps: Sequence[tuple[str, Marker, StoredMarker]]
) -> list[StoredMarker | RelanceError]:
    """Write the markers of several tables, each over the one that was read of it; return what came of each.

    The errors are those of `put_marker`. One table's outcome says nothing of another's.
    """
    changes = [
        Replacement(name + MARKER_SUFFIX, encode(marker), over.version) for name, marker, over in swaps
    ]
    return [
        outcome if isinstance(outcome, RelanceError) else StoredMarker(marker, outcome)
        for (_, marker, _), outcome in zip(swaps, replace_many_once(storage, changes), strict=True)
    ]


def stored_state(stored: StoredMarker | None) -> State:
    """Return the state that a stored marker, or none, stands for."""
    return state_of(None if stored is None else stored.marker)


def is_unchanged(storage: ObjectStorage, name: str, seen: StoredMarker | None) -> bool:
    """Tell whether the marker, or its absence, is still what was seen."""
    found = read_marker(storage, name)
    if found is None or seen is None:
        return found is seen
    return found.version == seen.version
