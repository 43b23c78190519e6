"""A small lake, and short ways to run commands on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from tests.support.lakes import Lake
from tests.support.roots import ipc

from relance import DirectoryNamespace
from relance.cli.app import app
from relance.cli.shapes import SHAPES

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
RULES = """
[defaults]
compact = { min_fragments = 2 }

[[rules]]
name = "production"
tables = "prod.**"
protect = true

[[rules]]
name = "old readings"
tables = "readings"
delete_rows = { delete_where = "id < 2" }
"""
"""A policy for the small lake."""

SECRET = "s3cr3t-value-of-a-key"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def result(self) -> dict[str, Any]:
        """What the command gave."""
        assert self.document["ok"], self.document
        found = self.document["result"]
        assert isinstance(found, dict)
        unknown = set(found) - set(SHAPES[self.document["command"]])
        assert not unknown, f"not in the reference: {unknown}"
        return found


def make_lake(folder: Path) -> None:
    """Make a lake: readings, prod.users (two versions), prod.raw.`odd.name`; `gone` is dropped."""
    catalog = DirectoryNamespace(root=str(folder), manifest_upkeep="false")
    catalog.create_namespace({"id": ["prod"], "properties": {"owner": "ops"}})
    catalog.create_namespace({"id": ["prod", "raw"]})
    catalog.create_table({"id": ["readings"]}, ipc(ROWS))
    catalog.create_table({"id": ["prod", "users"], "properties": {"team": "a"}}, ipc(ROWS))
    catalog.insert_into_table({"id": ["prod", "users"]}, ipc(ROWS))
    catalog.create_table({"id": ["prod", "raw", "odd.name"]}, ipc(ROWS))
    catalog.create_table({"id": ["gone"]}, ipc(ROWS))
    catalog.create_table_tag({"id": ["prod", "users"], "tag": "first", "version": 1})
    catalog.drop_table({"id": ["gone"]})


class CommandLake(Lake):
    """A lake on disk, and the command line on it."""

    @property
    def catalog(self) -> DirectoryNamespace:
        """A fresh catalog each time: it remembers nothing from before a command."""
        return self.open()

    def run(self, *args: str) -> Ran:
        """Run a command on this lake."""
        return run("--root", self.uri, *args)

    def ok(self, *args: str) -> str:
        """Run a command that must succeed, and return what it printed."""
        ran = self.run(*args)
        assert ran.exit_code == 0, ran
        return ran.out

    def json(self, *args: str) -> dict[str, Any]:
        """Run a command with --json that must succeed, and return its result."""
        ran = self.run(*args, "--json")
        assert ran.exit_code == 0, ran
        return ran.result


def run(*args: str) -> Ran:
    """Run a command in this process, without a terminal."""
    ran = CliRunner().invoke(app, list(args))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


def spawn(*args: str, folder: Path, **variables: str) -> Ran:
    """Run a command in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "relance", *args],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which only these variables speak of a catalog."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RELANCE_")}
    return {**plain, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
