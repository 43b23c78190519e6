"""Which values are among the keys of new rows: whole columns at a time, with Arrow and numpy.

Of types on which Arrow and Spark might disagree what is equal, `is_simple` says no.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from relance.errors import InvalidInputError

Numbers = npt.NDArray[np.int64]

Found = npt.NDArray[np.int32]
"""Numbers of values, of which there are never 2^31; one for each row that is looked up, so half as wide."""

_KINDS = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
)
"""Types in which Arrow and Spark agree what is equal."""

_SPARSE = 64
"""Integers are looked up by their place if at least one of so many between first and last is a key."""

_ROWS = 1_000_000
"""Looked up at once: a set of keys is built anew each time."""
_BYTES = 64 << 20


def is_simple(kind: pa.DataType) -> bool:
    """Tell whether equal values of a type are the same to Arrow and to Spark."""
    return any(fits(kind) for fits in _KINDS)


class Lookup(Protocol):
    """The values of a column, each with a number."""

    def __call__(self, values: pa.ChunkedArray) -> Found:
        """Return the number of each value; -1 for those that are not among them, and for nulls."""


def lookup(known: pa.Array) -> Lookup:
    """Return what finds values among the known ones, of which none is null.

    If one is there twice, any of its numbers is found.
    """
    by_place = _by_place(_as_numbers(known)) if pa.types.is_integer(known.type) else None
    return _InSet(known) if by_place is None else by_place


@dataclass(frozen=True)
class _ByPlace:
    """Integers that are close together, which takes a tenth of the time of a set."""

    first: int
    places: npt.NDArray[np.int32]
    """The number of each integer from the first to the last, and at the end -1 for all others."""

    def __call__(self, values: pa.ChunkedArray) -> Found:
        whole = pc.fill_null(values, 0) if values.null_count else values
        offsets = _as_numbers(whole) - self.first
        # As an unsigned number, what is before the first is beyond the last.
        unsigned = offsets.view(np.uint64)
        np.minimum(unsigned, len(self.places) - 1, out=unsigned)
        found = self.places[offsets]
        if values.null_count:
            found[~values.is_valid().to_numpy()] = -1
        return found

    def finds_each(self, numbers: Numbers) -> bool:
        """Tell whether each of the integers that are known is found where it is: no two are equal."""
        found = self.places[numbers - self.first]
        return bool((found == np.arange(len(numbers), dtype=np.int32)).all())


def _by_place(numbers: Numbers) -> _ByPlace | None:
    """Return what finds these integers by their place; None if they are too far from each other."""
    if not len(numbers):
        return None
    first, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
    if span > _SPARSE * len(numbers):
        return None
    places = np.full(span + 1, -1, np.int32)
    places[numbers - first] = np.arange(len(numbers), dtype=np.int32)
    return _ByPlace(first, places)


@dataclass(frozen=True)
class _InSet:
    known: pa.Array

    def __call__(self, values: pa.ChunkedArray) -> Found:
        found = pc.index_in(values, value_set=self.known)
        numbers: Found = pc.fill_null(found, -1).to_numpy()
        return numbers


def _as_numbers(values: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return integers as numpy has them; large unsigned ones become negative, and none becomes another."""
    signed = values if values.type == pa.int64() else pc.cast(values, pa.int64(), safe=False)
    if isinstance(signed, pa.ChunkedArray) and signed.num_chunks == 1:
        signed = signed.chunk(0)  # which numpy reads where it is
    numbers: Numbers = signed.to_numpy()
    return numbers


@dataclass(frozen=True)
class _Step:
    """One more column of the key: its values, and which of them go with what was found before."""

    values: Lookup
    number: int
    pairs: Lookup


class KeyIndex:
    """New rows by key; a row with a null in its key is found by nothing."""

    def __init__(self, keys: pa.Table) -> None:
        """Take the key columns of the new rows, of simple types.

        Raises:
            InvalidInputError: two rows have the same key.
        """
        valid = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            valid &= column.is_valid().to_numpy()
        self._rows = np.flatnonzero(valid)
        whole = keys if len(self._rows) == keys.num_rows else keys.filter(pa.array(valid))
        self._first, _, codes = _encoded(whole.column(0))
        self._others: list[_Step] = []
        for values, number, own in map(_encoded, whole.columns[1:]):
            # Both are fewer than the rows, of which there are no 2^31.
            known, codes = np.unique(codes * number + own, return_inverse=True)
            self._others.append(_Step(values, number, lookup(pa.array(known, pa.int64()))))
        _refuse_duplicates(whole, codes)
        # A code is the number of a row now.
        self._numbers = np.empty(len(codes), np.int64)
        self._numbers[codes] = self._rows

    def heaps(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the batches as they are best looked up.

        That is one at a time, which stays in the processor's cache, unless a set of keys is built for each.
        """
        others = [each for step in self._others for each in (step.values, step.pairs)]
        by_place = all(isinstance(each, _ByPlace) for each in (self._first, *others))
        return gathered(batches, least=1 if by_place else _ROWS)

    def find(self, columns: Sequence[pa.ChunkedArray]) -> tuple[Numbers, Numbers]:
        """Return which rows of these columns have a key of a new row, and of which one."""
        found = self._first(columns[0])
        hits = np.flatnonzero(found >= 0)
        codes = found[hits].astype(np.int64)
        for step, column in zip(self._others, columns[1:], strict=True):
            own = step.values(_taken(column, hits)).astype(np.int64)
            hits, codes, own = _kept(own >= 0, hits, codes, own)
            pairs = step.pairs(pa.chunked_array([pa.array(codes * step.number + own, pa.int64())]))
            hits, codes = _kept(pairs >= 0, hits, pairs.astype(np.int64))
        return hits, self._numbers[codes]


def _encoded(column: pa.ChunkedArray) -> tuple[Lookup, int, Numbers]:
    """Return what finds the values of a column, how many there are, and the number of each row's value."""
    values = column.combine_chunks()
    if pa.types.is_integer(values.type):
        numbers = _as_numbers(values)
        find = _by_place(numbers)
        if find is not None and find.finds_each(numbers):
            return find, len(values), np.arange(len(values))
    encoded = values.dictionary_encode()
    return lookup(encoded.dictionary), len(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)


def _taken(column: pa.ChunkedArray, rows: Numbers) -> pa.ChunkedArray:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _kept(chosen: npt.NDArray[np.bool_], *columns: Numbers) -> tuple[Numbers, ...]:
    return tuple(each[chosen] for each in columns)


def _refuse_duplicates(keys: pa.Table, codes: Numbers) -> None:
    counts = np.bincount(codes)
    if len(codes) and counts.max() > 1:
        row = int(np.argmax(counts[codes] > 1))
        raise ambiguous(keys.slice(row, 1).to_pylist()[0], int(counts[codes[row]]))


def ambiguous(key: dict[str, Any], number: int) -> InvalidInputError:
    """Return the error about new rows that have the same key."""
    example = ", ".join(f"{name} = {value!r}" for name, value in key.items())
    return InvalidInputError(
        f"{number} new rows have the same key ({example}): keep one of them, "
        "for example with DataFrame.dropDuplicates, and retry the merge"
    )


def gathered(batches: Iterable[pa.RecordBatch], *, least: int = _ROWS) -> Iterator[pa.Table]:
    """Yield the batches in heaps of at least so many rows, which are worth a look-up."""
    heap: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        heap.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= least or size >= _BYTES:
            yield pa.Table.from_batches(heap)
            heap, rows, size = [], 0, 0
    if heap:
        yield pa.Table.from_batches(heap)
