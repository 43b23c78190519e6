"""Purge as a job: exactly the expired tables are purged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.lakes import JobLake
from tests.support.modes import MODES
from tests.support.patches import original, substitute, substituted
from tests.support.roots import S3Place

from relance.catalog.resolve import NotFound, SoftDeleted
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from relance.jobs import PurgeDropped

T = ("t",)
AT_ONCE = {"clock_skew": "0s"}
SHORT = {**AT_ONCE, "claim_lease": "1s", "request_age_bound": "0s"}


@pytest.fixture(params=list(MODES))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> JobLake:
    return JobLake(str(tmp_path / "root"), {**MODES[request.param], **AT_ONCE})


def _expired(root: JobLake, *names: str) -> None:
    for name in names:
        root.make(name, 1)
        root.append(name, 2)
        root.drop_long_ago(name)


def test_purge_job_removes_exactly_the_expired_tables(root: JobLake) -> None:
    root.make("live", 5)
    root.make("young", 6)
    root.catalog.drop_table({"id": ["young"]})
    kept = root.table_keys()
    _expired(root, "a", "b", "c")
    gone = root.table_keys() - kept
    planned = root.run(PurgeDropped(), dry_run=True)
    assert [each.planned.files for each in planned if each.planned] == [len(gone) // 3] * 3
    assert root.table_keys() == kept | gone
    results = root.run(PurgeDropped())
    assert [each.table for each in results] == [("a",), ("b",), ("c",)]
    assert [each.error for each in results] == [None] * 3
    effects = [each.effect for each in results if each.effect]
    assert sum(each.files for each in effects) == len(gone)
    assert [(each.files, each.bytes) for each in effects] == [
        (each.planned.files, each.planned.bytes) for each in planned if each.planned
    ]
    assert root.table_keys() == kept
    assert root.catalog.table_status(["a"]) == NotFound(("a",))
    assert isinstance(root.catalog.table_status(["young"]), SoftDeleted)
    assert root.values("live") == [5]
    assert root.run(PurgeDropped()) == []


def test_purge_job_of_named_tables_before_expiry_requires_force(root: JobLake) -> None:
    root.make("live", 5)
    root.make("t", 6)
    root.catalog.drop_table({"id": ["t"]})
    named = (("live",), ("none",), T)
    results = root.run(PurgeDropped(), *named)
    kinds = [type(each.error) for each in results]
    assert kinds == [InvalidTableStateError, TableNotFoundError, InvalidTableStateError]
    root.catalog.undrop_table(["t"])
    root.catalog.drop_table({"id": ["t"]})
    old = PurgeDropped(deleted_before=datetime.now(UTC) - timedelta(days=1), force=True)
    assert root.run(old, T)[0].effect is None
    assert root.run(PurgeDropped(force=True), T)[0].error is None
    assert root.catalog.table_status(["t"]) == NotFound(T)
    assert root.values("live") == [5]


def test_table_undropped_after_planning_is_left_untouched(root: JobLake) -> None:
    _expired(root, "t")
    plan = PurgeDropped().plan(root.context, T)
    assert plan is not None
    root.catalog.undrop_table(["t"])
    with pytest.raises((ConcurrentModificationError, InvalidTableStateError)):
        plan.finish(root.context, [])
    assert root.values("t") == [1, 2]


def test_every_dropped_generation_is_purged_but_not_the_current_table(tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), {**MODES["V2"], **AT_ONCE})
    root.make("other", 0)
    for _ in range(2):
        _expired(root, "t")
        root.catalog.declare_table({"id": ["t"]})
        root.drop_long_ago("t")
    root.catalog.declare_table({"id": ["t"]})
    kept = {each for each in root.table_keys() if root.location("t").rsplit("/", 1)[1] in each}
    (result,) = root.run(PurgeDropped())
    assert result.error is None
    assert {each for each in root.table_keys() if "_t/" in each} == kept
    assert root.values("other") == [0]


@pytest.mark.deep
def test_purge_of_a_dead_process_is_taken_over_after_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "claim.margin", timedelta(0))
    for mode in MODES.values():
        root = JobLake(str(tmp_path / f"root{len(mode)}"), {**mode, **SHORT})
        _expired(root, "t")
        _die_while_purging(root)
        with pytest.raises(ConcurrentModificationError):
            root.catalog.purge_table(["t"])
        assert PurgeDropped().targets(root.context) == []
        time.sleep(1.1)
        (result,) = root.run(PurgeDropped())
        assert result.error is None
        assert root.catalog.table_status(["t"]) == NotFound(T)


class _DeathError(BaseException):
    """Nothing catches it."""


def _die_while_purging(root: JobLake) -> None:
    """Do what a process does that is killed when it has claimed the table: it releases nothing."""
    with (
        substituted("purge.purge_claimed", side_effect=_DeathError),
        substituted("row_purge.delete_directory", side_effect=_DeathError),
        substituted("purge.release"),
        pytest.raises(_DeathError),
    ):
        root.catalog.purge_table(["t"])


def test_small_tables_do_not_wait_for_a_large_one(root: JobLake, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "b", "c"]
    for name in names:
        root.make(name, 1)
    for number in range(20):
        root.append("a", number)
    for name in names:
        root.drop_long_ago(name)
    substitute(monkeypatch, "purge.remembered_files", 20)
    ended: list[str] = []
    add = original("purge.report_progress")

    def report(self: Any, deleted: Any) -> None:
        ended.extend(self.id)
        add(self, deleted)

    substitute(monkeypatch, "purge.report_progress", report)
    assert [each.error for each in root.run(PurgeDropped())] == [None] * 3
    assert list(dict.fromkeys(ended))[-1] == "a"


def test_busy_store_only_delays_the_purge_of_a_large_table(
    root: JobLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of data files never come again, so deletes of them may be under way when the claim ends."""
    _expired(root, "t")
    substitute(monkeypatch, "purge.remembered_files", 0)
    storage = type(root.context.storage)
    whole, failures = original("storage.delete_many", on=storage), [0]

    def flaky(self: Any, keys: Iterable[str]) -> None:
        batch = list(keys)
        if any("/data/" in key for key in batch):
            failures[0] += 1
            if failures[0] <= 2:
                raise ServiceUnavailableError("slow down")
        whole(self, batch)

    substitute(monkeypatch, "storage.delete_many", flaky, on=storage)
    (result,) = root.run(PurgeDropped())
    assert result.error is None
    assert result.attempts > 1
    assert root.catalog.table_status(["t"]) == NotFound(T)


def test_tables_created_and_dropped_during_a_purge_stay_intact(root: JobLake) -> None:
    _expired(root, *(f"gone{number}" for number in range(6)))
    root.make("swing", 7)
    root.make("grows", 0)
    stop, grown, failures = threading.Event(), [0], []

    def act() -> None:
        try:
            for number in range(1, 1000):
                if stop.is_set():
                    return
                root.append("grows", number)
                grown.append(number)
                root.catalog.drop_table({"id": ["swing"]})
                root.catalog.undrop_table(["swing"])
                root.make(f"new{number}", number)
        except RelanceError as error:
            failures.append(error)

    writer = threading.Thread(target=act)
    writer.start()
    try:
        results = root.run(PurgeDropped())
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert [each.error for each in results] == [None] * 6
    assert root.values("swing") == [7]
    assert root.values("grows") == grown
    for number in grown[1:-1]:
        assert root.values(f"new{number}") == [number]


def test_purge_job_works_on_s3(s3: S3Place) -> None:
    root = JobLake(s3.root, dict(AT_ONCE), s3.server.storage_options())
    root.make("live", 5)
    kept = root.table_keys()
    _expired(root, "a", "b")
    with substituted("retention.margin", timedelta(0)):  # nobody can date an object on S3
        results = root.run(PurgeDropped(rate_limit=1000))
    assert [each.error for each in results] == [None] * 2
    assert root.table_keys() == kept
    assert root.values("live") == [5]


def test_surprise_in_one_group_does_not_hide_what_was_purged(
    root: JobLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(5)]
    _expired(root, *names)
    planned = {each.table: each.planned for each in root.run(PurgeDropped(), dry_run=True)}
    substitute(monkeypatch, "purge_job.most_tables", 2)
    purge, calls = original("purge_job.purge"), original("purge_job.purge_rows")

    def failing(real: Any) -> Any:
        def call(context: Any, some: Any, options: Any) -> Any:
            done = real(context, some, options)
            if len(some) > 1 and any(str(each.table_id) == "t2" for each in some):
                raise KeyError("after the purge")
            return done

        return call

    substitute(monkeypatch, "purge_job.purge", failing(purge))
    substitute(monkeypatch, "purge_job.purge_rows", failing(calls))
    results = root.run(PurgeDropped())
    assert [each.error for each in results] == [None] * len(names)
    for each in results:
        assert root.catalog.table_status(list(each.table)) == NotFound(each.table)
        assert each.effect is not None
        estimate = planned[each.table]
        assert estimate is not None
        assert (each.effect.files, each.effect.bytes) == (estimate.files, estimate.bytes) or each.effect.note


def test_invalid_purge_settings_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="time zone"):
        PurgeDropped(deleted_before=datetime(2026, 1, 1))  # noqa: DTZ001  # that is what is refused
    with pytest.raises(InvalidInputError, match="rate_limit"):
        PurgeDropped(rate_limit=0)
