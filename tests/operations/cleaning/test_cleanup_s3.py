"""Cleanup on an S3 server."""

from __future__ import annotations

from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from tests.support.modes import COMPATIBILITY
from tests.support.roots import S3Place, ipc
from tests.support.servers import S3Server

from relance import CleanupPolicy, DirectoryNamespace

ID = ["t"]


@pytest.fixture
def place(moto_server: S3Server, moto_bucket: str) -> S3Place:
    return S3Place(moto_server, moto_bucket, "lake", COMPATIBILITY.copy())


@pytest.fixture
def catalog(place: S3Place) -> DirectoryNamespace:
    """A catalog with a table of three versions."""
    catalog = place.open()
    catalog.create_table({"id": ID}, ipc(pa.table({"a": [1]})))
    for value in (2, 3):
        lance.write_dataset(pa.table({"a": [value]}), namespace_client=catalog, table_id=ID, mode="overwrite")
    return catalog


def _data_files(place: S3Place) -> list[str]:
    return sorted(key for key in place.files() if key.startswith("t.lance/data/"))


def test_cleanup_on_s3_removes_old_versions_with_their_files(
    place: S3Place, catalog: DirectoryNamespace
) -> None:
    assert len(_data_files(place)) == 3
    assert catalog.cleanup_old_versions(ID, older_than=timedelta(0), dry_run=True).data_files == 2
    assert len(_data_files(place)) == 3
    policy = CleanupPolicy(before_version=3, rate_limit=500)
    stats = catalog.cleanup_with_policy(ID, policy)
    assert (stats.versions, stats.data_files) == ((1, 2), 2)
    assert len(_data_files(place)) == 1
    assert lance.dataset(namespace_client=catalog, table_id=ID).to_table()["a"].to_pylist() == [3]


def test_validation_on_s3_finds_missing_and_unreadable_files(
    place: S3Place, catalog: DirectoryNamespace
) -> None:
    assert catalog.validate_table(ID, every_version=True).ok
    for key in _data_files(place):
        place.put(key, place.files()[key][:20])
    found = catalog.validate_table(ID)
    assert len(found.unreadable) == 1
    for key in _data_files(place):
        place.remove(key)
    assert len(catalog.validate_table(ID).missing) == 1
    assert len(catalog.validate_table(ID, every_version=True).missing) == 3
