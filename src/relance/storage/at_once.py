"""Several requests at a time, where the store is far away; one after another where it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from relance.errors import RelanceError
from relance.storage.protocol import ObjectStorage, Replacement, Version

_A = TypeVar("_A")
_B = TypeVar("_B")


def map_at_once(storage: ObjectStorage, act: Callable[[_A], _B], items: Sequence[_A]) -> list[_B]:
    """Return what `act`, which asks the store something, gives for each item, in their order."""
    if storage.requests_at_once == 1 or len(items) < 2:
        return [act(each) for each in items]
    with ThreadPoolExecutor(min(len(items), storage.requests_at_once)) as pool:
        return list(pool.map(act, items))


def replace_each(storage: ObjectStorage, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
    """Replace one key at a request, and keep what goes wrong with one from the others."""

    def act(change: Replacement) -> Version | RelanceError:
        try:
            return storage.replace(change.key, change.body, expected=change.expected)
        except RelanceError as error:
            return error

    return map_at_once(storage, act, changes)
