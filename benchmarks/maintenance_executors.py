"""A job that is bound by the processor, on one executor of a cluster and on two, each with one core.

Run as a module it is the driver of one of them: `python -m benchmarks.maintenance_executors EXECUTORS ROOT`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
from tests.support.patches import substitute_for_good
from tests.support.spark.cluster import CORES, answer_of, driver_session, start_cluster

from benchmarks.results import Benchmark, Result, Sample, Unit, times_faster
from benchmarks.roots import V1, temporary_root
from relance.jobs import UpdateRows
from relance.jobs.base import CatalogRef
from relance.jobs.engine import Run, steps_of
from relance.jobs.runner import Placement, ThreadRunner, open_catalog
from relance.spark.runner import SparkRunner

ROWS = 1_600_000
FRAGMENTS = 16
GAIN = 1.6
REPEATS = 2
TABLES = {"warm_up": FRAGMENTS * 100, **{f"t{number}": ROWS for number in range(REPEATS)}}
"""With their rows. The first one only has the executors load what they need."""
ONE_THREAD = dict.fromkeys(("LANCE_CPU_THREADS", "TOKIO_WORKER_THREADS"), "1")
"""For the executors, which have it of their workers: else Lance uses all cores of the machine in each.

Not LANCE_IO_THREADS: with one of them writes hang.
"""


def compare() -> Iterator[Result]:
    """Run the same update on one executor and on two, one after the other: they share the machine."""
    seconds: dict[int, Sample] = {}
    environment = mock.patch.dict(os.environ, ONE_THREAD)
    with temporary_root() as folder, environment, start_cluster(Path(folder)) as cluster:
        for executors in (1, 2):
            with temporary_root() as root:
                for table, rows in TABLES.items():
                    _fill(f"{root}/{table}.lance", rows)
                driver = cluster.start("benchmarks.maintenance_executors", str(executors), root)
                seconds[executors] = Sample(tuple(answer_of(driver)["seconds"]))
    what = f"update of {ROWS:,} rows with an expression that takes long, 2 executors (beside: 1)"
    yield Result(what, Unit.SECONDS, seconds[2], seconds[1], times_faster(GAIN))


def _fill(uri: str, rows: int) -> None:
    each = rows // FRAGMENTS
    for number in range(FRAGMENTS):
        ids = np.arange(number * each, number * each + each)
        part = pa.table({"id": ids, "text": ["some text"] * each})
        lance.write_dataset(part, uri, mode="append" if number else "create")


def _expression() -> str:
    """Return what takes a core some microseconds for each row: digests of digests."""
    text = "concat(text, cast(id as string))"
    for _ in range(12):
        text = f"encode(sha512({text}), 'hex')"
    return text


def main(executors: int, root: str) -> None:
    """Update each table, a fragment in a task, and print how long each took but the first."""
    spark = driver_session("executors", spark_cores_max=str(CORES * executors))
    substitute_for_good("row_changes.task_seconds", 0.1)
    catalog = CatalogRef(tuple({"root": root, **V1}.items()))
    runner = SparkRunner(spark)
    runner.slots = executors
    seconds = []
    for table, rows in TABLES.items():
        start = perf_counter()
        job = UpdateRows(set={"text": _expression()})
        where = Placement(ThreadRunner(), runner, "spark")
        steps = steps_of(job, open_catalog(catalog), [(table,)])
        for _, result in Run(job.label, catalog, where, oversized_seconds=0.0).results(steps):
            if result.error is not None or result.effect is None or result.effect.rows != rows:
                raise RuntimeError(f"the update failed: {result.error}")
        seconds.append(perf_counter() - start)
    print(json.dumps({"seconds": seconds[1:]}))
    spark.stop()


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("maintenance-executors", "a job bound by the processor, on 1 and on 2 executors", compare),
)

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
