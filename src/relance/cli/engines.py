"""Run maintenance jobs in local threads or on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relance.cli.exits import CliError, Exit
from relance.cli.progress import job_bar
from relance.cli.state import State

if TYPE_CHECKING:
    from relance.jobs import Report
    from relance.jobs.base import Job


def wants_spark(engine: str | None, master: str | None) -> bool:
    """Return whether the job runs on Spark.

    Raises:
        CliError: --master was given with --engine local.
    """
    if engine == "local" and master is not None:
        raise CliError("--master requires Spark", "pass --engine spark, or remove --master", Exit.USAGE)
    return engine == "spark" or master is not None


def spark_session(state: State, master: str | None) -> Any:
    """Return a Spark session for the catalog.

    Raises:
        UnsupportedOperationError: PySpark or Java is missing.
    """
    from relance import spark

    state.new_catalog  # noqa: B018  # report invalid properties before Spark starts
    lake = state.lake
    properties = {name: value for name, value in lake.properties.items() if name != "root"}
    return spark.session(
        "relance",
        master=master or lake.master or "local[*]",
        root=state.new_catalog.root_uri,
        properties=properties,
        conf=lake.conf,
    )


def run_job(
    state: State,
    job: Job,
    tables: Sequence[tuple[str, ...]] | None,
    *,
    dry_run: bool,
    engine: str | None,
    master: str | None,
) -> Report:
    """Run a job on the named tables, or on every table it applies to."""
    from relance.jobs import maintain

    catalog = state.catalog
    if not wants_spark(engine, master):
        return maintain(catalog, job, tables, engine="local", dry_run=dry_run, progress=job_bar())
    session = spark_session(state, master)
    from relance import spark

    return spark.maintain(session, job, tables, engine="spark", dry_run=dry_run, progress=job_bar())
