"""Read a table's marker, and swap it for the next one."""

from __future__ import annotations

from dataclasses import dataclass

from relance.errors import KeyNotFoundError
from relance.lifecycle.marker import Marker, decode, encode
from relance.locations import MARKER_SUFFIX
from relance.storage.protocol import ObjectStorage, Version
from relance.storage.readback import create_once, replace_once


@dataclass(frozen=True, slots=True)
class StoredMarker:
    """A marker as it was read, with the version a swap must find unchanged."""

    marker: Marker
    version: Version


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
    """
    key = name + MARKER_SUFFIX
    if over is None:
        # Create-only: if two race, exactly one writes the marker.
        return StoredMarker(marker, create_once(storage, key, encode(marker)))
    return StoredMarker(marker, replace_once(storage, key, encode(marker), expected=over.version))
