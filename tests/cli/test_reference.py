"""The command line reference matches the commands."""

from __future__ import annotations

import re

import click
import pytest
from tests.net import goldens
from tests.support.paths import REPOSITORY

from relance.cli.app import app
from relance.cli.reference import page
from relance.cli.shapes import SHAPES

DOCS = REPOSITORY / "docs"


def _paths() -> list[str]:
    found: list[str] = []
    for name, command in app.commands.items():
        inside = command.commands if isinstance(command, click.Group) else None
        found += [name] if inside is None else [f"{name} {each}" for each in inside]
    return found


def test_cli_reference_page_is_up_to_date() -> None:
    written = (DOCS / "reference" / "cli.md").read_text()
    assert written == page(), "run: python -m relance.cli.reference docs/reference/cli.md"


UNRECORDED = {
    "migrate": {
        "cleared",
        "purging",
        "purged",
        "copied",
        "rows",
    },  # of a format-1 root: tests/catalog/test_migrate.py
    "run": {"runs"},  # of --every, which does not end by itself
}
"""Documented keys that no recorded command line prints."""


@pytest.mark.parametrize("path", _paths())
def test_cli_reference_documents_the_result_of_every_command(path: str) -> None:
    documents = [line["json"] for line in goldens.read("commands").values()]
    printed = {key for each in documents if each["command"] == path for key in each.get("result", ())}
    assert printed == set(SHAPES[path]) - UNRECORDED.get(path, set())
    section = page().partition(f"### relance {path}\n")[2].partition("\n### ")[0]
    assert [key for key, meaning in SHAPES[path].items() if f"`{key}`" not in section or not meaning] == []


def test_result_shapes_exist_only_for_real_commands() -> None:
    assert set(SHAPES) == set(_paths())


def test_guide_and_readme_use_only_real_commands_and_options() -> None:
    for document in (DOCS / "cli.md", DOCS / "tutorial.md", DOCS.parent / "README.md"):
        for line in re.findall(r"^(?:\$ )?relance (.+)$", document.read_text(), re.MULTILINE):
            words = re.sub(r"--root \S+", "", line.partition("#")[0]).split()
            command: click.Command = app
            for word in words:
                if isinstance(command, click.Group) and not word.startswith("-"):
                    assert word in command.commands, line
                    command = command.commands[word]
            known = {name for each in command.params for name in each.opts} | {"--help"}
            used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
            assert used <= known, line
