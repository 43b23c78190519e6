"""A filled lake, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.policy.lakes import Lake
from tests.support.servers import S3Server


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled lake that no test changes."""
    root = tmp_path_factory.mktemp("policy") / "lake"
    Lake(str(root)).fill()
    return root


@pytest.fixture
def lake(model: Path, tmp_path: Path) -> Lake:
    """A filled lake of the test's own."""
    return copy_of(model, tmp_path / "lake")


def copy_of(model: Path, root: Path) -> Lake:
    shutil.copytree(model, root, copy_function=shutil.copy2)
    return Lake(str(root))


@pytest.fixture
def s3_lake(moto_server: S3Server, moto_bucket: str) -> Lake:
    """A filled lake on S3."""
    lake = Lake(f"s3://{moto_bucket}/lake", moto_server.storage_options())
    lake.fill()
    return lake
