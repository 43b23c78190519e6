"""The cluster that other tests rely on; what is killed in it is killed by test_on_cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.spark.cluster import WORKER_HOSTS, Cluster, ClusterError

pytestmark = pytest.mark.timeout(600)

JOB = """
import os, sys, time
from pathlib import Path
from tests.spark.cluster import driver_session

spark = driver_session("slow sum", spark_task_maxFailures="8")
tasks, started = int(sys.argv[1]), Path(sys.argv[2])

def work(numbers):
    import relance  # the package must be there on the executors
    for number in numbers:
        (started / str(number)).touch()
        time.sleep(0.3)
        yield number

print(spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(work).sum())
spark.stop()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Write a job of slow tasks, each of which leaves a file when it starts."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    (tmp_path / "started").mkdir()
    return script


def _start(cluster: Cluster, job: Path, tasks: int) -> subprocess.Popen[str]:
    """Start the job and return when some of its tasks have run."""
    driver = cluster.start(job, str(tasks), str(job.parent / "started"))

    def some_started() -> bool:
        assert driver.poll() is None, driver.communicate()
        return len(list((job.parent / "started").iterdir())) >= 4

    cluster.wait("tasks", some_started)
    return driver


def test_a_job_runs_on_executors_of_both_workers(cluster: Cluster, job: Path) -> None:
    driver = _start(cluster, job, 20)
    executors = cluster.executor_pids()
    assert set(executors) == set(WORKER_HOSTS)
    assert all(len(pids) == 1 for pids in executors.values())
    out, err = driver.communicate(timeout=240)
    assert (driver.returncode, out.strip()) == (0, str(sum(range(20)))), err


def test_a_driver_that_fails_or_hangs_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nsys.exit('no')")
    failed = cluster.run(script, "0")
    assert (failed.returncode, failed.stderr.strip()) == (1, "no")
    with pytest.raises(ClusterError, match="took over"):
        cluster.run(script, "60", timeout=0.5)
