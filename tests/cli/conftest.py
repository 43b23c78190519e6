"""A lake with tables, namespaces and something dropped, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.cli import CommandLake, make_lake


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what this machine says of catalogs away from the tests."""
    for name in ("RELANCE_ROOT", "RELANCE_CONFIG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "lake"
    make_lake(folder)
    return folder


@pytest.fixture
def lake(pristine: Path, tmp_path: Path) -> CommandLake:
    """Return a fresh copy of the small lake."""
    folder = tmp_path / "lake"
    shutil.copytree(pristine, folder)
    return CommandLake(str(folder))
