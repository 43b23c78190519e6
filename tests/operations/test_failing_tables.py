"""One table on a disk that fails for it: batches go on with the others, and say what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.support.disk_faults import break_paths
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.roots import create, drop, local_place

from relance.errors import PermissionDeniedError, RelanceError, StorageError, StorageFullError

MODES = {"V1": V1, "compatibility": COMPATIBILITY, "V2": V2}

FAILURES: dict[int, tuple[type[RelanceError], str]] = {
    errno.EACCES: (PermissionDeniedError, "grant access"),
    errno.EROFS: (PermissionDeniedError, "remount it"),
    errno.EIO: (StorageError, "the disk failed"),
    errno.ENOSPC: (StorageFullError, "free space"),
    errno.EDQUOT: (StorageFullError, "raise the quota"),
}
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
    assert isinstance(results["bad"], error)
    assert to_do in str(results["bad"])
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
        found = catalog.scrub(repair=True)
        listed = catalog.list_tables({"id": []}).tables
        dropped = [each.id for each in catalog.list_dropped_tables()]
        ended = catalog.purge_tables(force=True)
    print(mode, number, found, listed, dropped, ended)
