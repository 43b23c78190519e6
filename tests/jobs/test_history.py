"""Each job while clients write to, drop and rename its table: every acknowledged change is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.jobs.history import FIRST, OURS, OWN, Clients, History
from tests.support.jobs.lakes import data_file
from tests.support.jobs.merging import merge_here
from tests.support.jobs.rows import (
    GIANT,
    PER_FRAGMENT,
    ROWS,
    SMALL,
    ids,
    make,
    opened,
    ref_to,
    rows,
    task_context,
)
from tests.support.jobs.running import results_of
from tests.support.lakes import make_older
from tests.support.modes import COMPATIBILITY, V2
from tests.support.patches import original, substitute
from tests.support.roots import LocalPlace, Place, S3Place, assert_whole, create, local_place

from relance.catalog.context import Context
from relance.catalog.resolve import NotFound
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableNotFoundError,
)
from relance.jobs import (
    CleanUp,
    Compact,
    DeleteRows,
    PurgeDropped,
    RefreshIndexes,
    RemoveOrphans,
    UpdateRows,
)
from relance.jobs.base import Job
from relance.jobs.plans.compaction import CompactPlan
from relance.jobs.plans.expired_drops import PurgePlan
from relance.jobs.plans.index_refresh import RefreshPlan
from relance.jobs.plans.old_versions import CleanedByLance, CleanedInTasks
from relance.jobs.plans.orphans import OrphanPlan
from relance.jobs.plans.row_changes import RewritePlan
from relance.jobs.runner import ThreadRunner

pytestmark = pytest.mark.deep

SECONDS = 2.5

Turn = Callable[[Place, History, int], None]
"""Does a job once, and writes down what it did to rows."""


def _run(place: Place, job: Job, number: int, *tables: tuple[str, ...]) -> None:
    """Run a job, every other time in many tasks.

    Raises:
        RelanceError: it failed.
    """
    seconds = GIANT if number % 2 else SMALL
    for result in results_of(
        job, ref_to(place), tables or [("t",)], ThreadRunner(2), oversized_seconds=seconds
    ):
        if result.error is not None:
            raise result.error


def _delete(place: Place, history: History, number: int) -> None:
    row = OURS[number % OWN]
    _run(place, DeleteRows(where=f"id = {row}"), number)
    history.numbers.pop(row, None)


def _update(place: Place, history: History, number: int) -> None:
    _run(place, UpdateRows(set={"n": "n + 1"}, where=f"id < {FIRST} and id % 3 = {OURS.start}"), number)
    for row in OURS:
        history.numbers[row] += 1


def _merge(place: Place, history: History, number: int) -> None:
    """Update one row, and add one."""
    pair = [OURS[number % OWN], FIRST + number]
    new = pa.concat_tables([rows(each, 1) for each in pair])
    new = new.set_column(1, "n", pa.array([number] * 2, pa.int32()))
    try:
        merge_here(task_context(place), "t", new, ("id",), before_commit=_pause)
    except ConcurrentModificationError as failure:
        raise OutcomeUnknownError(failure.detail) from failure  # it may have happened before a drop
    history.numbers.update(dict.fromkeys(pair, number))


def _pause() -> None:
    time.sleep(0.03)


@pytest.fixture(autouse=True)
def _retention_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the tests the minute that a purge waits because stores may round times."""
    substitute(monkeypatch, "retention.margin", timedelta(0))


@pytest.fixture(autouse=True)
def _time_between_tasks_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave others some time when it matters most."""
    for kind in (
        RewritePlan,
        CompactPlan,
        RefreshPlan,
        CleanedByLance,
        CleanedInTasks,
        PurgePlan,
        OrphanPlan,
    ):
        real = original("plan.finish", on=kind)

        def finish(self: Any, context: Context, values: Any, real: Any = real) -> Any:
            _pause()
            return real(self, context, values)

        substitute(monkeypatch, "plan.finish", finish, on=kind)


def _doing(job: Callable[[int], Job]) -> Turn:
    return lambda place, history, number: _run(place, job(number), number)


def _purge(place: Place, history: History, number: int) -> None:
    """Purge a table whose time has passed, and all others that are dropped if theirs has."""
    name = f"expired{number}"
    create(place.open(), name)
    place.open().drop_table({"id": [name], "context": {"ttl_ms": "1"}})
    time.sleep(0.05)
    job = PurgeDropped()
    due = job.targets(task_context(place))
    assert due == [(name,)]
    _run(place, job, number, *due)


def _orphans(place: Place, history: History, number: int) -> None:
    left = f"0123abcd_left{number}/data/{data_file(1)}"
    place.put(left, b"x")
    assert isinstance(place, LocalPlace)
    make_older(place.folder / left)
    _run(place, RemoveOrphans(older_than=timedelta(0), allow_young=True), number, ())
    assert not task_context(place).storage.which_exist([left])


TURNS: dict[str, Turn] = {
    "delete": _delete,
    "update": _update,
    "merge": _merge,
    "compact": _doing(lambda number: Compact(target_rows=30 + 10 * (number % 5), partial_progress=1)),
    "refresh": _doing(lambda number: RefreshIndexes(segment_rows=20)),
    "clean": _doing(lambda number: CleanUp(retain_versions=4, allow_young=True)),
    "clean in tasks": _doing(lambda number: CleanUp(retain_versions=4, allow_young=True, split_files=0)),
    "purge": _purge,
    "orphans": _orphans,
}


@pytest.mark.parametrize("name", TURNS)
def test_acknowledged_writes_during_a_job_are_all_kept(tmp_path: Path, name: str) -> None:
    # Each way of keeping tables that knows renames has half of the jobs.
    mode = V2 if list(TURNS).index(name) % 2 else COMPATIBILITY
    _check_history(local_place(tmp_path / "root", {**mode, "clock_skew": "0s"}), name)


@pytest.mark.parametrize("name", ["compact", "clean in tasks"])
def test_acknowledged_writes_during_a_job_on_s3_are_all_kept(s3: S3Place, name: str) -> None:
    _check_history(replace(s3, mode=V2), name)


def _check_history(place: Place, name: str) -> None:
    """Do a job again and again while clients write, and look whether all was as they were told."""
    lance.write_dataset(
        rows(0, FIRST),
        namespace_client=place.open(),
        table_id=["t"],
        mode="create",
        max_rows_per_file=PER_FRAGMENT,
    )
    opened(place).create_scalar_index("id", "BTREE", train=False)
    clients = Clients(place, History(dict.fromkeys(range(FIRST), 0)))
    ended = _do_all_the_time(TURNS[name], clients)
    clients.history.check(opened(place))
    assert place.open().validate_table(["t"], every_version=True).ok
    TURNS[name](place, clients.history, ended + 1)  # when all is quiet, it works
    clients.history.check(opened(place))


STORMS: dict[str, Job] = {
    "compact": Compact(target_rows=40),
    "refresh": RefreshIndexes(segment_rows=20),
    "clean": CleanUp(retain_versions=1, allow_young=True),
    "clean in tasks": CleanUp(retain_versions=1, allow_young=True, split_files=0),
}


@pytest.mark.parametrize("name", STORMS)
def test_concurrent_runs_of_the_same_job_all_succeed(tmp_path: Path, name: str) -> None:
    place = local_place(tmp_path / "root", V2)
    make(place)
    opened(place).create_scalar_index("id", "BTREE", train=False)
    opened(place).delete("id % 10 = 0")
    before = ids(place)
    with ThreadPoolExecutor(5) as pool:
        storm = [pool.submit(_run, place, STORMS[name], number) for number in range(5)]
        assert [each.exception() for each in storm] == [None] * 5
    assert ids(place) == before
    assert ids(place, "id > 30") == [each for each in before if each > 30]
    _run(place, STORMS[name], 0)
    assert place.open().validate_table(["t"], every_version=True).ok
    assert (len(opened(place).versions()) == 1) == name.startswith("clean")
    assert (opened(place).stats.index_stats("id_idx")["num_unindexed_rows"] == 0) == (name == "refresh")
    assert (len(opened(place).get_fragments()) < ROWS // PER_FRAGMENT) == (name == "compact")


def test_concurrent_purges_remove_every_expired_table(tmp_path: Path) -> None:
    place = local_place(tmp_path / "root", {**COMPATIBILITY, "clock_skew": "0s"})
    create(place.open(), "live")
    gone = [(f"expired{number}",) for number in range(3)]
    for table in gone:
        create(place.open(), table[0])
        place.open().drop_table({"id": list(table), "context": {"ttl_ms": "1"}})
    time.sleep(0.05)
    jobs = [PurgeDropped() for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        storm = [pool.submit(_run, place, job, number, *gone) for number, job in enumerate(jobs)]
        failures = [each.exception() for each in storm]
    # Who finds nothing left, or another purge at work, says so; somebody does each table.
    assert all(each is None or isinstance(each, RelanceError) for each in failures)
    for table in gone:
        assert place.open().table_status(list(table)) == NotFound(table)
    assert_whole(place.open(), "live")


def _do_all_the_time(turn: Turn, clients: Clients) -> int:
    """Do a job again and again while all clients write, and return how often it came through.

    It does not end before the job and every client have done something.
    """
    ended = 0
    until = time.monotonic() + SECONDS
    with clients.at_work():
        number = 0
        while time.monotonic() < until or not (ended and clients.have_all_done_something):
            try:
                turn(clients.place, clients.history, number)
                ended += 1
            except OutcomeUnknownError:
                clients.history.doubtful.update((*OURS, FIRST + number))
            except (TableNotFoundError, ConcurrentModificationError):
                pass  # the table was taken away under its hands, and it did nothing
            number += 1
    return ended
