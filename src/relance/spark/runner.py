"""Runs maintenance tasks on Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from py4j.protocol import Py4JError
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relance.errors import InternalError, UnsupportedOperationError
from relance.jobs.base import CatalogRef
from relance.jobs.runner import Done, Slice, as_they_come, run_slice
from relance.spark.classic import spark_context

_TRIES = 3
"""How often a slice is given to Spark, which by itself tries each task as often as it is set to."""


class SparkRunner:
    """Runs each slice as a Spark job of one task, as many at once as Spark has slots.

    So results come back as they are ready, and what happens to one executor costs one slice.
    """

    name = "spark"
    repeats = True

    def __init__(self, spark: SparkSession) -> None:
        """Take a session.

        Raises:
            UnsupportedOperationError: it is one of Spark Connect, which gives no tasks to clients.
        """
        context = spark_context(spark)
        if context is None:
            raise UnsupportedOperationError(
                "maintenance on Spark needs a session on the driver, not Spark Connect: "
                "use engine 'local' or submit the job to the cluster"
            )
        self._context = context
        self._session = spark
        self.slots = max(1, self._context.defaultParallelism)

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        with ThreadPoolExecutor(self.slots, thread_name_prefix=f"relance {what}") as pool:
            call = inheritable_thread_target(self._session)(self._run)
            yield from as_they_come(pool.submit(call, catalog, each, what) for each in slices)

    def _run(self, catalog: CatalogRef, tasks: Slice, what: str) -> list[Done]:
        """Run a slice on an executor; one that keeps killing executors is run task by task."""
        failure: Exception | None = None
        for _ in range(_TRIES):
            try:
                return self._submit(catalog, tasks, what)
            except (Py4JError, PySparkException) as error:
                failure = error
        if len(tasks.tasks) > 1:
            return [done for each in tasks.tasks for done in self._run(catalog, Slice((each,)), what)]
        lost = InternalError(f"the task was lost {_TRIES} times: {str(failure).splitlines()[0]}")
        return [Done(number, error=lost) for number, _ in tasks.tasks]

    def _submit(self, catalog: CatalogRef, tasks: Slice, what: str) -> list[Done]:
        # What the Spark UI shows for the job and for its stage.
        self._context.setJobDescription(what)
        self._context.setLocalProperty("callSite.short", what)
        work = self._context.parallelize([(catalog, tasks)], 1)
        return [done for each in work.map(_run_there).collect() for done in each]


def _run_there(work: tuple[CatalogRef, Slice]) -> list[Done]:
    return run_slice(*work)
