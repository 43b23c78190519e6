"""Files into tables and out of them: all of it or nothing, a batch at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from relance import DirectoryNamespace
from relance.errors import InvalidInputError, TableNotFoundError, TableSchemaValidationError
from relance.operations.transfer.exporting import Selection, write_rows
from relance.operations.transfer.formats import Format

ROWS = 200_000


@pytest.fixture
def catalog(tmp_path: Path) -> DirectoryNamespace:
    """Return a catalog with a table of many rows."""
    pa.parquet.write_table(pa.table({"n": range(ROWS)}), tmp_path / "n.parquet", row_group_size=50_000)
    catalog = DirectoryNamespace(root=str(tmp_path / "lake"))
    done = catalog.import_files(["prod", "n"], [tmp_path / "n.parquet"], create_namespaces=True)
    assert (done.rows, done.version) == (ROWS, 1)
    return catalog


def test_import_reports_progress_as_rows_are_read(catalog: DirectoryNamespace, tmp_path: Path) -> None:
    seen: list[int] = []
    catalog.import_files(["prod", "again"], [tmp_path / "n.parquet"], progress=seen.append)
    assert len(seen) > 1
    assert seen == sorted(seen)
    assert seen[-1] == ROWS


def test_failed_export_leaves_the_existing_file(
    catalog: DirectoryNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "n.csv").write_text("mine")

    def fails(rows: int) -> None:
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        catalog.export_table(["prod", "n"], out / "n.csv", overwrite=True, progress=fails)
    assert [each.name for each in out.iterdir()] == ["n.csv"]
    assert (out / "n.csv").read_text() == "mine"
    catalog.export_table(["prod", "n"], out / "n.csv", Selection(limit=2), overwrite=True)
    assert (out / "n.csv").read_text().split() == ['"n"', "0", "1"]


@pytest.mark.parametrize("name", [["prod", "bad"], ["bad"]])
def test_import_that_fails_midway_leaves_no_table(
    catalog: DirectoryNamespace, tmp_path: Path, name: list[str]
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("n\n" + "1\n" * 300_000)
    second.write_text("n\n" + "1\n" * 600_000 + "not a number\n")
    before = {each.name for each in (tmp_path / "lake").iterdir()}
    with pytest.raises(InvalidInputError, match=r"b\.csv: column 'n': .* invalid value 'not a number'"):
        catalog.import_files(name, [first, second])
    with pytest.raises(TableNotFoundError):
        catalog.describe_table({"id": name})
    after = {each.name for each in (tmp_path / "lake").iterdir()}
    # The sign says to look inside; only a create of the same name may remove it.
    assert after - before <= {"bad.creating", ".relance-root"}
    assert catalog.scrub() == []
    catalog.import_files(name, [first])
    assert not (tmp_path / "lake" / "bad.creating").exists()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"n": [1], "o": ["x"]}, r"b\.parquet has the column 'o', which .*a\.parquet does not have"),
        ({"n": [1]}, r"a\.parquet has the column 'm', which .*b\.parquet does not have"),
        ({"n": ["1"], "m": ["x"]}, r"column 'n' is string in .*b\.parquet, but int64 in .*a\.parquet"),
        ({"n": [1], "m": [["x"]]}, r"column 'm' is list<.*> in .*b\.parquet, but string in .*a\.parquet"),
    ],
)
@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_files_with_different_columns_are_refused_before_anything_is_written(
    catalog: DirectoryNamespace, tmp_path: Path, columns: dict[str, list[object]], said: str, mode: str
) -> None:
    pa.parquet.write_table(pa.table({"n": [1], "m": ["x"]}), tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    before = {each.name for each in (tmp_path / "lake").iterdir()}
    with pytest.raises(TableSchemaValidationError, match=said):
        catalog.import_files(["new"], [tmp_path / "a.parquet", tmp_path / "b.parquet"], mode=mode)
    assert {each.name for each in (tmp_path / "lake").iterdir()} == before
    assert catalog.scrub() == []


def test_files_may_order_their_columns_differently_and_use_narrower_types(
    catalog: DirectoryNamespace, tmp_path: Path
) -> None:
    pa.parquet.write_table(pa.table({"n": [1], "m": ["x"]}), tmp_path / "a.parquet")
    other = pa.table({"m": pa.array(["y"]).dictionary_encode(), "n": pa.array([2], pa.int8())})
    pa.parquet.write_table(other, tmp_path / "b.parquet")
    catalog.import_files(["new"], [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    rows = catalog.scan_table(["new"]).read_all()
    assert rows.to_pydict() == {"n": [1, 2], "m": ["x", "y"]}


def test_value_that_does_not_fit_names_its_file_and_column(
    catalog: DirectoryNamespace, tmp_path: Path
) -> None:
    pa.parquet.write_table(pa.table({"n": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"n": [1000]}), tmp_path / "b.parquet")
    with pytest.raises(TableSchemaValidationError, match=r"b\.parquet: a value of column 'n' is not a valid"):
        catalog.import_files(["new"], [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert not (tmp_path / "lake" / "new.lance").exists()


def test_interrupted_import_raises_the_interruption_and_leaves_no_directory(
    catalog: DirectoryNamespace, tmp_path: Path
) -> None:
    def interrupted(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.import_files(["new"], [tmp_path / "n.parquet"], progress=interrupted)
    assert not (tmp_path / "lake" / "new.lance").exists()


def test_import_append_may_omit_columns_but_not_add_new_ones(
    catalog: DirectoryNamespace, tmp_path: Path
) -> None:
    pa.parquet.write_table(pa.table({"n": [1], "m": ["x"]}), tmp_path / "wide.parquet")
    with pytest.raises(TableSchemaValidationError, match="not in the table: m"):
        catalog.import_files(["prod", "n"], [tmp_path / "wide.parquet"], mode="append")
    catalog.import_files(["prod", "wide"], [tmp_path / "wide.parquet"])
    catalog.import_files(["prod", "wide"], [tmp_path / "n.parquet"], mode="append")
    rows = catalog.scan_table(["prod", "wide"], Selection(where="m IS NULL", columns=["n"])).read_all()
    assert rows.num_rows == ROWS


def test_scan_returns_the_rows_in_several_batches(catalog: DirectoryNamespace) -> None:
    sizes = [batch.num_rows for batch in catalog.scan_table(["prod", "n"])]
    assert sum(sizes) == ROWS
    assert max(sizes) < ROWS
    with pytest.raises(InvalidInputError):
        catalog.scan_table(["prod", "n"], Selection(limit=-1))


def test_write_rows_writes_every_batch(catalog: DirectoryNamespace, tmp_path: Path) -> None:
    reader = catalog.scan_table(["prod", "n"], Selection(where="n % 2 = 0"))
    with (tmp_path / "even.arrow").open("wb") as sink:
        assert write_rows(reader, sink, Format.ARROW) == ROWS // 2
    with pa.ipc.open_file(tmp_path / "even.arrow") as file:
        assert file.read_all().num_rows == ROWS // 2
