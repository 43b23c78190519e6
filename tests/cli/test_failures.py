"""What an error says on the command line: nothing is read out of its text."""

from __future__ import annotations

import pytest
from tests.support.cli import CommandLake

from relance import errors
from relance.cli.exits import Exit
from relance.cli.failures import failure_of, runnable


@pytest.mark.parametrize(
    "detail",
    [
        "expression contains the placeholder '?', which has no value: \"id = ? AND active=True\"",
        "Error parsing statement: SELECT 1 FROM t WHERE name = 'a$b'",
        "column 'force=True' not found: undrop_table(['a])b']), unprotect(['x']) first",
        "No field named allow_young=True; there is no folder, nothing to resume, or overwrite it",
        "'prod$users' is protected, is not dropped, manifest_enabled=true, look_for_clones=False",
    ],
)
def test_text_of_an_error_is_shown_as_it_is_and_decides_nothing(detail: str) -> None:
    for kind in (errors.InvalidInputError, errors.InvalidTableStateError, errors.TransactionNotFoundError):
        failure = failure_of(kind(detail), str)
        assert failure.what == f"{kind.prefix}{detail}"
        assert failure.to_do == runnable(kind.hint, (), "")
        assert failure.exit_code == kind.exit_code


def test_error_carries_its_own_hint_and_exit_code() -> None:
    error = errors.InvalidTableStateError("x", hint="do this")
    assert failure_of(error, str).to_do == "do this"
    error.exit_code = Exit.NOT_FOUND
    assert failure_of(error, str).exit_code is Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("hint", "ids", "command", "shown"),
    [
        ("see relance show TABLE", [("a", "b.c")], "query", "see relance show 'a.`b.c`'"),
        ("see relance status TABLE", [("a",), ("b",)], "rename", "see relance status b"),
        ("see relance drop --purge TABLE, or", [], "import", "see relance ls --tree, or"),
        ("fix it; see relance COMMAND --help", [], "policy check", "fix it; see relance policy check --help"),
        ("fix it; see relance COMMAND --help", [], "", "fix it; see relance --help"),
    ],
)
def test_hint_is_about_the_table_and_command_that_failed(
    hint: str, ids: list[tuple[str, ...]], command: str, shown: str
) -> None:
    assert runnable(hint, ids, command) == shown


def test_ids_that_a_command_names_are_shown_as_they_are_typed() -> None:
    error = errors.TableNotFoundError("table id 'a$b': no table id 'a$b' where x = 'a$b'")
    shown = failure_of(error, str, ids=[("a",), ("a", "b")]).what
    assert shown == "Table not found: table 'a.b': no table id 'a$b' where x = 'a$b'"


def test_values_in_a_filter_are_quoted_as_they_were_given(lake: CommandLake) -> None:
    for where in ("active=True AND id = ?", "name = 'a$b' AND id = ?"):
        ran = lake.run("delete-rows", "readings", "--where", where, "--yes")
        assert ran.exit_code == 2
        assert where in ran.err
        assert "--active" not in ran.err
        assert "--force" not in ran.err


def test_dropped_table_with_brackets_in_its_name_is_shown_with_its_hint(lake: CommandLake) -> None:
    odd = "a])b"
    lake.catalog.create_namespace({"id": [odd]})
    lake.ok("rename", "readings", f"`{odd}`.`{odd}`")
    lake.ok("drop", f"`{odd}`.`{odd}`")
    ran = lake.run("show", f"`{odd}`.`{odd}`")
    assert ran.exit_code == 3
    assert f"relance undrop '{odd}.{odd}'" in ran.err
    assert "undrop_table" not in ran.err


def test_hint_about_a_dropped_table_names_the_table_that_is_meant(lake: CommandLake) -> None:
    (only,) = lake.json("ls", "--dropped")["dropped"]
    ran = lake.run("compact", "gone", "nothing", "readings", "--json")
    gone, nothing, _ = sorted(ran.document["result"]["tables"], key=lambda each: each["table"])
    assert gone["error"]["hint"] == "to restore it: relance undrop gone"
    assert gone["error"]["message"].startswith("Table not found: table 'gone' was dropped on ")
    assert "undrop" not in nothing["error"]["hint"]
    assert only["table"] == "gone"


def test_protected_objects_name_the_command_that_unprotects_them(lake: CommandLake) -> None:
    lake.ok("protect", "prod.users", "readings")
    for command, name in (
        (["drop", "prod.users"], "prod.users"),
        (["deregister", "readings"], "readings"),
        (["register", "readings", "readings.lance", "--overwrite"], "readings"),
        (["drop", "--namespace", "prod", "--cascade"], "prod.users"),
    ):
        ran = lake.run(*command)
        assert ran.exit_code == 4, ran
        assert f"relance unprotect {name}" in ran.err
    # Its tag is why this one fails, not its protection.
    rules = ("--older-than", "0s", "--allow-young", "--yes")
    assert "unprotect" not in lake.run("cleanup", "prod.users", *rules).err


def test_force_is_suggested_only_for_a_table_whose_period_lasts(lake: CommandLake) -> None:
    assert "pass --force" in lake.run("purge", "gone").err
    assert "pass --force" not in lake.run("purge", "readings").err
    assert "pass --force" not in lake.run("purge", "readings", "--force").err


def test_undrop_of_a_table_that_exists_says_so(lake: CommandLake) -> None:
    assert "nothing to restore" in lake.run("undrop", "readings").err
    assert "nothing to restore" not in lake.run("undrop", "gone", "--as", "readings").err
