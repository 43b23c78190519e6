"""Delete rows: which rows are deleted, what the response says, and what stays readable."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import PurePosixPath

import pyarrow as pa
import pytest
from tests.support.codes import BRANCH_NOT_FOUND, INVALID_INPUT, TABLE_NOT_FOUND
from tests.support.roots import LocalPlace, ipc, refused_unchanged
from tests.support.rows import add, count, ids, make, opened, people

from relance import DirectoryNamespace


def deletion_files(place: LocalPlace) -> list[str]:
    """Return the deletion files of the tables."""
    found = (PurePosixPath(key) for key in place.files() if not key.endswith("/"))
    return [str(each) for each in found if "_deletions" in each.parts and "__manifest" not in each.parts]


def data_files(place: LocalPlace) -> dict[str, bytes]:
    """Return the data files of the tables."""
    return {
        key: body
        for key, body in place.files().items()
        if "/data/" in key and not key.startswith("__manifest") and not key.endswith("/")
    }


def test_delete_removes_the_rows_that_match_the_predicate(catalog: DirectoryNamespace) -> None:
    make(catalog)
    answer = catalog.delete_from_table(
        {"id": ["t"], "predicate": "(id = 1) OR (name in ('word3 common', 'x'))"}
    )
    assert answer.version == 2
    assert answer.context == {
        "rows_deleted": "2",
        "fragments_with_deletion_file": "1",
        "fragments_removed": "0",
        "version": "2",
    }
    assert ids(catalog) == [0, 2, 4]


def test_delete_keeps_earlier_versions_and_data_files(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    make(catalog)
    add(catalog, people([5, 6]))
    before = data_files(place)
    catalog.delete_from_table({"id": ["t"], "predicate": "id % 2 = 0"})
    catalog.delete_from_table({"id": ["t"], "predicate": "true"})
    assert data_files(place) == before
    assert [ids(catalog, version=each) for each in (1, 2, 3, 4)] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5, 6],
        [1, 3, 5],
        [],
    ]
    assert opened(catalog, version=2).count_rows() == 7


def test_fully_deleted_fragments_are_removed_without_a_deletion_file(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    start = datetime(2023, 1, 1)  # noqa: DTZ001  # a column without time zone

    def hour(number: int) -> pa.Table:
        moment = pa.array([start + timedelta(hours=number)] * 10, pa.timestamp("us"))
        return pa.table({"inserted": moment, "local": pa.array(range(10), pa.int64())})

    catalog.create_table({"id": ["t"]}, ipc(hour(0)))
    for number in range(1, 10):
        add(catalog, hour(number))
    answer = catalog.delete_from_table(
        {"id": ["t"], "predicate": "inserted < cast('2023-01-01 05:00:00' as timestamp)"}
    )
    assert answer.context == {
        "rows_deleted": "50",
        "fragments_with_deletion_file": "0",
        "fragments_removed": "5",
        "version": "11",
    }
    assert deletion_files(place) == []
    fragments = opened(catalog).get_fragments()
    assert [each.fragment_id for each in fragments] == [5, 6, 7, 8, 9]
    assert all(each.deletion_file() is None for each in fragments)
    assert count(catalog) == 50
    assert count(catalog, version=10) == 100


def test_partly_deleted_fragment_gets_a_deletion_file(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    make(catalog, range(5))
    add(catalog, people(range(5, 10)))
    answer = catalog.delete_from_table({"id": ["t"], "predicate": "id < 7"})
    assert answer.context is not None
    assert (answer.context["fragments_with_deletion_file"], answer.context["fragments_removed"]) == ("1", "1")
    assert len(deletion_files(place)) == 1
    assert ids(catalog) == [7, 8, 9]


def test_delete_that_matches_no_rows_makes_a_version_but_no_file(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    answer = catalog.delete_from_table({"id": ["t"], "predicate": "id = 99"})
    assert answer.context == {
        "rows_deleted": "0",
        "fragments_with_deletion_file": "0",
        "fragments_removed": "0",
        "version": "2",
    }
    assert deletion_files(place) == []
    assert count(catalog) == 5


@pytest.mark.parametrize(
    "predicate", ["", "id ===", "missing = 1", "id + 1", "cast(name as bigint) = 1", "id = 'x'"]
)
def test_invalid_predicate_is_refused_and_deletes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, predicate: str
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        catalog.delete_from_table({"id": ["t"], "predicate": predicate})


def test_delete_from_a_missing_table_or_branch_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    catalog.declare_table({"id": ["declared"]})
    for name in ("missing", "declared"):
        with refused_unchanged(place, TABLE_NOT_FOUND):
            catalog.delete_from_table({"id": [name], "predicate": "true"})
    with refused_unchanged(place, BRANCH_NOT_FOUND):
        catalog.delete_from_table({"id": ["t"], "predicate": "true", "branch": "missing"})
    with refused_unchanged(place, INVALID_INPUT):
        catalog.delete_from_table({"id": ["t"]})


def test_delete_on_a_branch_leaves_main_unchanged(catalog: DirectoryNamespace) -> None:
    make(catalog)
    opened(catalog).create_branch("dev")
    answer = catalog.delete_from_table({"id": ["t"], "predicate": "id < 3", "branch": "dev"})
    assert answer.context is not None
    assert answer.context["rows_deleted"] == "3"
    assert ids(catalog) == [0, 1, 2, 3, 4]
    assert ids(catalog, branch="dev") == [3, 4]
