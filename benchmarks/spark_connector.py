"""Lance's own connector for the JVM beside ours: the same rows, in a process and a session of its own.

It is one jar from Maven Central for one version of Spark and Scala. Where none fits this Spark, or it fails,
the benchmark says why and measures nothing. Run as a module it does the connector's half:
`python -m benchmarks.spark_connector JAR FOLDER ROWS`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Sample, Unit
from benchmarks.roots import temporary_root
from benchmarks.spark_tables import CORES, REPEATS, ROWS, Formats, drain, kept, start_session, table_rows
from relance.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_SCALA = "2.13"
_TIMEOUT = 600


class ConnectorError(Exception):
    """The connector cannot be measured here; the text says why."""


def compare() -> Iterator[Result]:
    """Write and read with both, one after the other: two sessions at once would share the cores."""
    with temporary_root() as folder:
        try:
            theirs = _measure_theirs(_fetch_jar(Path(folder)), folder)
        except ConnectorError as reason:
            print(f"the JVM connector is not measured: {reason}", file=sys.stderr)
            return
    with start_session() as spark, temporary_root() as root:
        ours = _measure_ours(spark, root)
    for what, sample in ours.items():
        yield Result(f"{what}, beside the JVM connector", Unit.SECONDS, sample, theirs[what])


def _fetch_jar(folder: Path) -> Path:
    """Return the connector's jar for this Spark, or for an older one of the same Scala."""
    import pyspark

    if shutil.which("mvn") is None:
        raise ConnectorError("Maven (mvn), which fetches its jar, is not on PATH")
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    for older in range(minor, -1, -1):
        artifact = f"lance-spark-bundle-{major}.{older}_{_SCALA}"
        command = ["mvn", "--quiet", "--batch-mode", f"{_PLUGIN}:copy", f"-DoutputDirectory={folder}"]
        command += [f"-Dartifact=org.lance:{artifact}:LATEST", "-Dmdep.useBaseVersion=true"]
        subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT, check=False)
        if jars := sorted(folder.glob(f"{artifact}*.jar")):
            return jars[0]
    raise ConnectorError(
        f"Maven has no lance-spark-bundle for Spark {major}.0 to {major}.{minor} with Scala {_SCALA}; "
        "those for Spark 3 are built for another Scala and cannot be loaded"
    )


def _measure_theirs(jar: Path, folder: str) -> dict[str, Sample]:
    command = [sys.executable, "-m", "benchmarks.spark_connector", str(jar), folder, str(ROWS)]
    here = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(
            command, cwd=here, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ConnectorError(f"{jar.name} did not finish in {_TIMEOUT} s") from late
    if done.returncode:
        raise ConnectorError(f"{jar.name} does not work with this Spark: {_reason(done.stderr)}")
    values: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return {what: Sample(tuple(each)) for what, each in values.items()}


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The first failure is the cause; what comes after it is Spark and Python passing it on.
    return next((line for line in lines if "Error" in line or "Exception" in line), "it said nothing")[:300]


def _measure_ours(spark: SparkSession, root: str) -> dict[str, Sample]:
    formats = Formats(spark, root, "t", {})
    with kept(table_rows(spark)) as rows:
        (write,) = in_turns(lambda: formats.write_lance(rows), repeats=REPEATS)
    (read,) = in_turns(formats.read_lance, repeats=REPEATS)
    return {"write": write, "read": read}


def _run_theirs(jar: str, folder: str, number: int) -> dict[str, tuple[float, ...]]:
    # The connector calls itself lance too; ours is not registered in this session.
    spark = session(
        "connector", master=f"local[{CORES}]", conf={"spark.driver.memory": "6g", "spark.jars": jar}
    )
    table = Path(folder, "theirs.lance")

    def write() -> None:
        shutil.rmtree(table, ignore_errors=True)
        rows.write.format("lance").mode("errorifexists").save(str(table))

    with kept(table_rows(spark, number)) as rows:
        (written,) = in_turns(write, repeats=REPEATS)
    (read,) = in_turns(lambda: drain(spark.read.format("lance").load(str(table))), repeats=REPEATS)
    spark.stop()
    return {"write": written.values, "read": read.values}


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("spark-connector", "Lance's connector for the JVM on the same rows", compare),
)

if __name__ == "__main__":
    print(json.dumps(_run_theirs(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
