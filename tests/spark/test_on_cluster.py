"""Reads and writes on a real cluster of processes, some of which are killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import lance
import pytest
from tests.spark.cluster import WORKER_HOSTS, Cluster
from tests.spark.jobs.numbers import signs

import relance

JOB = "tests.spark.jobs.numbers"
ROWS = 200_000
TASKS = 20


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def _start(cluster: Cluster, root: str, what: str, table: str, rows: int = ROWS) -> subprocess.Popen[str]:
    return cluster.start(JOB, what, root, table, str(rows), str(TASKS))


def _wait_for_tasks(cluster: Cluster, driver: subprocess.Popen[str], root: str, number: int) -> None:
    def begun() -> bool:
        assert driver.poll() is None, driver.communicate()
        return signs(root).exists() and len(list(signs(root).iterdir())) >= number

    cluster.wait("tasks", begun)


def _answer(driver: subprocess.Popen[str]) -> dict[str, int]:
    out, err = driver.communicate(timeout=240)
    assert driver.returncode == 0, err[-3000:]
    told: dict[str, int] = json.loads(out.strip().splitlines()[-1])
    return told


def _dataset(root: str, table: str) -> lance.LanceDataset:
    return lance.dataset(relance.DirectoryNamespace(root=root).describe_table({"id": [table]}).location)


def _ids(root: str, table: str) -> list[int]:
    return sorted(_dataset(root, table).to_table(["id"]).column("id").to_pylist())


def _files(root: str) -> set[str]:
    return {each.name for each in Path(root).rglob("data/*.lance") if "__manifest" not in each.parts}


def _named_files(root: str, table: str) -> set[str]:
    dataset = _dataset(root, table)
    return {file.path for each in dataset.get_fragments() for file in each.metadata.files}


def test_a_worker_killed_during_a_write_and_during_a_read_costs_no_row(cluster: Cluster, root: str) -> None:
    driver = _start(cluster, root, "append-with-death", "t")
    _wait_for_tasks(cluster, driver, root, 8)
    cluster.kill_worker(WORKER_HOSTS[0])
    assert _answer(driver) == {"version": 1}
    assert _ids(root, "t") == list(range(ROWS))
    cluster.restore()

    reader = _start(cluster, root, "read", "t")
    _wait_for_tasks(cluster, reader, root, len(list(signs(root).iterdir())) + 4)
    cluster.kill_executor(WORKER_HOSTS[1])
    read = _answer(reader)
    assert (read["rows"], read["distinct"], read["sum"]) == (ROWS, ROWS, sum(range(ROWS)))


def test_two_jobs_that_append_at_once_both_land_and_an_overwrite_is_whole(
    cluster: Cluster, root: str
) -> None:
    assert cluster.run(JOB, "append", root, "t", "1000", "2").returncode == 0
    jobs = [_start(cluster, root, "append-one-core", "t", 10_000) for _ in range(2)]
    assert sorted(_answer(each)["version"] for each in jobs) == [2, 3]
    assert len(_ids(root, "t")) == 21_000

    overwrite = _start(cluster, root, "overwrite-one-core", "t", 5_000)
    append = _start(cluster, root, "append-one-core", "t", 3_000)
    for each in (overwrite, append):
        _answer(each)
    # One after the other, in either order.
    assert len(_ids(root, "t")) in {5_000, 8_000}


def test_a_killed_driver_leaves_the_table_as_it_was_and_only_files_that_cleanup_removes(
    cluster: Cluster, root: str
) -> None:
    assert cluster.run(JOB, "append", root, "t", "1000", "2").returncode == 0
    for file in signs(root).iterdir():
        file.unlink()
    driver = _start(cluster, root, "append", "t")
    _wait_for_tasks(cluster, driver, root, 8)
    driver.kill()
    driver.communicate()
    cluster.wait("executors to end", lambda: not any(cluster.executor_pids().values()))
    assert _ids(root, "t") == list(range(1000))
    left = _files(root) - _named_files(root, "t")
    assert left
    relance.DirectoryNamespace(root=root).cleanup_old_versions(["t"], delete_unverified=True)
    assert _files(root) == _named_files(root, "t")
    assert cluster.run(JOB, "append", root, "t", "500", "2").returncode == 0
    assert len(_ids(root, "t")) == 1500


@pytest.mark.timeout(600)
def test_a_table_of_two_gigabytes_goes_through_executors_of_one(cluster: Cluster, root: str) -> None:
    rows = 500_000
    done = cluster.run("tests.spark.jobs.big", root, str(rows), timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert (told["rows"], told["sum"], told["size"]) == (rows, sum(range(rows)), 1024)
    assert told["off"] / rows < 0.05  # float and double differ by less, also for big angles
    assert sum(each.stat().st_size for each in Path(root).rglob("data/*.lance")) > 2_000_000_000
