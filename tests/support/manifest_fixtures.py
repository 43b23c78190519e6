"""Roots with a manifest, in both modes: on local disk, and on moto for a chosen few."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.manifest_lakes import COMPATIBILITY, MODES, V2, Lake
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    # The real date: stores stamp objects with theirs, and a sweep compares the two.
    return ManualClock(datetime.now(UTC))


def _on_disk(tmp_path: Path, mode: dict[str, str], clock: ManualClock) -> Lake:
    folder = tmp_path / "lake"
    return Lake({"root": str(folder)}, mode, clock, folder)


@pytest.fixture(params=MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in either mode; the folder does not exist yet."""
    return _on_disk(tmp_path, MODES[request.param], clock)


@pytest.fixture
def v2(tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in which the manifest alone counts."""
    return _on_disk(tmp_path, V2, clock)


@pytest.fixture
def compatible(tmp_path: Path, clock: ManualClock) -> Lake:
    """A root on local disk in compatibility mode."""
    return _on_disk(tmp_path, COMPATIBILITY, clock)


@pytest.fixture(params=[(store, mode) for store in ("disk", "moto") for mode in MODES], ids=" ".join)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    """A root in either mode, on local disk and on moto."""
    store, mode = request.param
    if store == "disk":
        return _on_disk(tmp_path, MODES[mode], clock)
    server: S3Server = request.getfixturevalue("moto_server")
    bucket: str = request.getfixturevalue("moto_bucket")
    options = {f"storage.{key}": value for key, value in server.storage_options().items()}
    return Lake({"root": f"s3://{bucket}/lake", **options}, MODES[mode], clock)


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """The catalog over `lake`."""
    return lake.open()
