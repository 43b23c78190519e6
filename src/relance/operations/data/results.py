"""The rows of a query as one Arrow IPC file."""

from __future__ import annotations

import mmap
import tempfile

import pyarrow as pa


class QueryResult(bytes):
    """An Arrow IPC file: the bytes themselves, as lancedb wants them, and `data`, as the spec does."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """The same bytes."""
        return self


_IN_MEMORY = 64 << 20
"""A result up to this size is written in memory, a larger one to a file first: its bytes are there once."""


def write_file(reader: pa.RecordBatchReader) -> QueryResult:
    """Return what the reader yields as a file, written batch by batch."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        if any(_has_dictionary(field.type) for field in reader.schema):
            # A file has one dictionary per column, and each fragment of the table brings its own.
            options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
            with pa.ipc.new_file(spool, reader.schema, options=options) as writer:
                writer.write_table(reader.read_all())
        else:
            with pa.ipc.new_file(spool, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        size = spool.tell()
        if size <= _IN_MEMORY:
            spool.seek(0)
            return QueryResult(spool.read())
        spool.flush()
        # Copied from the page cache, which needs no memory of ours.
        with mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            return QueryResult(mapped)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))
