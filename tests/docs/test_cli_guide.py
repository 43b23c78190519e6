"""The commands of the guide and of the README run as they stand, one after another."""

from __future__ import annotations

import shlex
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.support.cli import run
from tests.support.paths import REPOSITORY
from tests.support.roots import ipc

from relance import DirectoryNamespace, errors
from relance.errors import RelanceError
from relance.exits import MEANINGS

POLICY = '[[rules]]\nname = "all"\ntables = "**"\ncompact = { min_fragments = 2 }\n'
NOT_FOR_A_TEST = {
    "relance run policy.toml --yes --every 1h": "it does not end",
    "relance run --resume": "no run was stopped",
}


def _commands(document: str) -> list[str]:
    lines = [line.partition("  #")[0].strip() for line in (REPOSITORY / document).read_text().splitlines()]
    return [line for line in lines if line.startswith("relance ") and line not in NOT_FOR_A_TEST]


@pytest.mark.parametrize(("document", "least"), [("README.md", 3), ("docs/cli.md", 25)])
def test_every_command_in_the_readme_and_guide_runs(
    document: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELANCE_ROOT", "lake")
    pa.parquet.write_table(pa.table({"name": ["ann", "bob"], "age": [41, 17]}), tmp_path / "users.parquet")
    (tmp_path / "policy.toml").write_text(POLICY)
    commands = _commands(document)
    assert len(commands) >= least
    for number, command in enumerate(commands):
        ran = run(*shlex.split(command)[1:])
        assert ran.exit_code == 0, (command, ran)
        if number == 0:
            events = pa.table({"day": [date(2026, 5, 1)]})
            catalog = DirectoryNamespace(root="lake")
            catalog.create_table({"id": ["prod", "events"]}, ipc(events))
            catalog.insert_into_table({"id": ["prod", "events"]}, ipc(events))


def test_guide_has_the_exit_codes_with_their_meanings_and_errors() -> None:
    section = (REPOSITORY / "docs/cli.md").read_text().partition("## Exit codes\n")[2].partition("\n## ")[0]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line]
    assert {int(code): meaning for code, meaning, _ in table[2:]} == {**MEANINGS}
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    kinds = [each for each in classes if issubclass(each, RelanceError) and each is not RelanceError]
    for code, _, names in table[2:]:
        # An error with the code of its parent goes without saying.
        found = [
            f"`{each.__name__}`"
            for each in kinds
            if each.exit_code == int(code)
            and not any(parent in kinds and parent.exit_code == int(code) for parent in each.__mro__[1:])
        ]
        assert names == (", ".join(found) or "-")
