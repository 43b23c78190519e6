"""The roots that the catalog tests run on."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.support.modes import COMPATIBILITY, V1
from tests.support.profiles import MEMORY, MOTO
from tests.support.roots import LocalPlace, Place, S3Place, local_place, memory_place
from tests.support.servers import S3Server

from relance import DirectoryNamespace

MODES = {"V1": V1, "compatibility": COMPATIBILITY}


@pytest.fixture(params=MODES)
def local(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """A root on local disk, opened in either mode; the folder does not exist yet."""
    return local_place(tmp_path / "root", MODES[request.param])


@pytest.fixture
def disk(tmp_path: Path) -> LocalPlace:
    """A root on local disk in which directories alone count; the folder does not exist yet."""
    return local_place(tmp_path / "root")


@pytest.fixture
def compatibility(tmp_path: Path) -> LocalPlace:
    """A root on local disk, opened as is the default; the folder does not exist yet."""
    return local_place(tmp_path / "root", COMPATIBILITY)


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


@pytest.fixture(params=["disk", MEMORY, MOTO, "compatibility"])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty root on each kind of store, and one in compatibility mode."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def catalog(place: Place) -> DirectoryNamespace:
    """The catalog over `place`."""
    return place.open()
