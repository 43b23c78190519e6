"""Fixtures: roots with a manifest in both modes, on local disk and on moto."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.lakes import QUIET, Lake
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, V2
from tests.support.profiles import deep
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    # The real date: stores stamp objects with theirs, and a sweep compares the two.
    return ManualClock(datetime.now(UTC))


def _on_disk(tmp_path: Path, mode: dict[str, str], clock: ManualClock) -> Lake:
    return Lake(str(tmp_path / "lake"), mode, settings=QUIET, manual_clock=clock)


@pytest.fixture(params=MANIFEST_MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in either mode; the folder does not exist yet."""
    return _on_disk(tmp_path, MANIFEST_MODES[request.param], clock)


@pytest.fixture
def v2(tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in which the manifest alone counts."""
    return _on_disk(tmp_path, V2, clock)


@pytest.fixture
def compatible(tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in compatibility mode."""
    return _on_disk(tmp_path, COMPATIBILITY, clock)


@pytest.fixture(
    params=[
        pytest.param((store, mode), id=f"{store} {mode}", marks=marks)
        for store, marks in (("disk", ()), ("moto", deep))
        for mode in MANIFEST_MODES
    ]
)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    """A root in either mode, on local disk and on moto."""
    store, mode = request.param
    if store == "disk":
        return _on_disk(tmp_path, MANIFEST_MODES[mode], clock)
    server: S3Server = request.getfixturevalue("moto_server")
    bucket: str = request.getfixturevalue("moto_bucket")
    clock.resolution = 1.0  # S3 tells times in whole seconds
    return Lake(f"s3://{bucket}/lake", MANIFEST_MODES[mode], server.storage_options(), QUIET, clock)


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """The catalog over `lake`."""
    return lake.open()
