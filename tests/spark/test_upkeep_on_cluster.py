"""Every maintenance job with tasks completes correctly after losing an executor with an unreported task."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.spark.cluster import Cluster, answer_of
from tests.support.spark.jobs.upkeep import EACH, FRAGMENTS, JOBS, MERGED, ROWS, STEPS, Signs

import relance

pytestmark = pytest.mark.deep

LEFT = ("0123abcd_lost", "4567abcd_lost", "lost.lance")
APPENDED = range(ROWS, ROWS + 300)

Rows = dict[int, str]


def _rows(ids: range) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "payload": [str(each) for each in ids]})


def _dataset(root: str, table: str) -> lance.LanceDataset:
    return lance.dataset(namespace_client=relance.DirectoryNamespace(root=root), table_id=[table])


def _content(root: str, table: str) -> Rows:
    """Return what the table says of each id, which must be there once."""
    found = _dataset(root, table).to_table()
    rows: Rows = dict(zip(found["id"].to_pylist(), found["payload"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def _files(root: str, table: str, folder: str = "data") -> set[str]:
    location = relance.DirectoryNamespace(root=root).describe_table({"id": [table]}).location
    return {each.name for each in Path(str(location).removeprefix("file://"), folder).glob("*")}


def _named_files(root: str, table: str) -> set[str]:
    fragments = _dataset(root, table).get_fragments()
    return {file.path for each in fragments for file in each.metadata.files}


def _fill(root: str) -> None:
    """Make a table for each step, as it wants it, and directories that nothing names."""
    catalog = relance.DirectoryNamespace(root=root)
    for table in STEPS[:-1]:
        for number in range(FRAGMENTS):
            mode = ("overwrite" if table == "clean" else "append") if number else "create"
            rows = _rows(range(number * EACH, number * EACH + EACH))
            lance.write_dataset(rows, namespace_client=catalog, table_id=[table], mode=mode)
    _dataset(root, "refresh").create_scalar_index("id", "BTREE", train=False)
    for each in LEFT:
        shutil.copytree(Path(root, "delete.lance", "data"), Path(root, each, "data"))


def _wait_for(cluster: Cluster, driver: subprocess.Popen[str], what: str, is_so: Callable[[], bool]) -> None:
    def so() -> bool:
        assert driver.poll() is None, driver.communicate()
        return is_so()

    cluster.wait(what, so)


def _has_told_twice(signs: Signs) -> bool:
    numbers = [number for number, _ in signs.told()]
    return len(numbers) > len(set(numbers))


@pytest.mark.timeout(900)
def test_jobs_survive_killed_executors_and_a_concurrent_append(cluster: Cluster, tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    _fill(root)
    driver = cluster.start("tests.support.spark.jobs.upkeep", root)
    merge, *others = (Signs.of(root, step) for step in STEPS)
    _wait_for(cluster, driver, "the merge", lambda: bool(merge.told()))
    cluster.kill_executor(merge.told()[0][1])
    merge.go_on()
    _wait_for(cluster, driver, "the other jobs", lambda: all(each.told() for each in others))
    assert _has_told_twice(merge)
    for host in {host for each in others for _, host in each.told()}:
        cluster.kill_executor(host)
    catalog = relance.DirectoryNamespace(root=root)
    lance.write_dataset(_rows(APPENDED), namespace_client=catalog, table_id=["delete"], mode="append")
    for each in others:
        each.go_on()
    told = answer_of(driver)
    assert all(_has_told_twice(each) for each in others)
    assert [told[step]["error"] for step in JOBS] == [""] * len(JOBS)
    _check_rows(root, told)
    _check_files(root, told)


def _check_rows(root: str, told: dict[str, dict[str, int]]) -> None:
    plain = {each: str(each) for each in range(ROWS)}
    thirds = len(range(0, ROWS, 3))
    assert (told["merge"]["updated"], told["merge"]["inserted"]) == (500, 500)
    assert _content(root, "merge") == plain | dict.fromkeys(MERGED, "merged")
    assert told["delete"]["rows"] == told["update"]["rows"] == thirds
    kept = {each: payload for each, payload in plain.items() if each % 3}
    assert _content(root, "delete") == kept | {each: str(each) for each in APPENDED}
    updated = {each: f"{each}!" for each in range(0, ROWS, 3)}
    assert _content(root, "update") == plain | updated
    assert _content(root, "compact") == plain
    assert len(_dataset(root, "compact").get_fragments()) == FRAGMENTS // 2
    assert _content(root, "refresh") == plain
    indexed = _dataset(root, "refresh")
    assert indexed.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
    for number in (0, EACH, ROWS - 1):
        assert "ScalarIndexQuery" in indexed.scanner(filter=f"id = {number}").explain_plan()
        assert indexed.to_table(filter=f"id = {number}")["payload"].to_pylist() == [str(number)]
    assert _content(root, "clean") == {each: str(each) for each in range(ROWS - EACH, ROWS)}


def _check_files(root: str, told: dict[str, dict[str, int]]) -> None:
    """Check that what was to go is gone, and that what dead tasks left is found by a cleanup."""
    assert len(_dataset(root, "clean").versions()) == 1
    assert _files(root, "clean") == _named_files(root, "clean")
    assert told["orphans"]["files"] > 0
    assert not any(Path(root, each).exists() for each in LEFT)
    for table in ("merge", "update", "compact"):
        assert _files(root, table) - _named_files(root, table)
        relance.DirectoryNamespace(root=root).cleanup_old_versions(
            [table], older_than="0s", delete_unverified=True
        )
        assert _files(root, table) == _named_files(root, table)
