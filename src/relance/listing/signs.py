"""The signs beside a table's directory that tell listings to look inside (docs/format/root.md)."""

from __future__ import annotations

from contextlib import suppress

from relance.errors import KeyExistsError, RelanceError
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX
from relance.storage.protocol import ObjectStorage


def sign_creating(storage: ObjectStorage, name: str) -> None:
    """Say that a create began: without a version in the directory there is no table."""
    with suppress(KeyExistsError):
        storage.create(name + CREATING_SUFFIX, b"")


def sign_declared(storage: ObjectStorage, name: str) -> None:
    """Say that the table was declared and may hold no version yet."""
    with suppress(KeyExistsError):
        storage.create(name + DECLARED_SUFFIX, b"")


def remove_signs(storage: ObjectStorage, *names: str) -> None:
    """Take the signs away; one that stays costs listings a look, which is no reason to fail."""
    with suppress(RelanceError):
        storage.delete_many(name + suffix for name in names for suffix in (CREATING_SUFFIX, DECLARED_SUFFIX))
