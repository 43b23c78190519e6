"""Cleanup as a job: keeps the same files as Lance's own cleanup, at once or in tasks."""

from __future__ import annotations

import pickle
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from tests.support.internals import context_of
from tests.support.jobs.lakes import DAY, ClockBehind, JobLake, age
from tests.support.modes import V1
from tests.support.patches import original, substitute

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    RelanceError,
    TableNotFoundError,
)
from relance.jobs import CleanUp, RemoveOrphans, maintain
from relance.jobs.base import CatalogRef, Job
from relance.jobs.plans.old_versions import CleanedInTasks
from relance.jobs.runner import Done, Slice, ThreadRunner
from relance.operations.cleaning.pacing import paced

T = ("t",)
VERSIONS = 7
"""Of the table that `_history` makes: a compaction is two."""
ALL: dict[str, Any] = {"retain_versions": 1, "skip_tagged": True}


def _now(**rules: Any) -> CleanUp:
    return CleanUp(retain_versions=1, allow_young=True, **rules)


def _in_tasks(**rules: Any) -> CleanUp:
    return CleanUp(**(rules or ALL), allow_young=True, split_files=0)


def _history(root: JobLake, name: str = "t") -> None:
    root.make(name, 1)
    for value in range(2, 5):
        root.append(name, value)
    root.dataset(name).delete("a = 2")
    root.dataset(name).optimize.compact_files()


def _random_history(uri: str, seed: int) -> None:
    """Write a table with appends, deletes, overwrites, compactions, an index, tags and branches."""
    chance = random.Random(seed)
    lance.write_dataset(pa.table({"a": list(range(20))}), uri)
    for step in range(14):
        dataset = lance.dataset(uri)
        match chance.choice(["append", "append", "delete", "overwrite", "compact", "index", "tag", "branch"]):
            case "append":
                lance.write_dataset(pa.table({"a": [100 + step]}), uri, mode="append")
            case "delete":
                dataset.delete(f"a % 7 = {chance.randrange(7)}")
            case "overwrite":
                lance.write_dataset(pa.table({"a": list(range(step + 3))}), uri, mode="overwrite")
            case "compact":
                dataset.optimize.compact_files()
            case "index":
                dataset.create_scalar_index("a", "BTREE", replace=True)
            case "tag":
                dataset.tags.create(f"tag{step}", chance.randint(1, dataset.version))
            case "branch":
                branch = lance.dataset(uri, version=chance.randint(1, dataset.version)).create_branch(
                    f"b{step}"
                )
                if chance.random() < 0.5:
                    branch.insert(pa.table({"a": [step]}))
    write_fragments(pa.table({"a": [9]}), uri, mode="append")  # of a job that is under way


def _files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("seed", range(12))
def test_cleanup_keeps_the_same_files_as_lance(seed: int, tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "ours"), V1)
    table = tmp_path / "ours" / "t.lance"
    _random_history(str(table), seed)
    if seed % 2:
        age(table, 8 * DAY)  # files that were never committed go, too
    retain = 1 + seed % 3
    kept, contents = _after_lance(table, tmp_path / "aside", retain)
    job = _in_tasks(retain_versions=retain, skip_tagged=True)
    planned = root.run(job, T, dry_run=True)[0].planned
    before = _files(table)
    result = root.run(job, T, oversized_seconds=0)[0]
    assert result.error is None
    assert _files(table) == kept
    gone = len(before) - len(kept)
    assert gone == (result.effect.files if result.effect else 0) == (planned.files if planned else 0)
    assert _contents(table) == contents


def _after_lance(table: Path, aside: Path, retain: int) -> tuple[set[str], dict[str, pa.Table]]:
    """Have Lance clean the table, return what it left, and put the table back.

    Not on a copy elsewhere: branches know their table by its path.
    """
    shutil.copytree(table, aside)
    lance.dataset(str(table)).cleanup_old_versions(
        older_than=timedelta(0), retain_versions=retain, error_if_tagged_old_versions=False
    )
    found = _files(table), _contents(table)
    shutil.rmtree(table)
    shutil.move(aside, table)
    return found


def _contents(table: Path) -> dict[str, pa.Table]:
    """Return the rows of every version and of every branch."""
    dataset = lance.dataset(str(table))
    found = {
        str(each["version"]): lance.dataset(str(table), version=each["version"]).to_table()
        for each in dataset.versions()
    }
    found |= {name: dataset.checkout_version((name, None)).to_table() for name in dataset.branches.list()}
    return found


def test_failing_table_does_not_stop_the_cleanup_of_others(root: JobLake) -> None:
    for name in ("t", "u", "v"):
        _history(root, name)
    root.dataset("u").tags.create("keep", 3)
    results = root.run(_now())
    assert [each.table for each in results] == [("t",), ("u",), ("v",)]
    assert [each.error is None for each in results] == [True, False, True]
    effect = results[0].effect
    assert effect is not None
    assert (effect.before.versions, effect.after.versions) == (VERSIONS, 1)
    assert effect.files > 5
    assert effect.bytes > 0
    assert root.values("v") == [1, 3, 4]
    assert len(root.dataset("u").versions()) == VERSIONS


def test_cleanup_dry_run_counts_and_removes_nothing(root: JobLake) -> None:
    _history(root)
    before = root.all_keys()
    small = root.run(_now(), T, dry_run=True)[0].planned
    large = root.run(_in_tasks(), T, dry_run=True)[0].planned
    assert root.all_keys() == before
    assert small is not None
    assert small == large
    effect = root.run(_now(), T)[0].effect
    assert effect is not None
    assert (effect.files, effect.bytes) == (small.files, small.bytes)


def test_cleanup_of_young_versions_requires_allow_young(root: JobLake) -> None:
    _history(root)
    assert root.run(CleanUp(retain_versions=1), T)[0].error is None
    assert len(root.dataset("t").versions()) == VERSIONS
    with pytest.raises(InvalidInputError, match="younger than 24 hours"):
        root.run(CleanUp(before=datetime.now(UTC) - timedelta(hours=23)), T)
    with pytest.raises(InvalidInputError, match="allow_young"):
        CleanUp(older_than=timedelta(hours=23))
    with pytest.raises(InvalidInputError, match="delete_unverified removes files of jobs in progress"):
        CleanUp(retain_versions=1, delete_unverified=True)
    assert len(root.dataset("t").versions()) == VERSIONS


@pytest.mark.parametrize("dropped", [False, True])
def test_cleanup_keeps_files_that_a_clone_references(root: JobLake, dropped: bool) -> None:
    _history(root)
    folder = Path(root.uri) / ("copy.lance" if root.mode.get("manifest_enabled") else "copy")
    root.dataset("t").shallow_clone(str(folder), 3)
    if root.mode.get("manifest_enabled") is None:
        root.catalog.register_table({"id": ["copy"], "location": "copy"})
    if dropped:
        root.catalog.drop_table({"id": ["copy"]})
    result = root.run(_now(), T)[0]
    assert result.effect is not None
    assert result.effect.note == "3 files kept for clones"
    assert sorted(lance.dataset(str(folder)).to_table()["a"].to_pylist()) == [1, 2, 3]
    assert len(root.dataset("t").versions()) == 1


def _planned(root: JobLake, *, sent: bool) -> CleanedInTasks:
    """Return the plan for the table, as the process has it that made it, or one that it was sent to."""
    plan = _in_tasks().plan(root.context, T)
    plan = pickle.loads(pickle.dumps(plan)) if sent else plan
    assert isinstance(plan, CleanedInTasks)
    assert (plan.removal.retired.opened is None) == sent
    return plan


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("what", ["tag", "branch"])
def test_version_tagged_or_branched_after_planning_is_kept(root: JobLake, what: str, sent: bool) -> None:
    _history(root)
    plan = _planned(root, sent=sent)
    if what == "tag":
        root.dataset("t").tags.create("late", 3)
    else:
        root.dataset("t", version=3).create_branch("late")
    with pytest.raises(ConcurrentModificationError, match="late"):
        plan.tasks[0].run(root.context)
    assert root.values("t", 3) == [1, 2, 3]
    assert root.run(_in_tasks(), T, oversized_seconds=0)[0].error is None
    assert root.values("t", 3) == [1, 2, 3]
    assert len(root.dataset("t").versions()) == 2


@pytest.mark.parametrize("sent", [False, True])
def test_version_restored_after_planning_keeps_its_files(root: JobLake, sent: bool) -> None:
    _history(root)
    plan = _planned(root, sent=sent)
    root.dataset("t", version=3).restore()
    removed = [each.run(root.context) for each in plan.tasks]
    assert sum(each.kept for each in removed) > 0
    assert root.values("t") == [1, 2, 3]
    assert root.catalog.validate_table(["t"], every_version=True).ok


def test_table_replaced_after_planning_is_not_cleaned(tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), V1)
    _history(root)
    plan = _in_tasks().plan(root.context, T)
    assert isinstance(plan, CleanedInTasks)
    root.catalog.drop_table({"id": ["t"], "context": {"purge": "true"}})
    _history(root)
    before = root.all_keys("t.lance")
    with pytest.raises(ConcurrentModificationError):
        plan.tasks[0].run(root.context)
    assert root.all_keys("t.lance") == before


@pytest.mark.parametrize("split_files", [0, 100_000])
def test_repeated_runs_see_the_new_table_in_a_reused_directory(split_files: int, tmp_path: Path) -> None:
    root = JobLake(str(tmp_path), V1)
    job, table = CleanUp(**ALL, allow_young=True, split_files=split_files), tmp_path / "t.lance"
    for round_ in range(20):
        # As many versions each time, in files as long: only their names and times differ.
        for step in range(3):
            mode = "append" if step else "create"
            lance.write_dataset(pa.table({"a": [10 * round_ + step]}), str(table), mode=mode)
        (result,) = root.run(job, T)
        assert result.effect is not None
        assert result.effect.before.versions == 3
        assert root.values("t") == [10 * round_ + step for step in range(3)]
        shutil.rmtree(table)


def test_cleanup_stopped_at_any_delete_leaves_every_listed_version_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop_after in range(4):
        root = JobLake(str(tmp_path / f"root{stop_after}"), V1)
        _history(root)
        table = tmp_path / f"root{stop_after}" / "t.lance"
        age(table, 8 * DAY)
        storage = root.context.storage
        calls: list[str] = []
        whole = original("storage.delete_many", on=type(storage))

        def some(self, keys, *, calls=calls, limit=stop_after, whole=whole):  # type: ignore[no-untyped-def]
            for key in sorted(keys):
                if len(calls) >= limit:
                    raise KeyboardInterrupt
                calls.append(key)
                whole(self, [key])

        with monkeypatch.context() as patch:
            substitute(patch, "storage.delete_many", some, on=type(storage))
            plan = _in_tasks().plan(root.context, T)
            assert plan is not None
            with pytest.raises(KeyboardInterrupt):
                plan.tasks[0].run(root.context)
        assert root.catalog.validate_table(["t"], every_version=True).ok
        assert root.run(_in_tasks(), T, oversized_seconds=0)[0].error is None
        report = root.catalog.validate_table(["t"], every_version=True)
        assert (report.ok, report.versions) == (True, 1)
        assert root.all_keys("t.lance") - _hint(root) == {f"t.lance/{each}" for each in _needed(root)}


def _hint(root: JobLake) -> set[str]:
    return {each for each in root.all_keys("t.lance") if each.endswith("latest_version_hint.json")}


def _needed(root: JobLake) -> set[str]:
    return {each["path"] for each in root.dataset("t").tracked_files().read_all().to_pylist()}


@pytest.mark.parametrize("split_files", [0, 20_000])
def test_rows_written_during_a_cleanup_are_not_lost(root: JobLake, split_files: int) -> None:
    _history(root)
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            value = 100 + len(acknowledged)
            root.append("t", value)
            acknowledged.append(value)

    def come_and_go() -> None:
        while not stop.is_set():
            root.catalog.drop_table({"id": ["other"]})
            root.catalog.undrop_table(["other"])

    root.make("other", 7)
    threads = [threading.Thread(target=each) for each in (write, come_and_go)]
    for each in threads:
        each.start()
    try:
        job = CleanUp(retain_versions=3, allow_young=True, split_files=split_files)
        for _ in range(4):
            (result,) = root.run(job, T, oversized_seconds=0)
            assert result.error is None, result.error
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert root.values("t") == sorted([1, 3, 4, *acknowledged])
    assert root.values("other") == [7]
    assert root.catalog.validate_table(["t"], every_version=True).ok


def test_table_dropped_and_renamed_during_cleanup_stays_intact(root: JobLake) -> None:
    _history(root)
    stop = threading.Event()
    renames = "manifest_enabled" not in root.mode

    def act() -> None:
        while not stop.is_set():
            root.catalog.drop_table({"id": ["t"]})
            root.catalog.undrop_table(["t"])
            if renames:
                root.catalog.rename_table({"id": ["t"], "new_table_name": "u"})
                root.catalog.rename_table({"id": ["u"], "new_table_name": "t"})
            root.append("t", 9)

    actor = threading.Thread(target=act)
    actor.start()
    try:
        job = CleanUp(retain_versions=2, allow_young=True, split_files=0)
        results = [root.run(job, T, oversized_seconds=0)[0] for _ in range(6)]
    finally:
        stop.set()
        actor.join()
    known = (ConcurrentModificationError, TableNotFoundError)
    assert [each.error for each in results if each.error and not isinstance(each.error, known)] == []
    assert [each for each in root.values("t") if each != 9] == [1, 3, 4]
    assert root.catalog.validate_table(["t"], every_version=True).ok


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "folder"])
def test_damaged_table_that_may_be_a_clone_stops_the_cleanup_until_it_is_gone(
    root: JobLake, damage: str
) -> None:
    _history(root)
    folder = Path(root.uri) / "broken.lance"
    root.dataset("t").shallow_clone(str(folder), 3)
    for manifest in folder.glob("_versions/*.manifest"):
        body = manifest.read_bytes()
        manifest.unlink()
        if damage == "folder":
            manifest.mkdir()
        else:
            manifest.write_bytes({"garbage": b"no manifest", "empty": b"", "cut": body[:-20]}[damage])
    for _ in range(2):
        (result,) = root.run(_now(), T)
        assert isinstance(result.error, InvalidTableStateError)
        for said in ("'broken.lance'", "Nothing was removed", "drop and purge it", "look_for_clones=False"):
            assert said in str(result.error)
        assert len(root.dataset("t").versions()) == VERSIONS
    shutil.rmtree(folder)
    (result,) = root.run(_now(), T)
    assert result.error is None
    assert len(root.dataset("t").versions()) == 1


def test_cleanup_plans_are_picklable(root: JobLake) -> None:
    _history(root)
    plan = _in_tasks().plan(root.context, T)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_table_dropped_after_planning_is_intact_after_undrop(root: JobLake) -> None:
    _history(root)
    plan = _in_tasks().plan(root.context, T)
    assert plan is not None
    root.catalog.drop_table({"id": ["t"]})
    with pytest.raises(RelanceError):
        plan.tasks[0].run(root.context)
    root.catalog.undrop_table(["t"])
    assert root.catalog.validate_table(["t"], every_version=True).ok
    assert len(root.dataset("t").versions()) == VERSIONS


@pytest.mark.parametrize("split_files", [0, 20_000])
def test_cleanup_works_on_s3_and_respects_clones(s3_root: JobLake, split_files: int) -> None:
    _history(s3_root)
    s3_root.dataset("t").shallow_clone(f"{s3_root.uri}/copy", 3)
    job = CleanUp(**ALL, allow_young=True, split_files=split_files)
    result = s3_root.run(job, T, oversized_seconds=0)[0]
    assert result.effect is not None
    assert result.effect.note == "3 files kept for clones"
    assert s3_root.values("t") == [1, 3, 4]
    clone = lance.dataset(f"{s3_root.uri}/copy", storage_options=s3_root.options)
    assert sorted(clone.to_table()["a"].to_pylist()) == [1, 2, 3]
    unseen = CleanUp(**ALL, allow_young=True, split_files=split_files, ignore_clones=True)
    assert s3_root.run(unseen, T, oversized_seconds=0)[0].error is None


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Let waiting for a pace cost no time; the only item is how long was waited."""
    waited = [0.0]

    def sleep(length: float) -> None:
        waited[0] += length

    substitute(monkeypatch, "pacing.monotonic", lambda: waited[0])
    substitute(monkeypatch, "pacing.sleep", sleep)
    original("pacing.pacer").cache_clear()
    yield waited
    original("pacing.pacer").cache_clear()


def test_rate_limit_sets_the_pace_of_a_cleanup(root: JobLake, seconds: list[float]) -> None:
    _history(root)
    result = root.run(_now(rate_limit=2), T)[0]
    assert result.effect is not None
    assert len(root.dataset("t").versions()) == 1
    # Manifests are files like others. Nobody waits for the first batch, of up to a second's worth.
    assert seconds[0] == pytest.approx(result.effect.files / 2, abs=1)


@pytest.fixture
def meanwhile(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have something done by another client while a cleanup waits for the second of its files."""

    def do(act: Callable[[], Any]) -> None:
        acts = [act]

        def sleep(length: float) -> None:
            seconds[0] += length
            if acts:
                acts.pop()()

        substitute(monkeypatch, "pacing.sleep", sleep)

    return do


def test_version_tagged_while_the_rate_limit_waits_is_kept(
    root: JobLake, meanwhile: Callable[[Callable[[], Any]], None]
) -> None:
    _history(root)
    last = VERSIONS - 1
    values = root.values("t", last)
    meanwhile(lambda: root.dataset("t").tags.create("late", last))
    plan = _now(rate_limit=1).plan(root.context, T)
    assert isinstance(plan, CleanedInTasks)
    with pytest.raises(ConcurrentModificationError, match="late"):
        plan.tasks[0].run(root.context)
    assert root.values("t", last) == values
    assert root.catalog.validate_table(["t"], every_version=True).ok


def test_table_replaced_while_the_rate_limit_waits_is_not_touched(
    tmp_path: Path, meanwhile: Callable[[Callable[[], Any]], None]
) -> None:
    root = JobLake(str(tmp_path / "root"), V1)
    _history(root)
    before: list[object] = []

    def replaced() -> None:
        root.catalog.drop_table({"id": ["t"], "context": {"purge": "true"}})
        _history(root)
        before.append(root.all_keys("t.lance"))

    plan = _now(rate_limit=1).plan(root.context, T)
    assert isinstance(plan, CleanedInTasks)
    meanwhile(replaced)
    with pytest.raises(ConcurrentModificationError):
        plan.tasks[0].run(root.context)
    assert before == [root.all_keys("t.lance")]


def test_tasks_of_one_process_share_the_rate_limit(seconds: list[float]) -> None:
    giant = [paced(range(100), 20, tasks=4) for _ in range(4)]
    small = [paced(range(20), 20) for _ in range(5)]
    running = [*giant, *small]
    while running:
        running = [each for each in running if next(each, None) is not None]
    assert seconds[0] == pytest.approx(500 / 20, abs=1)


def test_tasks_of_several_processes_split_the_rate_limit(seconds: list[float]) -> None:
    assert sum(len(batch) for batch in paced(range(100), 20, tasks=4)) == 100
    assert seconds[0] == pytest.approx(100 / 5, abs=1)


class BehindRunner(ThreadRunner):
    """Workers whose clock is five seconds behind that of the driver."""

    def __init__(self, lake: JobLake) -> None:
        super().__init__(1000)
        self._behind = context_of(lake.open(clock=ClockBehind()))

    def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
        for number, task in (each for one in slices for each in one.tasks):
            yield Done(number, task.run(self._behind))


@pytest.mark.parametrize(
    "job",
    [
        CleanUp(retain_versions=2),
        CleanUp(before=datetime.now(UTC) - timedelta(hours=24)),
        CleanUp(),
        RemoveOrphans(),
    ],
    ids=["versions", "moment", "default", "orphans"],
)
def test_ages_count_from_the_clock_of_the_driver(job: Job, tmp_path: Path) -> None:
    lake = JobLake(str(tmp_path))
    lake.make("t", 1)
    began = maintain(lake.catalog, job, engine="spark", spark=BehindRunner(lake))
    assert [str(each.error) for each in began.failed] == []


def test_cleanup_below_the_minimum_age_is_refused_once_for_all_tables(tmp_path: Path) -> None:
    lake = JobLake(str(tmp_path))
    for name in ("a", "b"):
        lake.make(name, 1)
    young = CleanUp(before=datetime.now(UTC) - timedelta(hours=23))
    with pytest.raises(InvalidInputError, match="younger than 24 hours"):
        maintain(lake.catalog, young)
