"""A root in each mode, on local disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.lakes import JobLake
from tests.support.modes import MODES
from tests.support.profiles import MINIO, MOTO
from tests.support.roots import LocalPlace, S3Place, local_place
from tests.support.servers import S3Server


@pytest.fixture(params=list(MODES))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> JobLake:
    """An empty root on local disk, in each mode."""
    return JobLake(str(tmp_path / "root"), MODES[request.param])


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    """An empty V1 root on local disk; some modules have one in each mode."""
    return local_place(tmp_path / "root")


@pytest.fixture(params=[MOTO, MINIO])
def s3(request: pytest.FixtureRequest) -> S3Place:
    """An empty V1 root on S3: on moto, and on MinIO where it can be had."""
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    return S3Place(server, server.make_bucket("relance"), "lake")


@pytest.fixture
def s3_root(s3: S3Place) -> JobLake:
    """An empty root on S3, in compatibility mode."""
    return JobLake(s3.root, {}, s3.server.storage_options())
