"""Fetch the next item while the last one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def read_ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield what `items` yields, always one item ahead, in a thread of its own."""
    done = object()
    with ThreadPoolExecutor(1, thread_name_prefix="relance-read-ahead") as pool:
        pending = pool.submit(next, items, done)
        while (item := pending.result()) is not done:
            pending = pool.submit(next, items, done)
            yield item  # type: ignore[misc]  # what is not `done` came from `items`
