"""Deleting rows, sentence by sentence: through the catalog, and as a reader without one finds the rows.

The reader is pylance at the location of the table. The example tables are those of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyarrow import ipc as arrow_ipc
from tests.seeds.sentences import Page, holds
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MODES
from tests.support.roots import ipc

from relance import CleanupPolicy, DirectoryNamespace
from relance.jobs import Compact, maintain

ID = ["t"]
LETTERS = pa.table({"x": [1, 2, 3], "y": ["a", "b", "c"]})
FIRST = datetime(2023, 1, 1)  # noqa: DTZ001  # as on the page
HOURS = 10
PER_HOUR = 10


@dataclass(frozen=True, slots=True)
class Rows:
    """The table `t` of a catalog, and the same files for a reader without one."""

    catalog: DirectoryNamespace

    @property
    def folder(self) -> Path:
        return Path(str(self.catalog.describe_table({"id": ID}).location))

    def make(self, rows: pa.Table = LETTERS) -> None:
        self.catalog.create_table({"id": ID}, ipc(rows))

    def append(self, rows: pa.Table) -> None:
        self.catalog.insert_into_table({"id": ID, "mode": "append"}, ipc(rows))

    def make_hours(self) -> None:
        """Write one fragment for each hour."""
        for hour in range(HOURS):
            rows = _of_hour(hour)
            self.append(rows) if hour else self.make(rows)

    def delete(self, predicate: str) -> dict[str, str]:
        return dict(self.catalog.delete_from_table({"id": ID, "predicate": predicate}).context or {})

    def read(self, version: int | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.open(version).to_table().to_pylist()
        return rows

    def open(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(str(self.folder), version=version)

    def files(self, folder: str) -> dict[str, bytes]:
        """Return the files in a folder of the table."""
        found = self.folder / folder
        return {each.name: each.read_bytes() for each in found.iterdir()} if found.exists() else {}


def _of_hour(hour: int) -> pa.Table:
    made = FIRST + timedelta(hours=hour)
    columns = {
        "insertion_timestamp": pa.array([made] * PER_HOUR),
        "local_id": pa.array(range(PER_HOUR), pa.uint64()),
    }
    return pa.table(columns)


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Rows:
    """No table yet, in a catalog of each mode."""
    return Rows(Lake(str(tmp_path / "lake"), MODES[request.param], settings=QUIET).catalog)


def _fragments(dataset: lance.LanceDataset) -> list[int]:
    return [each.fragment_id for each in dataset.get_fragments()]


def _with_deletion_file(dataset: lance.LanceDataset) -> list[int]:
    return [each.fragment_id for each in dataset.get_fragments() if each.metadata.deletion_file]


@holds(Page.ROW_DELETES, "you can delete rows in Lance datasets")
def test_rows_can_be_deleted(table: Rows) -> None:
    table.make()
    assert table.delete("x = 2")["rows_deleted"] == "1"
    assert [row["x"] for row in table.read()] == [1, 3]
    assert table.open().count_rows() == 2


@holds(Page.ROW_DELETES, "Now we support deleting individual rows or fragments.")
def test_individual_rows_and_whole_fragments_can_be_deleted(table: Rows) -> None:
    table.make()
    table.append(pa.table({"x": [4, 5], "y": ["d", "e"]}))
    told = table.delete("x = 2 OR x > 3")
    assert (told["fragments_with_deletion_file"], told["fragments_removed"]) == ("1", "1")
    assert [row["x"] for row in table.read()] == [1, 3]


@holds(
    Page.ROW_DELETES,
    "given a dataset, you can specify a SQL predicate and all of those rows will be deleted.",
)
def test_all_rows_of_a_predicate_are_deleted_and_no_others(table: Rows) -> None:
    table.make(pa.table({"x": list(range(100))}))
    table.append(pa.table({"x": list(range(50, 150))}))
    table.delete("x >= 40 AND x % 2 = 0")
    kept = [x for x in [*range(100), *range(50, 150)] if x < 40 or x % 2]
    assert [row["x"] for row in table.read()] == kept


@holds(
    Page.ROW_DELETES,
    "adding new data (new rows with append or new columns with merge) or overwriting the whole dataset.",
)
def test_data_is_added_and_replaced_around_a_delete(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    table.append(pa.table({"x": [4], "y": ["d"]}))
    table.open().merge(pa.table({"x": [1, 2, 3, 4], "z": [10, 20, 30, 40]}), "x")
    assert [(row["x"], row["z"]) for row in table.read()] == [(1, 10), (3, 30), (4, 40)]
    table.delete("z = 30")
    assert table.catalog.count_table_rows({"id": ID}).count == 2
    table.catalog.insert_into_table({"id": ID, "mode": "overwrite"}, ipc(LETTERS))
    assert table.read() == LETTERS.to_pylist()
    assert _with_deletion_file(table.open()) == []


@holds(Page.ROW_DELETES, '>>> dataset.delete("x = 2")')
def test_first_example_leaves_two_rows(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    assert table.read() == [{"x": 1, "y": "a"}, {"x": 3, "y": "c"}]


@holds(Page.ROW_DELETES, "Deletion in Lance is non-destructive.")
def test_delete_removes_no_file(table: Rows) -> None:
    table.make()
    before = {folder: table.files(folder) for folder in ("data", "_versions", "_transactions")}
    table.delete("x = 2")
    table.delete("true")
    for folder, files in before.items():
        kept = {name: body for name, body in table.files(folder).items() if name in files}
        assert kept.keys() == files.keys()
        changed = {name for name in files if kept[name] != files[name]}
        assert changed <= {"latest_version_hint.json"}


@holds(
    Page.ROW_DELETES,
    "We keep a snapshot of each version of the dataset, so you can always go back to previous versions.",
)
def test_every_version_can_be_read_and_restored(table: Rows) -> None:
    table.make()
    for x in (1, 2, 3):
        table.delete(f"x = {x}")
    assert [[row["x"] for row in table.read(each)] for each in (1, 2, 3, 4)] == [[1, 2, 3], [2, 3], [3], []]
    table.catalog.restore_table({"id": ID, "version": 2})
    assert [row["x"] for row in table.read()] == [2, 3]


@holds(Page.ROW_DELETES, '>>> old_dataset = lance.dataset("my_dataset", version=dataset.version - 1)')
def test_version_before_the_delete_has_all_rows(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    latest = table.open()
    assert table.read(latest.version - 1) == LETTERS.to_pylist()
    client: Any = table.catalog
    through_catalog = lance.dataset(namespace_client=client, table_id=ID, version=latest.version - 1)
    assert through_catalog.to_table() == LETTERS


@holds(Page.ROW_DELETES, "Lance uses SQL expressions, which allows for complex predicates during deletion.")
def test_complex_predicates_can_be_used(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    table.delete("(x = 1) OR (y in ('a', 'b', 'e'))")
    assert table.read() == [{"x": 3, "y": "c"}]


@holds(Page.ROW_DELETES, "for a full list of supported SQL in predicates.")
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("x > 2", [1, 2, None]),
        ("x >= 2 AND x <= 3", [1, None]),
        ("x BETWEEN 1 AND 2", [3, None]),
        ("x IS NULL", [1, 2, 3]),
        ("x IS NOT NULL", [None]),
        ("NOT x = 1", [1, None]),
        ("x NOT IN (1, 2)", [1, 2, None]),
        ("flag IS TRUE", [2, 3]),
        ("flag IS NOT TRUE", [1, None]),
        ("y LIKE '%b%'", [1, 3, None]),
        ("regexp_match(y, '^[ab]$')", [3, None]),
        ("CAST(y AS string) = 'a'", [2, 3, None]),
        ("x + 1 = 3", [1, 3, None]),
    ],
)
def test_predicates_of_the_list_select_what_they_say(
    table: Rows, predicate: str, left: list[int | None]
) -> None:
    columns = {"x": [1, 2, 3, None], "y": ["a", "b", "c", "d"], "flag": [True, False, None, True]}
    table.make(pa.table(columns))
    table.delete(predicate)
    assert [row["x"] for row in table.read()] == left


@holds(
    Page.ROW_DELETES,
    "When we delete rows, we save a new file called a deletion file for each affected fragment.",
)
def test_each_affected_fragment_gets_a_deletion_file(table: Rows) -> None:
    table.make_hours()
    assert table.delete(
        "local_id = 3 AND insertion_timestamp < cast('2023-01-01 03:00:00' as timestamp)"
    ) == {
        "rows_deleted": "3",
        "fragments_with_deletion_file": "3",
        "fragments_removed": "0",
        "version": str(HOURS + 1),
    }
    assert len(table.files("_deletions")) == 3
    assert _with_deletion_file(table.open()) == [0, 1, 2]


@holds(Page.ROW_DELETES, "The file contains the row ids of all deleted rows.")
def test_deletion_file_holds_the_row_ids_of_all_rows_deleted_so_far(table: Rows) -> None:
    table.make(pa.table({"x": list(range(10))}))
    table.delete("x IN (2, 5)")
    table.delete("x = 7")
    (fragment,) = table.open().get_fragments()
    deletion = fragment.metadata.deletion_file
    assert deletion is not None
    with arrow_ipc.open_file(str(table.folder / deletion.path(fragment.fragment_id))) as file:
        assert sorted(file.read_all()["row_id"].to_pylist()) == [2, 5, 7]


@holds(Page.ROW_DELETES, "By writing these deletion files, we avoid rewriting data files")
def test_data_files_are_not_rewritten(table: Rows) -> None:
    table.make_hours()
    before = table.files("data")
    table.delete("local_id % 2 = 0")
    assert table.files("data") == before


@holds(
    Page.ROW_DELETES, "if we rewrote the data files, we’d also have to update the indices."
)  # as on the page
def test_indexes_stay_as_they_are_and_return_no_deleted_row(table: Rows) -> None:
    table.make(pa.table({"x": list(range(1000))}))
    index = {"id": ID, "column": "x", "index_type": "BTREE", "name": "by_x"}
    table.catalog.create_table_scalar_index(index)
    files = {each for each in (table.folder / "_indices").rglob("*") if each.is_file()}
    ids = {row["x"]: row["_rowid"] for row in table.open().to_table(with_row_id=True).to_pylist()}
    table.delete("x % 3 = 0")
    assert {each for each in (table.folder / "_indices").rglob("*") if each.is_file()} == files
    after = table.open().to_table(with_row_id=True).to_pylist()
    assert all(ids[row["x"]] == row["_rowid"] for row in after)
    scanner = table.open().scanner(filter="x IN (3, 4, 5)")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert scanner.to_table()["x"].to_pylist() == [4, 5]


@holds(
    Page.ROW_DELETES,
    "If a data file is rewritten, the row ids are changed, invalidating the ANN indices for those files.",
)
def test_compaction_changes_row_ids_and_brings_the_indexes_along(table: Rows) -> None:
    vectors = pa.array([[float(x), 0.0] for x in range(1000)], pa.list_(pa.float32(), 2))
    table.make(pa.table({"x": list(range(1000)), "v": vectors}))
    table.catalog.create_table_index(
        {"id": ID, "column": "v", "index_type": "IVF_FLAT", "name": "by_v", "distance_type": "l2"}
    )
    table.delete("x % 2 = 0")
    before = {row["x"]: row["_rowid"] for row in table.open().to_table(with_row_id=True).to_pylist()}
    assert maintain(table.catalog, Compact()).results[0].error is None
    after = {row["x"]: row["_rowid"] for row in table.open().to_table(with_row_id=True).to_pylist()}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    found = table.open().to_table(nearest={"column": "v", "q": [6.2, 0.0], "k": 2, "nprobes": 100})
    assert found["x"].to_pylist() == [7, 5]
    scanner = table.open().scanner(nearest={"column": "v", "q": [6.2, 0.0], "k": 2})
    assert "ANN" in scanner.explain_plan()


@holds(
    Page.ROW_DELETES,
    "To see which fragments in the datasets have deletion files, use the **get_fragments()** method.",
)
def test_get_fragments_shows_which_have_a_deletion_file(table: Rows) -> None:
    table.make()
    table.append(pa.table({"x": [4, 5], "y": ["d", "e"]}))
    assert _with_deletion_file(table.open()) == []
    table.delete("x = 5")
    assert _with_deletion_file(table.open()) == [1]


@holds(
    Page.ROW_DELETES,
    "the new dataset now has an additional **deletion_file** but the **data_files** remains the same.",
)
def test_fragment_gains_a_deletion_file_and_keeps_its_data_files(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    old, new = (table.open(version).get_fragments()[0].metadata for version in (1, 2))
    assert old.deletion_file is None
    assert new.deletion_file is not None
    assert [each.path for each in old.files] == [each.path for each in new.files]


@holds(Page.ROW_DELETES, "deletion_file='_deletions/0-14-16447660214542675320.arrow'")
def test_deletion_file_is_named_after_its_fragment_and_the_version_that_was_read(table: Rows) -> None:
    table.make()
    table.append(pa.table({"x": [4, 5], "y": ["d", "e"]}))
    table.delete("x = 5")
    (name,) = table.files("_deletions")
    fragment, version, number = name.removesuffix(".arrow").split("-")
    assert (fragment, version, number.isdecimal()) == ("1", "2", True)


@holds(
    Page.ROW_DELETES,
    "Reading these new deletion files can add a small amount of latency to queries, "
    "so we cache this metadata.",
)
def test_deletion_file_is_read_once_by_an_opened_dataset(table: Rows) -> None:
    table.make()
    table.delete("x = 2")
    opened = table.open()
    assert opened.to_table()["x"].to_pylist() == [1, 3]
    for name in table.files("_deletions"):
        (table.folder / "_deletions" / name).unlink()
    assert opened.to_table()["x"].to_pylist() == [1, 3]
    with pytest.raises((OSError, ValueError), match="_deletions"):
        table.open().to_table()


@holds(Page.ROW_DELETES, "Initially, there will be 10 fragments, once for each hour:")
def test_each_write_makes_a_fragment(table: Rows) -> None:
    table.make_hours()
    assert _fragments(table.open()) == list(range(10))
    assert table.open().head(9)["insertion_timestamp"].to_pylist() == [FIRST] * 9


@holds(
    Page.ROW_DELETES,
    "In cases where a predicate aligns with the write pattern, we can avoid writing deletion files entirely; "
    "instead just eliminating an entire fragment.",
)
def test_delete_of_a_whole_fragment_writes_no_deletion_file(table: Rows) -> None:
    table.make()
    table.append(pa.table({"x": [4, 5], "y": ["d", "e"]}))
    table.delete("x IN (4, 5)")
    assert _fragments(table.open()) == [0]
    assert table.files("_deletions") == {}


@holds(
    Page.ROW_DELETES,
    "If we pass a deletion predicate on the timestamp column, we can just eliminate the particular data "
    "fragments that are part of the dump.",
)
def test_delete_of_one_hour_eliminates_the_fragment_of_that_hour(table: Rows) -> None:
    table.make_hours()
    table.delete("insertion_timestamp = cast('2023-01-01 07:00:00' as timestamp)")
    assert _fragments(table.open()) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


@holds(
    Page.ROW_DELETES,
    "Then after deleting the first 5 hours, there will only be 5 fragments remaining.",
)
def test_delete_of_five_hours_leaves_five_fragments(table: Rows) -> None:
    table.make_hours()
    told = table.delete("insertion_timestamp < cast('2023-01-01 05:00:00' as timestamp)")
    assert told["fragments_removed"] == "5"
    assert _fragments(table.open()) == [5, 6, 7, 8, 9]


@holds(Page.ROW_DELETES, "Notice none of them have any deletion files.")
def test_fragments_left_have_no_deletion_files(table: Rows) -> None:
    table.make_hours()
    table.delete("insertion_timestamp < cast('2023-01-01 05:00:00' as timestamp)")
    assert _with_deletion_file(table.open()) == []


@holds(Page.ROW_DELETES, "By deleting whole fragments, we avoided the need for any deletion files.")
def test_emptied_table_has_no_deletion_files_and_every_version(table: Rows) -> None:
    table.make_hours()
    table.delete("true")
    assert table.files("_deletions") == {}
    assert table.read() == []
    assert len(table.read(HOURS)) == HOURS * PER_HOUR
    table.catalog.cleanup_with_policy(ID, CleanupPolicy(retain_versions=1))
    assert table.files("data") == {}


@holds(Page.ROW_DELETES, "Updates will allow changing the value of a subset of a few rows.")
def test_a_few_rows_can_be_updated(table: Rows) -> None:
    table.make()
    table.catalog.update_table({"id": ID, "predicate": "x = 2", "updates": [["y", "'changed'"]]})
    assert sorted(row["y"] for row in table.read()) == ["a", "c", "changed"]


@holds(
    Page.ROW_DELETES,
    "This will pave the way for more complex ETL patterns such as upserts and merge operations",
)
def test_rows_can_be_merged(table: Rows) -> None:
    table.make()
    rows = ipc(pa.table({"x": [3, 4], "y": ["new", "new"]}))
    request = {"id": ID, "on": ["x"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
    table.catalog.merge_insert_into_table(request, rows)
    assert sorted((row["x"], row["y"]) for row in table.read()) == [
        (1, "a"),
        (2, "b"),
        (3, "new"),
        (4, "new"),
    ]
