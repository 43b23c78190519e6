"""A root in each mode, on local disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.maintenance.helpers import MODES, Root
from tests.servers import S3Server


@pytest.fixture(params=list(MODES))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root on local disk, in each mode."""
    return Root(str(tmp_path / "root"), MODES[request.param])


@pytest.fixture
def s3_root(moto_server: S3Server, moto_bucket: str) -> Root:
    """An empty root on S3."""
    return Root(f"s3://{moto_bucket}/lake", {}, moto_server.storage_options())
