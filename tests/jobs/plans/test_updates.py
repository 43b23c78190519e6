"""Updates: equal to Lance's update, with concurrent writers and with failures."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.codes import INVALID_INPUT, UNSUPPORTED
from tests.support.jobs import meanwhile
from tests.support.jobs.rows import (
    GIANT,
    ROWS,
    SMALL,
    content,
    copy_of,
    count_prepared,
    effect_of,
    finish,
    fragments,
    ids,
    in_small_tasks,
    make,
    opened,
    prepare,
    result_of,
    unused_files,
)
from tests.support.roots import LocalPlace, Place, S3Place, drop

from relance.errors import ConcurrentModificationError, InvalidInputError, OutcomeUnknownError
from relance.jobs import UpdateRows
from relance.jobs.plans import row_updates

UPDATES: list[tuple[dict[str, str], str | None]] = [
    ({"n": "n + 1"}, None),
    ({"n": "id * 2", "name": "concat('was ', name)"}, "id % 3 = 0"),
    ({"name": "null"}, "id < 25"),
    ({"name": "'x'"}, "name is null"),
    ({"id": "id + 1000"}, "id >= 50"),
    ({"id": "1", "n": "2", "name": "'3'"}, "id in (3, 33)"),
    ({"n": "1.7"}, "id = 5"),
    ({"n": "1.7 -- rounded", "name": "'x' -- new"}, "id = 6 -- only"),
    ({"n": "7"}, "false"),
]

KINDS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("Big Name", pa.float32()),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("code", pa.dictionary(pa.int8(), pa.string())),
        ("json", pa.json_()),
        ("list", pa.list_(pa.int16())),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("vector", pa.list_(pa.float32(), 2)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
    ]
)

OF_KINDS: list[tuple[dict[str, str], str | None]] = [
    ({"pair": "pair"}, "id = 1"),
    ({"pair": "null", "ok": "ok is null"}, "id = 2"),
    ({"Big Name": "`Big Name` + id * 1.5"}, None),
    ({"list": "[1, 2]", "vector": "[3, 4]"}, "id = 3"),
    ({"json": "'{\"z\":2}'", "code": "'other'"}, "id = 4"),
    ({"at": "'2020-01-01'", "price": "1.239"}, "id = 6"),
    ({"at": "null", "day": "'2021-02-03'", "bytes": "text"}, "id > 6"),
    ({"price": "id", "text": "at"}, "id < 7"),
    ({"id": "text"}, "id > 7"),
    ({"text": "id"}, "id > 4"),
]


def _kinds(count: int = 20) -> pa.Table:
    at = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    columns: dict[str, Any] = {
        "id": list(range(count)),
        "Big Name": [1.5] * count,
        "pair": [{"a": 1, "b": "x"}] * count,
        "code": pa.array(["u"] * count).dictionary_encode().cast(KINDS.field("code").type),
        "json": pa.array(['{"k":1}'] * count).cast(pa.json_()),
        "list": [[1]] * count,
        "at": [at] * count,
        "price": [Decimal("1.00")] * count,
        "vector": [[1.0, 2.0]] * count,
        "text": [str(each) for each in range(count)],
        "bytes": [b"x"] * count,
        "day": [at.date()] * count,
        "ok": [True, None] * (count // 2),
    }
    return pa.table(
        {
            name: each if isinstance(each, pa.Array) else pa.array(each, KINDS.field(name).type)
            for name, each in columns.items()
        },
        schema=KINDS,
    )


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("giant", [SMALL, GIANT], ids=["small", "giant"])
def test_update_matches_lance_update(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch, stable: bool, giant: float
) -> None:
    in_small_tasks(monkeypatch)
    make(place, stable=stable)
    copy = copy_of(place)
    for changes, where in UPDATES:
        updated = copy.update(changes, where=where)["num_rows_updated"]
        effect = effect_of(place, UpdateRows(set=changes, where=where), giant=giant)
        assert effect.rows == updated
        assert content(opened(place)) == content(copy)
        assert effect.before.rows == effect.after.rows == ROWS
        assert sum(each[2] for each in fragments(opened(place))) == effect.after.deleted_rows
    assert unused_files(place) == set()


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_values_are_cast_as_in_lance_update(place: LocalPlace, stable: bool) -> None:
    options: dict[str, Any] = {"max_rows_per_file": 7, "enable_stable_row_ids": stable}
    lance.write_dataset(_kinds(), namespace_client=place.open(), table_id=["t"], mode="create", **options)
    copy = lance.write_dataset(_kinds(), str(place.folder.parent / "copy.lance"), **options)
    for changes, where in OF_KINDS:
        updated = copy.update(changes, where=where)["num_rows_updated"]
        assert effect_of(place, UpdateRows(set=changes, where=where)).rows == updated
        assert content(opened(place)) == content(copy)
        assert opened(place).schema == copy.schema


def test_expressions_see_the_row_before_the_update(place: LocalPlace) -> None:
    make(place)
    effect_of(place, UpdateRows(set={"id": "n", "n": "id"}))  # Lance's own update gives one or the other
    assert sorted(opened(place).to_table()["n"].to_pylist()) == list(range(ROWS))
    assert set(ids(place)) == {0}


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_indexes_stay_correct_after_updates(place: LocalPlace, stable: bool) -> None:
    make(place, stable=stable)
    opened(place).create_scalar_index("id", "BTREE")
    opened(place).create_scalar_index("n", "BITMAP")
    opened(place).create_scalar_index("name", "BTREE")
    for changes, where in [({"n": "id % 4"}, "id % 2 = 0"), ({"id": "id + 100", "name": "'x'"}, "n = 2")]:
        effect_of(place, UpdateRows(set=changes, where=where))
        now = opened(place)
        for query in ["n = 0", "n = 2", "id < 30", "id > 100", "name = 'x'", "name is null", "id = 2"]:
            through = now.to_table(filter=query).to_pylist()
            without = now.scanner(filter=query, use_scalar_index=False).to_table().to_pylist()
            assert sorted(map(repr, through)) == sorted(map(repr, without)), query
    now.optimize.optimize_indices()
    assert (
        opened(place).count_rows("n = 2") == now.scanner(filter="n = 2", use_scalar_index=False).count_rows()
    )


@pytest.mark.parametrize("event", meanwhile.EVENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_concurrent_changes_before_an_update_commits_are_preserved(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch, event: Callable[[Place], Any], stable: bool
) -> None:
    in_small_tasks(monkeypatch)
    make(place, stable=stable)
    job = UpdateRows(set={"n": "n + 1"}, where="id % 2 = 0 and id < 30")
    prepared = prepare(place, job)
    event(place)
    theirs = {each["id"]: each for each in opened(place).to_table().to_pylist()}
    try:
        finish(place, prepared)
    except ConcurrentModificationError:
        effect_of(place, job)  # as the framework does
    found = opened(place).to_table().to_pylist()
    for each in theirs.values():
        each["n"] += each["id"] % 2 == 0 and each["id"] < 30
    assert {each["id"]: each for each in found} == theirs
    assert len(found) == len(theirs)
    assert unused_files(place) == set()


def test_only_groups_changed_by_others_are_prepared_again(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_tasks(monkeypatch)
    make(place)
    prepared = prepare(place, UpdateRows(set={"n": "n + 1"}, where="id % 2 = 0"))
    again = count_prepared(monkeypatch, row_updates._Update)
    meanwhile.delete_in_the_first_fragment(place)
    finish(place, prepared)
    assert 0 in again
    assert len(again) <= 2
    assert ids(place, "n = 1") == [each for each in range(0, ROWS, 2) if each != 2]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"nope": "1"}, None),
        ({"n": "nope"}, None),
        ({"n": "foo(1)"}, None),
        ({"n": "'text'"}, None),
        ({"n": "?"}, None),
        ({"n": "1"}, "nope = 1"),
        ({"n": "1"}, "id"),
    ],
)
def test_invalid_update_is_refused_before_any_work(
    place: LocalPlace, changes: dict[str, str], where: str | None
) -> None:
    make(place)
    before = place.files()
    for dry_run in (True, False):
        error = result_of(place, UpdateRows(set=changes, where=where), dry_run=dry_run).error
        assert error is not None
        assert error.code == INVALID_INPUT
    assert place.files() == before


def test_update_without_columns_or_with_an_empty_predicate_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="set needs at least one column"):
        UpdateRows(set={})
    with pytest.raises(InvalidInputError, match="where must not be empty"):
        UpdateRows(set={"n": "1"}, where="")


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_update_of_a_table_with_blobs_is_refused(place: LocalPlace, version: str) -> None:
    blob = pa.field("data", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("n", pa.int64()), blob])
    table = pa.table([pa.array([1]), pa.array([b"x"], pa.large_binary())], schema=schema)
    named: dict[str, Any] = {"namespace_client": place.open(), "table_id": ["t"]}
    lance.write_dataset(table, mode="create", data_storage_version=version, **named)
    error = result_of(place, UpdateRows(set={"n": "2"})).error
    assert error is not None
    assert error.code == UNSUPPORTED


@pytest.mark.parametrize("giant", [SMALL, GIANT], ids=["small", "giant"])
def test_update_that_fails_on_a_row_changes_nothing_and_leaves_no_files(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch, giant: float
) -> None:
    in_small_tasks(monkeypatch)
    make(place)
    before = content(opened(place))
    result = result_of(place, UpdateRows(set={"n": "100 / (id - 45)"}, where="id <= 45"), giant=giant)
    assert result.error is not None
    assert result.error.code == INVALID_INPUT
    assert content(opened(place)) == before
    assert unused_files(place) == set()


def test_update_dry_run_counts_and_changes_nothing(place: LocalPlace) -> None:
    make(place)
    before = place.files()
    some = result_of(place, UpdateRows(set={"n": "1"}, where="id < 15"), dry_run=True).planned
    every = result_of(place, UpdateRows(set={"n": "1"}), dry_run=True).planned
    assert some is not None
    assert every is not None
    assert ((some.rows, some.files), (every.rows, every.files)) == ((15, 2), (ROWS, 6))
    assert 0 < some.bytes < every.bytes
    assert place.files() == before


def test_table_dropped_right_after_the_commit_is_not_updated_twice(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place)
    real = lance.LanceDataset.commit

    def commit(*arguments: Any, **options: Any) -> Any:
        committed = real(*arguments, **options)
        drop(place.open(), "t")
        return committed

    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "commit", staticmethod(commit))
        assert isinstance(result_of(place, UpdateRows(set={"n": "n + 1"})).error, OutcomeUnknownError)
    place.open().undrop_table(["t"])
    assert ids(place, "n = 1") == list(range(ROWS))


def test_update_works_on_s3(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_tasks(monkeypatch)
    place = s3
    make(place, stable=True)
    prepared = prepare(place, UpdateRows(set={"n": "n + 1"}, where="id % 3 = 0"))
    meanwhile.delete_in_the_first_fragment(place)
    assert finish(place, prepared).rows == 19
    assert effect_of(place, UpdateRows(set={"n": "n + 1"}, where="id >= 40"), giant=GIANT).rows == 20
    assert ids(place, "n = 2") == [each for each in range(40, 60) if each % 3 == 0]
    assert unused_files(place) == set()
