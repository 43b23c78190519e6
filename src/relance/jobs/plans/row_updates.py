"""Update rows: each task writes the new rows of its fragments and deletes the old ones, in one commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments
from pyarrow import types

from relance.catalog.context import Context
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.jobs.base import Expected, Name
from relance.jobs.plans.row_changes import (
    Costs,
    Part,
    Pinned,
    RewritePlan,
    discard,
    fragment_text,
    fragments_of,
    plan_rewrite,
)
from relance.jobs.plans.tables import open_expected
from relance.jobs.update_rows import UpdateRows
from relance.operations.data.expressions import check_expressions
from relance.operations.watched import Watched

_COSTS = Costs(fragment=0.01, row=5e-7, byte=1e-8)

_ROW_ID = "_rowid"
_ROW_ADDRESS = "_rowaddr"
_ANY_COLUMN = "_relance_any"
"""Lance reads no rows for constants alone, so one column is read with them."""

_BLOB_MARK = b"lance-encoding:blob"
_BLOB_TYPE = "lance.blob.v2"


def plan_update(
    job: UpdateRows, context: Context, table: Name, expect: Expected | None
) -> RewritePlan | None:
    """Check the expressions as Lance does, then cut the table up by its fragments.

    Raises:
        InvalidInputError: an expression or the predicate cannot be used.
        UnsupportedOperationError: the table has blobs.
    """
    check_expressions([job.where, *job.set.values()])
    target = open_expected(context, table, expect)
    with target.errors():
        schema = target.dataset.schema
        _refuse_blobs(schema)
        lance.write_dataset(schema.empty_table(), "memory://").update(dict(job.set), where=job.where)
    return plan_rewrite(target, _Update(tuple(job.set.items()), job.where), _COSTS)


def _refuse_blobs(schema: pa.Schema) -> None:
    for each in schema:
        if _has_blobs(each):
            raise UnsupportedOperationError(
                f"column '{each.name}' holds blobs, which this job cannot rewrite; use update_table"
            )


def _has_blobs(column: pa.Field) -> bool:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return bool(kind.extension_name == _BLOB_TYPE)
    inner = (kind.field(each) for each in range(kind.num_fields))
    return _BLOB_MARK in (column.metadata or {}) or any(_has_blobs(each) for each in inner)


@dataclass(frozen=True, slots=True)
class _Update:
    """Writes the rows that the predicate selects anew."""

    pairs: tuple[tuple[str, str], ...]
    where: str | None

    def prepare(self, context: Context, at: Pinned, fragments: Sequence[int]) -> list[Part]:
        options = context.lance_options()
        given = dict(options) or None
        with at.opened(options) as dataset:
            rows = _NewRows(dataset.schema, self._scanner(dataset, fragments))
            watched = Watched(rows.batches())
            reader = watched.reader(dataset.schema)
            with watched.own_errors():
                written = write_fragments(reader, dataset, mode="append", storage_options=given)
            if not written:
                return []
            if dataset.has_stable_row_ids:
                written = _keep_row_ids(written, rows.row_ids())
            part = Part(rows.count, added=tuple(fragment_text(each) for each in written))
            try:
                return [_without_old_rows(dataset, part, rows.addresses())]
            except BaseException:
                discard(context, at.directory, [part])
                raise

    def _scanner(self, dataset: lance.LanceDataset, fragments: Sequence[int]) -> lance.LanceScanner:
        chosen = [dataset.get_fragment(each) for each in fragments]
        columns = self._columns(dataset)
        return dataset.scanner(
            columns=columns,
            filter=self.where,
            fragments=chosen,
            with_row_address=True,
            with_row_id=dataset.has_stable_row_ids,
        )

    def _columns(self, dataset: lance.LanceDataset) -> dict[str, str]:
        """Return the expression of each column, cast to its type as Lance's update casts it."""
        schema = dataset.schema
        columns = {each: _quoted(each) for each in schema.names} | dict(self.pairs)
        if len(self.pairs) == len(schema.names):
            columns[_ANY_COLUMN] = _quoted(schema.names[0])
        given = dataset.scanner(columns=columns).projected_schema
        for name, expression in self.pairs:
            kind = schema.field(name).type
            known = arrow_name(kind)
            if known is not None and given.field(name).type != kind:
                columns[name] = f"arrow_cast(\n{expression}\n, '{known}')"  # it may end in a comment
        return columns

    def operation(
        self, parts: Sequence[Part], dataset: lance.LanceDataset
    ) -> lance.LanceOperation.BaseOperation:
        changed = [dataset.lance_schema.field(name) for name, _ in self.pairs]
        return lance.LanceOperation.Update(
            removed_fragment_ids=[each for part in parts for each in part.removed],
            updated_fragments=[each for part in parts for each in fragments_of(part.updated)],
            new_fragments=[each for part in parts for each in fragments_of(part.added)],
            # Indexes of other columns may go on to cover the rows, where row ids are stable.
            fields_for_preserving_frag_bitmap=list(_ids_of(changed)),
            update_mode="rewrite_rows",
        )


class _NewRows:
    """The rows that a scan computes, and where each of them came from, in the order they were written."""

    def __init__(self, schema: pa.Schema, scanner: lance.LanceScanner) -> None:
        self._schema = schema
        self._scanner = scanner
        self._addresses: list[npt.NDArray[np.uint64]] = []
        self._row_ids: list[npt.NDArray[np.uint64]] = []
        self.count = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._scanner.to_batches():
            self.count += batch.num_rows
            self._addresses.append(batch.column(_ROW_ADDRESS).to_numpy())
            if _ROW_ID in batch.schema.names:
                self._row_ids.append(batch.column(_ROW_ID).to_numpy())
            columns = [_fitting(batch.column(each.name), each) for each in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def addresses(self) -> npt.NDArray[np.uint64]:
        return np.concatenate(self._addresses)

    def row_ids(self) -> npt.NDArray[np.uint64]:
        return np.concatenate(self._row_ids)


def _fitting(values: pa.Array, column: pa.Field) -> pa.Array:
    """Return the values in the type of their column.

    Raises:
        InvalidInputError: there are nulls where the column has none, or they cannot be cast.
    """
    if values.null_count and not column.nullable:
        raise InvalidInputError(f"column '{column.name}' is not nullable, but its expression yields nulls")
    if values.type == column.type:
        return values
    if isinstance(column.type, pa.BaseExtensionType):
        stored = values.storage if isinstance(values, pa.ExtensionArray) else values
        return pa.ExtensionArray.from_storage(column.type, stored.cast(column.type.storage_type))
    return values.cast(column.type)


def _without_old_rows(dataset: lance.LanceDataset, part: Part, addresses: npt.NDArray[np.uint64]) -> Part:
    """Return the part with the rows that it replaces deleted from their fragments."""
    ordered = np.sort(addresses)
    cuts = np.flatnonzero(np.diff(ordered >> 32)) + 1
    updated: list[str] = []
    removed: list[int] = []
    for each in np.split(ordered, cuts):
        fragment = dataset.get_fragment(int(each[0] >> 32))
        before = fragment.metadata
        all_of_it = each.size == before.physical_rows - before.num_deletions
        after = None if all_of_it else fragment.delete_rows(each.astype(np.uint32).tolist())
        if after is None:
            removed.append(before.id)
        else:
            updated.append(fragment_text(after))
    return dataclasses.replace(part, updated=tuple(updated), removed=tuple(removed))


def _keep_row_ids(
    written: Sequence[FragmentMetadata], row_ids: npt.NDArray[np.uint64]
) -> list[FragmentMetadata]:
    """Give the rows the ids that they had."""
    kept: list[FragmentMetadata] = []
    first = 0
    for each in written:
        ids = row_ids[first : first + each.physical_rows].tolist()
        kept.append(dataclasses.replace(each, row_id_meta=RowIdSequence(ids).to_inline_metadata()))
        first += each.physical_rows
    return kept


def _ids_of(fields: Iterable[Any]) -> Iterator[int]:
    for each in fields:
        yield each.id()
        yield from _ids_of(each.children())


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


_PLAIN = {
    pa.bool_(): "Boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float16(): "Float16",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def arrow_name(kind: pa.DataType) -> str | None:
    """Return the name of a type; None when it has none that is known here."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_timestamp(kind):
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"Timestamp({_UNITS[kind.unit]}, {zone})"
    if types.is_duration(kind):
        return f"Duration({_UNITS[kind.unit]})"
    if types.is_time(kind):
        return f"Time{kind.bit_width}({_UNITS[kind.unit]})"
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if types.is_fixed_size_list(kind):
        item = arrow_name(kind.value_type)
        return item and f"FixedSizeList({kind.list_size}, {item})"
    return None
