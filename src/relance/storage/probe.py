"""Does a store honour conditions? Tried out once per root, not trusted by the store's name."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from relance.errors import KeyChangedError, KeyExistsError, UnsupportedOperationError
from relance.forks import ProcessLock
from relance.storage.protocol import ObjectStorage, Version
from relance.storage.readback import create_once

PROBE_PREFIX = ".relance-probe-"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the store was seen to do."""

    create_only: bool
    """A create fails when the key is taken."""
    replace: bool
    """A replace fails when the version is another one, and works when it is the expected one."""


_seen: dict[str, Capabilities] = {}
_lock = ProcessLock()


def capabilities(storage: ObjectStorage) -> Capabilities:
    """Return what `storage` honours; the first call per root writes and deletes a small probe object."""
    with _lock:
        if storage.name not in _seen:
            _seen[storage.name] = probe(storage)
        return _seen[storage.name]


def require_replace(storage: ObjectStorage, *, to_do: str) -> None:
    """Check that compare-and-swap can be trusted.

    Raises:
        UnsupportedOperationError: the store ignores or refuses conditions.
    """
    if not capabilities(storage).replace:
        raise UnsupportedOperationError(
            f"the store at {storage.name} does not honour conditional replacement, so {to_do} could lose "
            "data: move the root to a store that does (see docs/stores.md)"
        )


def require_create_only(storage: ObjectStorage, *, to_do: str) -> None:
    """Check that create-only writes can be trusted.

    Raises:
        UnsupportedOperationError: the store ignores the condition.
    """
    if not capabilities(storage).create_only:
        raise UnsupportedOperationError(
            f"the store at {storage.name} does not honour create-only writes, so {to_do} is not safe with "
            "concurrent clients: move the root to a store that does (see docs/stores.md)"
        )


def probe(storage: ObjectStorage) -> Capabilities:
    """Try both conditions on a fresh key, and remove it again."""
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    first = create_once(storage, key, b"first")  # nobody else has this key
    try:
        create_only = _honours_create(storage, key)
        return Capabilities(create_only=create_only, replace=_honours_replace(storage, key, first))
    finally:
        storage.delete(key)


def _honours_create(storage: ObjectStorage, key: str) -> bool:
    try:
        storage.create(key, b"first")  # the same bytes: a store that ignores the condition changes nothing
    except KeyExistsError:
        return True
    except UnsupportedOperationError:
        return False
    return False


def _honours_replace(storage: ObjectStorage, key: str, first: Version) -> bool:
    try:
        storage.replace(key, b"second", expected=first)
        storage.replace(key, b"third", expected=first)
    except KeyChangedError:
        return storage.read(key).body == b"second"
    except UnsupportedOperationError:
        return False
    return False
