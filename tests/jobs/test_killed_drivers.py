"""A driver is killed between the tasks of a job and its commit: the next run finishes, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.dying import JOBS, NAMES, die_in, merged
from tests.support.jobs.merging import merge_here
from tests.support.jobs.rows import (
    GIANT,
    PER_FRAGMENT,
    ROWS,
    content,
    effect_of,
    fragments,
    make,
    opened,
    task_context,
    unused_files,
)
from tests.support.modes import V1, V2
from tests.support.roots import local_place

from relance.jobs import CleanUp

pytestmark = pytest.mark.deep

LEFT_BEHIND = CleanUp(retain_versions=1, delete_unverified=True, allow_young=True)


@pytest.mark.parametrize(("name", "mode"), list(zip(NAMES, [V1, V2, V1, V2, V2], strict=True)), ids=NAMES)
def test_job_killed_before_its_commit_is_done_once_by_the_next_run(
    tmp_path: Path, name: str, mode: dict[str, str]
) -> None:
    place = local_place(tmp_path / "root", mode)
    make(place)
    opened(place).create_scalar_index("id", "BTREE", train=False)
    before, version = content(opened(place)), opened(place).version
    assert unused_files(place) == set()
    die_in(name, place)
    assert (content(opened(place)), opened(place).version) == (before, version)
    assert unused_files(place)
    if name == "merge":
        done = merge_here(task_context(place), "t", merged(), on=("id",))
        assert (done.updated, done.inserted, done.attempts) == (5, 5, 1)
    else:
        effect_of(place, JOBS[name], giant=GIANT)
    expected = _expected(name)
    assert _numbers(opened(place)) == expected
    effect_of(place, LEFT_BEHIND)
    assert unused_files(place) == set()
    table = opened(place)
    assert _numbers(table) == expected
    assert table.validate() is None
    assert (len(fragments(table)) == ROWS // PER_FRAGMENT // 2) == (name == "compact")
    for row, number in list(expected.items())[::7]:
        assert table.to_table(filter=f"id = {row}")["n"].to_pylist() == [number]
    lag = table.stats.index_stats("id_idx")["num_unindexed_rows"]
    assert (lag == 0) == (name == "refresh")


def _numbers(table: Any) -> dict[int, int]:
    """Return the number of each row, which must be there once."""
    found = table.to_table(columns=["id", "n"])
    numbers = dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
    assert len(numbers) == found.num_rows
    return numbers


def _expected(name: str) -> dict[int, int]:
    plain = dict.fromkeys(range(ROWS), 0)
    match name:
        case "delete":
            return {each: 0 for each in plain if each % 3}
        case "update":
            return {each: int(each % 3 == 0) for each in plain}
        case "merge":
            return plain | dict.fromkeys(range(ROWS - 5, ROWS + 5), 100)
    return plain
