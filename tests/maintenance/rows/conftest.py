"""The roots that jobs on rows run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.modes import MODES
from tests.support.roots import LocalPlace, local_place


@pytest.fixture(params=["V1", "V2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """A root on local disk, in the mode of directories and in that of the manifest."""
    return local_place(tmp_path / "root", MODES[request.param])
