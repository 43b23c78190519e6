"""Reading only those rows of a table that can match: few keys are sent to the tasks that read.

Spark turns every row that a task reads into one of its own before it joins, which takes most of the time
of a merge. So the tasks leave out what has none of the keys; the join afterwards is as exact as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition

from relance.errors import InvalidInputError
from relance.maintenance.merge_plan import MergePlan
from relance.spark.address import PathAddress
from relance.spark.classic import parallelism, spark_context
from relance.spark.options import ReadOptions
from relance.spark.reader import LanceReader, schema_of
from relance.spark.widths import row_width

MOST_KEYS = 2_000_000
"""So many are sent to every executor; with more the join is left to Spark alone."""

_KINDS = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_date)
"""Types in which Arrow and Spark agree what is equal."""

_COUNT = "count of equal keys"

_MOST_BYTES = 32 << 20
"""Rows of the table that match, up to this size, are sent to the new rows instead of sorting both."""

_SPARSE = 64
"""Integers are looked up by their place if at least one of so many between first and last is a key."""

_ROWS = 1_000_000
"""Looked up at once: the set of keys is built anew each time."""


@dataclass(frozen=True)
class SentKeys:
    """The values of one key column, on their way to all executors."""

    column: str
    values: Broadcast[pa.Array]
    number: int


def send_keys(rows: DataFrame, keys: Sequence[str]) -> SentKeys | None:
    """Send the values of the first key column; None where that cannot be done or does not help.

    Raises:
        InvalidInputError: two rows have the same key.
    """
    values = _few_keys(rows, keys)
    if values is None or not all(_is_simple(each.type) for each in values.columns):
        refuse_duplicates(rows, keys)
    else:
        counts = values.drop_null().group_by(list(keys)).aggregate([([], "count_all")])
        found = counts.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist()
        if found:
            raise _ambiguous({name: found[0][name] for name in keys}, found[0]["count_all"])
    if values is None or not _is_simple(values.column(0).type):
        return None
    first = values.column(0).combine_chunks().drop_null()
    return SentKeys(keys[0], rows.sparkSession.sparkContext.broadcast(first), len(first))


def _few_keys(rows: DataFrame, keys: Sequence[str]) -> pa.Table | None:
    """Return the keys, unless they are many, or the session cannot send them to its tasks."""
    if spark_context(rows.sparkSession) is None or rows.count() > MOST_KEYS:
        return None
    return rows.select(*(quoted(name) for name in keys)).toArrow()


def _is_simple(kind: pa.DataType) -> bool:
    return any(fits(kind) for fits in _KINDS)


def refuse_duplicates(rows: DataFrame, keys: Sequence[str]) -> None:
    """Have Spark look whether two rows have the same key; a null in it makes it like no other.

    Raises:
        InvalidInputError: they have.
    """
    whole = rows
    for name in keys:
        whole = whole.where(f.col(quoted(name)).isNotNull())
    counted = whole.groupBy(*(f.col(quoted(name)) for name in keys)).agg(f.count("*").alias(_COUNT))
    found = counted.where(f.col(_COUNT) > 1).first()
    if found is not None:
        raise _ambiguous(dict(zip(keys, found, strict=False)), found[_COUNT])


def _ambiguous(key: dict[str, Any], number: int) -> InvalidInputError:
    example = ", ".join(f"{name} = {value!r}" for name, value in key.items())
    return InvalidInputError(
        f"{number} new rows have the key {example}: keep one of them, as with df.dropDuplicates([...])"
    )


def quoted(name: str, side: str | None = None) -> str:
    """Return a column's name as Spark reads it in an expression."""
    text = f"`{name.replace('`', '``')}`"
    return text if side is None else f"{side}.{text}"


def matching_rows(spark: SparkSession, plan: MergePlan, columns: Sequence[str], keys: SentKeys) -> DataFrame:
    """Return the rows of the planned version whose key may be among those, each with its address (and id)."""
    options = ReadOptions(
        PathAddress(plan.table.uri, plan.table.storage_options),
        columns=tuple(columns),
        with_row_address=True,
        with_row_id=plan.stable_row_ids,
        parallelism=parallelism(spark),
    )
    schema = schema_of(plan.table, options)
    reader = LanceReader(plan.table, options, schema)
    tasks = reader.partitions()
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    found = numbers.mapInArrow(_ReadMatching(reader, tuple(tasks), keys), schema)
    # Spark takes what comes of few numbers for little, and would send it to all executors at any size.
    known = [field for field in plan.write.schema if field.name in columns]
    size = keys.number * row_width(pa.schema(known))
    return found if size <= _MOST_BYTES else found.hint("shuffle_merge")


@dataclass(frozen=True)
class _ReadMatching:
    reader: LanceReader
    tasks: Sequence[InputPartition]
    keys: SentKeys

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find = finder(self.keys.values.value)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in _gathered(self.reader.read(self.tasks[number])):
                    yield from rows.filter(find(rows[self.keys.column])).to_batches()


def finder(keys: pa.Array) -> Callable[[pa.ChunkedArray], pa.Array | pa.ChunkedArray]:
    """Return what tells which values may be among the keys."""
    if pa.types.is_integer(keys.type) and len(keys):
        numbers = pc.cast(keys, pa.int64(), safe=False).to_numpy()
        first, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        if span <= _SPARSE * len(numbers):
            return partial(_among, first, _marked(numbers - first, span))
    return partial(_is_in, keys)


def _marked(numbers: npt.NDArray[np.int64], span: int) -> npt.NDArray[np.bool_]:
    marks = np.zeros(span, np.bool_)
    marks[numbers] = True
    return marks


def _among(first: int, marks: npt.NDArray[np.bool_], values: pa.ChunkedArray) -> pa.Array:
    """Look integers up by their place, which takes a tenth of the time of a set."""
    # A null becomes some number: the join leaves it out.
    places = pc.fill_null(pc.cast(values, pa.int64(), safe=False), first).to_numpy() - first
    inside = (places >= 0) & (places < len(marks))
    return pa.array(inside & marks[np.where(inside, places, 0)])


def _is_in(keys: pa.Array, values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    try:
        return pc.is_in(values, value_set=keys.cast(values.type))
    except pa.ArrowInvalid:  # a key is too big for the column; which ones match, the join finds
        return pa.array(np.ones(len(values), np.bool_))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches in heaps that are worth a look-up."""
    heap: list[pa.RecordBatch] = []
    for batch in batches:
        heap.append(batch)
        if sum(each.num_rows for each in heap) >= _ROWS or sum(each.nbytes for each in heap) >= 64 << 20:
            yield pa.Table.from_batches(heap)
            heap = []
    if heap:
        yield pa.Table.from_batches(heap)
