"""The examples on the lifecycle page run as they stand, on a lake that has the table `prod.users`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.cli import run
from tests.support.paths import REPOSITORY
from tests.support.roots import ipc

from relance import DirectoryNamespace

PAGE = (REPOSITORY / "docs" / "lifecycle.md").read_text()


@pytest.fixture(autouse=True)
def _lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELANCE_ROOT", "lake")
    catalog = DirectoryNamespace(root="lake")
    catalog.create_namespace({"id": ["prod"]})
    catalog.create_table({"id": ["prod", "users"]}, ipc(pa.table({"name": ["ann", "bob"]})))


def test_the_commands_run_one_after_another() -> None:
    commands = re.findall(r"^(relance [^#\n]+?)(?: *#.*)?$", PAGE, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["drop", "undrop", "purge", "purge"]
    for command in commands:
        ran = run(*shlex.split(command)[1:])
        assert ran.exit_code == 0, (command, ran)


def test_the_python_examples_run_one_after_another(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert DirectoryNamespace(root="lake").list_dropped_tables() == []
