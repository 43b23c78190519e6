"""Row operations with concurrent clients and store failures, in namespaces, and on an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.operations.data.conftest import MODES
from tests.support.codes import CONCURRENT_MODIFICATION, UNSUPPORTED
from tests.support.patches import original, substitute
from tests.support.roots import LocalPlace, S3Place, ipc, local_place, refused
from tests.support.rows import add, count, ids, make, people, quiet
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.errors import ServiceUnavailableError


def test_insert_into_a_table_dropped_before_the_commit_is_a_conflict(
    place: LocalPlace, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)
    real = lance.LanceDataset.commit

    def late(target: Any, *arguments: Any, **named: Any) -> Any:
        if "__manifest" not in str(getattr(target, "uri", target)):
            monkeypatch.undo()
            place.open().drop_table({"id": ["t"]})
        return real(target, *arguments, **named)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)
    with refused(CONCURRENT_MODIFICATION):
        add(catalog, people([9]))
    catalog.undrop_table(["t"])
    assert ids(catalog) == [0, 1, 2, 3, 4, 9]


def test_delete_succeeds_although_the_store_fails_after_its_commit(
    catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)
    real = lance.LanceDataset.delete

    def last(*arguments: Any, **named: Any) -> Any:
        counts = real(*arguments, **named)
        substitute(monkeypatch, "rows.find_table", unavailable)
        monkeypatch.setattr(lance.LanceDataset, "read_transaction", unavailable)
        return counts

    def unavailable(*_: Any) -> None:
        raise ServiceUnavailableError("the store is down")

    monkeypatch.setattr(lance.LanceDataset, "delete", last)
    answer = catalog.delete_from_table({"id": ["t"], "predicate": "id < 2"})
    assert answer.context == {"rows_deleted": "2", "version": "2"}


@pytest.mark.parametrize("mode", ["V2", "compatibility"])
def test_rows_of_tables_in_namespaces_can_be_written_and_queried(tmp_path: Path, mode: str) -> None:
    catalog = quiet(local_place(tmp_path / "root", MODES[mode]))
    catalog.create_namespace({"id": ["sales"]})
    catalog.declare_table({"id": ["sales", "t"]})
    catalog.insert_into_table({"id": ["sales", "t"]}, ipc(people(range(3))))
    catalog.insert_into_table({"id": ["sales", "t"]}, ipc(people([3])))
    catalog.delete_from_table({"id": ["sales", "t"], "predicate": "id = 0"})
    assert catalog.count_table_rows({"id": ["sales", "t"]}).count == 3
    answer = catalog.query_table({"id": ["sales", "t"], "vector": {}, "k": 0})
    assert pa.ipc.open_file(answer).read_all()["id"].to_pylist() == [1, 2, 3]


def test_without_a_manifest_rows_of_tables_in_namespaces_are_unsupported(tmp_path: Path) -> None:
    catalog = quiet(local_place(tmp_path / "root", MODES["V1"]))
    with refused(UNSUPPORTED):
        catalog.insert_into_table({"id": ["sales", "t"]}, ipc(people([1])))
    with refused(UNSUPPORTED):
        catalog.query_table({"id": ["sales", "t"], "vector": {}, "k": 0})


def test_two_clients_inserting_into_a_declared_table_both_succeed(
    place: LocalPlace, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.declare_table({"id": ["t"]})
    create = original("rows.create_for_insert")

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        add(place.open(), people([1]))
        return create(*arguments)

    substitute(monkeypatch, "rows.create_for_insert", late)
    assert add(catalog, people([2])).version == 2
    assert ids(catalog) == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_rows_can_be_written_and_queried_on_s3(moto_server: S3Server, moto_bucket: str, mode: str) -> None:
    place = S3Place(moto_server, moto_bucket, "lake", MODES[mode])
    catalog = place.open()
    make(catalog)
    described = catalog.describe_table({"id": ["t"], "vend_credentials": True})
    lance.dataset(described.location, storage_options=described.storage_options).create_branch("dev")
    add(catalog, people([5]), branch="dev")
    before = {key for key in place.files() if "__manifest" not in key}
    with refused(20):
        add(catalog, pa.table({"other": [1]}), branch="dev")
    assert {key for key in place.files() if "__manifest" not in key} == before
    catalog.delete_from_table({"id": ["t"], "predicate": "id < 2"})
    assert ids(catalog) == [2, 3, 4]
    assert ids(catalog, branch="dev", vector={"single_vector": [5.0, 0.0]}, k=1) == [5]
    assert count(catalog, version=1) == 5
