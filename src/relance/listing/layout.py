"""The root-level flag that says: no table here hides behind a marker inside its own directory.

A root without it may hold tables that other clients deregistered or declared, so listings look
inside every table. We set it in a root that has no tables yet.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from relance.errors import KeyExistsError
from relance.listing.root_view import view_root
from relance.locations import LAYOUT_KEY
from relance.storage.protocol import ObjectStorage

_BODY = b'{"format": 1, "nested_markers": "none"}\n'

_settled: set[str] = set()
_lock = threading.Lock()


def flag_new_root(storage: ObjectStorage) -> None:
    """Set the flag if the root has no tables; looked at once per root and process."""
    with _lock:
        if storage.name in _settled:
            return
    view = view_root(storage.list_level(""))
    if not view.migrated and not view.directories:
        flag_root(storage)
    with _lock:
        _settled.add(storage.name)


def flag_root(storage: ObjectStorage) -> None:
    """Set the flag."""
    with suppress(KeyExistsError):  # another process was first
        storage.create(LAYOUT_KEY, _BODY)
