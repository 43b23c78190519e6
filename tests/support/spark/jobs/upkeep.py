"""A driver that merges on executors, then runs every other job: `-m tests.support.spark.jobs.upkeep ROOT`.

A task that has done its work tells so in a file below ROOT-tasks, and hands its result over when the test
lets it: so a test can kill the executor when files are written and nobody knows of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.support.jobs.running import results_of
from tests.support.patches import substitute_for_good, substituted
from tests.support.spark.cluster import WORKER_HOSTS, driver_session

import relance
import relance.spark
from relance.catalog.context import Context
from relance.jobs import (
    CleanUp,
    Compact,
    DeleteRows,
    Effect,
    Estimate,
    RefreshIndexes,
    RemoveOrphans,
    UpdateRows,
)
from relance.jobs.base import CatalogRef, Expected, Job, Name, TablePlan, Task
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.runner import ThreadRunner
from relance.spark import merge_few
from relance.spark.runner import SparkRunner

EACH = 1000
"""Rows of a fragment."""
FRAGMENTS = 6
ROWS = EACH * FRAGMENTS
MERGED = range(ROWS - 500, ROWS + 500)

JOBS: dict[str, Job] = {
    "delete": DeleteRows(where="id % 3 = 0"),
    "update": UpdateRows(set={"payload": "concat(payload, '!')"}, where="id % 3 = 0"),
    "compact": Compact(target_rows=2 * EACH),
    "refresh": RefreshIndexes(segment_rows=2 * EACH),
    "clean": CleanUp(retain_versions=1, allow_young=True, split_files=0),
    "orphans": RemoveOrphans(older_than=timedelta(0), allow_young=True),
}
"""By the table that each is done to; the last one looks at the root."""
STEPS = ("merge", *JOBS)
WRITE = merge_few._Write


@dataclass(frozen=True)
class Signs:
    """Files by which the tasks of a step and a test speak."""

    folder: str

    @staticmethod
    def of(root: str, step: str) -> Signs:
        return Signs(f"{root}-tasks/{step}")

    def told(self) -> list[tuple[int, str]]:
        """Return the tasks that have done their work, each with its host, as often as they did."""
        found = [each.name.split("@") for each in Path(self.folder).glob("*@*")]
        return [(int(number), host) for number, host, _ in found]

    def done(self, number: int) -> None:
        """Tell that a task has done its work, and wait until the test lets it go on."""
        host = os.environ["SPARK_LOCAL_IP"]
        Path(self.folder, f"{number}@{host}@{time.time_ns()}").touch()
        while not Path(self.folder, "go").exists():
            time.sleep(0.05)

    def go_on(self) -> None:
        Path(self.folder, "go").touch()


@dataclass(frozen=True)
class TellingTask:
    """Does what another task does, and is a slice of its own."""

    inner: Task
    signs: Signs
    number: int
    weight: float = 6.0

    def run(self, context: Context) -> Any:
        value = self.inner.run(context)
        self.signs.done(self.number)
        return value


@dataclass(frozen=True)
class TellingPlan(TablePlan):
    """Another plan, with tasks that tell."""

    inner: TablePlan
    tasks: Sequence[Task]

    @property
    def estimate(self) -> Estimate:
        return self.inner.estimate

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        return self.inner.finish(context, values)


class Telling(Job):
    """Another job, with tasks that tell."""

    label = "telling"

    inner: Job
    signs: Signs

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        plan = self.inner.plan(context, table)
        if plan is None:
            return None
        return TellingPlan(plan, [TellingTask(each, self.signs, n) for n, each in enumerate(plan.tasks)])


@dataclass(frozen=True)
class TellingWrite:
    """Writes the new rows of a merge, and tells."""

    inner: merge_few._Write
    signs: Signs

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = list(self.inner(batches))
        task = TaskContext.get()
        assert task is not None
        self.signs.done(task.partitionId())
        yield from records


def maintain(spark: SparkSession, root: str, step: str) -> dict[str, Any]:
    """Do a job in small tasks, one at a time, and return what it says."""
    catalog = CatalogRef(relance.DirectoryNamespace(root=root).properties)
    job = Telling(inner=JOBS[step], signs=Signs.of(root, step))
    executors = SparkRunner(spark)
    executors.slots = 1
    tables = [() if step == "orphans" else (step,)]
    (result,) = results_of(job, catalog, tables, ThreadRunner(1), executors, oversized_seconds=0.0)
    effect = result.effect or Effect()
    return {"error": str(result.error or ""), "rows": effect.rows, "files": effect.files}


def merge(spark: SparkSession, root: str) -> dict[str, Any]:
    """Merge rows, some of which are there.

    It comes first and alone: it keeps its rows on two executors, so it survives the loss of one.
    """
    _wait_for_executors(spark)
    rows = spark.range(MERGED.start, MERGED.stop, 1, 4).select("id", f.lit("merged").alias("payload"))

    def telling(plan: MergePlan, sent: Broadcast[pa.Table]) -> TellingWrite:
        return TellingWrite(WRITE(plan, sent), Signs.of(root, "merge"))

    with substituted("spark_merge.write", telling):
        done = relance.spark.merge(rows, "merge", "id", root=root, engine="spark")
    return {"updated": done.updated, "inserted": done.inserted}


def _wait_for_executors(spark: SparkSession) -> None:
    """Wait until all have come: what is kept twice needs two places."""
    context: Any = spark.sparkContext
    while context._jsc.sc().getExecutorMemoryStatus().size() <= len(WORKER_HOSTS):  # one is the driver
        time.sleep(0.1)


def main(root: str) -> None:
    spark = driver_session("upkeep", spark_task_maxFailures="8", spark_task_cpus="1")
    substitute_for_good("row_changes.task_seconds", 0.01)
    substitute_for_good("cleanup.files_per_task", 5)
    for step in STEPS:
        Path(Signs.of(root, step).folder).mkdir(parents=True)
    told = {"merge": merge(spark, root)}
    with ThreadPoolExecutor(len(JOBS)) as pool:
        told.update(zip(JOBS, pool.map(partial(maintain, spark, root), JOBS), strict=True))
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
