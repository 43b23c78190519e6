"""A rename of a root table in its home directory copies it; its old name becomes an ordinary drop."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import (
    all_tables,
    assert_gone,
    assert_whole,
    declare,
    describe,
    directory,
    drop,
    exists,
    make,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import INVALID_TABLE_STATE
from tests.support.failures import deny, interrupt
from tests.support.internals import context_of
from tests.support.lakes import Lake
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.patches import substitute
from tests.support.roots import numbers, refused

from relance import DirectoryNamespace
from relance.catalog import rename as renaming
from relance.catalog.copying import CopyProgress
from relance.catalog.repair import Problem
from relance.identifiers import TableId

HINT = "_versions/latest_version_hint.json"


def inodes(folder: Path) -> dict[str, int]:
    """Return the identity of every file of a table, which a link shares and a copy does not."""
    return {
        path.relative_to(folder).as_posix(): os.stat(path).st_ino
        for path in folder.rglob("*")
        if path.is_file()
    }


class TestCopy:
    def test_files_are_linked_but_not_the_hint_that_lance_writes_over(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        write(catalog, "t", 2, mode="append")
        (compatible.folder / "t.lance" / HINT).write_text("{}")
        rename(catalog, "t", "u")
        place = directory(compatible, "u")
        assert re.fullmatch(r"[0-9a-f]{8}_u", place)
        old, new = inodes(compatible.folder / "t.lance"), inodes(compatible.folder / place)
        assert old.keys() == new.keys()
        assert [key for key in old if old[key] != new[key]] == [HINT]
        assert rows(catalog, "u", version=1) == [1]
        assert_whole(compatible.open(), "u", 1, 2)

    def test_writes_on_one_side_do_not_show_on_the_other(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        opened = lance.dataset(str(compatible.folder / "t.lance"))
        rename(catalog, "t", "u")
        lance.write_dataset(numbers(2), opened, mode="append")  # a writer that had it open
        write(catalog, "u", 3, mode="append")
        assert rows(catalog, "u") == [1, 3]
        catalog.undrop_table(["t"])
        assert rows(catalog, "t") == [1, 2]
        assert rows(catalog, "u") == [1, 3]

    def test_old_name_is_a_drop_with_the_retention_period_of_the_table(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1, properties={"drop_ttl": "2d"})
        rename(catalog, "t", "u")
        (dropped,) = compatible.open().list_dropped_tables()
        assert (dropped.id, dropped.state) == (("t",), "deleted")
        assert dropped.purge_after is not None
        assert dropped.purge_after - dropped.deleted_at == timedelta(days=2)
        marker = json.loads((compatible.folder / "t.deleted").read_text())
        assert marker["ttl_ms"] == 2 * 24 * 3600 * 1000
        control = json.loads((compatible.folder / "t.control").read_text())
        assert control["state"] == "deleted"
        assert not {"to", "at"} & control.keys(), "nothing is left to decide"
        compatible.clock.advance(timedelta(days=2, minutes=2))
        assert [result.id for result in compatible.open().purge_tables()] == [("t",)]
        assert not (compatible.folder / "t.lance").exists()
        assert_whole(compatible.open(), "u", 1)

    def test_protected_table_is_not_renamed_because_that_drops_the_old_name(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        catalog.protect(["t"])
        before = compatible.table_files()
        with refused(INVALID_TABLE_STATE) as caught:
            rename(catalog, "t", "u")
        assert "unprotect" in str(caught.value)
        assert compatible.table_files() == before

    def test_metadata_of_other_clients_goes_with_the_copy(self, compatible: Lake) -> None:
        make(compatible.open(), "t", 1, properties={"n": "1"})
        kept = '{"n": "1", "vendor": {"a": [1]}}'
        manifest = lance.dataset(str(compatible.folder / "__manifest"))
        manifest.update({"metadata": f"'{kept}'"}, where="object_id = 't'")
        rename(compatible.open(), "t", "u")
        assert json.loads(compatible.manifest_rows()["u"]["metadata"]) == json.loads(kept)

    @pytest.mark.parametrize("stop", [interrupt, deny])
    def test_failing_copy_leaves_everything_as_it_was(
        self, compatible: Lake, monkeypatch: pytest.MonkeyPatch, stop: Callable[..., NoReturn]
    ) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        before = compatible.table_files()
        with monkeypatch.context() as patches:
            substitute(patches, "copying.map_at_once", stop)
            with pytest.raises((KeyboardInterrupt, LanceNamespaceError)):
                rename(catalog, "t", "u")
        assert compatible.table_files() == before
        assert_whole(compatible.open(), "t", 1)

    def test_progress_is_reported_and_may_stop_the_rename(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        write(catalog, "t", 2, mode="append")
        before = compatible.table_files()

        def stop(progress: CopyProgress) -> None:
            raise ValueError(progress.objects)

        old, new = TableId((), "t"), TableId((), "u")
        with pytest.raises(ValueError, match=r"\d"):
            renaming.rename(context_of(catalog), old, new, stop)
        assert compatible.table_files() == before
        assert_whole(compatible.open(), "t", 1, 2)
        seen: list[CopyProgress] = []
        renaming.rename(context_of(catalog), old, new, seen.append)
        objects = [progress.objects for progress in seen]
        assert objects == sorted(objects)
        assert objects[-1] == seen[-1].total
        assert_whole(compatible.open(), "u", 1, 2)

    def test_v1_client_finds_an_ordinary_drop_under_the_old_name(self, compatible: Lake) -> None:
        catalog = compatible.open()
        for name in ("t", "u", "v"):
            make(catalog, name, 1)
            rename(catalog, name, f"{name}2")
        v1 = compatible.open(V1)
        assert tables(v1) == []
        for attempt in (
            lambda: declare(v1, "t"),
            lambda: drop(v1, "t"),
            lambda: v1.register_table({"id": ["t"], "location": "t.lance"}),
        ):
            with pytest.raises(LanceNamespaceError):
                attempt()
        v1.undrop_table(["t"])
        make(v1, "u", 2)
        v1.purge_table(["v"], force=True)
        assert_whole(compatible.open(), "t", 1)
        assert_whole(compatible.open(), "u", 2)
        assert not (compatible.folder / "v.lance").exists()
        for name in ("t2", "u2", "v2"):
            assert_whole(compatible.open(), name, 1)
        assert all_tables(compatible.open()) == ["t", "t2", "u", "u2", "v2"]


class Killed(BaseException):
    """The client is gone; no handler of errors goes on from here."""


def die(*_: object, **__: object) -> NoReturn:
    """Stop for good, in place of a step."""
    raise Killed


class TestKilledRename:
    """The old name is dropped, with a note of the copy; whether a row shows the copy is decided later."""

    @pytest.fixture(params=["rename.show", "rename.swap_file"])
    def lake(self, request: pytest.FixtureRequest, compatible: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
        """A root in which a rename of t to a/u stopped right before or after its commit of the manifest."""
        catalog = compatible.open()
        spaces(catalog, "a")
        make(catalog, "t", 1, properties={"n": "1"})
        make(catalog, "other", 9)
        with monkeypatch.context() as patches:
            substitute(patches, "rename.take_back", die)
            substitute(patches, "rename.remove_copy", die)
            substitute(patches, request.param, die)
            with pytest.raises(Killed):
                rename(catalog, "t", "a/u")
        control = json.loads((compatible.folder / "t.control").read_text())
        assert (control["state"], control["to"]) == ("deleted", "a$u")
        return compatible

    @pytest.fixture
    def shown(self, lake: Lake) -> bool:
        """Whether the manifest has the new name."""
        return "a$u" in lake.manifest_rows()

    def test_reads_see_the_new_name_or_a_drop(self, lake: Lake, shown: bool) -> None:
        before = lake.files()
        for mode in (COMPATIBILITY, V2):
            assert_gone(lake.open(mode), "t")
            if shown:
                assert_whole(lake.open(mode), "a/u", 1)
                assert describe(lake.open(mode), "a/u").properties == {"n": "1"}
            else:
                assert_gone(lake.open(mode), "a/u")
        assert lake.files() == before

    def test_undrop_brings_the_old_name_back(self, lake: Lake, shown: bool) -> None:
        lake.open().undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)
        assert exists(lake.open(), "a/u") is shown

    def test_purge_run_decides(self, lake: Lake, shown: bool) -> None:
        lake.clock.advance(timedelta(days=8))
        lake.open().purge_tables()
        if shown:
            assert_whole(lake.open(), "a/u", 1)
            assert_gone(lake.open(), "t")
            assert not (lake.folder / "t.lance").exists()
        else:
            assert_whole(lake.open(), "t", 1)
            assert describe(lake.open(), "t").properties == {"n": "1"}
            assert_gone(lake.open(), "a/u")

    def test_scrub_decides(self, lake: Lake, shown: bool) -> None:
        assert Problem.STALE_RENAME in [each.problem for each in lake.open().scrub() if each.name == "t"]
        lake.open().scrub(repair=True)
        assert exists(lake.open(), "a/u") is shown
        assert exists(lake.open(), "t") is not shown

    def test_rename_can_be_done_again_after_an_undrop(self, lake: Lake, shown: bool) -> None:
        lake.open().undrop_table(["t"])
        rename(lake.open(), "t", "b")
        assert_whole(lake.open(), "b", 1)
        assert exists(lake.open(), "a/u") is shown

    @pytest.mark.parametrize(
        "act",
        [
            lambda catalog: make(catalog, "t", 5),
            lambda catalog: write(catalog, "t", 5),
            lambda catalog: rename(catalog, "other", "t"),
            lambda catalog: spaces(catalog, "t"),
            lambda catalog: catalog.migrate_to_manifest(),
        ],
        ids=["create", "write", "rename onto it", "namespace", "migrate"],
    )
    def test_old_name_can_be_used_at_once(
        self, act: Callable[[DirectoryNamespace], object], lake: Lake, shown: bool
    ) -> None:
        act(lake.open())
        assert exists(lake.open(), "a/u") is shown
        if shown:
            assert_whole(lake.open(), "a/u", 1)
