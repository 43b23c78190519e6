"""compact, cleanup, delete-rows, migrate, scrub, doctor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.cli import ROWS, CommandLake
from tests.support.failures import deny
from tests.support.patches import original, substitute
from tests.support.roots import ipc

from relance import DirectoryNamespace


def _entry(found: dict[str, object], table: str) -> dict[str, object]:
    tables = found["tables"]
    assert isinstance(tables, list)
    (entry,) = [each for each in tables if each["table"] == table]
    assert isinstance(entry, dict)
    return entry


def test_compact_merges_small_fragments_into_one(lake: CommandLake) -> None:
    planned = _entry(lake.json("compact", "--dry-run"), "prod.users")
    assert planned["change"]
    assert lake.json("show", "prod.users")["fragments"] == 2
    assert "prod.users" in lake.ok("compact", "prod.users")
    assert lake.json("show", "prod.users")["fragments"] == 1
    assert lake.ok("compact") == "nothing to compact\n"


def test_compact_reports_an_unknown_table_and_compacts_the_others(lake: CommandLake) -> None:
    ran = lake.run("compact", "prod.users", "nothing", "--json")
    assert ran.exit_code == 3
    assert ran.document["error"]["type"] == "Partial"
    assert lake.json("show", "prod.users")["fragments"] == 1
    assert lake.run("compact", "nothing").err.startswith("error: Table not found")


def test_delete_rows_requires_confirmation(lake: CommandLake) -> None:
    planned = _entry(lake.json("delete-rows", "prod.users", "--where", "id = 1", "--dry-run"), "prod.users")
    assert planned["change"]["rows"] == 2  # type: ignore[index]  # of a dictionary of anything
    refused = lake.run("delete-rows", "prod.users", "--where", "id = 1")
    assert refused.exit_code == 5
    assert "2 rows" in refused.err
    assert lake.ok("query", "prod.users", "--count") == "6\n"
    lake.ok("delete-rows", "prod.users", "--where", "id = 1", "--yes")
    assert lake.ok("query", "prod.users", "--count") == "4\n"
    assert lake.ok("delete-rows", "prod.users", "--where", "id = 1") == "no rows match\n"


def test_delete_rows_with_an_invalid_filter_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("delete-rows", "prod.users", "--where", "nonsense", "--yes").exit_code == 2
    assert lake.run("delete-rows", "prod.users").exit_code == 2


def _drop_again(lake: CommandLake) -> tuple[str, str]:
    """Drop two tables of the same name, and return the deletion ids of the first and the second drop."""
    for _ in range(2):
        lake.catalog.create_table({"id": ["prod", "new"]}, ipc(ROWS))
        lake.ok("rename", "prod.new", "prod.gone")
        lake.ok("drop", "prod.gone")
    first, second = _drops(lake)
    return first, second


def _drops(lake: CommandLake) -> list[str]:
    found = [each for each in lake.catalog.list_dropped_tables() if each.id == ("prod", "gone")]
    return [each.deletion_id for each in sorted(found, key=lambda each: each.deleted_at)]


@pytest.mark.parametrize("yes", [(), ("--yes",), ("--dry-run",)], ids=["asked", "yes", "dry run"])
def test_purge_of_one_drop_honours_the_other_filters(lake: CommandLake, yes: tuple[str, ...]) -> None:
    (dropped,) = lake.catalog.list_dropped_tables()
    this = ("purge", "gone", "--deletion-id", dropped.deletion_id)
    spared = lake.ok(*this, "--deleted-before", "2020-01-01", "--force", *yes)
    assert spared == "nothing to purge: no dropped table matches\n"
    assert lake.json("status", "gone")["status"] == "dropped"
    # The dry run shows what the run does: it is refused while the retention period lasts.
    refused = lake.run(*this, *yes)
    assert refused.exit_code == 4, refused
    assert "can be undropped until" in refused.err
    assert lake.json("status", "gone")["status"] == "dropped"


def test_purge_of_one_drop_leaves_the_other_drops_of_the_name(lake: CommandLake) -> None:
    first, second = _drop_again(lake)
    this = ("purge", "prod.gone", "--deletion-id", first, "--force")
    planned = lake.json(*this, "--dry-run")
    assert _drops(lake) == [first, second]
    done = lake.json(*this, "--yes")
    assert (done["table"], done["deletion_id"], done["files"]) == ("prod.gone", first, planned["files"])
    assert _entry(done, "prod.gone")["change"] == _entry(planned, "prod.gone")["change"]
    assert _drops(lake) == [second]
    unknown = lake.run(*this, "--yes")
    assert unknown.exit_code == 3
    assert "has no drop" in unknown.err


def test_purge_of_one_drop_runs_on_the_engine_that_was_asked_for(lake: CommandLake) -> None:
    (dropped,) = lake.catalog.list_dropped_tables()
    this = ("purge", "gone", "--deletion-id", dropped.deletion_id, "--force", "--yes")
    assert lake.run(*this, "--engine", "local", "--master", "local[1]").exit_code == 2
    assert lake.run(*this, "--engine", "local", "--master", "local[1]", "--dry-run").exit_code == 2
    assert lake.json(*this, "--engine", "local")["engine"] == "local: requested"
    assert lake.run("purge", "gone", "readings", "--deletion-id", "x", "--yes").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("purge",),
        ("purge", "gone", "--force"),
        ("delete-rows", "readings", "--where", "id = 1"),
        ("cleanup", "readings"),
    ],
    ids=" ".join,
)
def test_confirmed_command_runs_without_planning_first(
    lake: CommandLake, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    ran: list[tuple[bool, object]] = []
    run_job = original("cli.run_job")

    def watch(*given: object, dry_run: bool, engine: str | None, **more: object) -> object:
        ran.append((dry_run, engine))
        return run_job(*given, dry_run=dry_run, engine=engine, **more)

    substitute(monkeypatch, "cli.run_job", watch)
    # What is shown is planned where it will run, too.
    assert lake.json(*command, "--engine", "local", "--yes", "--dry-run")["dry_run"] is True
    assert lake.json(*command, "--engine", "local", "--yes")["dry_run"] is False
    assert ran == [(True, "local"), (False, "local")]


def test_error_that_is_the_same_for_every_table_is_printed_once(lake: CommandLake) -> None:
    tables = ("prod.users", "readings")
    for command in (
        ("delete-rows", *tables, "--where", "id = ?"),
        ("cleanup", *tables, "--older-than", "1h"),
        ("cleanup", "--older-than", "1h"),
    ):
        for yes in ((), ("--yes",), ("--dry-run",)):
            ran = lake.run(*command, *yes)
            assert (ran.exit_code, ran.out) == (2, ""), (command, ran)
            assert len(ran.err.splitlines()) == 2, ran.err
    assert "--allow-young" in lake.run("cleanup", "--older-than", "1h").err
    unlike = lake.run("delete-rows", *tables, "--where", "nothing = 1", "--yes")
    assert unlike.exit_code == 2
    assert "2 of 2 tables failed" in unlike.err


def test_cleanup_removes_old_versions_once_confirmed(lake: CommandLake) -> None:
    rules = ("--older-than", "0s", "--allow-young", "--skip-tagged")
    lake.catalog.insert_into_table({"id": ["prod", "users"]}, ipc(ROWS))
    planned = _entry(lake.json("cleanup", "prod.users", *rules, "--dry-run"), "prod.users")
    assert planned["change"]["versions"] == 2  # type: ignore[index]  # version 1 is tagged, 4 is the latest
    assert lake.run("cleanup", "prod.users", *rules).exit_code == 5
    assert len(lake.json("versions", "prod.users")["versions"]) == 4
    lake.ok("cleanup", "prod.users", *rules, "--yes")
    assert [each["version"] for each in lake.json("versions", "prod.users")["versions"]] == [4, 1]


def test_cleanup_keeps_young_and_tagged_versions(lake: CommandLake) -> None:
    assert lake.ok("cleanup") == "no versions to remove\n"
    assert lake.run("cleanup", "prod.users", "--older-than", "0s").exit_code == 2
    tagged = lake.run("cleanup", "prod.users", "--older-than", "0s", "--allow-young", "--yes")
    assert tagged.exit_code == 4
    assert "first" in tagged.err


def test_cleanup_beside_an_unreadable_table_suggests_ignore_clones(lake: CommandLake) -> None:
    rules = ("prod.users", "--older-than", "0s", "--allow-young", "--skip-tagged", "--yes")
    lake.catalog.insert_into_table({"id": ["prod", "users"]}, ipc(ROWS))
    broken = lake.folder / "broken.lance" / "_versions"
    broken.mkdir(parents=True)
    (broken / "1.manifest").write_bytes(b"no manifest")
    refused = lake.run("cleanup", *rules)
    assert refused.exit_code != 0
    assert "--ignore-clones" in refused.err
    assert len(lake.json("versions", "prod.users")["versions"]) == 4
    lake.ok("cleanup", *rules, "--ignore-clones")
    assert len(lake.json("versions", "prod.users")["versions"]) == 2


def test_migrate_registers_directories_in_the_manifest(tmp_path: Path) -> None:
    flat = DirectoryNamespace(root=str(tmp_path / "flat"), manifest_enabled="false")
    flat.create_table({"id": ["old"]}, ipc(ROWS))
    lake = CommandLake(str(tmp_path / "flat"))
    assert lake.json("migrate", "--dry-run")["registered"] == ["old"]
    assert "dry run: nothing was changed" in lake.ok("migrate", "--dry-run")
    assert "registered: 1 table" in lake.ok("migrate")
    assert lake.ok("migrate") == "nothing to migrate\n"
    assert lake.json("migrate", "--to", "markers")["declared"] == []


def test_scrub_reports_corrupt_arbiters_and_repair_requires_confirmation(lake: CommandLake) -> None:
    assert lake.ok("scrub") == "no problems found\n"
    (lake.folder / "gone.control").write_bytes(b"damaged " * 20)
    found = lake.run("scrub", "--json")
    assert found.exit_code == 1
    assert found.document["result"]["findings"][0]["name"].startswith("gone")
    assert lake.run("scrub", "--repair").exit_code == 5


def test_doctor_passes_every_check_on_a_working_store(lake: CommandLake) -> None:
    found = lake.json("doctor")
    checks = {each["name"]: each["verdict"] for each in found["checks"]}
    for name in ("list", "write", "read", "list after write", "clock", "create-only", "replace", "delete"):
        assert checks[name] == "good"
    assert "pyspark" in checks
    assert found["named_by"] == "--root"
    assert [each for each in os.listdir(lake.folder) if "probe" in each] == []


def test_doctor_reports_a_read_only_root(lake: CommandLake, monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "disk.create", deny)
    ran = lake.run("doctor", "--json")
    assert ran.exit_code == 1
    checks = {each["name"]: each for each in ran.document["result"]["checks"]}
    assert checks["write"]["verdict"] == "bad"
    assert checks["list"]["verdict"] == "good"
