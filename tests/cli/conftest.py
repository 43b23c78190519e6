"""A lake with tables, namespaces and something dropped, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.cli import ROWS, CommandLake
from tests.support.roots import ipc

from relance import DirectoryNamespace


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what this machine says of catalogs away from the tests."""
    for name in ("RELANCE_ROOT", "RELANCE_CONFIG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "lake"
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
    return folder


@pytest.fixture
def lake(pristine: Path, tmp_path: Path) -> CommandLake:
    """Return a fresh lake: readings, prod.users (two versions), prod.raw.`odd.name`; `gone` is dropped."""
    folder = tmp_path / "lake"
    shutil.copytree(pristine, folder)
    return CommandLake(str(folder))
