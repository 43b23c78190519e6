"""query, import, export, in every format."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from tests.support.cli import ROWS, CommandLake, run
from tests.support.roots import ipc

from relance.cli.app import app

WIDE = pa.table(
    {
        "day": pa.array([date(2026, 1, 1), None], pa.date32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "tags": pa.array([["a", "b"], []], pa.list_(pa.string())),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "value": pa.array([float("nan"), 2.0]),
    }
)


def test_query_prints_the_rows_and_columns_asked_for(lake: CommandLake) -> None:
    found = lake.json("query", "prod.users", "--where", "id > 1", "--columns", "name, id")
    assert found["columns"] == ["name", "id"]
    assert [row["name"] for row in found["rows"]] == ["b", "c", "b", "c"]
    assert found["more"] is False
    lines = lake.ok("query", "prod.users", "--where", "id > 1", "-n", "1").splitlines()
    assert [line.split() for line in lines] == [["id", "name"], ["2", "b"]]


def test_query_prints_twenty_rows_and_says_there_are_more(lake: CommandLake) -> None:
    lake.catalog.create_table({"id": ["long"]}, ipc(pa.table({"n": range(50)})))
    assert len(lake.json("query", "long")["rows"]) == 20
    assert lake.json("query", "long")["more"] is True
    assert "--limit" in lake.ok("query", "long").splitlines()[-1]
    assert len(lake.ok("query", "long", "--format", "csv").splitlines()) == 51
    assert len(lake.ok("query", "long", "--limit", "30").splitlines()) == 31


def test_query_count_prints_the_number_of_rows(lake: CommandLake) -> None:
    assert lake.ok("query", "prod.users", "--count") == "6\n"
    assert lake.json("query", "prod.users", "--count", "--where", "id = 1")["rows"] == 2


def test_query_reads_an_older_version_or_a_tag(lake: CommandLake) -> None:
    assert len(lake.json("query", "prod.users", "--version", "1")["rows"]) == 3
    assert len(lake.json("query", "prod.users", "--tag", "first")["rows"]) == 3
    assert lake.run("query", "prod.users", "--version", "9").exit_code == 3
    assert lake.run("query", "prod.users", "--tag", "nope").exit_code == 3


def test_query_with_an_invalid_filter_or_column_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("query", "readings", "--where", "nonsense >").exit_code == 2
    wrong = lake.run("query", "readings", "--columns", "nonsense")
    assert wrong.exit_code in {2, 3}
    assert "nonsense" in wrong.err


def test_query_prints_csv_and_json_lines(lake: CommandLake) -> None:
    text = lake.ok("query", "readings", "--format", "csv")
    assert list(csv.reader(io.StringIO(text))) == [["id", "name"], ["1", "a"], ["2", "b"], ["3", "c"]]
    lines = lake.ok("query", "readings", "--format", "json").splitlines()
    assert json.loads(lines[0]) == {"id": 1, "name": "a"}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_query_writes_binary_formats_into_a_pipe(lake: CommandLake, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"out.{kind}"
    ran = CliRunner().invoke(app, ["--root", str(lake.folder), "query", "readings", "--format", kind])
    file.write_bytes(ran.stdout_bytes)
    assert lake.json("import", f"copy_{kind}", str(file))["rows"] == 3
    assert lake.json("query", f"copy_{kind}")["rows"] == ROWS.to_pylist()


def test_query_overwrites_a_file_only_with_overwrite(lake: CommandLake, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("mine")
    assert lake.run("query", "readings", "-o", str(out)).exit_code == 2
    assert out.read_text() == "mine"
    lake.ok("query", "readings", "-o", str(out), "--overwrite")
    assert out.read_text().startswith('"id"')


def test_export_refuses_a_named_pipe_and_follows_a_symlink(lake: CommandLake, tmp_path: Path) -> None:
    pipe, link, out = tmp_path / "pipe", tmp_path / "link.csv", tmp_path / "rows.csv"
    os.mkfifo(pipe)
    ran = lake.run("export", "readings", str(pipe), "--format", "csv", "--overwrite")
    assert (ran.exit_code, pipe.is_fifo()) == (2, True), ran
    out.write_text("old")
    link.symlink_to(out)
    lake.ok("export", "readings", str(link), "--overwrite")
    assert link.is_symlink()
    assert out.read_text().startswith('"id"')


def test_import_of_a_csv_with_a_binary_header_is_a_usage_error(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe,b\n1,2\n")
    ran = lake.run("import", "odd", str(tmp_path / "x.csv"))
    assert ran.exit_code == 2
    assert "x.csv cannot be read" in ran.err


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow"])
def test_export_and_import_preserve_rows(lake: CommandLake, tmp_path: Path, kind: str) -> None:
    out = str(tmp_path / f"users.{kind}")
    assert lake.json("export", "prod.users", out)["rows"] == 6
    assert lake.ok("import", "new.space.users", out, "--create-namespaces") == (
        "imported 6 rows into new.space.users (version 1)\n"
    )
    assert lake.json("query", "new.space.users")["rows"] == lake.json("query", "prod.users")["rows"]


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "json"])
def test_export_writes_every_column_type(lake: CommandLake, tmp_path: Path, kind: str) -> None:
    lake.catalog.create_table({"id": ["wide"]}, ipc(WIDE))
    lake.catalog.insert_into_table({"id": ["wide"]}, ipc(WIDE))
    out = tmp_path / f"wide.{kind}"
    assert lake.json("export", "wide", str(out))["rows"] == 4
    if kind == "csv":
        assert list(csv.reader(io.StringIO(out.read_text())))[1][2:5] == ['["a", "b"]', "AP8=", "x"]
    if kind == "json":
        first = json.loads(out.read_text().splitlines()[0])
        assert first == {
            "day": "2026-01-01",
            "price": "1.50",
            "tags": ["a", "b"],
            "raw": "AP8=",
            "kind": "x",
            "value": None,
        }


def test_import_modes_create_append_and_overwrite_a_table(lake: CommandLake, tmp_path: Path) -> None:
    file = str(tmp_path / "more.parquet")
    pa.parquet.write_table(pa.table({"name": ["z"], "id": pa.array([9], pa.int32())}), file)
    assert lake.run("import", "readings", file).exit_code == 4
    assert lake.json("import", "readings", file, "--mode", "append")["version"] == 2
    rows = lake.json("query", "readings")["rows"]
    assert rows[-1] == {"id": 9, "name": "z"}
    lake.ok("import", "readings", file, "--mode", "overwrite")
    assert lake.json("query", "readings")["rows"] == [{"name": "z", "id": 9}]
    assert len(lake.json("query", "readings", "--version", "2")["rows"]) == 4


def test_import_of_a_folder_reads_its_files_in_order(lake: CommandLake, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in (2, 1):
        pa.parquet.write_table(pa.table({"n": [number]}), folder / f"part-{number}.parquet")
    assert lake.json("import", "parts", str(folder), "--format", "parquet")["rows"] == 2
    assert lake.json("query", "parts")["rows"] == [{"n": 1}, {"n": 2}]


def test_import_with_mismatched_columns_changes_nothing(lake: CommandLake, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("id,nonsense\n1,x\n")
    ran = lake.run("import", "readings", str(file), "--mode", "append")
    assert ran.exit_code == 2
    assert "nonsense" in ran.err
    file.write_text("id,name\nnot a number,x\n")
    assert lake.run("import", "readings", str(file), "--mode", "append").exit_code == 2
    assert lake.json("versions", "readings")["versions"][0]["version"] == 1


def test_import_of_a_corrupt_file_creates_no_table(lake: CommandLake, tmp_path: Path) -> None:
    file = tmp_path / "bad.parquet"
    whole = io.BytesIO()
    pa.parquet.write_table(pa.table({"n": range(100_000)}), whole)
    body = bytearray(whole.getvalue())
    body[40 : len(body) // 2] = b"\0" * (len(body) // 2 - 40)
    file.write_bytes(body)
    assert lake.run("import", "broken", str(file)).exit_code == 2
    assert lake.run("status", "broken").exit_code == 3
    assert lake.run("import", "broken", str(tmp_path / "none.parquet")).exit_code == 2
    assert lake.run("import", "broken", str(tmp_path / "none.xyz")).exit_code == 2


def test_import_creates_a_new_catalog(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("a,b\n1,x\n")
    ran = run("--root", str(tmp_path / "fresh"), "import", "first", str(file))
    assert ran.exit_code == 0, ran
    assert CommandLake(str(tmp_path / "fresh")).json("query", "first")["rows"] == [{"a": 1, "b": "x"}]


def test_export_to_a_missing_folder_or_unknown_format_is_refused(lake: CommandLake, tmp_path: Path) -> None:
    assert lake.run("export", "readings", str(tmp_path / "none" / "x.csv")).exit_code == 2
    assert lake.run("export", "readings", str(tmp_path / "x.what")).exit_code == 2
    assert lake.run("export", "nothing", str(tmp_path / "x.csv")).exit_code == 3
