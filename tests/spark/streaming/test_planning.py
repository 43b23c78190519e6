"""What a stream reads, without Spark: its reader is driven as Spark drives it."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.support.roots import ipc

import relance
from relance.errors import (
    InvalidTableStateError,
    TableColumnNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
    TableVersionNotFoundError,
    UnsupportedOperationError,
)
from relance.spark.datasource import LanceSource
from relance.spark.options import parse_stream_options
from relance.spark.streaming.columns import with_change_columns
from relance.spark.streaming.source import LanceStreamReader
from relance.spark.types import spark_schema


def rows(first: int, last: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(first, last), pa.int64()), "x": [float(n) for n in range(first, last)]}
    )


class Stream:
    """Drives a reader; offsets go through JSON, and the reader is made anew by `restart`."""

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.offset: dict[str, Any] | None = None
        self.planned: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.restart(**options)

    def restart(self, **options: object) -> None:
        given = {name: str(value) for name, value in options.items()}
        parsed = parse_stream_options({"path": str(self.path), **given})
        schema = spark_schema(lance.dataset(self.path).schema)
        if given.get("changes") == "rows":
            schema = with_change_columns(schema)
        self.reader = LanceStreamReader(parsed, schema)

    def plan(self) -> bool:
        start = json.loads(json.dumps(self.reader.initialOffset() if self.offset is None else self.offset))
        limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        self.planned = (start, end)
        return bool(start != end)

    def run(self) -> list[dict[str, Any]]:
        assert self.planned is not None
        found = [
            row
            for partition in self.reader.partitions(*self.planned)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]
        self.offset = self.planned[1]
        return found

    def batches(self) -> list[list[dict[str, Any]]]:
        found = []
        while self.plan():
            found.append(self.run())
        return found

    def ids(self) -> list[list[int]]:
        return [sorted(row["id"] for row in batch) for batch in self.batches()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.lance"


def append(path: Path, first: int, last: int) -> None:
    lance.write_dataset(rows(first, last), path, mode="append")


def test_stream_returns_the_table_first_and_then_every_append_once(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path)
    append(path, 3, 5)
    stream = Stream(path)
    assert stream.ids() == [[0, 1, 2, 3, 4]]
    assert stream.ids() == []
    append(path, 5, 6)
    append(path, 6, 8)
    assert stream.ids() == [[5, 6, 7]]


def test_compaction_indexes_and_config_add_no_rows_to_a_stream(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path)
    stream = Stream(path)
    stream.ids()
    append(path, 3, 5)
    dataset = lance.dataset(path)
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    dataset.delete("id > 1000")
    append(path, 5, 6)
    dataset = lance.dataset(path)
    dataset.optimize.compact_files()
    assert stream.ids() == [[3, 4, 5]]
    assert stream.ids() == []


def test_rate_limits_split_the_first_batch_by_fragments_and_later_ones_by_versions(path: Path) -> None:
    lance.write_dataset(rows(0, 10), path, max_rows_per_file=2)
    stream = Stream(path, max_rows_per_batch=4)
    assert stream.ids() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for n in range(10, 16, 2):
        append(path, n, n + 2)
    append(path, 16, 30)
    assert [len(each) for each in stream.ids()] == [4, 2, 14]
    for n in range(30, 35):
        append(path, n, n + 1)
    stream.restart(max_versions_per_batch=2)
    assert stream.ids() == [[30, 31], [32, 33], [34]]


def test_repeated_first_batch_reads_the_same_rows(path: Path) -> None:
    lance.write_dataset(rows(0, 4), path, max_rows_per_file=2)
    for options in ({}, {"max_rows_per_batch": 2}, {"starting_version": "latest"}, {"starting_version": 1}):
        stream = Stream(path, **options)
        stream.plan()
        planned = stream.planned
        head = lance.dataset(path).version
        append(path, 100 + head, 101 + head)
        stream.restart(**options)  # Spark asks for the initial offset again, and for no other end
        stream.planned = planned
        first = stream.run()
        again = sorted([row["id"] for row in first] + [n for batch in stream.ids() for n in batch])
        expected = sorted(lance.dataset(path).to_table()["id"].to_pylist())
        if options.get("starting_version") == "latest":
            expected = [100 + head]
        elif options:
            expected = expected if "max_rows_per_batch" in options else [n for n in expected if n >= 100]
        assert again == expected, options


def test_stream_starts_after_a_version_at_the_latest_or_at_a_timestamp(path: Path) -> None:
    lance.write_dataset(rows(0, 2), path)
    append(path, 2, 3)
    between = datetime.now(UTC)
    append(path, 3, 5)
    assert Stream(path, starting_version=0).ids() == [[], [0, 1, 2, 3, 4]]
    assert Stream(path, starting_version=2).ids() == [[], [3, 4]]
    assert Stream(path, starting_version="latest").ids() == [[]]
    assert Stream(path, starting_timestamp=between.isoformat()).ids() == [[], [3, 4]]
    assert Stream(path, starting_timestamp="2000-01-01").ids() == [[], [0, 1, 2, 3, 4]]
    with pytest.raises(TableVersionNotFoundError, match=r"starting_version=9 .* latest is 3"):
        Stream(path, starting_version=9).ids()
    lance.dataset(path).cleanup_old_versions(versions=[1])
    with pytest.raises(TableVersionNotFoundError, match="oldest remaining version, 2"):
        Stream(path, starting_timestamp="2000-01-01").ids()


def test_available_now_trigger_ends_at_the_version_of_its_start(path: Path) -> None:
    lance.write_dataset(rows(0, 2), path)
    append(path, 2, 4)
    stream = Stream(path, starting_version=1, max_versions_per_batch=1)
    stream.reader.prepareForTriggerAvailableNow()
    append(path, 4, 6)
    assert stream.ids() == [[], [2, 3]]
    stream.restart()
    assert stream.ids() == [[4, 5]]


def test_stream_without_a_limit_reads_everything_available(path: Path) -> None:
    lance.write_dataset(rows(0, 4), path, max_rows_per_file=2)
    reader = Stream(path, max_rows_per_batch=2).reader
    assert "fragments" not in reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


CHANGES = {
    "Delete": lambda dataset: dataset.delete("id = 1"),
    "Update": lambda dataset: dataset.update({"x": "x + 1"}, where="id = 1"),
    "Overwrite": lambda dataset: lance.write_dataset(rows(50, 52), dataset.uri, mode="overwrite"),
    "Restore": lambda dataset: dataset.checkout_version(1).restore(),
}


@pytest.mark.parametrize("operation", CHANGES)
def test_version_that_changed_rows_stops_the_stream_after_earlier_appends(path: Path, operation: str) -> None:
    lance.write_dataset(rows(0, 3), path)
    stream = Stream(path)
    stream.ids()
    append(path, 3, 4)
    CHANGES[operation](lance.dataset(path))
    append(path, 60, 61)
    stream.plan()
    assert [row["id"] for row in stream.run()] == [3]
    with pytest.raises(InvalidTableStateError, match=rf"version 3 of .*\({operation}\).*skip_changes=true"):
        stream.plan()
    stream.restart(skip_changes=True)
    assert stream.ids() == [[60]]


def test_insert_only_upserts_count_as_appends(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path)
    stream = Stream(path)
    stream.ids()
    upsert = lance.dataset(path).merge_insert("id").when_not_matched_insert_all()
    upsert.execute(rows(2, 5))
    assert stream.ids() == [[3, 4]]


def test_change_stream_reports_inserts_and_updates_with_their_version(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path, enable_stable_row_ids=True)
    stream = Stream(path, changes="rows")
    assert {(r["id"], r["_change_type"], r["_commit_version"]) for r in stream.batches()[0]} == {
        (n, "insert", 1) for n in range(3)
    }
    append(path, 3, 5)
    lance.dataset(path).update({"x": "x + 100"}, where="id = 1")
    upsert = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(rows(4, 6))
    lance.dataset(path).optimize.compact_files()
    lance.dataset(path).add_columns({"y": "x * 2"})
    found = [row for batch in stream.batches() for row in batch]
    assert sorted((r["_commit_version"], r["id"], r["_change_type"], r["x"]) for r in found) == [
        (2, 3, "insert", 3.0),
        (2, 4, "insert", 4.0),
        (3, 1, "update", 101.0),
        (4, 4, "update", 4.0),
        (4, 5, "insert", 5.0),
    ]
    lance.dataset(path).delete("id = 0")
    with pytest.raises(InvalidTableStateError, match=r"Delete.*cannot stream removed rows"):
        stream.plan()
    stream.restart(changes="rows", skip_changes=True)
    append(path, 9, 10)
    assert stream.ids() == [[9]]


def test_upsert_that_deletes_rows_stops_a_change_stream(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path, enable_stable_row_ids=True)
    stream = Stream(path, changes="rows")
    stream.ids()
    merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_by_source_delete("id > 0").execute(rows(1, 2))
    with pytest.raises(InvalidTableStateError, match="Update"):
        stream.plan()


def test_change_stream_requires_stable_row_ids(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path)
    with pytest.raises(UnsupportedOperationError, match="stable_row_ids=true"):
        Stream(path, changes="rows").plan()


def test_unread_versions_removed_by_cleanup_are_named_with_advice(path: Path) -> None:
    lance.write_dataset(rows(0, 3), path)
    stream = Stream(path)
    stream.ids()
    for n in range(3, 7):
        append(path, n, n + 1)
    lance.dataset(path).cleanup_old_versions(versions=[1, 2, 3])
    with pytest.raises(TableVersionNotFoundError, match=r"version 2 .* version 4: .*starting_version=3"):
        stream.plan()
    assert Stream(path, starting_version=3).ids() == [[], [5, 6]]
    reading = Stream(path)
    reading.plan()
    append(path, 7, 8)
    lance.dataset(path).cleanup_old_versions(versions=[5])
    with pytest.raises(TableVersionNotFoundError, match="version 5"):
        reading.run()


def test_added_columns_are_ignored_until_a_restart_and_removed_ones_are_an_error(path: Path) -> None:
    lance.write_dataset(rows(0, 2), path)
    stream = Stream(path)
    stream.ids()
    append(path, 2, 3)
    lance.dataset(path).add_columns({"y": "x * 2"})
    lance.write_dataset(pa.table({"id": [3], "x": [3.0], "y": [6.0]}), path, mode="append")
    planned = stream.plan() and stream.planned
    assert stream.run() == [{"id": 2, "x": 2.0}, {"id": 3, "x": 3.0}]
    stream.restart()
    stream.planned = planned or None
    assert stream.run() == [{"id": 2, "x": 2.0, "y": None}, {"id": 3, "x": 3.0, "y": 6.0}]
    before = Stream(path, starting_version=4)
    before.ids()
    lance.write_dataset(pa.table({"id": [4], "x": [4.0], "y": [8.0]}), path, mode="append")
    lance.dataset(path).alter_columns({"path": "x", "name": "z"})
    lance.write_dataset(pa.table({"id": [5], "z": [5.0], "y": [8.0]}), path, mode="append")
    before.plan()
    with pytest.raises(TableColumnNotFoundError, match=r"column 'x' .* version 7 .*restart the query"):
        before.run()
    before.restart()
    assert [row["z"] for batch in before.batches() for row in batch] == [4.0, 5.0]


def test_incompatible_column_type_change_is_an_error_until_a_restart(path: Path) -> None:
    lance.write_dataset(pa.table({"id": pa.array([1], pa.int32())}), path)
    stream = Stream(path)
    stream.ids()
    lance.dataset(path).alter_columns({"path": "id", "data_type": pa.int64()})
    lance.write_dataset(pa.table({"id": pa.array([2], pa.int64())}), path, mode="append")
    stream.plan()
    with pytest.raises(TableSchemaValidationError, match="id"):
        stream.run()
    stream.restart()
    assert stream.ids() == [[2]]


def test_row_ids_columns_and_filters_are_passed_to_lance(path: Path) -> None:
    lance.write_dataset(rows(0, 5), path)
    stream = Stream(path)
    source = LanceSource(
        {"path": str(path), "with_row_id": "true", "columns": "x", "filter": "id > 3 -- few"}
    )
    stream.reader = source.streamReader(source.schema())  # type: ignore[assignment]  # it is ours
    assert stream.batches() == [[{"x": 4.0, "_rowid": 4}]]


def test_small_versions_share_a_task_and_large_fragments_do_not(path: Path) -> None:
    lance.write_dataset(rows(0, 2), path)
    for n in range(2, 8):
        append(path, n, n + 1)
    for split_rows, tasks in ((1, 7), (3, 3), (100, 1)):
        stream = Stream(path, starting_version=0, split_rows=split_rows)
        stream.plan()
        stream.run()
        stream.plan()
        assert stream.planned is not None
        assert len(stream.reader.partitions(*stream.planned)) == tasks
        assert sorted(row["id"] for row in stream.run()) == list(range(8))


def test_stream_of_a_dropped_table_is_not_found_and_suggests_undrop(path: Path) -> None:
    catalog = relance.DirectoryNamespace(root=str(path.parent), manifest_enabled="false")
    lance.write_dataset(rows(0, 2), path)
    stream = Stream(path)
    stream.ids()
    catalog.drop_table({"id": ["events"]})
    with pytest.raises(TableNotFoundError, match="undrop"):
        stream.plan()
    catalog.undrop_table(["events"])
    append(path, 2, 3)
    assert stream.ids() == [[2]]
    catalog.drop_table({"id": ["events"]})
    catalog.create_table({"id": ["events"]}, ipc(rows(7, 9)))
    with pytest.raises(InvalidTableStateError, match=r"version 3 .*\(Overwrite\)"):
        stream.plan()


def test_new_table_of_the_same_name_in_another_directory_is_detected(tmp_path: Path) -> None:
    catalog = relance.DirectoryNamespace(root=str(tmp_path), manifest_upkeep="false")
    catalog.create_namespace({"id": ["prod"]})
    catalog.create_table({"id": ["prod", "events"]}, ipc(rows(0, 2)))
    location = catalog.describe_table({"id": ["prod", "events"]}).location
    options = {"root": str(tmp_path), "path": "prod.events", "manifest_upkeep": "false"}
    stream = Stream(Path(str(location)))
    stream.reader = LanceStreamReader(parse_stream_options(options), spark_schema(rows(0, 1).schema))
    assert stream.ids() == [[0, 1]]
    catalog.rename_table({"id": ["prod", "events"], "new_table_name": "old"})
    catalog.create_table({"id": ["prod", "events"]}, ipc(rows(7, 9)))
    with pytest.raises(InvalidTableStateError, match=r"was replaced .* new checkpoint"):
        stream.plan()


def test_new_table_in_the_same_directory_is_detected(path: Path) -> None:
    lance.write_dataset(rows(0, 2), path)
    stream = Stream(path)
    stream.ids()
    shutil.rmtree(path)
    lance.write_dataset(rows(10, 12), path)
    append(path, 12, 13)
    with pytest.raises(InvalidTableStateError, match=r"was replaced .* new checkpoint"):
        stream.plan()
