"""Merging a DataFrame into a table beside Lance's own merge_insert, which has all new rows in memory.

Lance alone is strong while one machine is enough: Spark is for sources and tables beyond it, and should
not cost much where both can do it. Left to itself, a merge of few rows does not use Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import lance

from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Unit, times_slower
from benchmarks.roots import temporary_root
from benchmarks.spark_tables import kept, start_session, table_rows
from relance.spark import merge, save

ROWS = 10_000_000
SHARE = 0.05
"""So many of the rows of the table are new rows; nine of ten of them have a key that is there."""
REPEATS = 7
"""It takes Spark some of them to be warm."""
SLOWER = 4.0
SLOWER_BY_CHOICE = 1.2


def compare_upsert(rows: int = ROWS) -> Iterator[Result]:
    """Upsert rows into equal tables, which are put back before each time."""
    with start_session() as spark, temporary_root() as root:
        for name in ("spark", "auto", "native"):
            save(table_rows(spark, rows), name, root=root)
        number = int(rows * SHARE)
        # Keys all over the table, the last tenth of them beyond its end.
        step = int(rows / (number * 0.9))
        new = spark.range(0, number, 1, 2).selectExpr(
            f"id * {step} as id", "-1d as x", "concat('new-', id) as name", "timestamp_micros(id) as at"
        )
        source = new.toArrow()
        with kept(new) as cached:

            def ours(engine: str) -> None:
                _put_back(root, engine)
                _check(merge(cached, engine, "id", root=root, engine=engine).updated, rows, step)

            def native() -> None:
                builder = _put_back(root, "native").merge_insert("id").when_matched_update_all()
                counts = builder.when_not_matched_insert_all().execute(source)
                _check(counts["num_updated_rows"], rows, step)

            through, chosen, alone = in_turns(
                partial(ours, "spark"), partial(ours, "auto"), native, repeats=REPEATS
            )
    what = f"upsert {number:,} rows into {rows:,}"
    yield Result(f"{what}, through Spark", Unit.SECONDS, through, alone, times_slower(SLOWER))
    yield Result(f"{what}, engine 'auto'", Unit.SECONDS, chosen, alone, times_slower(SLOWER_BY_CHOICE))


def _put_back(root: str, name: str) -> lance.LanceDataset:
    uri = str(Path(root, f"{name}.lance"))
    lance.dataset(uri, version=1).restore()
    return lance.dataset(uri)


def _check(updated: int, rows: int, step: int) -> None:
    expected = -(-rows // step)
    if updated != expected:
        raise RuntimeError(f"{updated} rows were updated, not {expected}")


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        "maintenance-upsert",
        "an upsert through Spark, as it chooses itself, and by Lance alone",
        compare_upsert,
    ),
)
