"""Delete all that lies below a directory, in batches: list, look whether to go on, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from relance.storage.protocol import Deleted, ObjectStorage

FIRST_BATCH = 500
_T = TypeVar("_T")


def delete_by_listing(
    storage: ObjectStorage, prefix: str, before_batch: Callable[[], None], largest: int
) -> Iterator[Deleted]:
    """Delete what a listing shows, a batch at a time."""
    for batch in growing_batches(storage.list_recursive(prefix), largest):
        before_batch()
        storage.delete_many(info.key for info in batch)
        yield Deleted(len(batch), sum(info.size for info in batch))


def growing_batches(items: Iterable[_T], largest: int) -> Iterator[list[_T]]:
    """Yield batches that double in size, so that deleting begins early."""
    remaining, size = iter(items), min(FIRST_BATCH, largest)
    while batch := list(islice(remaining, size)):
        yield batch
        size = min(2 * size, largest)


def read_ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield what `items` yields, with the next one always being fetched in a thread of its own."""
    done = object()
    with ThreadPoolExecutor(1, thread_name_prefix="relance-read-ahead") as pool:
        pending = pool.submit(next, items, done)
        while (item := pending.result()) is not done:
            pending = pool.submit(next, items, done)
            yield item  # type: ignore[misc]  # what is not `done` came from `items`
