"""Rows on their way into Lance, which passes on the text of what they raise, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from relance.errors import RelanceError


class Watched:
    """Batches that remember what they raised while somebody else drew them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._failure: BaseException | None = None

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """Return the batches as Lance takes them."""
        return pa.RecordBatchReader.from_batches(schema, self._drawn())

    def _drawn(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except BaseException as failure:  # Ctrl-C as well
            self._failure = failure
            raise

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Raise what the batches raised, if Lance failed because of them."""
        try:
            yield
        except (RelanceError, OSError, ValueError, RuntimeError):
            if self._failure is not None:
                raise self._failure from None
            raise
