"""What a message says to do next, from what the catalog knows of the names in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import CommandLake


@pytest.mark.parametrize(
    ("command", "near"),
    [
        ("show reading", "readings"),
        ("show READINGS", "readings"),
        ("query users", "prod.users"),
        ("show prod.user", "prod.users"),
        ("show prd.users", "prod"),
        ("ls prd", "prod"),
        ("compact prod.usres", "prod.users"),
        ("show prod.raw.`odd.nam`", "'prod.raw.`odd.name`'"),
        ("create-namespace prd.new", "prod"),
        ("import prd.new rows.csv", "prod"),
        ("drop --namespace pord", "prod"),
    ],
)
def test_misspelled_name_gets_the_existing_one_suggested(
    lake: CommandLake, tmp_path: Path, command: str, near: str
) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    ran = lake.run(*command.split())
    assert ran.exit_code == 3
    assert f"did you mean {near}?" in ran.err


@pytest.mark.parametrize("command", ["show nothing", "ls nowhere", "show prod.zzz", "show zzz.users2"])
def test_name_unlike_any_other_gets_no_suggestion(lake: CommandLake, command: str) -> None:
    ran = lake.run(*command.split())
    assert ran.exit_code == 3
    assert "did you mean" not in ran.err
    assert "relance ls --tree" in ran.err


def test_import_into_an_existing_table_names_both_modes(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n9,z\n")
    ran = lake.run("import", "readings", "rows.csv")
    assert ran.exit_code == 4
    assert "--mode append" in ran.err
    assert "--mode overwrite" in ran.err
    lake.ok("import", "readings", "rows.csv", "--mode", "append")


def test_import_into_a_missing_namespace_names_the_option(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    ran = lake.run("import", "elsewhere.t", "rows.csv")
    assert ran.exit_code == 3
    assert "--create-namespaces" in ran.err
    assert "relance create-namespace --parents x.y" in lake.run("create-namespace", "x.y.z").err


def test_no_message_tells_to_wait_until_a_moment_in_the_past(lake: CommandLake) -> None:
    dropped = lake.ok("drop", "readings", "--ttl", "0s")
    assert dropped == "readings: dropped; to restore it: relance undrop readings\n"
    assert "until" in lake.ok("drop", "prod.users", "--ttl", "1d")
    shown = lake.run("show", "readings")
    assert "can be undropped until it is purged" in shown.err
    assert "its retention period ended on" in lake.ok("status", "readings")
    assert "its retention period ends on" in lake.ok("status", "prod.users")
    early = lake.run("purge", "prod.users")
    assert "wait until then, or pass --force" in early.err
    margin = lake.run("purge", "readings")
    assert "wait" not in margin.err
    assert "retry after" in margin.err


@pytest.mark.parametrize("command", ["show", "query", "versions", "compact", "cleanup --yes"])
@pytest.mark.parametrize("damage", ["manifest", "data"])
def test_damaged_table_is_named_with_what_can_be_done(lake: CommandLake, command: str, damage: str) -> None:
    folder = lake.folder / "readings.lance"
    for file in (folder / "_versions").glob("*.manifest") if damage == "manifest" else folder.glob("data/*"):
        if damage == "manifest":
            file.write_bytes(b"damaged")
        else:
            file.unlink()
    ran = lake.run(*command.split(), "readings")
    if damage == "data" and command != "query":
        assert ran.exit_code == 0  # it reads no data
        return
    assert ran.exit_code == 6
    assert ran.err.startswith("error: table 'readings': a file ")
    assert "restore the file from a backup; to give the table up: relance drop readings" in ran.err
    assert "bug" not in ran.err
    lake.ok("drop", "readings")
