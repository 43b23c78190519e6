"""Jobs that die between their tasks and their commit: `python -m tests.support.jobs.dying JOB PROPERTIES`.

The process does all tasks of a job on the table `t`, and then ends itself as `kill -9` does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from tests.support.jobs.merging import merge_here
from tests.support.jobs.rows import PER_FRAGMENT, ROWS, SMALL_TASK, rows
from tests.support.jobs.running import results_of
from tests.support.patches import substitute_for_good
from tests.support.paths import REPOSITORY
from tests.support.roots import Place

from relance.catalog.context import Context
from relance.jobs import Compact, DeleteRows, Effect, Estimate, RefreshIndexes, UpdateRows
from relance.jobs.base import CatalogRef, Expected, Job, Name, TablePlan, Task
from relance.jobs.runner import ThreadRunner, open_catalog

JOBS: dict[str, Job] = {
    "delete": DeleteRows(where="id % 3 = 0"),
    "update": UpdateRows(set={"n": "n + 1"}, where="id % 3 = 0"),
    "compact": Compact(target_rows=2 * PER_FRAGMENT),
    "refresh": RefreshIndexes(segment_rows=2 * PER_FRAGMENT),
}
NAMES = (*JOBS, "merge")


def merged() -> pa.Table:
    """Return the rows of the merge: five that are there, five that are new."""
    ours = rows(ROWS - 5, 10)
    return ours.set_column(1, "n", pa.array([100] * 10, pa.int32()))


class Dying(Job):
    """Another job, whose process dies when all tasks are done."""

    label = "die"

    inner: Job

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        plan = self.inner.plan(context, table)
        return None if plan is None else DyingPlan(plan.tasks)


@dataclass(frozen=True)
class DyingPlan(TablePlan):
    """Tasks without a commit."""

    tasks: Sequence[Task]

    @property
    def estimate(self) -> Estimate:
        return Estimate()

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        die()


def die() -> NoReturn:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


def die_in(name: str, place: Place) -> None:
    """Have a process do all tasks of a job and die before the commit."""
    command = [sys.executable, "-m", "tests.support.jobs.dying", name, json.dumps(place.properties)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main(name: str, properties: str) -> None:
    substitute_for_good("row_changes.task_seconds", SMALL_TASK)
    catalog = CatalogRef(tuple(json.loads(properties).items()))
    if name == "merge":
        merge_here(open_catalog(catalog), "t", merged(), on=("id",), before_commit=die)
    results_of(Dying(inner=JOBS[name]), catalog, [("t",)], ThreadRunner(2), oversized_seconds=-1)


if __name__ == "__main__":
    main(*sys.argv[1:])
