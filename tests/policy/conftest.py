"""A filled lake, made once and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.patches import substituted
from tests.support.policy.lakes import PolicyLake
from tests.support.servers import S3Server


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled lake that no test changes."""
    root = tmp_path_factory.mktemp("policy") / "lake"
    PolicyLake(str(root)).fill()
    return root


@pytest.fixture
def lake(model: Path, tmp_path: Path) -> PolicyLake:
    """A filled lake of the test's own."""
    return copy_of(model, tmp_path / "lake")


def copy_of(model: Path, root: Path) -> PolicyLake:
    shutil.copytree(model, root, copy_function=shutil.copy2)
    return PolicyLake(str(root))


@pytest.fixture
def s3_lake(moto_server: S3Server, moto_bucket: str) -> Iterator[PolicyLake]:
    """A filled lake on S3; the margin for stores that round times is waived, as nobody can date an object."""
    lake = PolicyLake(f"s3://{moto_bucket}/lake", options=moto_server.storage_options())
    lake.fill()
    with substituted("retention.margin", timedelta(0)):
        yield lake
