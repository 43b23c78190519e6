"""What a person sees on a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.cli import CommandLake
from tests.support.roots import ipc
from tests.support.terminal import COLUMNS, on_terminal

pytestmark = pytest.mark.timeout(120)

WIDE = pa.table({f"column_{n:02}": [n + 3.3, 1234567.891 * n] for n in range(40)})
SHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_tables_cut_and_fold_no_number_and_no_id(lake: CommandLake, tmp_path: Path) -> None:
    lake.catalog.create_table({"id": ["wide"]}, ipc(WIDE))
    lake.catalog.create_table({"id": ["ids"]}, ipc(pa.table({"sha": [SHA], "vector": [[0.125] * 300]})))
    (tmp_path / "policy.toml").write_text('[[rules]]\nname = "r"\ntables = "readings"\nprotect = true\n')
    wide, upright, ids, dropped, _, runs = on_terminal(
        tmp_path,
        ["query", "wide"],
        ["query", "wide", "--vertical"],
        ["query", "ids"],
        ["ls", "--dropped"],
        ["run", "policy.toml", "--yes"],
        ["history"],
        RELANCE_ROOT=lake.uri,
    )
    headings, *rows, note = wide.lines
    assert note == "40 columns, 5 shown: choose with --columns, or see all with --vertical"
    numbers = [float(each.split("_")[1]) for each in headings.split() if each != "…"]
    for row, values in zip(rows, WIDE.to_pylist(), strict=True):
        cells = [float(each) for each in row.split() if each != "…"]
        assert cells == [values[f"column_{int(each):02}"] for each in numbers]
    assert max(map(len, wide.lines)) <= COLUMNS
    assert len(upright.lines) == 2 * 41
    assert str(WIDE["column_39"][1].as_py()) in upright.shown
    assert SHA in ids.shown
    (gone,) = lake.json("ls", "--dropped")["dropped"]
    assert gone["deletion_id"] in dropped.shown
    (run,) = json.loads(lake.run("history", "--json").out)["result"]["runs"]
    assert run["run"] in runs.shown
    assert max(map(len, [*dropped.lines, *runs.lines])) <= COLUMNS
