"""Real clients on managed versions, run as a process of their own: an abort of the interpreter would show.

python -m tests.support.managed_clients <root> V2|compatibility
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import lancedb
import pyarrow as pa
from tests.support.managed_versions import MORE_ROWS, ROWS, versions
from tests.support.modes import MANIFEST_MODES

from relance import DirectoryNamespace

MANAGED: dict[str, Any] = {"table_version_management": "true"}


class Refreshing(DirectoryNamespace):
    """A catalog whose storage options run out at once: Lance asks for new ones from threads of its own."""

    asked_by: list[str]

    def describe_table(self, request: Any) -> Any:
        self.asked_by = [*getattr(self, "asked_by", []), threading.current_thread().name]
        response = super().describe_table(request)
        soon = str(int(time.time() * 1000) + 50)
        response.storage_options = {"expires_at_millis": soon, "refresh_offset_millis": "10"}
        return response


def write(catalog: Any, table: pa.Table, mode: str, name: str = "t") -> Any:
    """Write a table through the catalog."""
    return lance.write_dataset(table, namespace_client=catalog, table_id=[name], mode=mode)


def open_table(catalog: Any, name: str = "t", **pinned: Any) -> Any:
    """Open a table through the catalog."""
    return lance.dataset(namespace_client=catalog, table_id=[name], **pinned)


def drive_pylance(root: str, mode: dict[str, Any]) -> None:
    """Do what pylance can do to a table, and look at the result after each step."""
    catalog = DirectoryNamespace(root=root, **mode, **MANAGED)
    write(catalog, ROWS, "create")
    write(catalog, MORE_ROWS, "append")
    write(catalog, ROWS, "overwrite")
    dataset = open_table(catalog)
    assert (dataset.version, dataset.count_rows()) == (3, 3)
    dataset.insert(MORE_ROWS)
    dataset.delete("id = 1")
    dataset.update({"name": "'z'"}, where="id = 2")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [2, 9], "name": ["y", "n"]}))
    assert (open_table(catalog).version, open_table(catalog).count_rows()) == (7, 5)
    dataset = open_table(catalog)
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.add_columns({"twice": "id * 2"})
    assert open_table(catalog).to_table(filter="id = 9").to_pylist() == [{"id": 9, "name": "n", "twice": 18}]
    history(catalog)
    branch(catalog)
    race(root, mode)
    refresh(root, mode)


def history(catalog: DirectoryNamespace) -> None:
    """Tags, old versions, restore, and the removal of old versions past the catalog."""
    dataset = open_table(catalog)
    dataset.tags.create("both", 2)
    assert open_table(catalog, version="both").count_rows() == 5
    assert dataset.checkout_version(1).to_table() == ROWS
    dataset.checkout_version(2).restore()
    latest = open_table(catalog)
    assert latest.count_rows() == 5
    assert versions(catalog, "t") == list(range(1, latest.version + 1))
    removed = latest.cleanup_old_versions(versions=[3, 4])
    assert removed.old_versions == 2
    assert versions(catalog, "t") == [1, 2, *range(5, latest.version + 1)]


def branch(catalog: DirectoryNamespace) -> None:
    """A branch goes its own way."""
    dataset = open_table(catalog)
    made = dataset.create_branch("play/ground")
    made.insert(MORE_ROWS)
    assert versions(catalog, "t", branch="play/ground") == [dataset.version, dataset.version + 1]
    assert versions(catalog, "t")[-1] == dataset.version
    write(catalog, MORE_ROWS, "append")
    assert made.checkout_latest() is None
    assert made.count_rows() == 7


def race(root: str, mode: dict[str, Any]) -> None:
    """Two writers with catalogs of their own; everybody's rows are there in the end."""
    write(DirectoryNamespace(root=root, **mode), ROWS, "create", "raced")

    def append(writer: int) -> None:
        opened = open_table(DirectoryNamespace(root=root, **mode), "raced")
        for number in range(4):
            opened.insert(pa.table({"id": [100 * writer + number], "name": ["r"]}))

    with ThreadPoolExecutor(2) as writers:
        list(writers.map(append, (1, 2)))
    catalog = DirectoryNamespace(root=root, **mode)
    assert open_table(catalog, "raced").count_rows() == 11
    assert versions(catalog, "raced") == list(range(1, 10))


def refresh(root: str, mode: dict[str, Any]) -> None:
    """Storage options run out while a table is in use."""
    catalog = Refreshing(root=root, **mode)
    dataset = open_table(catalog, "raced")
    for _ in range(2):
        time.sleep(0.06)
        dataset.latest_storage_options()
        dataset.insert(MORE_ROWS)
        dataset.checkout_latest()
        assert dataset.to_table().num_rows > 0
    assert any(each != "MainThread" for each in catalog.asked_by), (
        "Lance did not ask from a thread of its own"
    )


def drive_lancedb(root: str, mode: dict[str, Any]) -> None:
    """Do what lancedb can do to a table."""
    database = lancedb.connect_namespace("relance.DirectoryNamespace", {"root": root, **mode, **MANAGED})
    table = database.create_table("t", ROWS)
    table.add(MORE_ROWS)
    table.delete("id = 1")
    table.update(where="id = 2", values={"name": "z"})
    source = pa.table({"id": [2, 9], "name": ["y", "n"]})
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    table.optimize()
    table.checkout(1)
    assert table.count_rows() == 3
    table.restore()
    assert database.open_table("t").count_rows() == 3
    database.create_table("t", MORE_ROWS, mode="overwrite")
    assert database.open_table("t").to_arrow() == MORE_ROWS
    catalog = DirectoryNamespace(root=root, **mode)
    latest = versions(catalog, "t", limit=1, descending=True)[0]
    assert versions(catalog, "t") == list(range(1, latest + 1))


if __name__ == "__main__":
    where, how = sys.argv[1:]
    drive_pylance(f"{where}/pylance", MANIFEST_MODES[how])
    drive_lancedb(f"{where}/lancedb", MANIFEST_MODES[how])
    sys.stdout.write("done\n")
