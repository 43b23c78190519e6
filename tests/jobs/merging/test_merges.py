"""Merges without Spark: equal to Lance's own, one row per key under races, all or nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.failures import interrupt
from tests.support.jobs.meanwhile import lose_the_answer
from tests.support.jobs.merging import merge_here
from tests.support.patches import original, substitute
from tests.support.roots import S3Place

from relance.catalog.context import Context, open_context
from relance.clock import SystemClock
from relance.config import parse_properties
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
    TableNotFoundError,
)
from relance.jobs.merging.merge_commit import FENCE
from relance.jobs.merging.merge_plan import Clauses, MergeRequest, parse_clauses, plan_merge
from relance.jobs.merging.merge_tasks import NewRows, write_rows
from relance.operations.staging.commit import find_marked

UPSERT = Clauses()
MIRROR = Clauses(delete=True)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return open_context(parse_properties({"root": str(tmp_path)}), SystemClock())


def _rows(keys: list[Any], value: int = 0, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, kind or pa.int64()),
            "second": pa.array([n % 3 for n in range(len(keys))], pa.int32()),
            "v": pa.array([value + n for n in range(len(keys))], pa.int64()),
        }
    )


def _create(context: Context, name: str, rows: pa.Table, **options: Any) -> str:
    uri = context.location(name)
    lance.write_dataset(
        rows, uri, max_rows_per_file=40, storage_options=dict(context.lance_options()) or None, **options
    )
    return uri


def _open(context: Context, name: str = "t") -> lance.LanceDataset:
    return lance.dataset(context.location(name), storage_options=dict(context.lance_options()) or None)


def _all(dataset: lance.LanceDataset, **scan: Any) -> list[str]:
    return sorted(str(row) for row in dataset.scanner(**scan).to_table().to_pylist())


def _lance_merge(uri: str, rows: pa.Table, on: tuple[str, ...], clauses: Clauses) -> dict[str, int]:
    builder = lance.dataset(uri).merge_insert(list(on))
    if clauses.update:
        builder = builder.when_matched_update_all()
    if clauses.insert:
        builder = builder.when_not_matched_insert_all()
    if clauses.delete:
        builder = builder.when_not_matched_by_source_delete()
    # Through an index Lance loses new rows with a null in the key; without it they are inserted.
    counts: dict[str, int] = builder.use_index(False).execute(rows)
    return counts


KEYS: dict[str, tuple[tuple[str, ...], Callable[[int], Any], pa.DataType]] = {
    "int": (("k",), lambda n: n, pa.int64()),
    "string": (("k",), lambda n: f"key {n}", pa.string()),
    "two": (("k", "second"), lambda n: n // 2, pa.int64()),
}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("key", list(KEYS))
def test_merge_matches_lance_merge_insert(context: Context, key: str, stable: bool) -> None:
    on, make, kind = KEYS[key]
    chance = random.Random(f"{key} {stable}")
    for clauses in (UPSERT, MIRROR, Clauses(insert=False), Clauses(update=False)):
        name = f"t{clauses.update}{clauses.insert}{clauses.delete}"
        old = [make(n % 130) if chance.random() > 0.1 else None for n in range(150)]  # some keys twice
        new = [make(n) for n in chance.sample(range(200), 60)] + [None, None]
        source = _rows(new, 1000, kind)
        if key == "two":
            source = source.group_by(["k", "second"], use_threads=False).aggregate([("v", "min")])
            source = source.rename_columns(["k", "second", "v"])
        for table in (name, f"{name}_lance"):
            uri = _create(context, table, _rows(old, 0, kind), enable_stable_row_ids=stable)
            if not clauses.delete:
                lance.dataset(uri).create_scalar_index("k", "BTREE")
            lance.dataset(uri).delete("v % 7 = 3 or v < 40")

        made = merge_here(context, name, source, on, clauses)
        counts = _lance_merge(context.location(f"{name}_lance"), source, on, clauses)

        ours, theirs = _open(context, name), _open(context, f"{name}_lance")
        assert (made.updated, made.inserted, made.deleted) == (
            counts["num_updated_rows"],
            counts["num_inserted_rows"],
            counts["num_deleted_rows"],
        )
        assert made.version == ours.version
        assert _all(ours) == _all(theirs)
        if stable:
            kept = {"columns": ["k", "v"], "with_row_id": True, "filter": "v < 1000"}
            assert _all(ours, **kept) == _all(theirs, **kept)
            assert (
                len(set(ours.scanner(with_row_id=True).to_table()["_rowid"].to_pylist())) == ours.count_rows()
            )
        assert ours.validate() is None


@pytest.mark.parametrize("stable", [False, True])
def test_indexed_queries_after_a_merge_match_full_scans(context: Context, stable: bool) -> None:
    uri = _create(context, "t", _rows(list(range(120))), enable_stable_row_ids=stable)
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    lance.dataset(uri).create_scalar_index("v", "BTREE")
    old_ids = {r["k"]: r["_rowid"] for r in _open(context).scanner(with_row_id=True).to_table().to_pylist()}

    merge_here(context, "t", _rows([*range(30, 60), *range(200, 220)], 5000))

    dataset = _open(context)
    for where in ("k = 35", "v = 35", "v = 5005", "k between 25 and 65", "v >= 5000", "k = 210", "v < 61"):
        through = _all(dataset, filter=where)
        assert through == _all(dataset, filter=where, use_scalar_index=False), where
    assert "ScalarIndexQuery" in dataset.scanner(filter="v = 35").explain_plan()
    if stable:
        now = {r["k"]: r["_rowid"] for r in dataset.scanner(with_row_id=True).to_table().to_pylist()}
        assert {key: now[key] for key in old_ids} == old_ids


def test_racing_merges_leave_one_row_per_key(context: Context) -> None:
    _create(context, "t", _rows(list(range(10))))
    _create(context, "empty", _rows([]))
    for name in ("t", "empty"):
        start = threading.Barrier(4)
        failures: list[Exception] = []

        def run(name: str, number: int, start: threading.Barrier, failures: list[Exception]) -> None:
            try:
                start.wait()
                for turn in range(3):
                    merge_here(context, name, _rows(list(range(100 * turn, 100 * turn + 20)), number * 1000))
            except Exception as error:  # noqa: BLE001  # shown by the assertion
                failures.append(error)

        threads = [threading.Thread(target=run, args=(name, n, start, failures)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []
        keys = _open(context, name).to_table(columns=["k"])["k"].to_pylist()
        assert sorted(keys) == [*range(20), *range(100, 120), *range(200, 220)]


def test_merge_among_appends_deletes_and_compactions_loses_no_row(context: Context) -> None:
    uri = _create(context, "t", _rows(list(range(100))))
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    made: list[tuple[int, int]] = []
    failures: list[Exception] = []

    def merging(number: int) -> None:
        for turn in range(4):
            rows = _rows([*range(0, 100, 7), *range(1000, 1000 + 10 * turn)], (number * 10 + turn) * 10_000)
            made.append((merge_here(context, "t", rows).version, rows["v"][0].as_py()))

    def appending(number: int) -> None:
        for turn in range(8):
            lance.write_dataset(_rows([5000 + turn * 10 + number]), uri, mode="append")

    def disturbing(number: int) -> None:
        for turn in range(4):
            with suppress(OSError):  # it may lose against a merge as well
                lance.dataset(uri).delete(f"k = {turn * 7 + 1}")
                lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=60)

    def run(work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001  # shown by the assertion
            failures.append(error)

    works = [(merging, 1), (merging, 2), (appending, 1), (appending, 2), (disturbing, 1)]
    threads = [threading.Thread(target=run, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    dataset = _open(context)
    keys = dataset.to_table()["k"].to_pylist()
    assert len(keys) == len(set(keys))
    appended = {5000 + turn * 10 + number for turn in range(8) for number in (1, 2)}
    assert {*range(0, 100, 7), *range(1000, 1030), *appended} <= set(keys)
    assert set(range(100)) - set(keys) <= {1, 8, 15, 22}
    assert dataset.to_table(filter="k = 0")["v"].to_pylist() == [max(made)[1]]
    for key in (7, 1005, 5011, 8):
        where = f"k = {key}"
        assert _all(dataset, filter=where) == _all(dataset, filter=where, use_scalar_index=False)


def test_merge_that_met_another_updates_the_rows_it_inserted(context: Context) -> None:
    _create(context, "t", _rows([1, 2]))
    met: list[int] = []

    def another() -> None:
        if not met:
            met.append(merge_here(context, "t", _rows([7, 8], 100)).version)

    made = merge_here(context, "t", _rows([8, 9], 200), before_commit=another)

    assert (made.updated, made.inserted, made.attempts) == (1, 1, 2)
    assert _open(context).to_table(columns=["k", "v"]).sort_by("k")["v"].to_pylist() == [0, 1, 100, 200, 201]


def test_fence_alone_keeps_two_merges_apart(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    _create(context, "t", _rows([]))
    substitute(monkeypatch, "merge.count_same_keys", lambda *_: 0)
    met: list[int] = []

    def another() -> None:
        if not met:
            met.append(merge_here(context, "t", _rows([7], 100)).version)

    made = merge_here(context, "t", _rows([7], 200), before_commit=another)

    assert (made.updated, made.inserted, made.attempts) == (1, 0, 2)
    assert FENCE in _open(context).read_transaction(met[0]).operation.removed_fragment_ids


def test_rows_appended_during_a_merge_are_updated_only_if_their_key_matches(
    context: Context,
) -> None:
    for key, attempts in ((9, 2), (50, 1)):
        uri = _create(context, f"t{key}", _rows([1, 2]))
        done: list[int] = []

        def append(uri: str = uri, key: int = key, done: list[int] = done) -> None:
            if not done:
                done.append(lance.write_dataset(_rows([key], 500), uri, mode="append").version)

        made = merge_here(context, f"t{key}", _rows([2, 9], 100), before_commit=append)

        assert made.attempts == attempts
        rows = {r["k"]: r["v"] for r in _open(context, f"t{key}").to_table().to_pylist()}
        assert rows == {1: 0, 2: 100, 9: 101, **({50: 500} if key == 50 else {})}
        assert _open(context, f"t{key}").count_rows() == len(rows)


def test_append_of_the_same_key_at_the_last_moment_is_reported(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = _create(context, "t", _rows([1, 2]))
    commit = original("merge.commit")

    def late(*arguments: Any) -> Any:
        lance.write_dataset(_rows([9, 10], 500), uri, mode="append")
        return commit(*arguments)

    substitute(monkeypatch, "merge.commit", late)
    made = merge_here(context, "t", _rows([2, 9], 100))

    assert (made.inserted, made.duplicates) == (1, 1)
    assert sorted(_open(context).to_table()["k"].to_pylist()) == [1, 2, 9, 9, 10]


@pytest.mark.parametrize("change", ["delete", "update", "compact", "overwrite"])
def test_merge_conflicting_with_another_change_is_planned_again(context: Context, change: str) -> None:
    uri = _create(context, "t", _rows(list(range(80))))
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    changes: dict[str, Callable[[lance.LanceDataset], Any]] = {
        "delete": lambda dataset: dataset.delete("k in (3, 70)"),
        "update": lambda dataset: dataset.update({"v": "7"}, where="k in (4, 70)"),
        "compact": lambda dataset: dataset.optimize.compact_files(),
        "overwrite": lambda dataset: lance.write_dataset(_rows([3, 500], 9), dataset.uri, mode="overwrite"),
    }
    done: list[Any] = []

    def meanwhile() -> None:
        if not done:
            done.append(changes[change](lance.dataset(uri)) or True)

    made = merge_here(context, "t", _rows([3, 4, 90], 1000), before_commit=meanwhile)

    assert made.attempts == 2
    lance.write_dataset(_rows(list(range(80))), context.location("u"), max_rows_per_file=40)
    changes[change](_open(context, "u"))
    _lance_merge(context.location("u"), _rows([3, 4, 90], 1000), ("k",), UPSERT)
    assert _all(_open(context)) == _all(_open(context, "u"))


def _files(context: Context, name: str = "t") -> set[str]:
    listed = context.storage.list_recursive(f"{name}.lance")
    return {each.key for each in listed if "/data/" in each.key or "/_deletions/" in each.key}


def test_failed_merge_leaves_no_files_and_a_crashed_one_no_change(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = _create(context, "t", _rows(list(range(80))))
    before, rows = _files(context), _all(_open(context))
    substitute(monkeypatch, "merge.back_off", lambda attempt: None)
    spoil = iter(range(1, 100))
    with pytest.raises(ConcurrentModificationError):
        merge_here(
            context,
            "t",
            _rows([3, 300], 1000),
            before_commit=lambda: lance.dataset(uri).update({"v": f"{next(spoil)}"}, where="k = 3"),
        )
    tracked = {
        f"t.lance/{each}" for each in lance.dataset(uri).tracked_files().read_all()["path"].to_pylist()
    }
    assert _files(context) - before <= tracked  # only what the updates themselves wrote

    version, rows = _open(context).version, _all(_open(context))
    with pytest.raises(KeyboardInterrupt):
        merge_here(context, "t", _rows([3, 300], 1000), before_commit=interrupt)
    assert (_open(context).version, _all(_open(context))) == (version, rows)
    assert merge_here(context, "t", _rows([3, 300], 1000)).inserted == 1


def test_merge_with_an_unknown_outcome_is_not_repeated(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(context, "t", _rows([1, 2]))
    commits: list[int] = []
    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(lose_the_answer(commits)))
    looks = iter([ServiceUnavailableError("busy")])
    landed_version = original("staging.landed_version")

    def look_when_it_is_up(*arguments: Any) -> Any:
        for failure in looks:
            raise failure
        return landed_version(*arguments)

    substitute(monkeypatch, "staging.landed_version", look_when_it_is_up)
    with pytest.raises(OutcomeUnknownError, match="busy"):
        merge_here(context, "t", _rows([2, None], 100))
    assert len(commits) == 1
    assert _open(context).count_rows() == 3


def test_merge_dry_run_counts_and_writes_nothing(context: Context) -> None:
    _create(context, "t", _rows(list(range(80))))
    before = _files(context)

    seen = merge_here(context, "t", _rows([3, 300], 1000), clauses=MIRROR, dry_run=True)

    assert (seen.version, seen.updated, seen.inserted, seen.deleted) == (1, 1, 1, 79)
    assert (_files(context), _open(context).version) == (before, 1)


def test_merge_without_effect_makes_no_version(context: Context) -> None:
    _create(context, "t", _rows([1, 2]))
    made = merge_here(context, "t", _rows([5], 1000), clauses=Clauses(insert=False))
    assert (made.version, made.updated, _open(context).version) == (1, 0, 1)


def test_merge_into_a_missing_table_or_by_a_missing_key_is_refused(context: Context) -> None:
    with pytest.raises(TableNotFoundError):
        merge_here(context, "nowhere", _rows([1]))
    assert not list(context.storage.list_recursive("nowhere.lance"))
    _create(context, "t", _rows([1, 2]))
    with pytest.raises(TableColumnNotFoundError, match="'other'"):
        merge_here(context, "t", _rows([1]), on=("other",))


def test_updated_rows_after_inserted_rows_are_refused(context: Context) -> None:
    _create(context, "t", _rows([1, 2]), enable_stable_row_ids=True)
    plan = plan_merge(context, MergeRequest(("t",), ("k",), UPSERT, lambda schema: None))
    batch = _rows([5, 1]).to_batches()[0]
    rows = NewRows(batch, pa.array([None, 0], pa.int64()), pa.array([None, 0], pa.int64()))
    with pytest.raises(InternalError, match="before inserted"):
        write_rows(plan, [rows])


def test_invalid_merge_clauses_are_refused() -> None:
    assert parse_clauses("update_all", "insert_all", "delete", delete_if="v > 1").delete_if == "v > 1"
    refused: list[tuple[tuple[str | None, str | None, str | None], dict[str, str]]] = [
        ((None, None, None), {}),
        (("update", None, None), {}),
        ((None, "insert_all", None), {"update_if": "true"}),
        (("update_all", None, None), {"delete_if": "true"}),
    ]
    for clauses, conditions in refused:
        with pytest.raises(InvalidInputError):
            parse_clauses(*clauses, **conditions)


def test_merge_works_on_s3(s3: S3Place) -> None:
    context = open_context(parse_properties(s3.properties), SystemClock())
    _create(context, "t", _rows(list(range(80))), enable_stable_row_ids=True)
    made = merge_here(context, "t", _rows([3, 300], 1000), clauses=MIRROR)
    assert (made.updated, made.inserted, made.deleted) == (1, 1, 79)
    assert sorted(_open(context).to_table()["k"].to_pylist()) == [3, 300]


def test_find_marked_reads_past_a_compaction_that_remapped_an_index(context: Context) -> None:
    uri = _create(context, "t", _rows(list(range(80))))
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    lance.dataset(uri).optimize.compact_files()
    assert find_marked(context, "t.lance", {"relance.job": "another"}, after=0) is None
