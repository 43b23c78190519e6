"""The roots that the tests of rows run on: local disk, in each of the three modes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lancedb_clients import Recording
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.roots import LocalPlace, local_place
from tests.support.rows import quiet

from relance import DirectoryNamespace

MODES = {"V1": V1, "V2": V2, "compatibility": COMPATIBILITY}


@pytest.fixture(params=MODES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """A root on local disk in each mode; the folder does not exist yet."""
    return local_place(tmp_path / "root", MODES[request.param])


@pytest.fixture
def catalog(place: LocalPlace) -> DirectoryNamespace:
    """The catalog over `place`."""
    return quiet(place)


@pytest.fixture
def no_queries_yet() -> None:
    """Forget the queries that lancedb handed over in other tests."""
    Recording.queries = []
