"""Splits read with Lance are a partition of the rows, in every combination. Spark is needed once only."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relance.errors import ConcurrentModificationError, InvalidInputError, TableVersionNotFoundError
from relance.spark.options import ReadOptions, parse_read_options
from relance.spark.planning import plan_read
from relance.spark.reader import LanceReader, SplitPartition, pin, schema_of
from relance.spark.scan import open_once
from relance.spark.splits import Split
from relance.spark.table import table
from relance.spark.types import reader_schema

FILTERS = {
    "none": None,
    "plain": "x % 3 = 1",
    "indexed": "id >= 400 and id < 2900",
    "indexed_few": "id >= 400 and id < 420",
    "both": "id >= 400 and id < 5000 and x % 2 = 0 -- and a comment",
    "or": "id < 100 or x = 7",
    "nothing": "id < 0",
}


def make(path: Path, *, deletions: bool, index: str, stable: bool) -> lance.LanceDataset:
    """Write 9,000 rows in fragments of 6,000, 2,000 and 1,000 of which some are deleted."""
    dataset = None
    for start, stop in ((0, 6000), (6000, 8000), (8000, 9000)):
        ids = list(range(start, stop))
        rows = pa.table({"id": ids, "x": [each % 10 for each in ids], "s": [f"s{each}" for each in ids]})
        mode = "create" if dataset is None else "append"
        dataset = lance.write_dataset(rows, path, mode=mode, enable_stable_row_ids=stable)
        if index == "partial" and start == 0:
            dataset.create_scalar_index("id", "BTREE")
    assert dataset is not None
    if index == "full":
        dataset.create_scalar_index("id", "BTREE")
    if deletions:
        dataset.delete("id % 7 = 2 or (id >= 1000 and id < 2500) or (id >= 8000 and id < 8100)")
    return dataset


def read(options: ReadOptions) -> tuple[list[pa.Table], list[Split]]:
    """Return what each task reads."""
    table = pin(options)
    reader = LanceReader(table, options, schema_of(table, options))
    splits = [each.split for each in reader.partitions() if isinstance(each, SplitPartition)]
    schema = reader_schema(schema_of(table, options))
    return [pa.Table.from_batches(reader.read(SplitPartition(each)), schema) for each in splits], splits


@pytest.mark.parametrize("stable", [False, True], ids=["plain_ids", "stable_ids"])
@pytest.mark.parametrize("index", ["none", "partial", "full"])
@pytest.mark.parametrize("deletions", [False, True], ids=["kept", "deleted"])
def test_splits_partition_the_rows_in_every_combination(
    tmp_path: Path, deletions: bool, index: str, stable: bool
) -> None:
    dataset = make(tmp_path / "t.lance", deletions=deletions, index=index, stable=stable)
    for text in FILTERS.values():
        wanted = dataset.to_table(filter=text, with_row_id=True, use_scalar_index=False)
        for split_rows in ("333", "2500", "1000000"):
            given = {"path": str(tmp_path / "t.lance"), "split_rows": split_rows, "with_row_id": "true"}
            options = parse_read_options(given if text is None else {**given, "filter": text})
            parts, splits = read(options)
            found = pa.concat_tables(parts) if parts else wanted.slice(0, 0)
            assert found["id"].to_pylist() == wanted["id"].to_pylist(), (text, split_rows)
            assert found["_rowid"].to_pylist() == wanted["_rowid"].to_pylist(), (text, split_rows)
            if text is None and split_rows == "333":
                assert len(splits) > 10


@pytest.mark.parametrize("deletions", [False, True], ids=["kept", "deleted"])
def test_limit_returns_exactly_the_first_rows(tmp_path: Path, deletions: bool) -> None:
    dataset = make(tmp_path / "t.lance", deletions=deletions, index="full", stable=False)
    for text in FILTERS.values():
        wanted = dataset.to_table(filter=text)["id"].to_pylist()
        for limit in (0, 1, 50, 1999, 6001, 10_000):
            given = {"path": str(tmp_path / "t.lance"), "split_rows": "700", "limit": str(limit)}
            parts, splits = read(parse_read_options(given if text is None else {**given, "filter": text}))
            found = [each for part in parts for each in part["id"].to_pylist()]
            assert found == wanted[:limit], (text, limit)
            if text is None and limit <= 50:
                assert len(splits) <= 1


def test_indexed_filter_reads_only_matching_fragments(tmp_path: Path) -> None:
    make(tmp_path / "t.lance", deletions=False, index="full", stable=False)
    options = parse_read_options(
        {"path": str(tmp_path / "t.lance"), "filter": "id = 6500", "split_rows": "100"}
    )
    parts, splits = read(options)
    assert [piece.fragment for split in splits for piece in split.pieces] == [1]
    assert parts[0]["s"].to_pylist() == ["s6500"]


@pytest.mark.deep
def test_five_thousand_small_fragments_are_read_by_one_task(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(50_000)})
    fragments = lance.fragment.write_fragments(rows, path, max_rows_per_file=10, max_rows_per_group=10)
    lance.LanceDataset.commit(path, lance.LanceOperation.Overwrite(rows.schema, fragments))
    assert len(fragments) == 5_000
    parts, splits = read(parse_read_options({"path": path, "parallelism": "2"}))
    assert len(splits) == 1
    assert parts[0]["id"].to_pylist() == list(range(50_000))
    assert len(read(parse_read_options({"path": path, "split_rows": "10000"}))[1]) == 5
    whole = table(spark, path)
    assert whole.rdd.getNumPartitions() == 1
    assert whole.agg({"id": "sum"}).collect() == [(sum(range(50_000)),)]


def test_invalid_filter_is_refused_before_any_task_starts(tmp_path: Path) -> None:
    make(tmp_path / "t.lance", deletions=False, index="none", stable=False)
    for text in ("nope = 1", "id >", "id = ?", "id = 1; drop", "id = 1) or (id = 2"):
        options = parse_read_options({"path": str(tmp_path / "t.lance"), "filter": text})
        with pytest.raises(InvalidInputError):
            schema_of(pin(options), options)


def test_read_of_a_missing_version_is_not_found(tmp_path: Path) -> None:
    make(tmp_path / "t.lance", deletions=False, index="none", stable=False)
    with pytest.raises(TableVersionNotFoundError, match="version 99"):
        pin(parse_read_options({"path": str(tmp_path / "t.lance"), "version": "99"}))


def test_read_plan_is_deterministic(tmp_path: Path) -> None:
    make(tmp_path / "t.lance", deletions=True, index="full", stable=False)
    options = parse_read_options({"path": str(tmp_path / "t.lance"), "split_rows": "500"})
    table = pin(options)
    reader = LanceReader(table, options, schema_of(table, options))
    plans = [plan_read(open_once(table), reader._scan, options) for _ in range(2)]
    assert plans[0] == plans[1]


def test_table_replaced_at_its_path_is_not_confused_with_the_old_one(tmp_path: Path) -> None:
    options = parse_read_options({"path": str(tmp_path / "t.lance")})
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "t.lance")
    before = pin(options)
    assert read(options)[0][0]["id"].to_pylist() == [1]
    shutil.rmtree(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [2, 3]}), tmp_path / "t.lance")
    assert read(options)[0][0]["id"].to_pylist() == [2, 3]
    with pytest.raises(ConcurrentModificationError, match="reload it"):
        before.open()
