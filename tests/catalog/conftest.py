"""The roots that the catalog tests run on."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.catalog.helpers import LocalPlace, Place, S3Place, local_place, memory_place
from tests.servers import S3Server

from relance import DirectoryNamespace


@pytest.fixture
def local(tmp_path: Path) -> LocalPlace:
    """A root on local disk; the folder does not exist yet."""
    return local_place(tmp_path / "root")


@pytest.fixture
def memory() -> LocalPlace:
    """An ephemeral root."""
    return memory_place(uuid.uuid4().hex)


@pytest.fixture
def moto(moto_server: S3Server, moto_bucket: str) -> S3Place:
    """A root in an empty bucket on moto."""
    return S3Place(moto_server, moto_bucket, "lake")


@pytest.fixture
def minio(minio_server: S3Server, minio_bucket: str) -> S3Place:
    """A root in an empty bucket on MinIO."""
    return S3Place(minio_server, minio_bucket, "lake")


@pytest.fixture(params=["local", "memory", "moto"])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty root on each kind of store."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def catalog(place: Place) -> DirectoryNamespace:
    """The catalog over `place`."""
    return place.open()
