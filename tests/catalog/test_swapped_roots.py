"""A root is replaced by another one under a client that has it open: restored, rebuilt or moved into place.

The client must not go on with what it remembers of the old root, whichever version the new manifest has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import lance
import pytest
from tests.support.calls import describe, drop, make, namespaces, rows, spaces, tables
from tests.support.lakes import Lake
from tests.support.manifest_fixtures import any_lake, clock
from tests.support.patches import substitute

from relance import DirectoryNamespace
from relance.catalog.manifest.row import HEAD_ID
from relance.clock import since_boot
from relance.errors import NamespaceNotFoundError, TableNotFoundError

__all__ = ["any_lake", "clock"]


@dataclass(frozen=True, slots=True)
class Roots:
    """A lake, and places beside it for other roots."""

    lake: Lake
    client: Any
    """For S3; None on a disk."""

    def beside(self, name: str) -> Lake:
        """Return the root with this name in the same folder or bucket."""
        return replace(self.lake, uri=f"{self.lake.uri.rpartition('/')[0]}/{name}")

    def copy(self, source: Lake, target: Lake) -> None:
        """Put a copy of one root where the other was."""
        self.remove(target)
        if self.client is None:
            shutil.copytree(source.folder, target.folder)
            return
        bucket, prefix = _place(source)
        for key in self._keys(source):
            to = f"{_place(target)[1]}/{key.removeprefix(prefix + '/')}"
            self.client.copy_object(Bucket=bucket, Key=to, CopySource={"Bucket": bucket, "Key": key})

    def move(self, source: Lake, target: Lake) -> None:
        """Move one root to where the other was."""
        if self.client is None:
            self.remove(target)
            source.folder.rename(target.folder)
            return
        self.copy(source, target)
        self.remove(source)

    def remove(self, lake: Lake) -> None:
        if self.client is None:
            shutil.rmtree(lake.folder, ignore_errors=True)
            return
        for key in self._keys(lake):
            self.client.delete_object(Bucket=_place(lake)[0], Key=key)

    def _keys(self, lake: Lake) -> list[str]:
        bucket, prefix = _place(lake)
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


def _place(lake: Lake) -> tuple[str, str]:
    bucket, _, prefix = lake.uri.removeprefix("s3://").partition("/")
    return bucket, prefix


@pytest.fixture
def roots(any_lake: Lake, request: pytest.FixtureRequest) -> Roots:
    client = request.getfixturevalue("moto_server").client() if any_lake.options else None
    return Roots(any_lake, client)


@pytest.fixture
def later(any_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets seconds pass for the client; on a disk it must notice without."""

    def let_pass(seconds: float) -> None:
        if any_lake.options:
            now = since_boot()
            substitute(monkeypatch, "manifest.since_boot", lambda: now + seconds)

    return let_pass


def _manifest(lake: Lake) -> lance.LanceDataset:
    return lance.dataset(f"{lake.uri}/__manifest", storage_options=lake.options or None)


def _ids(lake: Lake) -> set[str]:
    return set(_manifest(lake).to_table()["object_id"].to_pylist()) - {HEAD_ID}


def _commit_until(lake: Lake, version: int) -> None:
    """Commit to a manifest until it has this version."""
    catalog, number = lake.open(), 0
    while (missing := version - int(_manifest(lake).version)) > 0:
        spaces(catalog, f"filler{number}")
        number += 1
        assert missing > 0
    assert int(_manifest(lake).version) == version


def _reads(client: DirectoryNamespace) -> None:
    assert tables(client) == ["shared", "theirs"]
    assert "n" in namespaces(client)
    assert set(tables(client, "n")) - {"new"} == {"theirs"}
    assert rows(client, "shared") == [2]
    assert describe(client, "n/theirs").location
    with pytest.raises(TableNotFoundError):
        describe(client, "ours")
    with pytest.raises((TableNotFoundError, NamespaceNotFoundError)):
        describe(client, "m/ours")


def _creates(client: DirectoryNamespace) -> None:
    make(client, "n/new", 3)


def _drops(client: DirectoryNamespace) -> None:
    drop(client, "shared")


def _adds_a_namespace(client: DirectoryNamespace) -> None:
    spaces(client, "new")


@pytest.mark.parametrize(
    "first", [_reads, _creates, _drops, _adds_a_namespace], ids=lambda act: act.__name__[1:]
)
@pytest.mark.parametrize("versions", [-2, 0, 3], ids=["lower", "same", "higher"])
def test_client_opened_before_a_swap_sees_and_changes_only_the_new_root(
    roots: Roots, later: Callable[[float], None], versions: int, first: Callable[[DirectoryNamespace], None]
) -> None:
    lake, other = roots.lake, roots.beside("other")
    theirs = other.open()
    spaces(theirs, "n")
    make(theirs, "shared", 2)
    make(theirs, "theirs", 2)
    make(theirs, "n/theirs", 2)
    client = lake.open()
    spaces(client, "m")
    for path in ("shared", "ours", "m/ours"):
        make(client, path, 1)
    low = int(_manifest(other).version)
    if int(_manifest(lake).version) < low - versions:
        _commit_until(lake, low - versions)
    _commit_until(other, int(_manifest(lake).version) + versions)
    expected = _ids(other)
    assert tables(client) == ["ours", "shared"]
    roots.move(other, lake)
    later(11 if first in {_reads, _creates} else 3)  # a create looks for its namespace first
    first(client)
    fresh = lake.open()
    assert expected - _ids(lake) <= {"shared"}
    assert not {"ours", "m", "m$ours"} & _ids(lake)
    later(11)
    if first is not _drops:
        _reads(client)
        _reads(fresh)
    assert fresh.scrub() == []


@pytest.mark.parametrize("commits", [0, 1, 2], ids=["lower", "same", "higher"])
def test_client_opened_before_a_restore_sees_and_changes_only_the_backup(
    roots: Roots, later: Callable[[float], None], commits: int
) -> None:
    lake, backup = roots.lake, roots.beside("backup")
    client = lake.open()
    make(client, "old", 1)
    roots.copy(lake, backup)
    before = int(_manifest(lake).version)
    spaces(client, "m")
    assert int(_manifest(lake).version) == before + 1
    assert "m" in namespaces(client)
    roots.copy(backup, lake)
    another = lake.open()
    for number in range(commits):
        spaces(another, f"n{number}")
    later(3)
    spaces(client, "new")
    assert _ids(lake) == {"old", "new", *(f"n{number}" for number in range(commits))}
    later(11)
    assert namespaces(client) == sorted(["new", *(f"n{number}" for number in range(commits))])
    assert rows(client, "old") == [1]


@pytest.mark.parametrize("together", [False, True], ids=["one client", "two clients"])
def test_root_that_is_deleted_and_rebuilt_is_a_new_one(
    roots: Roots, later: Callable[[float], None], together: bool
) -> None:
    lake = roots.lake
    client = lake.open()
    for name in ("a", "b"):
        make(client, name, 1)
    roots.remove(lake)
    if together:
        for name in ("c", "d"):
            make(lake.open(), name, 1)
    later(3)
    spaces(client, "new")
    assert _ids(lake) == ({"new", "c", "d"} if together else {"new"})
    later(11)
    assert tables(client) == (["c", "d"] if together else [])
