"""Insert rows: append, overwrite, into declared tables, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    CONCURRENT_MODIFICATION,
    INVALID_INPUT,
    SCHEMA_VALIDATION,
    TABLE_NOT_FOUND,
)
from tests.support.modes import COMPATIBILITY, V2
from tests.support.roots import LocalPlace, ipc, local_place, refused_unchanged
from tests.support.rows import add, count, ids, make, opened, people, query, quiet

from relance import DirectoryNamespace
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    OutcomeUnknownError,
    PermissionDeniedError,
)


def ipc_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_appended_rows_follow_the_existing_ones(catalog: DirectoryNamespace) -> None:
    make(catalog)
    answer = add(catalog, people([5, 6]))
    assert (answer.num_inserted_rows, answer.version) == (2, 2)
    assert ids(catalog) == [0, 1, 2, 3, 4, 5, 6]
    assert ids(catalog, version=1) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["Append", "APPEND", "append", None])
def test_append_is_the_default_in_any_letter_case(catalog: DirectoryNamespace, mode: str | None) -> None:
    make(catalog)
    assert add(catalog, people([9]), mode=mode).version == 2
    assert count(catalog) == 6


@pytest.mark.parametrize("mode", ["Overwrite", "OVERWRITE", "overwrite"])
def test_overwrite_replaces_all_rows_and_keeps_the_old_version(
    catalog: DirectoryNamespace, mode: str
) -> None:
    make(catalog)
    answer = add(catalog, people([7]), mode=mode)
    assert (answer.num_inserted_rows, answer.version) == (1, 2)
    assert ids(catalog) == [7]
    assert ids(catalog, version=1) == [0, 1, 2, 3, 4]


def test_overwrite_may_change_the_schema(catalog: DirectoryNamespace) -> None:
    make(catalog)
    add(catalog, pa.table({"other": [1]}), mode="overwrite")
    assert query(catalog).to_pylist() == [{"other": 1}]


def test_columns_missing_from_an_insert_are_null(catalog: DirectoryNamespace) -> None:
    make(catalog, [1])
    add(catalog, pa.table({"id": pa.array([2], pa.int64())}))
    assert query(catalog, filter="id = 2").to_pylist() == [{"id": 2, "name": None, "vector": None}]


def test_inserted_columns_may_come_in_another_order(catalog: DirectoryNamespace) -> None:
    make(catalog, [1])
    add(catalog, people([2]).select(["vector", "name", "id"]))
    assert query(catalog, filter="id = 2").to_pylist() == people([2]).to_pylist()


def test_insert_of_no_rows_makes_a_version(catalog: DirectoryNamespace) -> None:
    make(catalog)
    answer = add(catalog, people([]))
    assert (answer.num_inserted_rows, answer.version) == (0, 2)
    assert count(catalog) == 5


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_insert_into_a_declared_table_creates_it(catalog: DirectoryNamespace, mode: str) -> None:
    catalog.declare_table({"id": ["t"]})
    answer = add(catalog, people([1, 2]), mode=mode)
    assert (answer.num_inserted_rows, answer.version) == (2, 1)
    assert ids(catalog) == [1, 2]
    described = catalog.describe_table({"id": ["t"], "check_declared": True})
    assert described.is_only_declared is False


def test_insert_into_a_branch_of_a_declared_table_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    catalog.declare_table({"id": ["t"]})
    with refused_unchanged(place, BRANCH_NOT_FOUND):
        add(catalog, people([1]), branch="dev")


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        pytest.param({"mode": "upsert"}, ipc(people([1])), id="mode"),
        pytest.param({"mode": ""}, ipc(people([1])), id="empty mode"),
        pytest.param({}, b"", id="empty"),
        pytest.param({}, b"garbage", id="garbage"),
        pytest.param({}, ipc(people(range(100)))[:-900], id="truncated"),
        pytest.param({}, ipc_file(people([1])), id="file"),
        pytest.param({}, "text", id="no bytes"),
    ],
)
def test_insert_with_an_invalid_mode_or_body_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, fields: dict[str, Any], body: Any
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        catalog.insert_into_table({"id": ["t"], **fields}, body)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(pa.table({"id": ["text"]}), id="type"),
        pytest.param(pa.table({"id": pa.array([1], pa.int32())}), id="width"),
        pytest.param(pa.table({"id": pa.array([1], pa.int64()), "more": [1]}), id="unknown column"),
        pytest.param(pa.table({"name": ["x"]}), id="required column missing"),
        pytest.param(pa.table({"id": pa.array([1, None], pa.int64())}), id="null in a required column"),
    ],
)
def test_insert_with_a_mismatched_schema_is_refused_and_leaves_no_file(
    place: LocalPlace, catalog: DirectoryNamespace, rows: pa.Table
) -> None:
    make(catalog)
    with refused_unchanged(place, SCHEMA_VALIDATION):
        add(catalog, rows)


def test_insert_into_a_missing_table_or_branch_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    with refused_unchanged(place, TABLE_NOT_FOUND):
        add(catalog, people([1]), name="missing")
    with refused_unchanged(place, BRANCH_NOT_FOUND):
        add(catalog, people([1]), branch="missing")


@pytest.mark.parametrize("branch", ["dev", "team/dev"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_insert_into_a_branch_leaves_main_unchanged(
    catalog: DirectoryNamespace, mode: str, branch: str
) -> None:
    make(catalog)
    opened(catalog).create_branch(branch)
    answer = add(catalog, people([8]), branch=branch, mode=mode)
    assert ids(catalog) == [0, 1, 2, 3, 4]
    assert ids(catalog, branch=branch) == ([0, 1, 2, 3, 4, 8] if mode == "append" else [8])
    assert count(catalog, branch=branch, version=answer.version) == count(catalog, branch=branch)


def test_insert_with_a_mismatched_schema_leaves_no_file_on_a_branch(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    opened(catalog).create_branch("dev")
    with refused_unchanged(place, SCHEMA_VALIDATION):
        add(catalog, pa.table({"other": [1]}), branch="dev")


def test_racing_appends_all_land(catalog: DirectoryNamespace) -> None:
    make(catalog, [])
    threads = [threading.Thread(target=add, args=(catalog, people([each]))) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(ids(catalog)) == list(range(6))


def test_failed_commit_leaves_no_data_file(
    place: LocalPlace, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)

    def conflict(*_: Any, **__: Any) -> None:
        raise OSError("Retryable commit conflict for version 2")

    monkeypatch.setattr(lance.LanceDataset, "commit", conflict)
    with refused_unchanged(place, CONCURRENT_MODIFICATION):
        add(catalog, people([9]))


def test_commit_with_an_unknown_outcome_keeps_its_data_file(
    place: LocalPlace, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)

    def deaf(*_: Any, **__: Any) -> None:
        raise OSError("error sending request")

    before = set(place.files())
    monkeypatch.setattr(lance.LanceDataset, "commit", deaf)
    with pytest.raises(OutcomeUnknownError):
        add(catalog, people([9]))
    assert len([key for key in set(place.files()) - before if "/data/" in key]) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("error sending request", OutcomeUnknownError),
        ("Too many concurrent writers. Attempted 10 times", ConcurrentModificationError),
        ("LanceError(IO): 403 Forbidden", PermissionDeniedError),
        ("something else", InternalError),
    ],
)
def test_lance_errors_are_raised_as_the_matching_error_class(
    catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch, text: str, error: type[Exception]
) -> None:
    make(catalog)

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(text)

    monkeypatch.setattr(lance.LanceDataset, "update", broken)
    monkeypatch.setattr(lance.LanceDataset, "delete", broken)
    with pytest.raises(error):
        catalog.update_table({"id": ["t"], "updates": [["id", "1"]]})
    with pytest.raises(error):
        catalog.delete_from_table({"id": ["t"], "predicate": "true"})


def test_commit_with_a_lost_response_is_found(
    catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)
    real = lance.LanceDataset.commit

    def deaf(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise OSError("error sending request")

    monkeypatch.setattr(lance.LanceDataset, "commit", deaf)
    assert add(catalog, people([9])).version == 2
    assert count(catalog) == 6


@pytest.mark.parametrize("mode", [V2, COMPATIBILITY], ids=["V2", "compatibility"])
def test_insert_and_delete_record_versions_of_a_managed_table(tmp_path: Path, mode: dict[str, str]) -> None:
    place = local_place(tmp_path / "root", mode)
    catalog = quiet(place, table_version_management="true")
    make(catalog)
    add(catalog, people([9]))
    catalog.delete_from_table({"id": ["t"], "predicate": "id = 1"})
    rows = opened_manifest(place)
    assert len([each for each in rows if each["object_type"] == "table_version"]) == 3
    listed = catalog.list_table_versions({"id": ["t"]}).versions
    assert [each.version for each in listed] == [1, 2, 3]


def opened_manifest(place: LocalPlace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lance.dataset(str(place.folder / "__manifest")).to_table().to_pylist()
    return found
