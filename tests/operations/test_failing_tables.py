"""One table on a disk that fails for it: batches go on with the others, and say what to do about it."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import lance
import pytest
from tests.support.disk_faults import break_paths
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.mounts import fill, mounted, small_disk
from tests.support.roots import ROWS, create, drop, ipc, local_place, names

from relance import DirectoryNamespace
from relance.catalog.purge import interruption_of
from relance.catalog.repair import Problem
from relance.errors import PermissionDeniedError, RelanceError, StorageError, StorageFullError
from relance.jobs import CleanUp, Compact, maintain
from relance.policy import parse_policy, run_policy

MODES = {"V1": V1, "compatibility": COMPATIBILITY, "V2": V2}

FAILURES: dict[int, tuple[type[RelanceError], str]] = {
    errno.EACCES: (PermissionDeniedError, "grant access"),
    errno.EROFS: (PermissionDeniedError, "remount it"),
    errno.EIO: (StorageError, "the disk failed"),
    errno.ENOSPC: (StorageFullError, "free space"),
    errno.EDQUOT: (StorageFullError, "raise the quota"),
}
POLICY = """
[[rules]]
name = "all"
tables = ["*"]
compact = { min_fragments = 2 }
"""

READABLE = {errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def is_bad(path: str) -> bool:
    name = path.partition("/lake/")[2].partition("/")[0]
    return name.startswith("bad.") or name.endswith("_bad")


def inside_bad(path: str) -> bool:
    """Tell whether a path is of the table's directory: its marker and arbiter beside it are fine."""
    return is_bad(path) and "/lake/bad.deleted" not in path and "/lake/bad.control" not in path


@pytest.mark.parametrize("is_broken", [is_bad, inside_bad])
@pytest.mark.parametrize("number", FAILURES, ids=errno.errorcode.get)
@pytest.mark.parametrize("mode", MODES)
def test_purge_goes_on_with_other_tables(
    mode: str, number: int, is_broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = local_place(tmp_path / "lake", MODES[mode]).open()
    for name in ("a", "bad", "c"):
        create(catalog, name)
        drop(catalog, name)
    with monkeypatch.context() as patches:
        break_paths(patches, is_broken, number, reads=number not in READABLE)  # type: ignore[arg-type]
        results = {
            each.id[0]: each.error for each in catalog.purge_tables([["a"], ["bad"], ["c"]], force=True)
        }
    assert (results["a"], results["c"]) == (None, None)
    error, to_do = FAILURES[number]
    failure = results["bad"]
    assert failure is not None
    assert isinstance(interruption_of(failure), error)  # some of its files may be gone
    assert to_do in str(failure)
    (again,) = catalog.purge_tables([["bad"]], force=True)
    assert again.error is None


@pytest.mark.parametrize("number", FAILURES, ids=errno.errorcode.get)
@pytest.mark.parametrize("mode", MODES)
def test_scrub_and_listings_go_on_with_other_tables(
    mode: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = local_place(tmp_path / "lake", MODES[mode]).open()
    for name in ("a", "bad", "c"):
        create(catalog, name)
    drop(catalog, "a")
    for name in ("bad.control", "x.control"):
        (tmp_path / "lake" / name).write_bytes(b"{" + b" " * 200)
    with monkeypatch.context() as patches:
        break_paths(patches, is_bad, number, reads=number not in READABLE)
        findings = {each.name: each for each in catalog.scrub(repair=True)}
        listed = names(catalog)
        dropped = [each.id for each in catalog.list_dropped_tables()]
        results = {each.id: each.error for each in catalog.purge_tables()}
    assert findings["x"].problem is Problem.DAMAGED_MARKER
    if number not in READABLE:
        assert findings["bad"].problem is Problem.UNREADABLE
        assert FAILURES[number][1] in str(findings["bad"].error)
        assert mode == "V2" or isinstance(results["bad",], FAILURES[number][0])
        assert "bad" in listed, "using it says why it cannot be read"
    assert "c" in listed
    assert dropped == [("a",)]
    assert {each for each in results if each[0] not in ("bad", "x")} == set()


def compactable(root: Path) -> DirectoryNamespace:
    """Return a catalog with three tables of many small files."""
    catalog = local_place(root, V1).open()
    for name in ("a", "bad", "c"):
        create(catalog, name)
        for _ in range(4):
            lance.write_dataset(ROWS, f"{root}/{name}.lance", mode="append")
    return catalog


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True, timeout=30)
        yield


@contextmanager
def without_space(folder: Path) -> Iterator[None]:
    """Put a full disk of its own below a table's directory."""
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    with small_disk(folder, "200k"):
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        shutil.rmtree(kept)
        fill(folder)
        yield


@pytest.mark.parametrize(
    ("failing", "error", "to_do"),
    [
        (read_only, PermissionDeniedError, "remount it"),
        (without_space, StorageFullError, "the disk is full"),
    ],
)
def test_jobs_and_policies_go_on_with_other_tables(
    failing: Callable[[Path], AbstractContextManager[None]],
    error: type[RelanceError],
    to_do: str,
    tmp_path: Path,
) -> None:
    catalog = compactable(tmp_path / "lake")
    with failing(tmp_path / "lake/bad.lance"):
        report = maintain(catalog, Compact(), engine="local")
        found = {each.table[0]: each.error for each in report.results}
        assert (found["a"], found["c"]) == (None, None)
        assert isinstance(found["bad"], error)
        assert to_do in str(found["bad"])
        for name in ("a", "c"):
            for _ in range(4):
                lance.write_dataset(ROWS, f"{tmp_path}/lake/{name}.lance", mode="append")
        record = run_policy(catalog, parse_policy(POLICY, file="policy.toml"), engine="local")
    outcomes = {each.action.table[0]: each for each in record.actions}
    assert {name: str(each.outcome) for name, each in outcomes.items()} == {
        "a": "done",
        "bad": "failed",
        "c": "done",
    }
    assert to_do in str(outcomes["bad"].error)


def damage(folder: Path, how: str) -> None:
    """Damage every manifest of a table: what is left of it makes Lance panic, or fail."""
    for manifest in folder.glob("_versions/*.manifest"):
        body = bytearray(manifest.read_bytes())
        start = int.from_bytes(body[-16:-8], "little")
        if how == "panics":
            body[start : start + 4] = (2**31 - 1).to_bytes(4, "little")  # the length of what follows
        manifest.write_bytes(body if how == "panics" else body[:10])


@pytest.fixture(params=["panics", "fails"])
def damaged(request: pytest.FixtureRequest, mode: str, tmp_path: Path) -> DirectoryNamespace:
    """A catalog with three tables of two fragments, of which Lance cannot open one."""
    place = local_place(tmp_path / "lake", MODES[mode])
    catalog = place.open()
    for name in ("a", "bad", "c"):
        create(catalog, name)
        catalog.insert_into_table({"id": [name]}, ipc(ROWS))
    (folder,) = (each for each in place.folder.iterdir() if is_bad(f"{each}/"))
    damage(folder, request.param)
    return place.open()


@pytest.mark.parametrize("mode", MODES)
def test_damaged_table_does_not_stop_jobs_and_policies(damaged: DirectoryNamespace) -> None:
    planned = maintain(damaged, Compact(), engine="local", dry_run=True)
    assert {each.table[0] for each in planned.failed} == {"bad"}
    record = run_policy(damaged, parse_policy(POLICY, file="policy.toml"), engine="local")
    assert {each.action.table[0]: str(each.outcome) for each in record.actions} == {"a": "done", "c": "done"}
    assert record.message == "1 table cannot be read: bad"
    report = maintain(damaged, CleanUp(), engine="local")
    assert {each.table[0] for each in report.failed} == {"a", "bad", "c"}, "the table may be a clone of these"
    assert "drop and purge it" in str(report.failed[0].error)


@pytest.mark.parametrize("mode", MODES)
def test_damaged_table_can_be_dropped_undropped_and_purged(damaged: DirectoryNamespace) -> None:
    with pytest.raises(RelanceError):
        damaged.count_table_rows({"id": ["bad"]})
    damaged.drop_table({"id": ["bad"]})
    assert names(damaged) == ["a", "c"]
    damaged.undrop_table(["bad"])
    assert names(damaged) == ["a", "bad", "c"]
    damaged.drop_table({"id": ["bad"]})
    drop(damaged, "a")
    versions = {each.id[0]: each.version for each in damaged.list_dropped_tables()}
    assert versions["bad"] == versions["a"]
    assert damaged.purge_table(["bad"], force=True).error is None
    assert damaged.scrub() == []
    assert maintain(damaged, CleanUp(), engine="local").failed == ()
    create(damaged, "bad")
