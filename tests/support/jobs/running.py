"""Runs jobs over tables as a direct run does, on runners and with limits that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relance.jobs.base import CatalogRef, Job, Result
from relance.jobs.engine import OVERSIZED_SECONDS, Progress, Run, steps_of
from relance.jobs.runner import Placement, Runner, open_catalog


def results_of(
    job: Job,
    catalog: CatalogRef,
    tables: Sequence[tuple[str, ...]],
    runner: Runner,
    task_runner: Runner | None = None,
    *,
    dry_run: bool = False,
    oversized_seconds: float = OVERSIZED_SECONDS,
    progress: Callable[[Progress], None] | None = None,
) -> list[Result]:
    """Return the results of all tables, in the order in which they come."""
    steps = steps_of(job, open_catalog(catalog), tables)
    where = Placement(runner, task_runner or runner, "as the test says")
    run = Run(
        job.label, catalog, where, dry_run=dry_run, progress=progress, oversized_seconds=oversized_seconds
    )
    return [result for _, result in run.results(steps)]
