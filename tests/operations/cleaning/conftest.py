"""A table in each mode, for tests of cleaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cleaning import CLEANING_MODES, VersionedTable
from tests.support.jobs.lakes import JobLake


@pytest.fixture(params=list(CLEANING_MODES))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> VersionedTable:
    """An empty root on local disk, in each mode."""
    return VersionedTable(JobLake(str(tmp_path / "root"), CLEANING_MODES[request.param]))
