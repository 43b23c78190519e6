"""Index refresh: afterwards every row is indexed, and queries return the same rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
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
    unindexed,
)
from tests.support.managed_versions import version_rows
from tests.support.modes import MODES, V2
from tests.support.roots import LocalPlace, S3Place, local_place

from relance.errors import ConcurrentModificationError, InvalidInputError, TableNotFoundError
from relance.jobs import Compact, RefreshIndexes
from relance.jobs.plans.index_refresh import Build

PARTS = RefreshIndexes(segment_rows=2 * EACH)
"""So small that parts are built by many tasks."""
COVERED = {"id_idx": 0, "word_idx": 0}


def lagging(place: Any, *, stable: bool = False) -> None:
    """Make a table of 4 fragments that the indexes cover and 5 that they do not."""
    fill(place, fragments=4, stable=stable)
    for number in range(5):
        append(place, 1000 + number * EACH, EACH)
    assert unindexed(place) == {"id_idx": 5 * EACH, "word_idx": 5 * EACH}


def index_directories(place: LocalPlace) -> set[str]:
    """Return the parts of indexes that have files."""
    return {key.split("/")[2] for key in place.files() if "/_indices/" in key and not key.endswith("/")}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("giant", [False, True])
@pytest.mark.parametrize("job", [RefreshIndexes(), PARTS])
def test_refresh_indexes_every_row_and_queries_agree(
    place: LocalPlace, job: RefreshIndexes, giant: bool, stable: bool
) -> None:
    lagging(place, stable=stable)
    at(place).delete("id = 1003 or id = 3")
    before = ids(place)
    shown = run(place, job, dry_run=True).planned
    assert shown is not None
    assert shown.rows == 2 * (5 * EACH - 1)
    result = run(place, job, giant=giant)
    assert result.error is None
    assert result.effect is not None
    assert result.effect.rows == shown.rows
    assert result.effect.version == at(place).version
    assert unindexed(place) == COVERED
    assert_indexes_are_right(place)
    assert ids(place) == before
    assert run(place, job).effect is None
    named = {str(s.uuid) for each in at(place).describe_indices() for s in each.segments}
    if job is PARTS:  # what Lance extended it keeps for older versions
        assert index_directories(place) == named


def test_untrained_index_is_built_in_segments(place: LocalPlace) -> None:
    fill(place, indexes=False)
    at(place).create_scalar_index("id", "BTREE", train=False)
    plan = planned(place, PARTS)
    assert [each.fragments for each in plan.tasks if isinstance(each, Build)] == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]
    assert run(place, PARTS, giant=True).error is None
    assert unindexed(place) == {"id_idx": 0}
    assert_indexes_are_right(place)
    # One part, so that compaction may join any neighbours.
    assert run(place, Compact()).error is None
    assert len(at(place).get_fragments()) == 1
    assert unindexed(place) == {"id_idx": 0}
    assert_indexes_are_right(place)


def test_lag_below_the_limits_is_left_alone(place: LocalPlace) -> None:
    fill(place, fragments=4)
    append(place, 1000, 50)
    assert run(place, RefreshIndexes(max_lag_rows=50)).effect is None
    assert run(place, RefreshIndexes(max_lag_ratio=0.2)).effect is None
    assert run(place, RefreshIndexes(max_lag_rows=49, max_lag_ratio=0.1)).effect is not None
    assert unindexed(place) == COVERED


@pytest.mark.parametrize("settings", [{"max_lag_rows": -1}, {"max_lag_ratio": 2.0}, {"segment_rows": 0}])
def test_invalid_refresh_limits_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        RefreshIndexes(**settings)


def test_table_without_indexes_has_nothing_to_refresh(place: LocalPlace) -> None:
    fill(place, indexes=False)
    assert run(place, RefreshIndexes()).effect is None


def test_vector_and_text_indexes_are_extended_in_one_task(place: LocalPlace) -> None:
    catalog = place.open()
    location = catalog.declare_table({"id": ["t"]}).location

    def rows(first: int) -> pa.Table:
        vectors = np.random.default_rng(first).random((300, 4), dtype=np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
        text = [f"word{each} common" for each in range(first, first + 300)]
        return pa.table({"id": np.arange(first, first + 300), "vector": column, "text": text})

    lance.write_dataset(rows(0), location)
    at(place).create_index("vector", "IVF_FLAT", num_partitions=2)
    at(place).create_scalar_index("text", "INVERTED")
    lance.write_dataset(rows(300), location, mode="append")
    plan = planned(place, PARTS)
    assert [type(each).__name__ for each in plan.tasks] == ["Extend"]
    assert run(place, PARTS, giant=True).error is None
    assert unindexed(place) == {"text_idx": 0, "vector_idx": 0}
    assert at(place).to_table(full_text_query="word450")["id"].to_pylist() == [450]
    nearest = {"column": "vector", "q": rows(300)["vector"][7].as_py(), "k": 1, "nprobes": 2}
    assert at(place).to_table(nearest=nearest)["id"].to_pylist() == [307]


@pytest.mark.parametrize("mode", MODES)
def test_index_refresh_works_in_every_mode(tmp_path: Path, mode: str) -> None:
    place = local_place(tmp_path, MODES[mode])
    lagging(place)
    assert run(place, PARTS).error is None
    assert unindexed(place) == COVERED


def test_index_refresh_of_a_managed_table_records_its_versions(tmp_path: Path) -> None:
    place = local_place(tmp_path, {**V2, "table_version_management": "true"})
    lagging(place)
    assert run(place, PARTS).error is None
    assert version_rows(tmp_path, "t") == list(range(1, at(place).version + 1))


CHANGES: dict[str, Callable[[LocalPlace], Any]] = {
    "append": lambda place: append(place, 9000, 10),
    "delete": lambda place: at(place).delete("id < 5 or id = 1003"),
    "update": lambda place: at(place).update({"id": "id + 20000"}, where="id > 1100"),
    "compact": lambda place: at(place).optimize.compact_files(),
    "refresh": lambda place: at(place).optimize.optimize_indices(),
    "drop the index": lambda place: at(place).drop_index("id_idx"),
    "build it anew": lambda place: at(place).create_scalar_index("id", "BTREE", replace=True),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stable", [False, True])
def test_queries_stay_correct_after_any_concurrent_change(
    place: LocalPlace, change: str, stable: bool
) -> None:
    lagging(place, stable=stable)
    plan = planned(place, PARTS)
    values = [
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(each)).run(quiet_context(place))))
        for each in plan.tasks
    ]
    CHANGES[change](place)
    before = ids(place)
    with suppress(ConcurrentModificationError):  # which has it planned again
        plan.finish(quiet_context(place), values)
    assert ids(place) == before
    assert_indexes_are_right(place)
    assert ("id_idx" in unindexed(place)) == (change != "drop the index")
    assert run(place, PARTS).error is None
    assert set(unindexed(place).values()) == {0}
    assert_indexes_are_right(place)


def test_table_dropped_during_refresh_keeps_no_new_index_files(place: LocalPlace) -> None:
    lagging(place)
    before = index_directories(place)
    plan = planned(place, PARTS)
    values = [each.run(quiet_context(place)) for each in plan.tasks]
    place.open().drop_table({"id": ["t"]})
    with pytest.raises(TableNotFoundError):
        plan.finish(quiet_context(place), values)
    assert index_directories(place) == before
    place.open().undrop_table(["t"])
    assert run(place, PARTS).error is None
    assert unindexed(place) == COVERED


def test_refresh_that_crashed_before_its_commit_is_redone_by_the_next_run(place: LocalPlace) -> None:
    lagging(place)
    for each in planned(place, PARTS).tasks:
        each.run(quiet_context(place))
    assert run(place, PARTS).error is None
    assert unindexed(place) == COVERED
    assert_indexes_are_right(place)


def test_index_refresh_works_on_s3(s3: S3Place) -> None:
    lagging(s3)
    assert run(s3, PARTS, giant=True).error is None
    assert unindexed(s3) == COVERED
    assert_indexes_are_right(s3)
