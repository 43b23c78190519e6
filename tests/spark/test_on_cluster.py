"""Reads and writes on a real cluster of processes, some of which are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.spark.cluster import WORKER_HOSTS, Cluster, Driver
from tests.support.spark.jobs.numbers import signs

import relance

pytestmark = pytest.mark.deep

JOB = "tests.support.spark.jobs.numbers"
ROWS = 120_000
TASKS = 12


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture(scope="module")
def drivers(running_cluster: Cluster) -> Iterator[list[Driver]]:
    """Keep the driver that the tests share: to start one takes longer than what most of them do."""
    started: list[Driver] = []
    yield started
    for each in started:
        if each.is_running:
            each.end()


@pytest.fixture
def driver(cluster: Cluster, drivers: list[Driver]) -> Driver:
    if not drivers or not drivers[-1].is_running:
        drivers.append(cluster.converse(JOB))
    return drivers[-1]


def _create(root: str, rows: int) -> None:
    """Create the table as the driver would, without Spark."""
    schema = pa.schema([("id", pa.int64()), ("payload", pa.string())])
    table = pa.table({"id": range(rows), "payload": [str(each) for each in range(rows)]}, schema=schema)
    lance.write_dataset(
        table, namespace_client=relance.DirectoryNamespace(root=root), table_id=["t"], mode="create"
    )


def _wait_for_tasks(cluster: Cluster, driver: Driver, root: str, number: int) -> None:
    def begun() -> bool:
        assert driver.is_running, driver.answer()
        return signs(root).exists() and len(list(signs(root).iterdir())) >= number

    cluster.wait("tasks", begun)


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
def test_killing_a_worker_during_a_write_or_a_read_loses_no_row(
    cluster: Cluster, driver: Driver, root: str
) -> None:
    driver.ask("write", root=root, modes=["append"], rows=ROWS, tasks=TASKS, trouble="death")
    _wait_for_tasks(cluster, driver, root, 6)
    assert all(len(pids) == 1 for pids in cluster.executor_pids().values())
    cluster.kill_worker(WORKER_HOSTS[0])
    assert driver.answer() == {"versions": [1]}
    assert _ids(root) == list(range(ROWS))
    cluster.restore()
    cluster.wait_for_executors()
    driver.ask("read", root=root, rows=ROWS, tasks=TASKS)
    _wait_for_tasks(cluster, driver, root, len(list(signs(root).iterdir())) + 4)
    cluster.kill_executor(WORKER_HOSTS[1])
    told = driver.answer()
    assert (told["rows"], told["distinct"], told["sum"]) == (ROWS, ROWS, sum(range(ROWS)))


@pytest.mark.timeout(900)
def test_task_and_its_speculative_copy_count_once(cluster: Cluster, driver: Driver, root: str) -> None:
    driver.ask("write", root=root, modes=["append"], rows=20_000, tasks=4, trouble="stall")
    assert driver.answer() == {"versions": [1]}
    assert _ids(root) == list(range(20_000))
    assert (signs(root) / "1-1").exists()


@pytest.mark.timeout(900)
def test_two_gigabyte_table_is_processed_by_one_gigabyte_executors(driver: Driver, root: str) -> None:
    rows = 500_000
    driver.ask("big", root=root, rows=rows)
    told = driver.answer()
    assert (told["rows"], told["sum"], told["size"]) == (rows, sum(range(rows)), 1024)
    assert told["off"] / rows < 0.05  # float and double differ by less, also for big angles
    assert sum(each.stat().st_size for each in Path(root).rglob("data/*.lance")) > 2_000_000_000


@pytest.mark.timeout(900)
def test_concurrent_appends_all_land_and_an_overwrite_is_complete(
    cluster: Cluster, driver: Driver, root: str
) -> None:
    _create(root, 1000)
    other = cluster.converse(JOB)
    other.ask("write", root=f"{root}-else", modes=["append"], rows=10, tasks=1)
    other.answer()  # it is up: from here on both are equally fast
    other.ask("write", root=root, modes=["append"] * 3, rows=5_000, tasks=2)
    driver.ask("write", root=root, modes=["append", "overwrite"], rows=6_000, tasks=2)
    (first, overwritten), others = driver.answer()["versions"], other.answer()["versions"]
    other.end()
    assert sorted([first, overwritten, *others]) == [2, 3, 4, 5, 6]
    # All appends before the overwrite are gone with it, and all after it are there.
    before = 1000 + 6_000 + 5_000 * sum(each < overwritten for each in others)
    after = 6_000 + 5_000 * sum(each > overwritten for each in others)
    assert _dataset(root).checkout_version(overwritten - 1).count_rows() == before
    assert len(_ids(root)) == after


@pytest.mark.timeout(900)
def test_killed_driver_leaves_only_files_that_cleanup_removes(
    cluster: Cluster, driver: Driver, root: str
) -> None:
    _create(root, 1000)
    driver.ask("write", root=root, modes=["append"], rows=ROWS, tasks=TASKS)
    _wait_for_tasks(cluster, driver, root, 6)
    driver.kill()
    cluster.wait("executors to end", lambda: not any(cluster.executor_pids().values()))
    assert _ids(root) == list(range(1000))
    assert _files(root) - _named_files(root)
    relance.DirectoryNamespace(root=root).cleanup_old_versions(["t"], delete_unverified=True)
    assert _files(root) == _named_files(root)
    assert _ids(root) == list(range(1000))
