"""Compaction of one table: the same as pylance's own, whether it is small or giant."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.support.jobs.compaction import (
    EACH,
    TABLE,
    append,
    assert_indexes_are_right,
    at,
    fill,
    ids,
    lengths,
    quiet_context,
    quiet_ref,
    run,
    unindexed,
)
from tests.support.jobs.running import results_of
from tests.support.managed_versions import version_rows
from tests.support.modes import MODES, V2
from tests.support.patches import substitute
from tests.support.roots import LocalPlace, S3Place, local_place

from relance.errors import InternalError, InvalidInputError
from relance.jobs import Compact, maintain
from relance.jobs.base import CatalogRef
from relance.jobs.runner import Done, Slice, ThreadRunner

WAYS = [(giant, partial) for giant in (False, True) for partial in (None, 1, 2)]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(("giant", "partial"), WAYS)
def test_compaction_gives_the_same_table_as_pylance(
    place: LocalPlace, stable: bool, giant: bool, partial: int | None
) -> None:
    for table in ("t", "u"):
        fill(place, stable=stable, table=table)
        at(place, table).delete("id % 5 = 0 and id >= 300")
        append(place, 5000, 10, table)
    at(place, "u").optimize.compact_files(target_rows_per_fragment=2 * EACH)
    before = ids(place)
    job = Compact(target_rows=2 * EACH, partial_progress=partial)
    result = run(place, job, giant=giant)
    assert result.error is None
    assert result.effect is not None
    assert ids(place) == ids(place, "u") == before
    assert sorted(lengths(at(place))) == sorted(lengths(at(place, "u")))
    assert at(place).to_table().num_rows == at(place, "u").to_table().num_rows
    if partial is None:
        assert at(place).to_table().equals(at(place, "u").to_table())
    assert unindexed(place) == unindexed(place, "u") == {"id_idx": 10, "word_idx": 10}
    assert_indexes_are_right(place)
    assert run(place, job).effect is None


@pytest.mark.parametrize("partial", [None, 1])
def test_expensive_compaction_uses_several_threads(
    place: LocalPlace, partial: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "engine.alone_seconds", 0)
    fill(place, fragments=12)
    result = run(place, Compact(target_rows=2 * EACH, partial_progress=partial))
    assert result.error is None
    assert lengths(at(place)) == [2 * EACH] * 6
    assert at(place).to_table()["id"].to_pylist() == list(range(12 * EACH))
    assert unindexed(place) == {"id_idx": 0, "word_idx": 0}


class LosingRunner(ThreadRunner):
    """Threads of which one is lost with what it did, as when the process of a worker dies too often."""

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        for done in super().run(catalog, slices, what=what):
            yield Done(1, error=InternalError("the worker is gone")) if done.number == 1 else done


@pytest.mark.parametrize("partial", [None, 1])
def test_lost_worker_is_reported_and_finished_rewrites_are_kept(
    place: LocalPlace, partial: int | None
) -> None:
    fill(place)
    job = Compact(target_rows=2 * EACH, partial_progress=partial)
    (result,) = results_of(
        job, quiet_ref(place), [TABLE], ThreadRunner(3), LosingRunner(3), oversized_seconds=-1
    )
    assert isinstance(result.error, InternalError)
    assert result.effect is not None
    assert result.effect.note == "6 fragments became 3"
    assert len(at(place).get_fragments()) == 5
    assert ids(place) == list(range(8 * EACH))
    again = run(place, job)
    assert again.error is None
    assert lengths(at(place)) == [2 * EACH] * 4
    assert ids(place) == list(range(8 * EACH))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("giant", [False, True])
def test_compaction_reports_plan_and_effect_in_every_mode(tmp_path: Path, mode: str, giant: bool) -> None:
    place = local_place(tmp_path, MODES[mode])
    fill(place, fragments=6, indexes=False)
    planned = run(place, Compact(), dry_run=True).planned
    assert planned is not None
    assert (planned.rows, planned.files) == (6 * EACH, 6)
    assert planned.note == "rewrites 6 of 6 fragments"
    assert planned.bytes == sum(
        file.file_size_bytes for each in at(place).get_fragments() for file in each.metadata.files
    )
    result = run(place, Compact(), giant=giant)
    assert result.effect is not None
    assert result.effect.version == at(place).version
    assert (result.effect.before.fragments, result.effect.after.fragments) == (6, 1)
    assert (result.effect.before.files, result.effect.after.files) == (6, 1)
    assert result.effect.before.bytes == planned.bytes
    assert result.effect.note == "6 fragments became 1"
    assert ids(place) == list(range(6 * EACH))


def test_compaction_of_a_managed_table_records_its_versions(tmp_path: Path) -> None:
    place = local_place(tmp_path, {**V2, "table_version_management": "true"})
    fill(place, fragments=3, indexes=False)
    assert run(place, Compact()).error is None
    # Three of the writes; Lance reserves the numbers of new fragments by a version of its own.
    assert version_rows(tmp_path, "t") == [1, 2, 3, 4, 5]
    assert at(place).version == 5


def test_dry_run_and_an_already_compact_table_change_nothing(place: LocalPlace) -> None:
    fill(place, fragments=3)
    files = place.files()
    assert run(place, Compact(), dry_run=True).planned is not None
    assert run(place, Compact(target_rows=EACH)).effect is None
    assert place.files() == files


def test_fragments_over_the_deletion_threshold_are_rewritten(place: LocalPlace) -> None:
    fill(place, fragments=3)
    at(place).delete("id < 30")
    job = Compact(target_rows=EACH, deletion_threshold=0.5)
    assert run(place, job).effect is None
    result = run(place, Compact(target_rows=EACH, deletion_threshold=0.2))
    assert result.effect is not None
    assert (result.effect.before.deleted_rows, result.effect.after.deleted_rows) == (30, 0)
    assert lengths(at(place)).count(70) == 1
    assert ids(place) == list(range(30, 3 * EACH))
    assert_indexes_are_right(place)


def test_target_in_bytes_is_reached_and_stable(place: LocalPlace) -> None:
    fill(place, fragments=20, indexes=False)
    size = sum(file.file_size_bytes for file in at(place).get_fragments()[0].metadata.files)
    job = Compact(target_bytes=4 * size)
    result = run(place, job)
    assert result.effect is not None
    assert result.effect.after.fragments == 5
    assert run(place, job).effect is None
    assert ids(place) == list(range(20 * EACH))


@pytest.mark.parametrize("stable", [False, True])
def test_indexes_stay_correct_with_deferred_remap(place: LocalPlace, stable: bool) -> None:
    fill(place, stable=stable)
    assert run(place, Compact(target_rows=2 * EACH, defer_index_remap=True)).error is None
    assert len(at(place).get_fragments()) == 4
    assert_indexes_are_right(place)
    at(place).delete("id < 50")
    append(place, 5000, 10)
    assert run(place, Compact(defer_index_remap=True), giant=True).error is None
    assert_indexes_are_right(place)
    assert ids(place) == [*range(50, 8 * EACH), *range(5000, 5010)]


def test_failing_table_does_not_stop_the_compaction_of_others(place: LocalPlace) -> None:
    for name in ("a", "b", "c"):
        fill(place, fragments=2, indexes=False, table=name)
    for file in (place.folder / "b.lance" / "data").iterdir():
        file.unlink()
    report = maintain(quiet_ref(place), Compact())
    assert [each.table for each in report.failed] == [("b",)]
    assert [each.table for each in report.changed] == [("a",), ("c",)]


def test_compaction_plans_and_results_are_picklable(place: LocalPlace) -> None:
    fill(place)
    context = quiet_context(place)
    plan = pickle.loads(pickle.dumps(Compact(target_rows=2 * EACH).plan(context, TABLE)))
    values = [
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(each)).run(context))) for each in plan.tasks
    ]
    assert plan.finish(context, values).after.fragments == 4
    assert_indexes_are_right(place)
    assert ids(place) == list(range(8 * EACH))


@pytest.mark.parametrize(
    "settings",
    [{"target_rows": 0}, {"target_bytes": 0}, {"partial_progress": 0}, {"deletion_threshold": 1.5}],
)
def test_invalid_compaction_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        Compact(**settings)


@pytest.mark.parametrize("partial", [None, 1])
def test_compaction_works_on_s3(s3: S3Place, partial: int | None) -> None:
    place = replace(s3, mode=V2)
    fill(place, fragments=4)
    at(place).delete("id < 10")
    result = run(place, Compact(target_rows=2 * EACH, partial_progress=partial), giant=True)
    assert result.error is None
    assert len(at(place).get_fragments()) < 4
    assert ids(place) == list(range(10, 4 * EACH))
    assert_indexes_are_right(place)


def test_pylance_supports_every_compaction_option_in_use() -> None:
    used = {"excluded_fragment_ids", "defer_index_remap", "materialize_deletions_threshold"}
    assert used <= set(lance.optimize.CompactionOptions.__annotations__)
