"""A driver that deletes rows on executors, slowly: `... -m tests.spark.jobs.upkeep ROOT TABLE PREDICATE`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.spark.cluster import driver_session

import relance
from relance.maintenance import DeleteRows, Effect, Estimate
from relance.maintenance.execute import Run
from relance.maintenance.row_commit import RewriteTask
from relance.maintenance.work import CatalogRef, TablePlan, Task
from relance.operations.context import Context
from relance.spark.runner import SparkRunner


@dataclass(frozen=True)
class SlowTask:
    """Does what another task does, after a while, and leaves a file when it begins."""

    inner: Task
    sign: str
    weight: float = 6.0

    def run(self, context: Context) -> Any:
        Path(self.sign).parent.mkdir(exist_ok=True)
        Path(self.sign).touch()
        time.sleep(1.0)
        return self.inner.run(context)


@dataclass(frozen=True)
class SlowPlan:
    """Another plan, one slow task for each of its tasks."""

    inner: TablePlan
    tasks: Sequence[Task]

    @property
    def estimate(self) -> Estimate:
        return self.inner.estimate

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        return self.inner.finish(context, values)


@dataclass(frozen=True)
class Slowly:
    """Another job with slow tasks, each of one fragment."""

    inner: DeleteRows
    signs: str
    name: str = "delete slowly"

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        return self.inner.targets(context)

    def plan(self, context: Context, table: tuple[str, ...]) -> TablePlan | None:
        plan = self.inner.plan(context, table)
        if plan is None:
            return None
        single = [
            replace(each, fragments=(number,))
            for each in plan.tasks
            if isinstance(each, RewriteTask)
            for number in each.fragments
        ]
        return SlowPlan(plan, [SlowTask(each, f"{self.signs}/{n}") for n, each in enumerate(single)])


def main(root: str, table: str, predicate: str) -> None:
    spark = driver_session("upkeep", spark_task_maxFailures="8")
    catalog = relance.DirectoryNamespace(root=root)
    runner = SparkRunner(spark)
    job = Slowly(DeleteRows(predicate), f"{root}-tasks")
    run = Run(job, CatalogRef(catalog.properties), runner, runner, giant_seconds=0.0)
    (result,) = run.results([(table,)])
    told = {"rows": result.effect.rows if result.effect else 0, "error": str(result.error or "")}
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
