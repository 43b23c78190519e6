"""A catalog on each kind of store, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.manifest_fixtures import clock
from tests.support.profiles import MOTO

import relance
from relance.testing.clock import ManualClock

if TYPE_CHECKING:
    from tests.support.servers import S3Server

__all__ = ["clock"]

Open = Callable[..., relance.DirectoryNamespace]


@pytest.fixture(params=["local disk", MOTO])
def open_catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Open:
    """Return a function that opens the test's root with more properties or another clock."""
    if request.param == "local disk":
        properties = {"root": str(tmp_path / "lake")}
    else:
        server: S3Server = request.getfixturevalue("moto_server")
        bucket: str = request.getfixturevalue("moto_bucket")
        options = {f"storage.{key}": value for key, value in server.storage_options().items()}
        properties = {"root": f"s3://{bucket}/lake", **options}

    def open_with(*, clock: ManualClock = clock, **more: str) -> relance.DirectoryNamespace:
        clock.resolution = 0.0 if request.param == "local disk" else 1.0
        return relance.DirectoryNamespace(clock=clock, manifest_enabled="false", **{**properties, **more})

    return open_with


@pytest.fixture
def catalog(open_catalog: Open) -> relance.DirectoryNamespace:
    return open_catalog()
