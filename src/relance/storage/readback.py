"""Was that lost response my own write? Conditional writes that settle it by reading back.

A conditional write whose answer got lost may have happened, and a retry below us then reports a
conflict with itself. Bodies carry a nonce, so equal bytes under the key mean: it was us.
"""

from __future__ import annotations

from collections.abc import Sequence

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.storage.protocol import ObjectStorage, Replacement, Version


def create_once(storage: ObjectStorage, key: str, body: bytes) -> Version:
    """Create `key` with `body`, which must be unlike any other body; a lost answer is looked up.

    Raises:
        KeyExistsError: somebody else's object is there.
        OutcomeUnknownError: neither the answer nor the look-up came through, or the write did not land.
    """
    try:
        return storage.create(key, body)
    except (KeyExistsError, OutcomeUnknownError) as doubt:
        return _own_version(storage, key, body, doubt)


def replace_once(storage: ObjectStorage, key: str, body: bytes, *, expected: Version) -> Version:
    """Replace `key` with `body`, which must be unlike any other body; a lost answer is looked up.

    Raises:
        KeyChangedError: somebody else changed or removed the object.
        OutcomeUnknownError: neither the answer nor the look-up came through, or the write did not land.
    """
    try:
        return storage.replace(key, body, expected=expected)
    except (KeyChangedError, OutcomeUnknownError) as doubt:
        return _own_version(storage, key, body, doubt)


def replace_many_once(storage: ObjectStorage, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
    """Do the same for several keys, and return what came of each: a version, or the error as above."""
    outcomes = storage.replace_many(changes)
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, KeyChangedError | OutcomeUnknownError):
            change = changes[number]
            try:
                outcomes[number] = _own_version(storage, change.key, change.body, outcome)
            except RelanceError as error:
                outcomes[number] = error
    return outcomes


def _own_version(
    storage: ObjectStorage, key: str, body: bytes, doubt: ConcurrentModificationError | OutcomeUnknownError
) -> Version:
    try:
        found = storage.read(key, at_most=len(body))
    except (KeyNotFoundError, InvalidTableStateError):
        raise doubt from None  # a longer one is somebody else's
    if found.body == body:
        return found.version
    raise doubt
