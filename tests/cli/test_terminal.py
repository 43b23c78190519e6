"""What a person sees on a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import CommandLake
from tests.support.patches import substitute, substituted
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


POLICY = """
[defaults]
compact = { min_fragments = 2 }
clean_up = { older_than = "30d" }
remove_orphans = true

[[rules]]
name = "production"
tables = "prod.**"
protect = true

[[rules]]
name = "old readings"
tables = "readings"
delete_rows = { delete_where = "id < 2" }
"""


def test_plan_shows_how_much_each_action_does_and_only_what_is_due(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    planned, again = on_terminal(
        tmp_path,
        ["plan", "policy.toml"],
        ["plan", "policy.toml", "--only", "prod.raw.`odd.name`", "--kind", "compact"],
        RELANCE_ROOT=lake.uri,
    )
    text = planned.shown.partition("Dry run: ")[2]
    assert text.startswith("4 actions on 3 tables would free 0 B.")
    rows = [line.split() for line in text.partition("WHY")[2].splitlines() if line.strip()]
    (deleted,) = [row for row in rows if row[0] == "delete_rows"]
    assert deleted[:4] == ["delete_rows", "readings", "1", "1"]
    (compacted,) = [row for row in rows if row[0] == "compact"]
    assert compacted[:4] == ["compact", "prod.users", "6", "2"]
    assert "remove_orphans" not in planned.shown
    table = text.partition("ACTION ")[2].splitlines()
    assert max(map(len, table)) <= COLUMNS
    assert "Nothing to do" in again.shown
    assert "(root)" not in planned.shown


def test_interrupted_run_says_how_to_resume_and_shows_as_interrupted(
    lake: CommandLake, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "policy.toml").write_text(POLICY)
    with substituted("policy_run.do_actions", interrupted):
        ran = lake.run("run", "policy.toml", "--yes")
        as_json = lake.run("run", "policy.toml", "--yes", "--json")
    assert ran.exit_code == as_json.exit_code == 130
    newest, oldest = lake.json("history")["runs"]
    assert {newest["state"], oldest["state"]} == {"interrupted"}
    assert f"to resume it: relance run --resume --run {oldest['run']}" in ran.err
    assert as_json.document["error"]["type"] == "Interrupted"
    shown, report, _, after = on_terminal(
        tmp_path,
        ["history"],
        ["report", newest["run"]],
        ["run", "--resume", "--run", newest["run"], "--yes"],
        ["report", newest["run"]],
        RELANCE_ROOT=lake.uri,
    )
    assert "interrupted" in shown.shown
    assert newest["run"] in shown.shown
    assert max(map(len, shown.lines[:4])) <= COLUMNS
    assert "Interrupted: " in report.shown
    assert f"to resume it: relance run --resume --run {newest['run']}" in report.shown
    assert "4 of 5 actions done" in after.shown


def test_ctrl_c_before_a_run_begins_says_that_nothing_was_changed(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "policy.toml").write_text(POLICY)
    substitute(monkeypatch, "history.add_run", interrupted)
    substitute(monkeypatch, "policy_run.plan", interrupted)
    ran = lake.run("run", "policy.toml", "--yes")
    assert ran.exit_code == 130
    assert "nothing was changed" in ran.err


def test_question_on_a_terminal_is_answered_and_ctrl_c_cancels(lake: CommandLake, tmp_path: Path) -> None:
    (cancelled,) = on_terminal(tmp_path, ["drop", "readings", "--purge"], keys="\x04", RELANCE_ROOT=lake.uri)
    assert cancelled.exit_code == 130
    assert "nothing was changed" in cancelled.shown
    (done,) = on_terminal(tmp_path, ["drop", "readings", "--purge"], keys="y\n", RELANCE_ROOT=lake.uri)
    assert done.exit_code == 0, done.text
    assert "dropped and purged" in done.shown


def test_first_steps_of_a_new_user(tmp_path: Path) -> None:
    """The list of what hurt a new user, on a terminal: each message fits and says what to do."""
    pq.write_table(WIDE, tmp_path / "wide.parquet")
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    (tmp_path / "b.csv").write_text("id,nom\n1,x\n")
    screens = on_terminal(
        tmp_path,
        ["ls"],
        ["import", "wide", "wide.parquet"],
        ["query", "wide"],
        ["query", "wide", "--columns", "column_00,column_39"],
        ["import", "t", "a.csv", "b.csv"],
        ["import", "wide", "wide.parquet"],
        ["show", "wid"],
        ["scrub"],
        ["drop", "wide", "--ttl", "0s"],
        ["ls", "--dropped"],
        ["show", "wide"],
        RELANCE_ROOT="lake",
    )
    none, made, queried, chosen, differs, exists, near, clean, dropped, listed, gone = screens
    assert (none.exit_code, "relance import --help" in none.shown) == (3, True)
    assert made.shown.endswith("imported 2 rows into wide (version 1)")
    assert "40 columns, " in queried.shown
    assert chosen.lines[1].split() == ["3.3", "42.3"]
    assert "b.csv has the column 'nom', which a.csv does not have" in " ".join(differs.shown.split())
    assert "--mode append" in exists.shown
    assert "did you mean wide?" in near.shown
    assert clean.shown == "no problems found"
    assert dropped.shown == "wide: dropped; to restore it: relance undrop wide"
    assert listed.lines[1].split()[0] == "wide"
    assert "relance undrop wide" in gone.shown
    assert {each.name for each in (tmp_path / "lake").iterdir()} == {
        ".relance-root",
        "wide.lance",
        "wide.control",
        "wide.deleted",
        *(
            each.name
            for each in (tmp_path / "lake").iterdir()
            if each.name.startswith((".relance", "__manifest"))
        ),
    }
    for screen in screens:
        assert "bug" not in screen.shown, screen
        assert "Traceback" not in screen.shown, screen
