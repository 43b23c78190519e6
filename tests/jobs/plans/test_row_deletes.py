"""Row deletes: equal to Lance's delete, with concurrent writers and with failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.codes import INVALID_INPUT, TABLE_NOT_FOUND
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
    ref_to,
    result_of,
    rows,
    task_context,
    unused_files,
)
from tests.support.modes import MODES
from tests.support.patches import substitute
from tests.support.roots import LocalPlace, Place, S3Place, drop, ipc, local_place

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    OutcomeUnknownError,
)
from relance.jobs import DeleteRows, maintain
from relance.jobs.plans import row_deletes

PREDICATES = [
    "id % 3 = 0",
    "id < 20",
    "id = 31 or id >= 45",
    "name is null",
    "name = 'name 8'",
    "name like 'name 1%' and id > 12",
    "not (name = 'name 8')",
    "true",
    "false",
    "id in (5, 55)",
]


@pytest.fixture(params=["V1", "V2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """A root on local disk in each mode."""
    return local_place(tmp_path / "root", MODES[request.param])


@pytest.fixture
def flat(tmp_path: Path) -> LocalPlace:
    """A root on local disk."""
    return local_place(tmp_path / "root")


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("giant", [SMALL, GIANT], ids=["small", "giant"])
def test_row_delete_matches_lance_delete(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch, stable: bool, giant: float
) -> None:
    in_small_tasks(monkeypatch)
    make(flat, stable=stable)
    copy = copy_of(flat)
    for where in PREDICATES:
        first, copied = opened(flat), copy.version
        deleted = copy.delete(where)["num_deleted_rows"]
        effect = effect_of(flat, DeleteRows(where=where), giant=giant)
        now = opened(flat)
        assert effect.rows == deleted
        assert content(now) == content(copy)
        assert fragments(now) == fragments(copy)
        assert (effect.before.rows, effect.after.rows) == (ROWS, ROWS - deleted)
        assert effect.after.fragments == len(copy.get_fragments())
        assert effect.after.deleted_rows == sum(each[2] for each in fragments(copy))
        assert effect.version == (None if not deleted else now.version)
        first.restore()
        copy.checkout_version(copied).restore()
        copy.checkout_latest()
    assert unused_files(flat) == set()


@pytest.mark.parametrize(
    ("known", "sparse"),
    [(0, 0.0), (1_000, 0.0), (1_000, 0.3), (1_000, 1.0)],
    ids=["too many", "dense", "some", "sparse"],
)
def test_row_delete_through_an_index_gives_the_same_rows(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch, known: int, sparse: float
) -> None:
    substitute(monkeypatch, "row_deletes.most_known_rows", known)
    substitute(monkeypatch, "row_deletes.sparse_share", sparse)
    make(flat)
    opened(flat).create_scalar_index("id", "BTREE")
    opened(flat).create_scalar_index("name", "BITMAP")
    meanwhile.append(flat)  # rows that the index does not know
    start = opened(flat)
    for where in [
        "id in (3, 4, 70)",
        "id < 25 and n = 0",
        "name is null",
        "id = 5 or name = 'name 8'",
        "id >= 0",
    ]:
        expected = start.to_table(filter=f"not coalesce({where}, false)")["id"].to_pylist()
        assert effect_of(flat, DeleteRows(where=where)).rows == start.count_rows() - len(expected)
        assert ids(flat) == sorted(expected)
        assert ids(flat, where) == []
        start.restore()
    assert result_of(flat, DeleteRows(where="id = 1000")).error is None


@pytest.mark.parametrize("where", ["id < 25 -- the first ones", "id < 25 /* the first */ -- ones"])
@pytest.mark.parametrize("indexed", [False, True])
def test_predicate_may_end_in_a_comment(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch, indexed: bool, where: str
) -> None:
    substitute(monkeypatch, "row_deletes.sparse_share", 0.0)
    make(flat)
    if indexed:
        opened(flat).create_scalar_index("id", "BTREE")
    result = result_of(flat, DeleteRows(where=where))
    assert result.error is None
    assert min(ids(flat)) == 25


def test_row_delete_touches_only_fragments_named_by_the_index(flat: LocalPlace) -> None:
    make(flat)
    opened(flat).create_scalar_index("id", "BTREE")
    plan = DeleteRows(where="id in (3, 31)").plan(task_context(flat), ("t",))
    assert plan is not None
    assert [each.number for task in plan.tasks for each in task.known] == [0, 3]  # type: ignore[attr-defined]
    assert DeleteRows(where="id = 1000").plan(task_context(flat), ("t",)) is None


@pytest.mark.parametrize("event", meanwhile.EVENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_concurrent_changes_before_a_delete_commits_are_preserved(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch, event: Callable[[Place], Any], stable: bool
) -> None:
    in_small_tasks(monkeypatch)
    make(flat, stable=stable)
    job = DeleteRows(where="id % 2 = 0 and id < 30")
    prepared = prepare(flat, job)
    event(flat)
    theirs = set(ids(flat))
    try:
        finish(flat, prepared)
    except ConcurrentModificationError:
        effect_of(flat, job)  # as the framework does
    assert set(ids(flat)) == {each for each in theirs if each % 2 or each >= 30}
    assert len(ids(flat)) == len(set(ids(flat)))
    assert unused_files(flat) == set()


def test_only_fragments_changed_by_others_are_prepared_again(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(flat)
    prepared = prepare(flat, DeleteRows(where="id % 2 = 0"))
    again = count_prepared(monkeypatch, row_deletes._Delete)
    meanwhile.delete_in_the_first_fragment(flat)
    meanwhile.append(flat)
    effect = finish(flat, prepared)
    assert again == [0, 6]
    assert effect.rows == 29 + 10
    assert ids(flat) == [each for each in range(ROWS + 20) if each % 2 and each not in {1, 3}]


def test_rows_added_after_planning_are_not_deleted(flat: LocalPlace) -> None:
    make(flat)
    prepared = prepare(flat, DeleteRows(where="id >= 50"))
    meanwhile.append(flat)
    assert finish(flat, prepared).rows == 10
    assert ids(flat) == [*range(50), *range(60, 80)]


def test_row_delete_dry_run_counts_and_changes_nothing(flat: LocalPlace) -> None:
    make(flat)
    first = opened(flat).get_fragments()[:2]
    before = flat.files()
    planned = result_of(flat, DeleteRows(where="id < 15"), dry_run=True).planned
    assert planned is not None
    assert (planned.rows, planned.files) == (15, 2)
    assert planned.bytes == sum(each.metadata.files[0].file_size_bytes for each in first)
    assert flat.files() == before


@pytest.mark.parametrize("where", ["nope = 1", "id =", "id", "id = ?", "true; drop", "foo(id) = 1"])
def test_invalid_predicate_is_refused_before_any_work(flat: LocalPlace, where: str) -> None:
    make(flat)
    before = flat.files()
    for dry_run in (True, False):
        error = result_of(flat, DeleteRows(where=where), dry_run=dry_run).error
        assert error is not None
        assert error.code == INVALID_INPUT
    assert flat.files() == before


def test_row_delete_without_a_predicate_or_an_age_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="where must not be empty"):
        DeleteRows(where="")
    with pytest.raises(InvalidInputError, match="where is required"):
        DeleteRows(time_column="ts")
    with pytest.raises(InvalidInputError, match="older_than requires time_column"):
        DeleteRows(older_than=timedelta(days=1))


@pytest.mark.parametrize("kind", ["timestamp[us]", "timestamp[ms, tz=UTC]", "date32[day]"])
@pytest.mark.parametrize("where", [None, "n <> 4 -- a comment"])
def test_rows_are_deleted_by_age_however_the_time_is_stored(
    place: LocalPlace, kind: str, where: str | None
) -> None:
    days = [datetime.now(UTC).replace(tzinfo=None) - timedelta(days=10 * each, hours=1) for each in range(6)]
    types = {"date32[day]": pa.date32(), "timestamp[us]": pa.timestamp("us")}
    times = pa.array(days, pa.timestamp("us")).cast(types.get(kind, pa.timestamp("ms")), safe=False)
    if kind.endswith("UTC]"):
        times = times.cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"n": range(6), "made at": times})
    lance.write_dataset(table, namespace_client=place.open(), table_id=["t"], mode="create")
    job = DeleteRows(time_column="made at", older_than=timedelta(days=25), where=where)
    report = maintain(ref_to(place), job, [["t"]])
    assert [str(each.error) for each in report.failed] == []
    left = opened(place).to_table()["n"].to_pylist()
    assert left == ([0, 1, 2] if where is None else [0, 1, 2, 4])


def test_interval_in_a_predicate_becomes_the_time_at_which_the_run_begins(place: LocalPlace) -> None:
    times = [datetime.now(UTC) - timedelta(days=each, hours=1) for each in range(6)]
    table = pa.table({"n": range(6), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    lance.write_dataset(table, namespace_client=place.open(), table_id=["t"], mode="create")
    job = DeleteRows(where="ts < now() - interval '3 days' and n <> 5")
    (planned,) = maintain(ref_to(place), job, [["t"]], dry_run=True).results
    assert planned.planned is not None
    assert planned.planned.rows == 2
    assert maintain(ref_to(place), job, [["t"]]).failed == ()
    assert opened(place).to_table()["n"].to_pylist() == [0, 1, 2, 5]
    with pytest.raises(InvalidInputError, match="interval can only be added"):
        maintain(ref_to(place), DeleteRows(where="ts + interval '1 day' < now()"), [["t"]])


def test_row_delete_requires_named_existing_tables(flat: LocalPlace) -> None:
    make(flat)
    with pytest.raises(InvalidInputError, match="name at least one table"):
        maintain(ref_to(flat), DeleteRows(where="true"))
    (result,) = maintain(ref_to(flat), DeleteRows(where="true"), [["other"]]).results
    assert result.error is not None
    assert result.error.code == TABLE_NOT_FOUND


def test_files_are_kept_when_the_commit_outcome_is_unknown(
    flat: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(flat)

    def commit(*_arguments: Any, **_options: Any) -> Any:
        raise OSError("error sending request: connection closed before message completed")

    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "commit", staticmethod(commit))
        result = result_of(flat, DeleteRows(where="id % 2 = 0"))
    assert isinstance(result.error, OutcomeUnknownError)
    assert result.attempts == 1
    assert len(unused_files(flat)) == 6


def test_delete_prepared_for_a_purged_table_does_not_harm_its_successor(
    place: LocalPlace,
) -> None:
    make(place)
    prepared = prepare(place, DeleteRows(where="id % 2 = 0"))
    drop(place.open(), "t")
    place.open().purge_table(["t"], force=True)
    place.open().create_table({"id": ["t"]}, ipc(rows()))
    try:
        finish(place, prepared)
    except ConcurrentModificationError:
        effect_of(place, DeleteRows(where="id % 2 = 0"))  # as the framework does
    assert ids(place) == list(range(1, ROWS, 2))
    assert opened(place).validate() is None


def test_row_delete_works_on_s3(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_tasks(monkeypatch)
    place = s3
    make(place)
    prepared = prepare(place, DeleteRows(where="id % 3 = 0"))
    meanwhile.delete_in_the_first_fragment(place)
    assert finish(place, prepared).rows == 19
    assert effect_of(place, DeleteRows(where="id >= 40"), giant=GIANT).after.fragments == 4
    assert ids(place) == [each for each in range(40) if each % 3 and each not in {1, 2}]
    assert unused_files(place) == set()
