"""Orphan removal: old unreferenced directories are removed, and nothing else."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pyarrow as pa
import pytest
from tests.support.internals import context_of
from tests.support.jobs.lakes import DAY, JobLake, age, data_file
from tests.support.modes import MODES
from tests.support.mortal_clients import interrupt
from tests.support.patches import substitute, substituted
from tests.support.roots import create

from relance import DirectoryNamespace
from relance.catalog.context import Context
from relance.catalog.resolve import NotFound, SoftDeleted
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from relance.jobs import RemoveOrphans
from relance.jobs.plans.orphans import (
    Kept,
    Kind,
    Orphan,
    OrphanPlan,
    Outcome,
    RemoveDirectory,
    measure,
)
from relance.storage.protocol import ObjectInfo

HASHED = "0123abcd_n$lost"


def _leave(root: JobLake, directory: str, *, files: int = 3) -> set[str]:
    """Leave what a job leaves that was killed before its commit."""
    folder = Path(root.uri) / directory / "data"
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / data_file(number)).write_bytes(b"x" * 10)
    return {f"{directory}/data/{data_file(number)}" for number in range(files)}


def _full_root(root: JobLake) -> None:
    """Fill a root with everything that must stay."""
    root.make("live", 1)
    root.make("dropped", 2)
    root.catalog.drop_table({"id": ["dropped"]})
    root.make("hidden", 3)
    root.catalog.deregister_table({"id": ["hidden"]})
    root.catalog.declare_table({"id": ["declared"]})
    if "manifest_enabled" not in root.mode:
        root.catalog.create_namespace({"id": ["n"]})
        lance.write_dataset(pa.table({"a": [4]}), f"{root.uri}/elsewhere/there")
        root.catalog.register_table({"id": ["n", "there"], "location": "elsewhere/there"})
        root.make("renamed", 5)
        root.catalog.rename_table({"id": ["renamed"], "new_table_name": "moved"})
    for foreign in (
        "notes/read me.txt",
        "photo.lances/1.jpg",
        "20260101_backup/part-0.parquet",
        "20260102_backup/data/part-0.parquet",
        "photo.lance/1.jpg",
        "20260103_backup/_notes/plan.txt",
        "deadbeef_repo/tree/main.c",
        "notes.lance/_drafts/a.md",
        "models.lance/data/weights.lance",
        "models.lance/_versions/1.md",
        "0123beef_refs/_refs/tags/release.json",
        f"01234567_mixed/data/{data_file(1)}",
        "01234567_mixed/_transactions/1.txt",
    ):
        (Path(root.uri) / foreign).parent.mkdir(parents=True, exist_ok=True)
        (Path(root.uri) / foreign).write_text("not ours")


def _orphans_of(root: JobLake, number: int | str = "") -> dict[str, set[str]]:
    found = {}
    if root.mode.get("dir_listing_enabled") != "false":
        found[f"lost{number}.lance"] = _leave(root, f"lost{number}.lance")
        (Path(root.uri) / f"lost{number}.creating").write_bytes(b"")
    if "manifest_enabled" not in root.mode:
        found[f"{HASHED}{number}"] = _leave(root, f"{HASHED}{number}")
    return found


def test_only_old_unreferenced_directories_are_removed(root: JobLake) -> None:
    _full_root(root)
    kept = root.table_keys()
    found = _orphans_of(root)
    assert root.run(RemoveOrphans())[0].effect is not None
    assert root.table_keys() == kept.union(*found.values())  # all are young
    age(Path(root.uri), 25 * 3600)
    planned = root.run(RemoveOrphans(), dry_run=True)[0].planned
    assert planned is not None
    assert (planned.files, planned.bytes) == (3 * len(found), 30 * len(found))
    assert "foreign" in planned.note
    assert root.table_keys() == kept.union(*found.values())
    (result,) = root.run(RemoveOrphans(), oversized_seconds=0)
    assert result.error is None
    assert result.effect is not None
    assert (result.table, result.effect.files, result.effect.bytes) == ((), planned.files, planned.bytes)
    assert root.table_keys() == kept
    assert root.values("live") == [1]
    root.catalog.undrop_table(["dropped"])
    assert root.values("dropped") == [2]
    if "manifest_enabled" not in root.mode:
        assert root.values("moved") == [5]
    again = root.run(RemoveOrphans())[0].effect
    assert again is None or again.files == 0
    root.make("lost", 9)  # the name can be used again
    assert root.values("lost") == [9]


def test_directory_with_a_young_or_undated_file_is_kept(root: JobLake) -> None:
    found = _orphans_of(root)
    age(Path(root.uri), 2 * DAY)
    for directory in found:
        (Path(root.uri) / directory / "data" / data_file(9)).write_bytes(b"new")
    effect = root.run(RemoveOrphans())[0].effect
    assert effect is not None
    assert effect.files == 0
    assert f"{len(found)} young" in effect.note
    now = datetime.now(UTC)
    infos = [ObjectInfo("a", 1, now - timedelta(days=9), None), ObjectInfo("b", 1, None, None)]
    assert measure(infos, now) is Kept.UNKNOWN_AGE
    assert measure([], now) is Kept.UNKNOWN_AGE


@pytest.mark.parametrize("body", ["long", "deep", "folder"])
@pytest.mark.parametrize("mode", ["V1", "compatibility"])
def test_directory_with_a_damaged_marker_is_kept_and_others_go(mode: str, body: str, tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), MODES[mode])
    root.make("live", 1)
    _leave(root, "lost.lance")
    _leave(root, "damaged.lance")
    for name in ("live", "damaged"):
        marker = tmp_path / "root" / f"{name}.control"
        if body == "long":
            marker.touch()
            os.truncate(marker, 512 * 2**20)
        elif body == "deep":
            marker.write_bytes(b"[" * 200_000)
        else:
            marker.mkdir()
    age(tmp_path / "root", 2 * DAY)
    kept = {key for key in root.table_keys() if not key.startswith("lost.lance/")}
    (result,) = root.run(RemoveOrphans())
    assert result.error is None
    assert result.effect is not None
    assert result.effect.files == 3
    if body != "folder":  # which is no marker
        damaged = 2 if mode == "V1" else 1  # a row names the other
        assert result.effect.note == f"1 directories removed; kept: {damaged} with a damaged marker"
        assert root.table_keys() == kept


def test_minimum_age_is_lowered_only_with_allow_young(root: JobLake) -> None:
    for span in (timedelta(hours=23), timedelta(-1)):
        with pytest.raises(InvalidInputError):
            RemoveOrphans(older_than=span)
    found = _orphans_of(root)
    job = RemoveOrphans(older_than=timedelta(0), allow_young=True)
    effect = root.run(job)[0].effect
    assert effect is not None
    assert effect.files == 3 * len(found)
    assert isinstance(root.run(job, ("t",))[0].error, InvalidInputError)


def test_planned_moment_takes_no_directory_below_the_minimum_age(root: JobLake) -> None:
    found = _orphans_of(root)
    age(Path(root.uri), 23 * 3600)
    effect = root.run(RemoveOrphans(before=datetime.now(UTC)))[0].effect
    assert effect is not None
    assert (effect.files, f"{len(found)} young" in effect.note) == (0, True)


def test_directory_with_versions_is_removed_only_on_request(tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), MODES["V2"])
    root.make("other", 1)
    lance.write_dataset(pa.table({"a": [4]}), f"{root.uri}/{HASHED}")
    age(tmp_path / "root", 2 * DAY)
    effect = root.run(RemoveOrphans())[0].effect
    assert effect is not None
    assert (effect.files, effect.note) == (0, "0 directories removed; kept: 1 with versions")
    effect = root.run(RemoveOrphans(with_versions=True))[0].effect
    assert effect is not None
    assert effect.files > 2
    assert not any(each.startswith(HASHED) for each in root.all_keys())
    assert root.catalog.list_dropped_tables() == []
    assert root.values("other") == [1]


def test_directory_that_a_clone_reads_is_kept_until_the_clone_is_purged(tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), MODES["V2"])
    root.make("other", 1)
    base = lance.write_dataset(pa.table({"a": [4]}), f"{root.uri}/{HASHED}")
    base.shallow_clone(f"{root.uri}/clone.lance", base.version)
    root.catalog.register_table({"id": ["clone"], "location": "clone.lance"})
    for gone in (lambda: None, lambda: root.catalog.drop_table({"id": ["clone"]})):
        gone()
        age(tmp_path / "root", 2 * DAY)
        effect = root.run(RemoveOrphans(with_versions=True))[0].effect
        assert effect is not None
        assert (effect.files, effect.note) == (0, "0 directories removed; kept: 1 read by clones")
    root.catalog.undrop_table(["clone"])
    assert root.values("clone") == [4]
    root.catalog.drop_table({"id": ["clone"]})
    root.catalog.purge_table(["clone"], force=True)
    effect = root.run(RemoveOrphans(with_versions=True))[0].effect
    assert effect is not None
    assert effect.files > 2


def test_root_with_a_manifest_opened_without_it_is_refused(tmp_path: Path) -> None:
    JobLake(str(tmp_path / "root"), {}).make("t", 1)
    root = JobLake(str(tmp_path / "root"), MODES["V1"])
    _leave(root, "lost.lance")
    age(tmp_path / "root", 2 * DAY)
    assert isinstance(root.run(RemoveOrphans())[0].error, UnsupportedOperationError)


def test_directory_that_becomes_a_table_after_planning_is_kept(root: JobLake) -> None:
    found = _orphans_of(root)
    age(Path(root.uri), 2 * DAY)
    plan = RemoveOrphans().plan(root.context, ())
    assert isinstance(plan, OrphanPlan)
    assert pickle.loads(pickle.dumps(plan)) == plan
    before = {}
    for directory in found:
        lance.write_dataset(pa.table({"a": [1]}), f"{root.uri}/{directory}")
        before[directory] = root.all_keys(directory)
        if directory == HASHED:
            root.catalog.create_namespace({"id": ["n"]})
            root.catalog.register_table({"id": ["n", "lost"], "location": directory})
    outcomes = [task.run(root.context) for task in plan.tasks]
    assert [each.files for each in outcomes] == [0] * len(found)
    assert all(each.kept for each in outcomes)
    for directory in found:
        assert root.all_keys(directory) == before[directory]


def test_removal_interrupted_at_a_delete_is_completed_by_the_next_run(
    root: JobLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _orphans_of(root)
    age(Path(root.uri), 2 * DAY)
    storage = type(root.context.storage)
    plan = RemoveOrphans().plan(root.context, ())
    assert plan is not None
    with monkeypatch.context() as patch:
        substitute(patch, "storage.delete_many", mock.Mock(side_effect=KeyboardInterrupt), on=storage)
        substitute(patch, "storage.delete_below", mock.Mock(side_effect=KeyboardInterrupt), on=storage)
        for task in plan.tasks:
            with pytest.raises(KeyboardInterrupt):
                task.run(root.context)
    assert root.run(RemoveOrphans())[0].error is None
    assert not any(each.startswith(HASHED) for each in root.all_keys())
    # The purge of what lay in the directory of its name has begun: it is taken over after its lease.
    status = root.catalog.table_status(["lost"])
    assert status == NotFound(("lost",)) or (isinstance(status, SoftDeleted) and status.state == "purging")


def test_concurrent_creates_and_drops_stay_intact(root: JobLake) -> None:
    stop, cycle_ended = threading.Event(), threading.Event()
    made: list[int] = []
    failures: list[RelanceError] = []

    def act() -> None:
        try:
            while not stop.is_set():
                number = len(made)
                root.make(f"t{number}", number)
                root.catalog.drop_table({"id": [f"t{number}"]})
                root.catalog.undrop_table([f"t{number}"])
                # As old as the orphans: only the catalog keeps it.
                age(Path(root.location(f"t{number}")), 2 * DAY)
                made.append(number)
                cycle_ended.set()
        except RelanceError as error:
            failures.append(error)
            cycle_ended.set()

    writer = threading.Thread(target=act)
    writer.start()
    try:
        for number in range(3):
            cycle_ended.clear()
            assert cycle_ended.wait(60)  # so that every run meets a table it has not seen
            orphans = _orphans_of(root, number)
            for directory in orphans:
                age(Path(root.uri) / directory, 2 * DAY)
            (result,) = root.run(RemoveOrphans())
            assert result.error is None
            assert result.effect is not None
            assert result.effect.files == sum(map(len, orphans.values()))
            assert not {key for files in orphans.values() for key in files} & root.all_keys()
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert len(made) >= 3
    assert sorted(root.catalog.list_tables({"id": []}).tables) == sorted(f"t{number}" for number in made)
    for number in made:
        assert root.values(f"t{number}") == [number]


def test_every_file_that_lance_writes_into_a_table_is_known(tmp_path: Path) -> None:
    root = JobLake(str(tmp_path / "root"), MODES["V2"])
    uri = f"{root.uri}/{HASHED}"
    rows = pa.table(
        {
            "a": list(range(300)),
            "s": ["x y"] * 300,
            "v": pa.array([[1.0, 2.0]] * 300, pa.list_(pa.float32(), 2)),
        }
    )
    dataset = lance.write_dataset(rows, uri, data_storage_version="2.2")
    dataset.delete("a = 3")
    dataset.delete("a % 2 = 0")
    for column, kind in (("a", "BTREE"), ("s", "INVERTED"), ("s", "NGRAM"), ("a", "ZONEMAP")):
        dataset.create_scalar_index(column, kind, name=f"{column}_{kind}")
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    dataset.tags.create("release-1", 1)
    dataset.create_branch("feature/b", (None, 1))
    branch = dataset.checkout_version(("feature/b", None))
    lance.write_dataset(rows, branch, mode="append").delete("a = 5")
    dataset.optimize.compact_files()
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = pa.table([pa.array([b"x" * 100_000], pa.large_binary())], schema=pa.schema([blob]))
    lance.write_dataset(blobs, uri, mode="overwrite", data_storage_version="2.2")
    old = lance.write_dataset(rows, f"{root.uri}/0123abcd_old", enable_v2_manifest_paths=False)
    old.delete("a = 1")
    files = root.all_keys(HASHED) | root.all_keys("0123abcd_old")
    assert {each.split("/")[1] for each in files} == {
        *("data", "tree", "_versions", "_transactions", "_deletions", "_indices", "_refs")
    }
    assert any(each.endswith(".blob") for each in files)
    age(tmp_path / "root", 2 * DAY)
    effect = root.run(RemoveOrphans(with_versions=True))[0].effect
    assert effect is not None
    assert (effect.files, effect.note) == (len(files), "2 directories removed")


def test_orphan_removal_works_on_s3(s3_root: JobLake) -> None:
    s3_root.make("t", 1)
    storage = s3_root.context.storage
    for directory in ("lost.lance", HASHED):
        for number in range(3):
            storage.create(f"{directory}/data/{data_file(number)}", b"x")
    assert "2 young" in (s3_root.run(RemoveOrphans(), dry_run=True)[0].planned or mock.Mock()).note
    effect = s3_root.run(RemoveOrphans(older_than=timedelta(0), allow_young=True))[0].effect
    assert effect is not None
    assert effect.files == 6
    assert not any(each.startswith(("lost.lance/", HASHED)) for each in s3_root.all_keys())
    assert s3_root.values("t") == [1]


def _remove(context: Context) -> Outcome:
    orphan = Orphan("t.lance", Kind.AT_HOME, 1, 1)
    return RemoveDirectory(orphan, datetime.now(UTC) + timedelta(days=1), None).run(context)


def _remove_with(catalog: DirectoryNamespace) -> None:
    _remove(context_of(catalog))


def _interrupt_creates(folder: Path) -> Iterator[tuple[DirectoryNamespace, bool]]:
    """Remove the leftovers at a name before every write of a create; yield another client, and who won."""
    for number in range(100):
        root = folder / str(number)
        left = root / "t.lance" / "data" / data_file(0)
        left.parent.mkdir(parents=True)
        left.write_bytes(b"x")
        catalog, other = DirectoryNamespace(root=str(root)), DirectoryNamespace(root=str(root))
        life = interrupt(catalog, number, partial(_remove_with, other))
        try:
            create(catalog, "t", pa.table({"a": [number]}))
        except (ConcurrentModificationError, OutcomeUnknownError, TableNotFoundError):
            created = False
        else:
            created = True
        if not life.happened:
            assert created
            return
        yield other, created
    raise AssertionError("a create has no end")


@pytest.mark.deep
def test_interrupted_create_never_reports_a_table_whose_files_were_removed(tmp_path: Path) -> None:
    outcomes = []
    for catalog, created in _interrupt_creates(tmp_path):
        outcomes.append(created)
        if created:
            assert values(catalog, "t")
        else:
            create(catalog, "t", pa.table({"a": [1]}), mode="overwrite")  # the name is not stuck
    assert len(outcomes) >= 5
    assert True in outcomes


@pytest.mark.deep
def test_without_the_marker_an_interrupted_create_loses_its_files(tmp_path: Path) -> None:
    def delete(context: Context, name: str, before: datetime, options: object) -> Any:
        for info in list(context.storage.list_recursive(f"{name}.lance")):
            context.storage.delete(info.key)
        return mock.Mock(error=None, files=1, bytes=1)

    with substituted("orphans.remove_leftovers", delete):
        lost = [not _is_readable(catalog) for catalog, created in _interrupt_creates(tmp_path) if created]
    assert True in lost


def _is_readable(catalog: DirectoryNamespace) -> bool:
    try:
        return bool(values(catalog, "t"))
    except (OSError, ValueError, RelanceError):
        return False


def values(catalog: DirectoryNamespace, name: str) -> list[int]:
    """Return what a table holds."""
    found: list[int] = lance.dataset(namespace_client=catalog, table_id=[name]).to_table()["a"].to_pylist()
    return found
