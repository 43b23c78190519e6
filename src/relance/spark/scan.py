"""Reading the rows of a split with Lance. Which splits there are is in planning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import lance
import pyarrow as pa

from relance.lance_io import TableRef
from relance.operations.data_errors import data_errors
from relance.spark.splits import Piece, Split

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"

_CACHE_BYTES = 64 << 20
"""Lance would keep gigabytes of index and metadata; an executor has about one."""
_IO_BYTES = 128 << 20
_BATCHES_AHEAD = 4
"""Spark takes rows more slowly than Lance gives them: reading further ahead only takes memory."""


@lru_cache(maxsize=4)
def open_once(table: TableRef) -> lance.LanceDataset:
    """Return the dataset of a pinned table; tasks that follow in this process share it."""
    # A session of its own: what Lance keeps goes by path and version, and a path may get another table.
    session = lance.Session(index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES)
    return table.open(session)


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of each split of a table."""

    table: TableRef
    columns: tuple[str, ...]
    """In the order of the result; the row's id and address may be among them."""
    filter: str | None
    batch_size: int

    def arguments(self) -> dict[str, Any]:
        """Return what every scanner of this read is made with."""
        return {
            "columns": [name for name in self.columns if not _is_row_number(name)],
            "with_row_id": ROW_ID in self.columns,
            "with_row_address": ROW_ADDRESS in self.columns,
            "batch_size": self.batch_size,
            "batch_readahead": _BATCHES_AHEAD,
            "io_buffer_size": _IO_BYTES,
            "blob_handling": "all_binary",
        }

    def schema(self, dataset: lance.LanceDataset) -> pa.Schema:
        """Return what the batches are like."""
        scanned = dataset.scanner(**self.arguments()).projected_schema
        return pa.schema([_signed_field(scanned.field(name)) for name in self.columns])

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split.

        Raises:
            RelanceError: Lance or the store failed.
        """
        with data_errors(f"table id '{self.table.id}'", dict(self.table.storage_options)):
            dataset = open_once(self.table)
            left = split.limit
            for pieces in _together(split.pieces):
                for batch in self._scanner(dataset, pieces, left).to_batches():
                    yield _signed(batch.select(self.columns))
                    left = None if left is None else left - batch.num_rows
                if left == 0:
                    return

    def _scanner(
        self, dataset: lance.LanceDataset, pieces: Sequence[Piece], limit: int | None
    ) -> lance.LanceScanner:
        chosen: dict[str, Any] = {
            **self.arguments(),
            "fragments": [dataset.get_fragment(piece.fragment) for piece in pieces],
            "filter": self.filter,
            "limit": limit,
        }
        piece = pieces[0]
        if not piece.is_whole and self.filter is None:
            chosen.update(_live_rows(piece, limit))
        elif not piece.is_whole:
            chosen["filter"] = _with_addresses(self.filter, piece)
        return dataset.scanner(**chosen)


def _together(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield whole fragments that follow each other as one scan, and each range as its own."""
    for is_whole, group in groupby(pieces, key=lambda piece: piece.is_whole):
        if is_whole:
            yield list(group)
        else:
            yield from ([piece] for piece in group)


def _live_rows(piece: Piece, limit: int | None) -> dict[str, int]:
    # Lance skips to the first row without reading those before, and counts only live ones.
    most = [
        each for each in (None if piece.stop is None else piece.stop - piece.start, limit) if each is not None
    ]
    return {"offset": piece.start, **({"limit": min(most)} if most else {})}


def _with_addresses(text: str | None, piece: Piece) -> str:
    # An offset would count rows that the filter has let through, which nobody knows beforehand.
    first = piece.fragment << 32
    parts = [f"({text}\n)", f"{ROW_ADDRESS} >= {first + piece.start}"]
    if piece.stop is not None:
        parts.append(f"{ROW_ADDRESS} < {first + piece.stop}")
    return " AND ".join(parts)


def _signed_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.int64(), nullable=False) if _is_row_number(field.name) else field


def _signed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with row ids and addresses as Spark has numbers; Arrow refuses any that do not fit."""
    for index, name in enumerate(batch.schema.names):
        if _is_row_number(name):
            batch = batch.set_column(
                index, _signed_field(batch.schema.field(index)), batch[index].cast(pa.int64())
            )
    return batch


def _is_row_number(name: str) -> bool:
    return name in (ROW_ID, ROW_ADDRESS)
