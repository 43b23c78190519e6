"""Reads and writes on a real cluster of processes, some of which are killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.spark.cluster import WORKER_HOSTS, Cluster
from tests.spark.jobs.numbers import signs

import relance

JOB = "tests.spark.jobs.numbers"
ROWS = 120_000
TASKS = 12


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def _start(
    cluster: Cluster, root: str, what: str, rows: int = ROWS, tasks: int = TASKS
) -> subprocess.Popen[str]:
    return cluster.start(JOB, what, root, "t", str(rows), str(tasks))


def _create(root: str, rows: int) -> None:
    """Create the table as the jobs would, without Spark."""
    _append(root, range(rows))


def _append(root: str, ids: range) -> None:
    schema = pa.schema([("id", pa.int64()), ("payload", pa.string())])
    table = pa.table({"id": ids, "payload": [str(each) for each in ids]}, schema=schema)
    catalog = relance.DirectoryNamespace(root=root)
    mode = "append" if catalog.list_tables({"id": []}).tables else "create"
    lance.write_dataset(table, namespace_client=catalog, table_id=["t"], mode=mode)


def _wait_for_tasks(cluster: Cluster, driver: subprocess.Popen[str], root: str, number: int) -> None:
    def begun() -> bool:
        assert driver.poll() is None, driver.communicate()
        return signs(root).exists() and len(list(signs(root).iterdir())) >= number

    cluster.wait("tasks", begun)


def _answer(driver: subprocess.Popen[str], seconds: float = 500) -> dict[str, Any]:
    out, err = driver.communicate(timeout=seconds)
    assert driver.returncode == 0, err[-3000:]
    told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return told


def _dataset(root: str) -> lance.LanceDataset:
    return lance.dataset(relance.DirectoryNamespace(root=root).describe_table({"id": ["t"]}).location)


def _ids(root: str) -> list[int]:
    return sorted(_dataset(root).to_table(["id"]).column("id").to_pylist())


def _files(root: str) -> set[str]:
    return {each.name for each in Path(root).rglob("data/*.lance") if "__manifest" not in each.parts}


def _named_files(root: str) -> set[str]:
    dataset = _dataset(root)
    return {file.path for each in dataset.get_fragments() for file in each.metadata.files}


@pytest.mark.timeout(900)
def test_a_worker_killed_during_a_write_and_during_a_read_costs_no_row(cluster: Cluster, root: str) -> None:
    driver = _start(cluster, root, "append-with-death,pause,read")
    _wait_for_tasks(cluster, driver, root, 6)
    assert all(len(pids) == 1 for pids in cluster.executor_pids().values())
    cluster.kill_worker(WORKER_HOSTS[0])
    cluster.wait("the write", (signs(root) / "paused").exists)
    assert _ids(root) == list(range(ROWS))
    cluster.restore()
    cluster.wait_for_executors()
    (signs(root) / "go").touch()
    _wait_for_tasks(cluster, driver, root, len(list(signs(root).iterdir())) + 4)
    cluster.kill_executor(WORKER_HOSTS[1])
    told = _answer(driver)
    read = told["read"]
    assert (read["rows"], read["distinct"], read["sum"]) == (ROWS, ROWS, sum(range(ROWS)))
    assert told["versions"] == [1]


@pytest.mark.timeout(900)
def test_jobs_that_append_at_once_all_land_and_an_overwrite_is_whole(cluster: Cluster, root: str) -> None:
    _create(root, 1000)
    jobs = [
        _start(cluster, root, "append,overwrite", 6_000, 2),
        _start(cluster, root, "append,append,append", 5_000, 2),
    ]
    (first, overwritten), others = (_answer(each)["versions"] for each in jobs)
    assert sorted([first, overwritten, *others]) == [2, 3, 4, 5, 6]
    # All appends before the overwrite are gone with it, and all after it are there.
    before = 1000 + 6_000 + 5_000 * sum(each < overwritten for each in others)
    after = 6_000 + 5_000 * sum(each > overwritten for each in others)
    assert _dataset(root).checkout_version(overwritten - 1).count_rows() == before
    assert len(_ids(root)) == after


@pytest.mark.timeout(900)
def test_of_a_task_and_its_speculative_copy_one_counts(cluster: Cluster, root: str) -> None:
    driver = _start(cluster, root, "append-with-stall", 20_000, 4)
    assert _answer(driver, seconds=110)["versions"] == [1]  # without the copy it would take longer
    assert _ids(root) == list(range(20_000))
    assert (signs(root) / "1-1").exists()


@pytest.mark.timeout(900)
def test_a_killed_driver_leaves_the_table_as_it_was_and_only_files_that_cleanup_removes(
    cluster: Cluster, root: str
) -> None:
    _create(root, 1000)
    driver = _start(cluster, root, "append")
    _wait_for_tasks(cluster, driver, root, 6)
    driver.kill()
    driver.communicate()
    cluster.wait("executors to end", lambda: not any(cluster.executor_pids().values()))
    assert _ids(root) == list(range(1000))
    assert _files(root) - _named_files(root)
    relance.DirectoryNamespace(root=root).cleanup_old_versions(["t"], delete_unverified=True)
    assert _files(root) == _named_files(root)
    assert _ids(root) == list(range(1000))


@pytest.mark.timeout(900)
def test_an_executor_killed_during_maintenance_and_an_append_meanwhile_cost_nothing(
    cluster: Cluster, root: str
) -> None:
    for number in range(12):
        _append(root, range(number * 1000, number * 1000 + 1000))
    driver = cluster.start("tests.spark.jobs.upkeep", root, "t", "id % 3 = 0")
    _wait_for_tasks(cluster, driver, root, 3)
    cluster.kill_executor(WORKER_HOSTS[0])
    _append(root, range(12_000, 12_300))
    assert _answer(driver) == {"rows": 4000, "error": ""}
    kept = [each for each in range(12_000) if each % 3] + list(range(12_000, 12_300))
    assert _ids(root) == kept


@pytest.mark.timeout(900)
def test_a_table_of_two_gigabytes_goes_through_executors_of_one(cluster: Cluster, root: str) -> None:
    rows = 500_000
    done = cluster.run("tests.spark.jobs.big", root, str(rows), timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert (told["rows"], told["sum"], told["size"]) == (rows, sum(range(rows)), 1024)
    assert told["off"] / rows < 0.05  # float and double differ by less, also for big angles
    assert sum(each.stat().st_size for each in Path(root).rglob("data/*.lance")) > 2_000_000_000
