"""A streaming query, run as a process of its own, that dies between a commit and its checkpoint.

`python -m tests.support.spark.killed_query ROOT FILES CHECKPOINT BATCH` names the micro-batch; with -1
the query finishes, but loses a worker process in the first task that has written rows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.support.patches import original, substitute_for_good

import relance.spark
from relance.spark.datasource import LanceSource
from relance.spark.options import Use, parse_write_options
from relance.spark.streaming.sink import LanceStreamWriter, Staged

TABLE = "prod.events"

BATCH = "RELANCE_TEST_KILL_BATCH"
FLAG = "RELANCE_TEST_KILLED_TASK"


class KillingWriter(LanceStreamWriter):
    """The sink, with a death in it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        if os.environ[BATCH] == "-1" and staged.fragments and _first_time(Path(os.environ[FLAG])):
            os._exit(1)  # after its files are written: Spark runs the task again
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == int(os.environ[BATCH]):
            substitute_for_good("stream.commit_write", _then(original("stream.commit_write"), kill_query))
        super().commit(messages, batchId)


class KillingSource(LanceSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        options = parse_write_options(self.options, use=Use.STREAM_WRITE)
        return KillingWriter(options, schema, overwrite=overwrite)


def kill_query() -> None:
    """Kill the Java process that runs the query, and this one, with no chance to clean up."""
    os.kill(_java_above(os.getpid()), signal.SIGKILL)
    os._exit(1)


def _java_above(pid: int) -> int:
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        known = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        if known["Name"] == "java":
            return pid
        pid = int(known["PPid"])
    raise AssertionError("this process was not started by Spark")


def _then(first: Callable[..., Any], last: Callable[[], None]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> None:
        first(*args, **named)
        last()

    return run


def _first_time(flag: Path) -> bool:
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main(root: str, files: str, checkpoint: str, batch: str) -> None:
    os.environ.update({BATCH: batch, FLAG: f"{checkpoint}.killed"})
    conf = {"spark.sql.shuffle.partitions": "2"}
    spark = relance.spark.session("killed", master="local[2,3]", conf=conf)
    spark.dataSource.register(KillingSource)
    query = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(files)
        .writeStream.format("killing")
        .option("root", root)
        .option("manifest_upkeep", "false")
        .option("create_namespaces", "true")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(TABLE)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    # Workers find the classes by the module's name, which is not that of a script.
    from tests.support.spark import killed_query

    killed_query.main(*sys.argv[1:])
