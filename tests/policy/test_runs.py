"""A run that is killed at any point and resumed ends like one that was not."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.policy.conftest import copy_of
from tests.support.patches import original, substitute
from tests.support.paths import REPOSITORY
from tests.support.policy.killed_run import Points, with_points
from tests.support.policy.lakes import PolicyLake, outcomes, the_policy

from relance.errors import InvalidInputError, TransactionNotFoundError
from relance.policy import history, plan, resume, run, run_policy, run_record, runs
from relance.policy.planning import unfinished
from relance.policy.records import Outcome, RunState


class _StoppedError(BaseException):
    """Ends a run where it is, as far as that can be had in this process."""


def _process(what: str, lake: PolicyLake, at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.policy.killed_run", what, lake.uri, str(at)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, int]:
    """How a run ends that nobody stops, what it did, and how many points it has."""
    lake = copy_of(model, tmp_path_factory.mktemp("undisturbed") / "lake")
    points = Points(0, lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        with_points(points, partial(substitute, patch))
        record = run_policy(lake.catalog, the_policy(), engine="local")
    assert record.state is RunState.DONE
    return lake.state(), _shown(outcomes(record)), points.seen


def _shown(found: dict[Any, Any]) -> dict[Any, Any]:
    """Return outcomes without the ids of drops, which differ from lake to lake."""
    return {(kind, table): outcome for (kind, table, _), outcome in found.items()}


@pytest.mark.deep
def test_killed_run_ends_the_same_after_resume(
    model: Path, tmp_path: Path, undisturbed: tuple[Any, Any, int]
) -> None:
    state, done, points = undisturbed
    assert points > 40
    chosen = (3, points // 3, 3 * points // 4, points - 1)
    for at in chosen:
        lake = copy_of(model, tmp_path / f"lake{at}")
        killed = _process("run", lake, at)
        assert killed.returncode == -9, (at, killed.stdout, killed.stderr)
        record = resume(lake.catalog, engine="local")
        assert record.state is RunState.DONE, (at, record.message)
        assert lake.state() == state, at
        assert _shown(outcomes(record)) == done, at
        assert run_record(lake.catalog) == record
        assert unfinished(lake.context) == []


@pytest.mark.deep
def test_run_stopped_at_every_third_point_ends_the_same_after_resume(
    model: Path, tmp_path: Path, undisturbed: tuple[Any, Any, int]
) -> None:
    state, done, points = undisturbed
    for at in range(3, points + 1, 3):
        lake = copy_of(model, tmp_path / f"lake{at}")
        _stop_at(lake, at)
        if not unfinished(lake.context):
            assert runs(lake.catalog)[0].state is RunState.DONE  # it was stopped when all was over
            continue
        record = resume(lake.catalog, engine="local")
        assert lake.state() == state, at
        assert _shown(outcomes(record)) == done, at


def _stop() -> None:
    raise _StoppedError


def _stop_at(lake: PolicyLake, at: int) -> None:
    points = Points(at, _stop)
    with pytest.MonkeyPatch.context() as patch:
        with_points(points, partial(substitute, patch))
        with pytest.raises(_StoppedError):
            run_policy(lake.catalog, the_policy(), engine="local")


@pytest.mark.deep
def test_run_killed_again_during_resume_ends_the_same(
    model: Path, tmp_path: Path, undisturbed: tuple[Any, Any, int]
) -> None:
    state, done, points = undisturbed
    lake = copy_of(model, tmp_path / "lake")
    assert _process("run", lake, points // 3).returncode == -9
    assert _process("resume", lake, points // 3).returncode == -9
    record = resume(lake.catalog, engine="local")
    assert lake.state() == state
    assert _shown(outcomes(record)) == done


def test_run_killed_before_its_plan_is_stored_did_nothing(model: Path, tmp_path: Path) -> None:
    lake = copy_of(model, tmp_path / "lake")
    before = lake.state()
    assert _process("run", lake, 1).returncode == -9
    assert lake.state() == before
    with pytest.raises(TransactionNotFoundError, match="no interrupted run to resume"):
        resume(lake.catalog)


def test_run_split_into_many_parts_ends_the_same_after_resume(
    model: Path, tmp_path: Path, undisturbed: tuple[Any, Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, done, _ = undisturbed
    substitute(monkeypatch, "policy_steps.tables_together", 1)  # two tables of a kind are two parts
    for at in (14, 26, 30):
        lake = copy_of(model, tmp_path / f"lake{at}")
        _stop_at(lake, at)
        record = resume(lake.catalog, engine="local")
        assert lake.state() == state, at
        assert _shown(outcomes(record)) == done, at
        kept = history(lake.catalog)
        assert len({each.number for each in kept}) == len(kept) == len(record.actions)


def test_failure_before_the_stop_skips_later_actions_of_its_table(model: Path, tmp_path: Path) -> None:
    lake = copy_of(model, tmp_path / "lake")
    next(Path(lake.location("readings"), "data").iterdir()).write_bytes(b"damaged")
    made = plan(lake.catalog, the_policy(), kinds=["compact", "clean_up", "drop_ttl"])
    assert {each.outcome for each in made.steps} == {Outcome.PLANNED}
    with pytest.MonkeyPatch.context() as patch:
        # What the plan decided, the TTLs, and then the compaction.
        with_points(_AfterWrites(3, _stop), partial(substitute, patch))
        with pytest.raises(_StoppedError):
            run(lake.catalog, made, engine="local")
    found = _shown(outcomes(resume(lake.catalog, engine="local")))
    assert found["compact", ("readings",)] is Outcome.FAILED
    assert found["clean_up", ("readings",)] is Outcome.SKIPPED
    assert found["clean_up", ("prod", "orders")] is Outcome.DONE


class _AfterWrites(Points):
    """Stops when so many parts of the run are in the history."""

    def reach(self, name: str) -> None:
        self.seen += name == "after actions in history"
        if self.seen == self.at:
            raise _StoppedError


@pytest.mark.deep
def test_stopped_run_on_s3_is_completed_by_resume(s3_lake: PolicyLake) -> None:
    _stop_at(s3_lake, 22)
    (run_name,) = unfinished(s3_lake.context)
    record = resume(s3_lake.catalog, engine="local")
    assert (record.run, record.state) == (run_name, RunState.DONE)
    assert Outcome.PLANNED not in outcomes(record).values()
    assert unfinished(s3_lake.context) == []
    found = s3_lake.facts()
    assert (found["readings", ""].fragments, found["readings", ""].deleted_rows) == (1, 0)
    assert run_record(s3_lake.catalog) == record


class _InPurge(Points):
    """Stops where the files of a table are about to be deleted, and it is claimed."""

    def reach(self, name: str) -> None:
        if name == "before files deleted":
            raise _StoppedError


def test_interrupted_purge_is_taken_over_when_its_claim_expires(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = PolicyLake(copy_of(model, tmp_path / "lake").uri, mode={"claim_lease": "10m"})
    with pytest.MonkeyPatch.context() as patch:
        with_points(_InPurge(0, _stop), partial(substitute, patch))
        substitute(patch, "purge.release", lambda *arguments: None)  # as if the process died
        with pytest.raises(_StoppedError):
            run_policy(lake.catalog, the_policy(), engine="local")
    slept: list[float] = []
    store_now = original("clock.store_now")
    substitute(
        monkeypatch, "clock.store_now", lambda context: store_now(context) + timedelta(seconds=sum(slept))
    )
    execution = original("policy_run.execution")
    substitute(monkeypatch, "policy_run.execution", partial(execution, sleep=slept.append))
    record = resume(lake.catalog, engine="local")
    assert record.state is RunState.DONE, record.message
    assert 650 < sum(slept) < 680, "as long as the claim and the margin, and no longer"
    assert [each.id for each in lake.catalog.list_dropped_tables()] == [("kept",)]


def test_history_names_who_started_and_who_resumed_a_run(lake: PolicyLake) -> None:
    with pytest.MonkeyPatch.context() as patch:
        with_points(Points(16, _stop), partial(substitute, patch))
        with pytest.raises(_StoppedError):
            run_policy(lake.catalog, the_policy(), actor="ann", engine="local")
    record = resume(lake.catalog, actor="ben", engine="local")
    assert record.actor == "ann, resumed by ben"
    assert {each.head.actor for each in history(lake.catalog)} == {"ann", "ann, resumed by ben"}
    assert history(lake.catalog, kind="purge")[0].head.actor == "ann, resumed by ben"


def test_plan_can_be_run_only_once(lake: PolicyLake) -> None:
    made = plan(lake.catalog, the_policy(), only=[["readings"]])
    with pytest.MonkeyPatch.context() as patch:
        with_points(Points(6, _stop), partial(substitute, patch))
        with pytest.raises(_StoppedError):
            run(lake.catalog, made)
    with pytest.raises(InvalidInputError, match="has already started"):
        run(lake.catalog, made)
    assert resume(lake.catalog, made.run).state is RunState.DONE
    with pytest.raises(TransactionNotFoundError, match="cannot be resumed"):
        resume(lake.catalog, made.run)
    kept = run_record(lake.catalog, made.run)
    with pytest.raises(InvalidInputError, match="has already ended"):
        run(lake.catalog, made)
    assert run_record(lake.catalog, made.run) == kept, "the history still says what it did"
