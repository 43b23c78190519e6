"""Merging in this process: Arrow looks keys up, threads write and delete. With Spark: spark.merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relance.errors import UnsupportedOperationError
from relance.jobs.merging.key_lookup import KeyIndex, Numbers, is_simple
from relance.jobs.merging.merge_commit import Work
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.merging.merge_tasks import (
    NewRows,
    Touched,
    delete_offsets,
    offsets_of,
    write_rows,
)
from relance.jobs.merging.merges import Counts
from relance.operations.data.expressions import check_expressions
from relance.operations.data_errors import data_errors

Convert = Callable[[pa.Table, pa.Schema], pa.Table]
"""Gives new rows the types of the columns of a table, and refuses values that do not fit."""

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"

_THREADS = 4
"""Lance takes one core for a deletion file or a data file, and waits for the store in between."""

_BATCH = 131_072
"""Rows that a scan hands over at once."""

_BLOB = b"lance-encoding:blob"


def why_not_here(plan: MergePlan) -> str | None:
    """Return why a merge cannot be done in this process; None if it can."""
    if plan.clauses.update_if is not None:
        return "update_if is a Spark expression"
    schema = plan.write.schema
    for name in plan.on:
        if not is_simple(schema.field(name).type):
            return f"key column '{name}' has type {schema.field(name).type}"
    for field in schema:
        if isinstance(field.type, pa.BaseExtensionType) or _BLOB in (field.metadata or {}):
            return f"column '{field.name}' holds blobs or an extension type"
    return None


class HereEngine:
    """Has all new rows in memory, and of the table only what matches."""

    def __init__(self, rows: pa.Table, convert: Convert) -> None:
        self._rows = rows
        self._convert = convert
        self._prepared: tuple[pa.Schema, pa.Table, KeyIndex] | None = None

    def count(self, plan: MergePlan) -> Counts:
        rows, index = self._prepare(plan)
        return _counts(plan, _find(plan, rows, index), _left(plan, index))

    def work(self, plan: MergePlan) -> Work:
        rows, index = self._prepare(plan)
        left = _left(plan, index)
        with threads() as pool:
            # Rows that are written whatever they match are on their way while it is looked up.
            known = is_each_written(plan, rows.schema.names)
            early = pool.submit(write_rows, plan, each_once(rows)) if known else None
            found = _find(plan, rows, index)
            later = new_rows(plan, rows, found) if early is None else _repeated(rows, found)
            writing = [pool.submit(write_rows, plan, later), *([] if early is None else [early])]
            gone = np.concatenate([left, found.addresses]) if plan.clauses.update else left
            deleting = start_deleting(pool, plan, gone)
            fragments = tuple(text for each in writing for text in each.result().fragments)
            touched = tuple(each.result() for each in deleting)
        counts = _counts(plan, found, left)
        return Work(fragments, touched, counts.updated, counts.inserted, counts.deleted)

    def count_same_keys(self, plan: MergePlan, version: int) -> int:
        _, index = self._prepare(plan)
        dataset = plan.table.at(version).open()
        added = [each for each in dataset.get_fragments() if each.fragment_id > plan.last_fragment]
        heaps = scan(plan, dataset, plan.on, index, fragments=added) if added else iter(())
        return sum(len(index.find(keys_of(plan, heap))[0]) for heap in heaps)

    def _prepare(self, plan: MergePlan) -> tuple[pa.Table, KeyIndex]:
        """Return the new rows as the table has them, and by key: once, unless its columns change."""
        if self._prepared is None or not self._prepared[0].equals(plan.write.schema):
            reason = why_not_here(plan)
            if reason is not None:
                raise UnsupportedOperationError(f"this merge needs Spark: {reason}; use relance.spark.merge")
            rows = self._convert(self._rows, plan.write.schema)
            self._prepared = (plan.write.schema, rows, KeyIndex(rows.select(list(plan.on))))
        return self._prepared[1], self._prepared[2]


def threads() -> ThreadPoolExecutor:
    """Return what writes and deletes in this process."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="relance merge")


def start_deleting(pool: ThreadPoolExecutor, plan: MergePlan, addresses: Numbers) -> list[Future[Touched]]:
    """Have threads delete rows of the table, fragment by fragment."""
    dataset = plan.table.open()
    return [
        pool.submit(delete_offsets, plan, dataset, fragment, offsets)
        for fragment, offsets in offsets_of(addresses).items()
    ]


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of the table that have the key of a new row."""

    numbers: Numbers
    """Of the new rows, in the order of the rows that they match."""
    rows: pa.Table
    """Address and perhaps id of each, and what it holds in columns that the new rows lack."""
    is_new: npt.NDArray[np.bool_]
    """Which of the new rows match nothing."""

    @property
    def addresses(self) -> Numbers:
        addresses: Numbers = self.rows[ROW_ADDRESS].to_numpy().astype(np.int64)
        return addresses


def _counts(plan: MergePlan, found: Matches, left: Numbers) -> Counts:
    updated = len(found.numbers) if plan.clauses.update else 0
    return Counts(updated, int(np.count_nonzero(found.is_new)) if plan.clauses.insert else 0, len(left))


def is_each_written(plan: MergePlan, given: Sequence[str]) -> bool:
    """Tell whether each new row is written as it is, and before all is known about what it replaces."""
    clauses, names = plan.clauses, plan.write.schema.names
    return clauses.update and clauses.insert and not plan.stable_row_ids and list(given) == names


def each_once(rows: pa.Table) -> Iterator[NewRows]:
    """Yield new rows that are written as they are."""
    return _batches(rows, pa.nulls(rows.num_rows, pa.int64()), None)


def _repeated(rows: pa.Table, found: Matches) -> Iterator[NewRows]:
    """Yield the new rows that replace several others, as often as they do beyond the first time."""
    if len(found.numbers) > rows.num_rows - int(np.count_nonzero(found.is_new)):
        others = np.delete(found.numbers, np.unique(found.numbers, return_index=True)[1])
        yield from each_once(rows.take(pa.array(others)))


def _find(plan: MergePlan, rows: pa.Table, index: KeyIndex) -> Matches:
    dataset = plan.table.open()
    return match(plan, rows, index, scan(plan, dataset, columns_to_read(plan, rows.schema.names), index))


def columns_to_read(plan: MergePlan, given: Sequence[str]) -> list[str]:
    """Return the columns of the table that a merge of rows with the given columns needs."""
    return [*plan.on, *(name for name in plan.write.schema.names if name not in given)]


def match(plan: MergePlan, rows: pa.Table, index: KeyIndex, heaps: Iterable[pa.Table]) -> Matches:
    """Look rows of the table up among the new ones."""
    lacking = [name for name in plan.write.schema.names if name not in rows.schema.names]
    kept = [*lacking, ROW_ADDRESS, *([ROW_ID] if plan.stable_row_ids else [])]
    numbers: list[Numbers] = [np.empty(0, np.int64)]
    found: list[pa.Table] = []
    for heap in heaps:
        hits, new = index.find(keys_of(plan, heap))
        numbers.append(new)
        found.append(heap.select(kept).take(pa.array(hits)))
    matched = np.concatenate(numbers)
    is_new = np.ones(rows.num_rows, np.bool_)
    is_new[matched] = False
    return Matches(matched, pa.concat_tables(found) if found else no_rows(plan, kept), is_new)


def no_rows(plan: MergePlan, names: Sequence[str]) -> pa.Table:
    """Return no rows of these columns."""
    fields = [pa.field(each, pa.uint64()) for each in (ROW_ADDRESS, ROW_ID)]
    known = pa.schema([*plan.write.schema, *fields])
    return pa.schema([known.field(name) for name in names]).empty_table()


def _left(plan: MergePlan, index: KeyIndex) -> Numbers:
    """Return the addresses of rows of the table that no new row matches, if they are to be deleted."""
    left: list[Numbers] = [np.empty(0, np.int64)]
    if plan.clauses.delete:
        check_expressions([plan.clauses.delete_if])
        for heap in scan(plan, plan.table.open(), plan.on, index, filter=plan.clauses.delete_if):
            is_left = np.ones(heap.num_rows, np.bool_)
            is_left[index.find(keys_of(plan, heap))[0]] = False
            left.append(heap[ROW_ADDRESS].to_numpy().astype(np.int64)[is_left])
    return np.concatenate(left)


def scan(
    plan: MergePlan, dataset: lance.LanceDataset, columns: Sequence[str], index: KeyIndex, **which: Any
) -> Iterator[pa.Table]:
    """Yield rows of the table in heaps to be looked up, each with its address (and id)."""
    with data_errors(f"table id '{plan.table.id}'", dict(plan.table.storage_options)):
        scanner = dataset.scanner(
            columns=list(columns),
            with_row_address=True,
            with_row_id=plan.stable_row_ids,
            batch_size=_BATCH,
            **which,
        )
        yield from index.heaps(scanner.to_batches())


def keys_of(plan: MergePlan, heap: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of the key."""
    return [heap[name] for name in plan.on]


def new_rows(plan: MergePlan, rows: pa.Table, found: Matches) -> Iterator[NewRows]:
    """Yield whole rows to be written: those that replace others first."""
    schema = plan.write.schema
    if plan.clauses.update and len(found.numbers):
        given = rows.take(pa.array(found.numbers))
        columns = [(given if name in given.schema.names else found.rows)[name] for name in schema.names]
        row_ids = found.rows[ROW_ID].to_numpy().astype(np.int64) if plan.stable_row_ids else None
        yield from _batches(pa.table(columns, schema=schema), pa.array(found.addresses), row_ids)
    if plan.clauses.insert and found.is_new.any():
        given = rows.filter(pa.array(found.is_new))
        columns = [
            given[field.name] if field.name in given.schema.names else pa.nulls(given.num_rows, field.type)
            for field in schema
        ]
        yield from _batches(pa.table(columns, schema=schema), pa.nulls(given.num_rows, pa.int64()), None)


def _batches(rows: pa.Table, addresses: pa.Array, row_ids: Numbers | None) -> Iterator[NewRows]:
    start = 0
    for batch in rows.combine_chunks().to_batches(max_chunksize=_BATCH):
        part = slice(start, start + batch.num_rows)
        ids = None if row_ids is None else pa.array(row_ids[part])
        yield NewRows(batch, addresses[part], ids)
        start += batch.num_rows
