"""A root in each mode, with one table in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.roots import LocalPlace, create, local_place
from tests.support.tables import QUIET_MODES, ROWS

from relance import DirectoryNamespace


@pytest.fixture(params=QUIET_MODES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """An empty root on local disk, opened in each mode."""
    return local_place(tmp_path / "root", QUIET_MODES[request.param])


@pytest.fixture
def catalog(place: LocalPlace) -> DirectoryNamespace:
    """A catalog with the table `t`."""
    opened = place.open()
    create(opened, "t", ROWS)
    return opened
