"""Where a merge is done: in this process if the new rows are few, else with Spark."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import add

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relance.errors import UnsupportedOperationError
from relance.jobs.merging.merge_here import why_not_here
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.runner import Engine, ThreadRunner
from relance.spark.classic import parallelism
from relance.spark.merge_keys import quoted
from relance.spark.types import ToLance, lance_schema
from relance.spark.widths import row_width

MOST_ROWS = 5_000_000
MOST_BYTES = 256 << 20
"""Up to so many new rows, of about this size, are collected; the merge takes about three times that."""

GIANT = 100_000_000
"""From so many rows on, the keys of a table are read faster by a Spark with more slots than this machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where, and why there."""

    is_here: bool
    why: str


def place_of(engine: Engine, plan: MergePlan, df: DataFrame) -> Place:
    """Return where to merge the rows of a DataFrame; for `auto` they may be counted, which computes them.

    Raises:
        UnsupportedOperationError: this process is asked for and cannot do it.
    """
    if engine is Engine.SPARK:
        return Place(False, "spark: requested")
    reason = why_not_here(plan)
    if engine is Engine.LOCAL:
        if reason is not None:
            raise UnsupportedOperationError(f"engine 'local' cannot run this merge: {reason}; use 'auto'")
        return Place(True, "local: requested")
    if reason is None and plan.rows >= GIANT:
        slots = parallelism(df.sparkSession)
        if slots is None or slots > ThreadRunner().slots:
            reason = f"the table has {plan.rows:,} rows"
    return _place_by_size(df) if reason is None else Place(False, f"spark: {reason}")


def from_cache(df: DataFrame) -> DataFrame | None:
    """Return a DataFrame that somebody keeps as one that reads what is kept; None if nobody does."""
    level = df.storageLevel
    # One that was used before it was cached goes on as it was planned then.
    return df.select("*") if level.useMemory or level.useDisk else None


def as_in_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that Spark gave, with the types that the columns have in a table.

    Raises:
        TableSchemaValidationError: a value would be lost, or is null where the table takes none.
    """
    convert = ToLance(rows.schema, pa.schema([each for each in schema if each.name in rows.schema.names]))
    return pa.Table.from_batches(map(convert, rows.to_batches()), convert.schema)


def _place_by_size(df: DataFrame) -> Place:
    rows, size = size_if_cached(df) or _counted(df)
    what = f"{rows:,} new rows of about {size / (1 << 20):,.0f} MB"
    if rows <= MOST_ROWS and size <= MOST_BYTES:
        return Place(True, f"local: {what}")
    return Place(False, f"spark: {what} are too much to collect")


def size_if_cached(df: DataFrame) -> tuple[int, int] | None:
    """Return rows and bytes as Spark counted them when it cached the DataFrame; None if it has not."""
    # There is no public call for it; else they are counted, which takes a job.
    with suppress(Py4JError, PySparkException, AttributeError):
        plan = df._jdf.queryExecution().optimizedPlan()
        is_cached = plan.getClass().getSimpleName() == "InMemoryRelation"
        if is_cached and plan.cacheBuilder().isCachedColumnBuffersLoaded():
            figures = plan.stats()
            return int(str(figures.rowCount().get())), int(str(figures.sizeInBytes()))
    return None


def _counted(df: DataFrame) -> tuple[int, int]:
    schema = lance_schema(df.schema, vectors={})
    seen = df.agg(f.count("*"), f.sum(reduce(add, map(_width, schema)))).first()
    assert seen is not None, "an aggregate without groups has one row"
    return int(seen[0]), int(seen[1] or 0)


def _width(field: pa.Field) -> Column:
    """Return about how many bytes a value of a column takes."""
    column, kind = f.col(quoted(field.name)), field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return f.coalesce(f.octet_length(column), f.lit(0)) + f.lit(4)
    if pa.types.is_list(kind):
        element = row_width(pa.schema([kind.value_field]))
        return f.coalesce(f.size(column), f.lit(0)) * f.lit(element) + f.lit(4)
    return f.lit(row_width(pa.schema([field])))
