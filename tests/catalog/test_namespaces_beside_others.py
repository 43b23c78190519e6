"""Namespaces beside a client that merge-inserts rows between our check and our commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.patches import original, substitute

from relance import DirectoryNamespace
from relance.catalog.manifest.schema import SCHEMA
from relance.catalog.manifest.table import LanceManifest
from relance.errors import NamespaceNotEmptyError, NamespaceNotFoundError
from relance.locations import MANIFEST_DIRECTORY


def _foreign(root: Path) -> lance.LanceDataset:
    return lance.dataset(str(root / MANIFEST_DIRECTORY))


def _insert_table(root: Path, object_id: str) -> None:
    row = {"object_id": object_id, "object_type": "table", "location": f"12345678_{object_id}"}
    rows = pa.Table.from_pylist([{**row, "metadata": None, "base_objects": None}], schema=SCHEMA)
    _foreign(root).merge_insert("object_id").when_not_matched_insert_all().use_index(False).execute(rows)


def _once_before_commit(monkeypatch: pytest.MonkeyPatch, act: Any) -> list[int]:
    """Run `act` just before the next commit of ours."""
    real = original("manifest.commit")
    acted: list[int] = []

    def commit(self: LanceManifest, *arguments: Any) -> None:
        if not acted:
            acted.append(1)
            act()
        real(self, *arguments)

    substitute(monkeypatch, "manifest.commit", commit)
    return acted


def test_dropping_a_namespace_sees_a_table_that_came_just_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path))
    catalog.create_namespace({"id": ["a"]})
    acted = _once_before_commit(monkeypatch, lambda: _insert_table(tmp_path, "a$t"))
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace({"id": ["a"]})
    assert acted
    assert catalog.list_tables({"id": ["a"]}).tables == ["t"]


def test_cascade_takes_a_table_along_that_came_just_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path))
    catalog.create_namespace({"id": ["a"]})
    _once_before_commit(monkeypatch, lambda: _insert_table(tmp_path, "a$t"))
    catalog.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    assert sorted(catalog.undrop_namespace(["a"])) == [("a",), ("a", "t")]


def test_declaring_in_a_namespace_fails_if_that_was_deleted_just_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path))
    for number in range(300):  # so that the namespace's row is not in the head
        catalog.create_namespace({"id": [f"n{number}"]})
    _once_before_commit(monkeypatch, lambda: _foreign(tmp_path).delete("object_id = 'n0'"))
    with pytest.raises(NamespaceNotFoundError):
        catalog.declare_table({"id": ["n0", "t"]})
    catalog.create_namespace({"id": ["n0"]})
    assert catalog.list_tables({"id": ["n0"]}).tables == []


def test_declaring_in_a_batch_fails_if_the_namespace_was_deleted_just_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path), table_version_management="true")
    for number in range(300):
        catalog.create_namespace({"id": [f"n{number}"]})
    _once_before_commit(monkeypatch, lambda: _foreign(tmp_path).delete("object_id = 'n0'"))
    with pytest.raises(NamespaceNotFoundError):
        catalog.batch_commit_tables({"operations": [{"declare_table": {"id": ["n0", "t"]}}]})
    catalog.create_namespace({"id": ["n0"]})
    assert catalog.list_tables({"id": ["n0"]}).tables == []
