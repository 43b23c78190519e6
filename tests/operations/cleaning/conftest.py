"""A lake in each mode, for tests of cleaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cleaning import MODES, Lake


@pytest.fixture(params=list(MODES))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty root on local disk, in each mode."""
    return Lake(tmp_path / "root", MODES[request.param])
