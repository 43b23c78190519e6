"""Maintain tables of a catalog: one call for every job, with the choice of where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from relance.catalog.context import table_id_of
from relance.errors import InvalidInputError
from relance.jobs.base import AgingJob, CatalogRef, Job, Report, Result
from relance.jobs.engine import Progress, Run
from relance.jobs.runner import Runner, ThreadRunner, open_catalog
from relance.namespace import DirectoryNamespace

_MANY_TABLES = 200
"""From so many tables on it pays to visit them from several machines."""


class Engine(StrEnum):
    """Where to work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Choice:
    """Where tables are visited, where the tasks of giant ones are done, and why."""

    near: Runner
    far: Runner
    why: str


def choose(engine: Engine, spark: Runner | None, *, tables: int, local: Runner | None = None) -> Choice:
    """Return where a job over so many tables runs.

    Raises:
        InvalidInputError: Spark is asked for and there is none.
    """
    here = local or ThreadRunner()
    if engine is Engine.SPARK:
        if spark is None:
            raise InvalidInputError("engine 'spark' needs a Spark session: pass one or use engine 'local'")
        return Choice(spark, spark, "spark: requested")
    if engine is Engine.LOCAL or spark is None:
        return Choice(here, here, "local: requested" if engine is Engine.LOCAL else "local: no Spark session")
    if spark.slots <= here.slots:
        why = f"local: Spark has no more slots ({spark.slots}) than this machine has threads ({here.slots})"
        return Choice(here, here, why)
    if tables < _MANY_TABLES:
        return Choice(
            here, spark, f"local for {tables} tables, spark ({spark.slots} slots) for very large ones"
        )
    return Choice(spark, spark, f"spark: {tables} tables on {spark.slots} slots")


@dataclass(frozen=True, slots=True)
class Started:
    """A run whose results come one by one."""

    engine: str
    tables: int
    results: Iterator[Result]


def start(
    catalog: DirectoryNamespace | CatalogRef,
    job: Job,
    tables: Sequence[Sequence[str]] | None = None,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Started:
    """Start a job over the named tables, or over all it applies to; results arrive as tables finish.

    Raises:
        InvalidInputError: an id, the engine or an age of the job is invalid.
    """
    reference = catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)
    context = open_catalog(reference)
    if tables is None:
        chosen = list(job.targets(context))
    else:
        chosen = [tuple(table_id_of(context, each).parts) for each in tables]
    if len(set(chosen)) != len(chosen):
        raise InvalidInputError(f"table '{_repeated(chosen)}' is named twice")
    choice = choose(parse_engine(engine), spark, tables=len(chosen))
    if isinstance(job, AgingJob):
        job = job.pin(context.for_looking() if dry_run else context)
    run = Run(job, reference, choice.near, choice.far, dry_run=dry_run, progress=progress)
    return Started(choice.why, len(chosen), run.results(chosen))


def _repeated(tables: Sequence[tuple[str, ...]]) -> str:
    """Return the first table that is named more than once."""
    return "$".join(next(each for each in tables if tables.count(each) > 1))


def maintain(
    catalog: DirectoryNamespace | CatalogRef,
    job: Job,
    tables: Sequence[Sequence[str]] | None = None,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Run a job over the named tables, or over all it applies to, and return a result for each.

    A failing table does not affect the others: its error is in its result. A dry run returns the plan.

    Raises:
        InvalidInputError: an id, the engine or an age of the job is invalid.
    """
    began = time.monotonic()
    started = start(catalog, job, tables, engine=engine, spark=spark, dry_run=dry_run, progress=progress)
    results = tuple(sorted(started.results, key=lambda each: each.table))
    duration = timedelta(seconds=time.monotonic() - began)
    return Report(job.name, started.engine, dry_run, results, duration)


def parse_engine(text: Engine | str) -> Engine:
    """Return the engine of this name.

    Raises:
        InvalidInputError: there is none.
    """
    try:
        return Engine(text)
    except ValueError:
        raise InvalidInputError(f"unknown engine {text!r}: use one of {', '.join(Engine)}") from None
