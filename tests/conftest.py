"""Real object-store servers with fresh buckets for all tests, and settings that hold for every test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests.support.profiles import deep, is_costly
from tests.support.scheduling import GroupedScheduling
from tests.support.servers import AzureServer, S3Server, start_azurite, start_minio, start_moto
from tests.support.services import required

# The shipped contract is no test module: without this its assertions would fail without their values.
pytest.register_assert_rewrite("relance.testing.storage_contract")

# Machines are shared and noisy: how long one example takes says nothing about the code.
settings.register_profile("relance", deadline=None)
settings.load_profile("relance")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedScheduling | None:
    """Keep the tests of Spark together when groups are asked for (--dist loadgroup)."""
    return GroupedScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as deep whose fixtures are costly, before a profile is selected."""
    for item in items:
        if is_costly(item):
            item.add_marker(deep)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """Run one moto server for the session."""
    with start_moto() as server:
        yield server


@pytest.fixture(scope="session")
def minio_server() -> Iterator[S3Server]:
    """Run one MinIO server for the session, or skip when MinIO is not installed."""
    with required("go"), start_minio() as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[AzureServer]:
    """Run one Azurite server for the session, or skip when Azurite is not installed."""
    with required("npm"), start_azurite() as server:
        yield server


@pytest.fixture
def moto_bucket(moto_server: S3Server) -> str:
    """Return the name of a fresh, empty bucket on the moto server."""
    return moto_server.make_bucket("relance")


@pytest.fixture
def minio_bucket(minio_server: S3Server) -> str:
    """Return the name of a fresh, empty bucket on the MinIO server."""
    return minio_server.make_bucket("relance")
