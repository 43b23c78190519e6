"""Compaction while others write to, drop, rename and compact the same table."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.optimize import Compaction
from tests.support.jobs.compaction import (
    EACH,
    append,
    assert_indexes_are_right,
    at,
    fill,
    ids,
    planned,
    quiet_context,
    run,
    some,
    unindexed,
)
from tests.support.modes import MODES
from tests.support.patches import original, substitute
from tests.support.roots import LocalPlace, local_place

from relance.errors import ConcurrentModificationError, ServiceUnavailableError, TableNotFoundError
from relance.jobs import Compact
from relance.jobs.base import UnfinishedError
from relance.jobs.plans.compaction import CompactPlan

JOB = Compact(target_rows=2 * EACH)
ALL = list(range(8 * EACH))


def work(place: LocalPlace, plan: CompactPlan) -> list[Any]:
    return [each.run(quiet_context(place)) for each in plan.tasks]


def data_files(place: LocalPlace) -> set[str]:
    return {each for each in place.files() if "/data/" in each and each.endswith(".lance")}


def named_files(place: LocalPlace) -> set[str]:
    """Return the data files that a version of the table names."""
    return {
        f"t.lance/data/{file.path}"
        for version in at(place).versions()
        for each in at(place, version=version["version"]).get_fragments()
        for file in each.metadata.files
    }


CHANGES: dict[str, tuple[Callable[[LocalPlace], Any], list[int]]] = {
    "append": (lambda place: append(place, 5000, 10), [*ALL, *range(5000, 5010)]),
    "delete": (lambda place: at(place).delete("id < 5 or id = 750"), [*range(5, 750), *range(751, 800)]),
    "delete a fragment": (lambda place: at(place).delete("id < 100"), ALL[EACH:]),
    "delete all": (lambda place: at(place).delete("true"), []),
    "update": (
        lambda place: at(place).update({"id": "id + 10000"}, where="id < 3"),
        [*ALL[3:], 10000, 10001, 10002],
    ),
    "merge": (lambda place: _merge(place), [*ALL, *range(800, 805)]),
    "add a column": (lambda place: at(place).add_columns({"more": "id * 2"}), ALL),
    "compact": (lambda place: at(place).optimize.compact_files(target_rows_per_fragment=3 * EACH), ALL),
    "index": (lambda place: at(place).create_scalar_index("value", "BTREE"), ALL),
    "refresh": (lambda place: at(place).optimize.optimize_indices(retrain=True), ALL),
    "overwrite": (
        lambda place: lance.write_dataset(some(7, 3), at(place), mode="overwrite"),
        [7, 8, 9],
    ),
}


def _merge(place: LocalPlace) -> None:
    merge = at(place).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(some(795, 10))


@pytest.mark.parametrize(
    ("moment", "stable"),
    [
        ("before the tasks", False),
        ("between tasks", True),
        ("before the commit", False),
        ("before the commit", True),
    ],
)
@pytest.mark.parametrize("change", CHANGES)
def test_concurrent_change_neither_loses_nor_resurrects_rows(
    place: LocalPlace, change: str, moment: str, stable: bool
) -> None:
    fill(place, stable=stable)
    plan = planned(place, JOB)
    act, expected = CHANGES[change]
    if moment == "before the tasks":
        act(place)
    values = []
    for each in plan.tasks:
        values.append(each.run(quiet_context(place)))
        if moment == "between tasks" and len(values) == 2:
            act(place)
    if moment == "before the commit":
        act(place)
    with suppress(ConcurrentModificationError, UnfinishedError):  # which has it planned again
        plan.finish(quiet_context(place), values)
    assert ids(place) == expected
    if "word_idx" in unindexed(place):
        assert_indexes_are_right(place)
    assert run(place, JOB).error is None
    assert ids(place) == expected
    assert run(place, JOB).effect is None


@pytest.mark.parametrize("partial", [None, 1])
def test_rewrite_conflicting_with_a_delete_fails_alone_and_its_files_are_removed(
    place: LocalPlace, partial: int | None
) -> None:
    fill(place)
    plan = planned(place, Compact(target_rows=2 * EACH, partial_progress=partial))
    values = work(place, plan)
    at(place).delete("id = 350")
    with pytest.raises(UnfinishedError) as caught:
        plan.finish(quiet_context(place), values)
    assert caught.value.effect is not None
    assert caught.value.effect.note == "6 fragments became 3"
    assert len(at(place).get_fragments()) == 5
    assert data_files(place) == named_files(place)
    again = planned(place, JOB)
    assert len(again.tasks) == 1
    again.finish(quiet_context(place), work(place, again))
    assert ids(place) == [each for each in ALL if each != 350]
    assert unindexed(place) == {"id_idx": 0, "word_idx": 0}


@pytest.mark.parametrize("giant", [False, True])
def test_result_sums_up_all_attempts(place: LocalPlace, giant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    fitting = original("compaction.fitting_tasks")
    calls: list[Any] = []

    def deleting_first(*given: Any) -> list[bool]:
        if not calls:
            calls.append(at(place).delete("id = 350"))
            return [each in (0, 2, 3) for each in range(4)]
        return list(fitting(*given))

    substitute(monkeypatch, "compaction.fitting_tasks", deleting_first)
    result = run(place, JOB, giant=giant)
    assert result.error is None
    assert result.effect is not None
    assert result.attempts == 2
    assert result.effect.rows == 8 * EACH - 1
    assert (result.effect.before.fragments, result.effect.after.fragments) == (8, 4)


def test_compaction_that_crashed_before_its_commit_is_redone_by_the_next_run(place: LocalPlace) -> None:
    fill(place)
    plan = planned(place, JOB)
    late = work(place, plan)
    assert run(place, JOB).error is None
    assert ids(place) == ALL
    # And if it only slept, it finds that there is nothing left to do.
    with pytest.raises(ConcurrentModificationError):
        plan.finish(quiet_context(place), late)
    assert ids(place) == ALL
    assert data_files(place) == named_files(place)
    assert_indexes_are_right(place)


def test_compaction_that_crashed_midway_keeps_its_partial_commits(place: LocalPlace) -> None:
    fill(place)
    plan = planned(place, Compact(target_rows=2 * EACH, partial_progress=1))
    plan.commit_partial(quiet_context(place), [plan.tasks[0].run(quiet_context(place))])
    assert len(at(place).get_fragments()) == 7
    result = run(place, JOB)
    assert result.effect is not None
    assert result.effect.note == "6 fragments became 3"
    assert ids(place) == ALL


def test_commit_that_landed_despite_a_reported_conflict_is_a_success(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place)
    commit = Compaction.commit

    class LosesAnswers:
        plan = Compaction.plan

        @staticmethod
        def commit(*given: Any) -> None:
            commit(*given)
            raise OSError("Retryable commit conflict for version 9: preempted by concurrent transaction")

    substitute(monkeypatch, "compaction.commit_class", LosesAnswers)
    plan = planned(place, JOB)
    effect = plan.finish(quiet_context(place), work(place, plan))
    assert effect.version == at(place).version
    assert ids(place) == ALL
    assert_indexes_are_right(place)


def test_commit_with_a_lost_response_removes_no_files(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place)
    commit = Compaction.commit

    class Vanishes:
        @staticmethod
        def commit(*given: Any) -> None:
            commit(*given)
            raise OSError("LanceError(IO): Generic S3 error: error sending request: connection closed")

    plan = planned(place, JOB)
    values = work(place, plan)
    with monkeypatch.context() as patched:
        substitute(patched, "compaction.commit_class", Vanishes)
        with pytest.raises(ServiceUnavailableError):
            plan.finish(quiet_context(place), values)
    assert ids(place) == ALL
    assert run(place, JOB).effect is None


def test_table_replaced_after_planning_is_not_touched(place: LocalPlace) -> None:
    fill(place)
    plan = planned(place, JOB)
    values = work(place, plan)
    shutil.rmtree(place.folder / "t.lance")
    fill(place, fragments=12, indexes=False)
    files = place.files()
    with pytest.raises(ConcurrentModificationError):
        plan.finish(quiet_context(place), values)
    assert place.files() == files
    assert ids(place) == list(range(12 * EACH))


@pytest.mark.parametrize("moment", ["before the tasks", "before the commit"])
@pytest.mark.parametrize("mode", MODES)
def test_table_dropped_after_planning_is_left_alone(tmp_path: Path, mode: str, moment: str) -> None:
    place = local_place(tmp_path, MODES[mode])
    fill(place)
    plan = planned(place, JOB)
    catalog = place.open(manifest_upkeep="false") if mode != "V1" else place.open()
    values = work(place, plan) if moment == "before the commit" else []
    catalog.drop_table({"id": ["t"]})
    with pytest.raises(TableNotFoundError):
        plan.finish(quiet_context(place), values or work(place, plan))
    catalog.undrop_table(["t"])
    assert ids(place) == ALL
    assert run(place, JOB).error is None
    assert ids(place) == ALL


@pytest.mark.parametrize("mode", ["V2", "compatibility"])
def test_table_renamed_after_planning_raises_table_not_found(tmp_path: Path, mode: str) -> None:
    place = local_place(tmp_path, MODES[mode])
    fill(place)
    plan = planned(place, JOB)
    values = work(place, plan)
    place.open().rename_table({"id": ["t"], "new_table_name": "u"})
    with pytest.raises(TableNotFoundError):
        plan.finish(quiet_context(place), values)
    assert ids(place, "u") == ALL
    assert run(place, JOB, ("u",)).error is None
    assert ids(place, "u") == ALL


def test_table_dropped_and_undropped_after_planning_is_compacted(place: LocalPlace) -> None:
    fill(place)
    plan = planned(place, JOB)
    values = work(place, plan)
    place.open().drop_table({"id": ["t"]})
    place.open().undrop_table(["t"])
    plan.finish(quiet_context(place), values)
    assert len(at(place).get_fragments()) == 4
    assert ids(place) == ALL


def test_planned_version_removed_by_cleanup_requires_a_new_plan(place: LocalPlace) -> None:
    fill(place)
    plan = planned(place, JOB)
    append(place, 5000, 10)
    place.open().cleanup_old_versions(["t"], older_than="0s")
    with pytest.raises(ConcurrentModificationError, match="cleaned up"):
        plan.finish(quiet_context(place), work(place, plan))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("partial", [None, 1])
def test_concurrent_compactions_and_writers_lose_no_rows(
    place: LocalPlace, stable: bool, partial: int | None
) -> None:
    fill(place, fragments=16, stable=stable)
    kept = set(range(16 * EACH))
    failures: list[BaseException] = []

    def write(step: Callable[[int], None]) -> None:
        for number in range(20):
            try:
                step(number)
            except OSError as error:  # it lost against a compaction, and did nothing
                if "commit" not in str(error).lower():
                    failures.append(error)

    def appended(number: int) -> None:
        append(place, 10_000 + number * 10, 10)
        kept.update(range(10_000 + number * 10, 10_010 + number * 10))

    def deleted(number: int) -> None:
        at(place).delete(f"id = {number * 7}")
        kept.discard(number * 7)

    def updated(number: int) -> None:
        at(place).update({"value": "1.5"}, where=f"id = {number * 11 + 3}")

    def compacted(results: list[Any]) -> None:
        for rows in (2, 4, 16):
            results.append(
                run(place, Compact(target_rows=rows * EACH, partial_progress=partial), giant=rows != 4)
            )

    results: list[Any] = []
    writers = [threading.Thread(target=write, args=(each,)) for each in (appended, deleted, updated)]
    compactors = [threading.Thread(target=compacted, args=(results,)) for _ in range(2)]
    for each in (*writers, *compactors):
        each.start()
    for each in (*writers, *compactors):
        each.join()
    assert not failures
    assert [each.error for each in results] == [None] * 6
    assert ids(place) == sorted(kept)
    assert_indexes_are_right(place)
    assert run(place, Compact()).error is None
    assert ids(place) == sorted(kept)
    assert_indexes_are_right(place)


@pytest.mark.parametrize("mode", MODES)
def test_concurrent_drops_end_in_success_or_table_not_found(tmp_path: Path, mode: str) -> None:
    place = local_place(tmp_path, MODES[mode])
    fill(place)
    catalog = place.open()
    results: list[Any] = []

    def compacted() -> None:
        for rows in (2, 3, 4, 8):
            results.append(
                run(place, Compact(target_rows=rows * EACH, partial_progress=1), giant=rows % 2 == 0)
            )

    worker = threading.Thread(target=compacted)
    worker.start()
    for _ in range(5):
        catalog.drop_table({"id": ["t"]})
        catalog.undrop_table(["t"])
    worker.join()
    assert len(results) == 4
    assert {type(each.error) for each in results} <= {type(None), TableNotFoundError}
    assert ids(place) == ALL
    assert run(place, Compact()).error is None
    assert ids(place) == ALL
    assert_indexes_are_right(place)
