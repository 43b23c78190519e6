"""Spark with Lance tables beside Spark with Parquet files, in one session with two cores.

The same rows are written and read by both in turns. The JVM connector of Lance is in spark_connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import relance
from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Unit, times_faster, times_its_own, times_slower
from benchmarks.roots import temporary_root
from relance.spark import register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000_000
VECTORS = 1_000_000
DIMENSION = 128
CORES = 2
REPEATS = 3
SELECTED = 0.001

WRITE, READ, ONE_COLUMN, FILTER_FASTER = 0.8, 1.6, 0.6, 5.0
VECTOR_WRITE, VECTOR_READ = 0.5, 1.8


@dataclass(frozen=True, slots=True)
class Formats:
    """How the rows of one table are written and read in both formats."""

    spark: SparkSession
    root: str
    name: str
    options: dict[str, str]

    @property
    def parquet(self) -> str:
        return str(Path(self.root, f"{self.name}.parquet"))

    def write_lance(self, rows: DataFrame) -> None:
        given = {"root": self.root, **self.options}
        rows.write.format("lance").mode("overwrite").options(**given).save(self.name)

    def write_parquet(self, rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(self.parquet)

    def read_lance(self, **options: str) -> None:
        drain(self.spark.read.format("lance").options(root=self.root, **options).load(self.name))

    def read_parquet(self) -> None:
        drain(self.spark.read.parquet(self.parquet))

    def check_rows(self, expected: int) -> None:
        """Count the rows of both, so that no figure is of a write that lost some."""
        lance = self.spark.read.format("lance").option("root", self.root).load(self.name).count()
        parquet = self.spark.read.parquet(self.parquet).count()
        if (lance, parquet) != (expected, expected):
            raise RuntimeError(f"of {expected} rows, Lance has {lance} and Parquet {parquet}")


def table_rows(spark: SparkSession, number: int = ROWS) -> DataFrame:
    """Return rows of a long, a double, a string and a timestamp that Spark makes as it goes."""
    return spark.range(0, number, 1, CORES).selectExpr(
        "id", "rand(7) as x", "concat('name-', id % 100003) as name", "timestamp_micros(id * 1000003) as at"
    )


def vector_rows(spark: SparkSession, number: int = VECTORS) -> DataFrame:
    """Return rows of a long and a vector of floats that Spark makes as it goes."""
    # One hash for each element: to draw random numbers would take longer than to write them.
    # Spark divides floats into a double.
    element = "cast(hash(id, i) / 2147483648 as float)"
    numbers = f"transform(sequence(1, {DIMENSION}), i -> {element})"
    return spark.range(0, number, 1, CORES).selectExpr("id", f"{numbers} as vector")


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows in memory for the block, so that both writers are not measured on making them."""
    cached = rows.persist()
    drain(cached)
    try:
        yield cached
    finally:
        cached.unpersist(blocking=True)


def compare_tables() -> Iterator[Result]:
    """Write and read rows of four columns."""
    with start_session() as spark, temporary_root() as root:
        formats = Formats(spark, root, "t", {})
        yield from _compare_write(f"write {_millions(ROWS)} x 4", formats, table_rows(spark), WRITE)
        formats.check_rows(ROWS)
        full, parquet = in_turns(formats.read_lance, formats.read_parquet, repeats=REPEATS)
        yield Result(f"read {_millions(ROWS)} x 4", Unit.SECONDS, full, parquet, times_slower(READ))
        yield from _compare_parts(formats)


def _compare_parts(formats: Formats) -> Iterator[Result]:
    """Read one column, and few rows by an index, beside a full read of the same table."""
    relance.DirectoryNamespace(root=formats.root).create_table_scalar_index(
        {"id": [formats.name], "column": "id", "index_type": "BTREE"}
    )
    some = f"id < {int(ROWS * SELECTED)}"
    full, column, few = in_turns(
        formats.read_lance,
        lambda: formats.read_lance(columns="x"),
        lambda: formats.read_lance(filter=some),
        repeats=REPEATS,
    )
    what = "read one column of four, beside the full read"
    yield Result(what, Unit.SECONDS, column, full, times_its_own(ONE_COLUMN))
    what = f"read {SELECTED:.1%} of the rows by an index, beside the full read"
    yield Result(what, Unit.SECONDS, few, full, times_faster(FILTER_FASTER))


def compare_vectors() -> Iterator[Result]:
    """Write and read rows with a vector."""
    with start_session() as spark, temporary_root() as root:
        formats = Formats(spark, root, "v", {"vector_size.vector": str(DIMENSION)})
        size = f"{_millions(VECTORS)} x {DIMENSION} floats"
        yield from _compare_write(f"write {size}", formats, vector_rows(spark), VECTOR_WRITE)
        formats.check_rows(VECTORS)
        ours, parquet = in_turns(formats.read_lance, formats.read_parquet, repeats=REPEATS)
        yield Result(f"read {size}", Unit.SECONDS, ours, parquet, times_slower(VECTOR_READ))


def _compare_write(what: str, formats: Formats, rows: DataFrame, target: float) -> Iterator[Result]:
    with kept(rows) as cached:
        writers: tuple[Callable[[], object], ...] = (
            lambda: formats.write_lance(cached),
            lambda: formats.write_parquet(cached),
        )
        ours, parquet = in_turns(*writers, repeats=REPEATS)
    yield Result(what, Unit.SECONDS, ours, parquet, times_its_own(target))


@contextmanager
def start_session() -> Iterator[SparkSession]:
    """Run a session with our data source for the block."""
    # The kept vectors are 0.5 GB, and the Parquet writer keeps a block of rows for each core.
    started = session("benchmarks", master=f"local[{CORES}]", conf={"spark.driver.memory": "6g"})
    register(started)
    try:
        yield started
    finally:
        started.stop()


def drain(rows: DataFrame) -> None:
    """Read all rows and throw them away."""
    rows.write.format("noop").mode("overwrite").save()


def _millions(number: int) -> str:
    return f"{number // 1_000_000}M"


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("spark-tables", "Spark writes and reads Lance and Parquet", compare_tables),
    Benchmark("spark-vectors", "Spark writes and reads vectors in Lance and Parquet", compare_vectors),
)
