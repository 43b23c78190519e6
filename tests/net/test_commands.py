"""What every command prints with `--json` and the code it exits with, compared with the record."""

from __future__ import annotations

from pathlib import Path

from tests.net import commands, goldens
from tests.net.commands import covered

NAME = "commands"
ERROR_KEYS = {"type", "code", "message", "hint"}


def test_json_documents_and_exit_codes_of_all_commands_are_as_recorded(tmp_path: Path) -> None:
    goldens.assert_as_recorded(NAME, commands.record_in(tmp_path), goldens.read(NAME))


def test_every_command_has_a_record_of_success() -> None:
    assert covered(goldens.read(NAME)) >= commands.commands()


def test_every_command_line_is_recorded() -> None:
    recorded = {each.partition(" #")[0] for each in goldens.read(NAME)}
    assert recorded == {line for line in commands.LINES.splitlines() if line}


def test_every_recorded_failure_has_a_type_a_code_a_message_and_a_hint() -> None:
    failed = {line: each["json"] for line, each in goldens.read(NAME).items() if each["exit"]}
    assert {line for line, each in failed.items() if set(each["error"]) != ERROR_KEYS} == set()
    assert {each["ok"] for each in failed.values()} == {False}
