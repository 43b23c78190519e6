"""Every command that a message suggests exists, and does what the message says when it is run."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.net import commands as recorded
from tests.support.cli import CommandLake, Ran, run
from tests.support.paths import REPOSITORY

from relance.cli.app import app

SUGGESTED = re.compile(
    r"(?:: |see |or |with |try |, |\? )relance (?=[a-z-])"
    r"((?:'[^']*'|[^';,?\n])+?)(?=[;,?\n]| or | to | if |$)"
)
PYTHON_OR_OBJECT_ID = re.compile(
    r"\w\(\[|=(True|False|None)\b|[a-z]_[a-z]+\(|'(?![0-9a-f]{8}_)[\w.]+(\$[\w.]+)+'"
)
MORE_LINES = """
import readings rows.csv
import nowhere.t rows.csv
import prod.user rows.csv --mode append --create-namespaces
import readings other.csv --mode append
import new rows.csv other.csv
show reading
show Readings
show users
show prd.users
ls prd
create-namespace new.space
create-namespace prod
drop prod
drop prod --namespace
drop --namespace prd
undrop reading
undrop readings
purge gone
purge gone --deletion-id none
cleanup prod.users --older-than 0s --allow-young --yes
compact gone
query gone
query readings --columns nope
query readings --where "nope = 1"
query readings --tag none
query readings --branch none
query readings --version 99
versions gone
rename prod.users readings
rename readings no.where
register other readings.lance
register readings readings.lance
protect nothing
deregister readings
query readings
import readings rows.csv
run missing.toml
run policy.toml
run --resume
report
policy check bad.toml
policy explain reading --policy policy.toml
drop prod --namespace --cascade --ttl 0s
status prod.users
show prod.users
drop wide --ttl 0s
undrop gone
"""
NOT_RUN = {
    "doctor": "it is about this machine",
    "run --resume": "there may be no run to resume",
    "run --plan plan.json": "the plan is for the lake itself, not for a copy of it",
}
ALSO = {
    "purge": 5,  # it asks first, as the next two
    "run": 5,
    "scrub": 5,
    "drop": 4,  # a namespace that has contents, which the next hint is about
    "policy": 2,  # it lists the problems
}
"""Exit codes of commands that are right and do not succeed."""


def _suggested(text: str) -> list[str]:
    return [each.strip() for each in SUGGESTED.findall(text)]


def _require_that_it_parses(line: str) -> None:
    args = shlex.split(line)
    if "--help" in args:
        assert run(*args).exit_code == 0, line
        return
    with app.make_context("relance", list(args)) as context:
        name, command, rest = app.resolve_command(context, args)
        assert command is not None, line
        if isinstance(command, click.Group):
            name, command, rest = command.resolve_command(click.Context(command, parent=context), rest)
            assert command is not None, line
        command.make_context(str(name), list(rest), parent=context)


def _run_on_copy(line: str, lake: CommandLake, copy: Path) -> Ran:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lake.folder, copy, symlinks=True)
    return run("--root", str(copy), *shlex.split(line))


@pytest.mark.timeout(600)
def test_every_command_that_a_message_suggests_can_be_run(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELANCE_ROOT", lake.uri)
    (tmp_path / "rows.csv").write_text("id,name\n7,x\n")
    (tmp_path / "other.csv").write_text("id,nom\n7,x\n")
    (tmp_path / "policy.toml").write_text(recorded.POLICY)
    (tmp_path / "bad.toml").write_text(recorded.BAD_POLICY)
    (tmp_path / "greedy.toml").write_text(recorded.GREEDY_POLICY)
    seen: set[str] = set()
    wrong: list[str] = []
    for line in filter(None, (MORE_LINES + recorded.LINES).splitlines()):
        ran = run(*shlex.split(line))
        text = ran.out + ran.err
        if ran.exit_code and PYTHON_OR_OBJECT_ID.search(ran.err):
            wrong.append(f"{line}: {ran.err}")
        for suggested in _suggested(text.partition("Usage: ")[0]):
            try:
                _require_that_it_parses(suggested)
            except click.UsageError as error:
                wrong.append(f"{line}\n  suggests: {suggested}\n  {error.format_message()}")
                continue
            command = suggested.split()[0]
            if suggested in seen or suggested in NOT_RUN or command in NOT_RUN or "--help" in suggested:
                continue
            seen.add(suggested)
            followed = _run_on_copy(suggested, lake, tmp_path / "copy")
            if followed.exit_code not in {0, ALSO.get(command)}:
                wrong.append(f"{line}\n  suggests: {suggested}\n  {followed.err}")
    assert not wrong, "\n".join(wrong)
    assert len(seen) > 20


def _texts_of_programs() -> Iterator[tuple[str, str]]:
    for path in sorted((REPOSITORY / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value
            elif isinstance(node, ast.JoinedStr):
                parts = [str(each.value) if isinstance(each, ast.Constant) else " X" for each in node.values]
                yield path.name, "".join(parts)


def test_every_command_in_a_text_of_the_program_has_its_options() -> None:
    found = 0
    for path, text in _texts_of_programs():
        for line in re.findall(r"(?:: |see |or |with |`)relance ([a-z][^;,?\n`)]*)", text):
            words = line.replace("'", "").split()
            command: click.Command | None = app.commands.get(words[0])
            assert command is not None or words[0] == "COMMAND", f"{path}: {line}"
            if isinstance(command, click.Group) and len(words) > 1:
                command = command.commands.get(words[1])
                assert command is not None, f"{path}: {line}"
            if command is not None:
                options = {name for each in command.params for name in each.opts} | {"--help"}
                used = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
                assert used <= options, f"{path}: {line}"
                found += 1
    assert found > 30
