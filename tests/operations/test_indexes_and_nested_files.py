"""The indexes of the manifest, and files that other clients leave inside table directories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import DeclareTableRequest, DeregisterTableRequest, ListTablesRequest
from lance.namespace import DirectoryNamespace as NativeNamespace
from tests.support.calls import describe, drop, exists, make, spaces, tables
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.lakes import QUIET, Lake
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, V1
from tests.support.roots import refused
from tests.support.servers import RequestCounter, S3Server, count_requests


def _indexes(root: Path) -> dict[str, tuple[str, ...]]:
    """Return the type of each index on the manifest with its columns, by column."""
    indexes = lance.dataset(root / "__manifest").describe_indices()
    return {index.field_names[0]: (index.index_type.upper(), *index.field_names) for index in indexes}


@pytest.mark.parametrize("mode", MANIFEST_MODES)
def test_manifest_has_its_three_indexes_from_the_first_change_on(tmp_path: Path, mode: str) -> None:
    catalog = Lake(str(tmp_path), MANIFEST_MODES[mode], settings=QUIET).open()
    expected = {
        "object_id": ("BTREE", "object_id"),
        "object_type": ("BITMAP", "object_type"),
        "base_objects": ("LABELLIST", "base_objects"),
    }
    spaces(catalog, "sales")
    assert _indexes(tmp_path) == expected
    for number in range(5):
        make(catalog, f"sales/t{number}", number)
    drop(catalog, "sales/t0")
    assert _indexes(tmp_path) == expected


@contextmanager
def _lake(
    kind: str, folder: Path, server: S3Server, bucket: str, mode: dict[str, str]
) -> Iterator[tuple[Lake, RequestCounter | None]]:
    """Give a lake on disk or on S3, with what counts its requests there."""
    if kind == "disk":
        yield Lake(str(folder), mode, settings=QUIET), None
    else:
        with count_requests(server) as counter:
            yield Lake(f"s3://{bucket}/lake", mode, counter.server.storage_options(), QUIET), counter


def _native(lake: Lake, mode: dict[str, str]) -> Any:
    return NativeNamespace(**(lake.properties | mode))


@pytest.mark.parametrize("kind", ["disk", "s3"])
@pytest.mark.parametrize("mode", [V1, COMPATIBILITY], ids=["V1", "compatibility"])
def test_table_that_a_native_client_deregistered_is_hidden_at_once(
    tmp_path: Path, moto_server: S3Server, moto_bucket: str, kind: str, mode: dict[str, str]
) -> None:
    with _lake(kind, tmp_path, moto_server, moto_bucket, mode) as (lake, counter):
        catalog = lake.catalog
        for name in ("a", "b", "c"):
            make(catalog, name, 1)
        assert tables(catalog) == ["a", "b", "c"]
        location = lake.location("b")
        _native(lake, V1).deregister_table(DeregisterTableRequest(id=["b"]))
        if counter is not None:
            counter.reset()
        assert tables(catalog) == ["a", "c"]
        if counter is not None:
            listings = [request for request in counter.requests if request[0] == "GET"]
            assert len(listings) == 1, "what lies inside the tables costs no request"
            assert len(counter.requests) <= 2, "and compatibility mode looks for a new manifest"
        assert tables(lake.open()) == ["a", "c"]
        assert not exists(catalog, "b")
        with refused(TABLE_NOT_FOUND):
            describe(catalog, "b")
        assert lance.dataset(location, storage_options=lake.options or None).count_rows() == 1
        catalog.register_table({"id": ["b"], "location": "b.lance"})
        assert tables(catalog) == ["a", "b", "c"]
        assert "b" in _native(lake, V1).list_tables(ListTablesRequest(id=[])).tables


@pytest.mark.parametrize("kind", ["disk", "s3"])
@pytest.mark.parametrize("native_mode", [V1, COMPATIBILITY], ids=["native V1", "native compatibility"])
@pytest.mark.parametrize("mode", [V1, COMPATIBILITY], ids=["V1", "compatibility"])
def test_table_that_a_native_client_declared_is_listed_and_known_as_declared(
    tmp_path: Path,
    moto_server: S3Server,
    moto_bucket: str,
    kind: str,
    native_mode: dict[str, str],
    mode: dict[str, str],
) -> None:
    with _lake(kind, tmp_path, moto_server, moto_bucket, mode) as (lake, _):
        catalog = lake.catalog
        make(catalog, "ours", 1)
        assert tables(catalog) == ["ours"]
        _native(lake, native_mode).declare_table(DeclareTableRequest(id=["theirs"]))
        assert tables(catalog) == ["ours", "theirs"]
        assert tables(catalog, include_declared=False) == ["ours"]
        assert describe(catalog, "theirs", check_declared=True).is_only_declared is True
        make(catalog, "theirs", 2)
        assert tables(catalog, include_declared=False) == ["ours", "theirs"]
