"""One policy run per lake at a time: a second one waits, or is refused and names the first."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.patches import substitute
from tests.support.paths import REPOSITORY
from tests.support.policy.lakes import PolicyLake, the_policy
from tests.support.servers import S3Server

from relance.errors import KeyChangedError
from relance.policy import LeaseHeldError, LeaseLostError, run_policy, runs, who_runs
from relance.policy.lease import LEASE_KEY, held
from relance.policy.planning import unfinished
from relance.policy.records import RunState

SHORT = timedelta(seconds=1.5)

_HOLD = """
import sys
from tests.support.policy.lakes import PolicyLake
from relance.policy.lease import held
with held(PolicyLake(sys.argv[1]).context, "the-other-run", "somebody@elsewhere"):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.fixture
def empty(tmp_path: Path) -> PolicyLake:
    return PolicyLake(str(tmp_path / "lake"))


@contextmanager
def _holder(lake: PolicyLake) -> Iterator[Holding]:
    """Run a process that holds the lake by now."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, lake.uri],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:  # closes what it reads, and waits for it
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield Holding(process.stdin.close, process.kill)


class Holding(NamedTuple):
    """A process that holds a lake."""

    end: Callable[[], None]
    kill: Callable[[], None]


@pytest.mark.deep
def test_second_run_is_refused_with_the_holder_or_waits(lake: PolicyLake) -> None:
    before = lake.state()
    with _holder(lake) as other:
        with pytest.raises(LeaseHeldError, match=r"the-other-run.* by somebody@elsewhere"):
            run_policy(lake.catalog, the_policy())
        assert lake.state() == before
        found = who_runs(lake.catalog)
        assert found is not None
        assert found.run == "the-other-run"
        ends = threading.Timer(0.5, other.end)
        ends.start()
        record = run_policy(lake.catalog, the_policy(), wait=timedelta(seconds=30))
        assert not ends.is_alive(), "it did not wait"
        assert record.state is RunState.DONE
    assert who_runs(lake.catalog) is None
    assert len(runs(lake.catalog)) == 1


def test_lease_of_a_killed_process_is_taken_over_immediately(empty: PolicyLake) -> None:
    with _holder(empty) as other:
        other.kill()
    assert b"somebody@elsewhere" in empty.context.storage.read(LEASE_KEY).body
    with held(empty.context, "mine", "me"):
        found = who_runs(empty.catalog)
        assert found is not None
        assert found.run == "mine"


def test_lease_of_a_remote_holder_is_taken_over_after_it_expires(
    empty: PolicyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    with monkeypatch.context() as patch:
        substitute(patch, "policy_lease.this_process", lambda: "another-machine 1 1")
        substitute(patch, "policy_lease.start", lambda lease: None)  # no heartbeat: it sleeps
        substitute(patch, "policy_lease.stop", lambda lease: None)
        with held(empty.context, "theirs", "them", length=SHORT) as theirs:
            pass
    with pytest.raises(LeaseHeldError), held(empty.context, "mine", "me"):
        lost.set()
    with held(empty.context, "mine", "me", wait=timedelta(seconds=30)) as mine:
        mine.check()
        with pytest.raises(LeaseLostError, match="theirs"):
            theirs.check()
    assert not lost.is_set()


def test_lease_is_renewed_while_its_holder_lives(empty: PolicyLake) -> None:
    with held(empty.context, "mine", "me", length=SHORT) as lease:
        first = empty.context.storage.read(LEASE_KEY)
        time.sleep(1.5 * SHORT.total_seconds())
        assert empty.context.storage.read(LEASE_KEY).version != first.version
        lease.check()
        found = who_runs(empty.catalog)
        assert found is not None
        assert found.until > datetime.now(UTC)


def test_holder_notices_that_its_lease_was_taken(empty: PolicyLake) -> None:
    with held(empty.context, "mine", "me", length=SHORT) as lease:
        stored = empty.context.storage.read(LEASE_KEY)
        other = stored.body.replace(b'"me"', b'"thief"').replace(b'"mine"', b'"stolen"')
        for _ in range(50):  # against the heartbeat
            try:
                empty.context.storage.replace(LEASE_KEY, other, expected=stored.version)
                break
            except KeyChangedError:
                stored = empty.context.storage.read(LEASE_KEY)
        time.sleep(SHORT.total_seconds())
        with pytest.raises(LeaseLostError, match=r"thief \(run stolen\)"):
            lease.check()
    assert b"thief" in empty.context.storage.read(LEASE_KEY).body, "it is not given free by another"


def test_only_one_of_many_runs_holds_the_lease(empty: PolicyLake) -> None:
    holding, most, refused = 0, 0, 0
    lock, start = threading.Lock(), threading.Barrier(8)

    def want(number: int) -> None:
        nonlocal holding, most, refused
        start.wait()
        try:
            with held(empty.context, f"run{number}", f"actor{number}"):
                with lock:
                    holding += 1
                    most = max(most, holding)
                time.sleep(0.05)
                with lock:
                    holding -= 1
        except LeaseHeldError:
            with lock:
                refused += 1

    threads = [threading.Thread(target=want, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == 1
    assert refused >= 1


def test_lease_works_on_s3(moto_server: S3Server, moto_bucket: str) -> None:
    s3_lake = PolicyLake(f"s3://{moto_bucket}/lake", options=moto_server.storage_options())
    with held(s3_lake.context, "mine", "me", length=SHORT) as lease:
        with pytest.raises(LeaseHeldError, match="by me,"):
            run_policy(s3_lake.catalog, the_policy())
        time.sleep(SHORT.total_seconds())
        lease.check()
    with held(s3_lake.context, "next", "me"):
        pass


def test_lease_names_the_run_whose_plan_is_stored(lake: PolicyLake) -> None:
    named: list[tuple[str | None, list[str]]] = []

    def look(*_: object) -> None:
        holder = who_runs(lake.catalog)
        named.append((None if holder is None else holder.run, unfinished(lake.context)))

    record = run_policy(lake.catalog, the_policy(), progress=look)
    (last, stored) = named[-1]
    assert {run for run, _ in named if run is not None} == {record.run}, "also while it plans"
    assert last == record.run
    assert stored == [record.run]
