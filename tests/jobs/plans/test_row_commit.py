"""Row deletes and updates with concurrent writers: acknowledged rows stay, deleted rows stay deleted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import lance
import pytest
from tests.support.jobs import meanwhile
from tests.support.jobs.rows import (
    GIANT,
    ROWS,
    SMALL,
    effect_of,
    finish,
    ids,
    make,
    opened,
    prepare,
    ref_to,
    result_of,
    rows,
    task_context,
    unused_files,
)
from tests.support.jobs.running import results_of
from tests.support.modes import MODES, V2
from tests.support.patches import substitute
from tests.support.roots import LocalPlace, drop, ipc, local_place

from relance.errors import ConcurrentModificationError, TableNotFoundError
from relance.jobs import DeleteRows, UpdateRows
from relance.jobs.base import CatalogRef, Job
from relance.jobs.runner import Done, Slice, ThreadRunner

JOBS: dict[str, Job] = {
    "delete": DeleteRows(where="id % 2 = 0"),
    "update": UpdateRows(set={"n": "n + 1"}, where="id % 2 = 0"),
}


@pytest.fixture(params=["V1", "V2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LocalPlace:
    """A root on local disk in each mode."""
    return local_place(tmp_path / "root", MODES[request.param])


@pytest.fixture(params=["delete", "update"])
def job(request: pytest.FixtureRequest) -> Job:
    """A job that is to be done to every other row."""
    return JOBS[request.param]


def _assert_done(place: LocalPlace, job: Job, *, times: int) -> None:
    """Check that a job of `JOBS` was done so often, and that it left no file behind."""
    every, odd = list(range(ROWS)), list(range(1, ROWS, 2))
    if isinstance(job, DeleteRows):
        assert ids(place) == (odd if times else every)
    else:
        assert ids(place) == every
        assert ids(place, "n = 0") == (odd if times else every)
        assert len(ids(place, f"n = {times}")) == (ROWS // 2 if times else ROWS)
    assert unused_files(place) == set()


def test_lost_commit_response_is_looked_up_and_not_repeated(
    place: LocalPlace, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place)
    commits: list[int] = []
    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(meanwhile.lose_the_answer(commits)))
    effect = effect_of(place, job)
    assert [effect.version] == commits
    _assert_done(place, job, times=1)


class _Forgetful(ThreadRunner):
    """Runs each slice twice, as if the worker died when it was done and before it could tell."""

    repeats = True

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        list(super().run(catalog, slices, what=what))
        return super().run(catalog, slices, what=what)


def test_update_is_applied_once_by_workers_that_repeat_tasks(place: LocalPlace) -> None:
    make(place)
    (result,) = results_of(JOBS["update"], ref_to(place), [("t",)], _Forgetful(1))
    assert result.effect is not None
    assert result.effect.rows == ROWS // 2
    assert len(ids(place, "n = 1")) == ROWS // 2


@pytest.mark.parametrize("event", [meanwhile.update, meanwhile.delete_in_the_first_fragment])
def test_failed_repair_raises_a_conflict_instead_of_skipping_rows(
    place: LocalPlace, job: Job, event: Callable[[LocalPlace], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place)
    prepared = prepare(place, job)
    event(place)
    plan, values = prepared
    substitute(monkeypatch, "row_changes.prepare", _raise_a_conflict, on=type(plan.rewrite))
    with pytest.raises(ConcurrentModificationError, match="cleaned up meanwhile"):
        plan.finish(task_context(place), values)
    assert unused_files(place) == set()


def _raise_a_conflict(*_: object) -> None:
    raise ConcurrentModificationError("the version was cleaned up meanwhile")


def test_table_dropped_before_the_commit_keeps_its_rows(place: LocalPlace, job: Job) -> None:
    make(place)
    prepared = prepare(place, job)
    drop(place.open(), "t")
    with pytest.raises(TableNotFoundError):
        finish(place, prepared)
    place.open().undrop_table(["t"])
    _assert_done(place, job, times=0)


def test_table_renamed_before_the_commit_keeps_its_rows(tmp_path: Path, job: Job) -> None:
    place = local_place(tmp_path / "root", V2)
    make(place)
    prepared = prepare(place, job)
    place.open().rename_table({"id": ["t"], "new_table_name": "u"})
    with pytest.raises(TableNotFoundError):
        finish(place, prepared)
    place.open().rename_table({"id": ["u"], "new_table_name": "t"})
    _assert_done(place, job, times=0)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_concurrent_jobs_on_the_same_fragments_all_succeed(place: LocalPlace, stable: bool) -> None:
    make(place, stable=stable)
    deletes: list[Job] = [DeleteRows(where=f"id % 10 = {each}") for each in range(3)]
    bumps: list[Job] = [UpdateRows(set={"n": "n + 1"}, where=f"id % {each} >= 0") for each in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        giants = [GIANT, SMALL]
        runs = [
            pool.submit(result_of, place, job, giant=giants[number % 2])
            for number, job in enumerate([*bumps, *deletes])
        ]
        results = [each.result() for each in runs]
    assert [each.error for each in results] == [None] * 7
    found = opened(place).to_table().to_pylist()
    assert sorted(each["id"] for each in found) == [each for each in range(ROWS) if each % 10 > 2]
    assert {each["n"] for each in found} == {4}
    assert unused_files(place) == set()


class _Others:
    """Clients that write through the catalog, and remember what they were told was done."""

    def __init__(self, place: LocalPlace, stop: threading.Event) -> None:
        self.place = place
        self.stop = stop
        self.added: set[int] = set()
        self.deleted: set[int] = set()
        self.bumped: dict[int, int] = {}

    def append(self, number: int) -> None:
        first = 1000 + 10 * number
        self.place.open().insert_into_table({"id": ["t"]}, ipc(rows(first, 10)))
        self.added.update(range(first, first + 10))

    def delete(self, number: int) -> None:
        row = 1 + 2 * (number % 30)
        self.place.open().delete_from_table({"id": ["t"], "predicate": f"id = {row}"})
        self.deleted.add(row)

    def update(self, number: int) -> None:
        row = 1000 + number
        updates = [["n", "n + 100"]]
        done = self.place.open().update_table({"id": ["t"], "predicate": f"id = {row}", "updates": updates})
        self.bumped[row] = 100 * (done.updated_rows or 0)

    def compact(self, _number: int) -> None:
        meanwhile.compact(self.place)

    def keep_doing(self, what: Callable[[int], None]) -> None:
        for number in count():
            # Four that never pause make thousands of versions, and nobody else ever comes first.
            if self.stop.wait(0.01):
                return
            try:
                what(number)
            except (ConcurrentModificationError, OSError, RuntimeError) as failure:
                # Not acknowledged, so not in the history; Lance's compaction has errors of its own.
                if not re.search(r"[Cc]onflict|[Cc]oncurrent", str(failure)):
                    raise


@pytest.mark.deep
def test_concurrent_writers_lose_and_resurrect_no_rows(place: LocalPlace) -> None:
    make(place)
    stop = threading.Event()
    others = _Others(place, stop)
    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(others.keep_doing, each)
            for each in (others.append, others.delete, others.update, others.compact)
        ]
        try:
            for number in range(0, 30, 3):
                giant = GIANT if number % 2 else SMALL
                effect_of(place, DeleteRows(where=f"id = {number * 2}"), giant=giant)
                effect_of(place, UpdateRows(set={"n": "n + 1"}, where="id < 60"), giant=giant)
        finally:
            stop.set()
        for each in running:
            each.result()
    gone = others.deleted | set(range(0, 60, 6))
    found = {each["id"]: each["n"] for each in opened(place).to_table().to_pylist()}
    assert set(found) == (set(range(ROWS)) | others.added) - gone
    assert opened(place).count_rows() == len(found)
    assert {found[each] for each in found if each < 60} == {10}
    for row in others.added:
        assert found[row] == others.bumped.get(row, 0), row
    assert ids(place, "id >= 1000") == sorted(others.added)
