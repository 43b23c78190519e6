"""Rows of table versions, also as other clients write them."""

from __future__ import annotations

from typing import Any

import pytest

from relance.catalog.layout import ManifestFile, NamingScheme, file_name
from relance.catalog.manifest.row import ObjectType, Row, decode_row
from relance.catalog.manifest.store import RowsSnapshot
from relance.catalog.version_rows.agreement import Lag, lag_of, reconcile
from relance.catalog.version_rows.rows import VersionRow, adopted_row, rows_at, rows_of
from relance.storage.protocol import ObjectInfo


def file(version: int, *, size: int = 423) -> ManifestFile:
    return ManifestFile(
        version, ObjectInfo(f"d/_versions/{file_name(version, NamingScheme.V2)}", size, None, None)
    )


def row(version: int, metadata: str | None) -> Row:
    columns = {"object_id": f"t${version}", "object_type": "table_version", "location": None}
    return decode_row({**columns, "metadata": metadata})


def test_number_is_a_size_as_well() -> None:
    text = f'{{"manifest_path": "d/_versions/{file_name(1, NamingScheme.V2)}", "manifest_size": 423}}'
    version = VersionRow(row(1, text))
    assert version.is_of(file(1))
    assert not version.is_of(file(1, size=424))
    assert not version.is_staged
    snapshot = RowsSnapshot([version.manifest_row])
    assert lag_of(snapshot, "t", [file(1)])[0] is Lag.NONE
    change, settled = reconcile("t", {1: version}, [file(1)], copied=lambda *_: True, gone=())
    assert change.is_empty
    assert settled == []


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "7",
        "[]",
        "not json",
        '{"manifest_path": 7, "manifest_size": [1], "naming_scheme": ["V2"], "e_tag": null}',
        '{"manifest_path": null, "manifest_size": 1.5, "naming_scheme": "V9"}',
    ],
)
def test_metadata_of_any_kind_is_replaced_by_what_the_file_says(metadata: str | None) -> None:
    version = VersionRow(row(1, metadata))
    assert not version.is_staged
    assert not version.is_deleting
    assert version.final_key("d") == file(1).info.key
    change, _ = reconcile("t", {1: version}, [file(1, size=9)], copied=lambda *_: True, gone=())
    if metadata is not None and "manifest_size" in metadata:
        assert change.added == (adopted_row("t", file(1, size=9)).manifest_row,)
    gone, _ = reconcile("t", {1: version}, [], copied=lambda *_: True, gone=())
    assert gone.removed == ("t$1",)


def test_only_version_rows_of_the_table_count() -> None:
    others: list[Any] = [
        Row("t$01", ObjectType.VERSION),
        Row("t$x", ObjectType.VERSION),
        Row("t$2", ObjectType.TABLE),
        Row("t$a$3", ObjectType.VERSION),
    ]
    snapshot = RowsSnapshot([row(1, '{"k": 5}'), *others])
    assert rows_of(snapshot, "t").keys() == {1}
    assert rows_at(snapshot, "t", [1, 2]).keys() == {1}
    assert rows_of(snapshot, "t")[1].metadata == {"k": "5"}
