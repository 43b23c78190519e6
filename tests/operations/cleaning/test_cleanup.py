"""Cleanup removes old versions with exactly the files that only they use."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from tests.support.cleaning import ID, VersionedTable, with_versions
from tests.support.roots import create

from relance import AutoCleanup, CleanupPolicy, CleanupPolicyBuilder, DirectoryNamespace
from relance.errors import InvalidInputError, InvalidTableStateError, RelanceError, TableNotFoundError

NOW = timedelta(0)


def test_cleanup_removes_old_versions_with_exactly_their_files(lake: VersionedTable) -> None:
    with_versions(lake)
    before = lake.files()
    stats = lake.catalog.cleanup_old_versions(ID, older_than=NOW)
    assert stats.versions == (1, 2, 3, 4, 5)
    assert stats.old_versions == 5
    assert stats.data_files == 4
    assert stats.transaction_files == 5
    assert not stats.dry_run
    assert stats.failed_deletes == 0
    assert lake.files() == lake.needed()
    assert len(before - lake.files()) == 5 + stats.data_files + stats.transaction_files
    assert lake.values() == [5, 6]
    assert lake.versions() == [6]


def test_tag_in_the_middle_keeps_exactly_its_files(lake: VersionedTable) -> None:
    with_versions(lake)
    lake.dataset().tags.create("keep", 4)
    stats = lake.catalog.cleanup_old_versions(ID, older_than=NOW, error_if_tagged_old_versions=False)
    assert stats.versions == (1, 2, 3, 5)
    assert lake.files() - {"_refs/tags/keep.json"} == lake.needed()
    assert lake.values("keep") == [3, 4]
    assert lake.values() == [5, 6]
    assert lake.versions() == [4, 6]


def test_tagged_version_in_the_window_is_an_error_and_nothing_is_removed(lake: VersionedTable) -> None:
    with_versions(lake)
    lake.dataset().tags.create("keep", 2)
    before = lake.files()
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        lake.catalog.cleanup_old_versions(ID, older_than=NOW)
    assert lake.files() == before
    assert lake.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=2)).versions == (1,)


def test_cleanup_dry_run_reports_and_removes_nothing(lake: VersionedTable) -> None:
    with_versions(lake)
    before = lake.files()
    told = lake.catalog.cleanup_with_policy(ID, CleanupPolicy(retain_versions=2), dry_run=True)
    assert told.dry_run
    assert told.versions == (1, 2, 3, 4)
    assert lake.files() == before
    done = lake.catalog.cleanup_with_policy(ID, CleanupPolicy(retain_versions=2))
    assert (done.bytes_removed, done.data_files, done.old_versions) == (
        told.bytes_removed,
        told.data_files,
        told.old_versions,
    )


def test_cleanup_without_rules_keeps_young_versions(lake: VersionedTable) -> None:
    with_versions(lake)
    assert lake.catalog.cleanup_old_versions(ID).versions == ()
    assert lake.versions() == [1, 2, 3, 4, 5, 6]


def test_old_versions_stay_readable_after_a_delete_until_cleanup(lake: VersionedTable) -> None:
    lake.make([1, 2, 3])
    lake.dataset().delete("a = 2")
    assert lake.values() == [1, 3]
    assert lake.values(1) == [1, 2, 3]
    lake.catalog.cleanup_old_versions(ID, older_than=NOW)
    assert lake.values() == [1, 3]
    assert lake.versions() == [2]


def test_uncommitted_files_are_kept_unless_delete_unverified_is_set(lake: VersionedTable) -> None:
    lake.make([1])
    write_fragments(pa.table({"a": [9]}), lake.uri, mode="append")
    stray = lake.files() - lake.needed()
    assert len(stray) == 1
    assert lake.catalog.cleanup_old_versions(ID, older_than=NOW).data_files == 0
    assert lake.files() >= stray
    assert lake.catalog.cleanup_old_versions(ID, older_than=NOW, delete_unverified=True).data_files == 1
    assert not lake.files() & stray


def test_branch_keeps_the_files_it_started_from(lake: VersionedTable) -> None:
    with_versions(lake)
    branch = lake.dataset(2).create_branch("old")
    lake.catalog.cleanup_old_versions(ID, older_than=NOW)
    assert sorted(branch.to_table()["a"].to_pylist()) == [1, 2]
    assert lake.values() == [5, 6]


def test_appends_during_a_cleanup_are_not_lost(lake: VersionedTable) -> None:
    with_versions(lake)
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stop.is_set() or len(written) < 5:
            lake.append(100 + len(written))
            written.append(100 + len(written))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            lake.catalog.cleanup_with_policy(ID, CleanupPolicy(retain_versions=3))
    finally:
        stop.set()
        writer.join()
    assert lake.values() == sorted([5, 6, *written])
    assert lake.catalog.validate_table(ID, every_version=True).ok


def test_cleanup_accepts_a_complete_policy(lake: VersionedTable) -> None:
    with_versions(lake)
    stats = lake.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=3, rate_limit=1000))
    assert stats.versions == (1, 2)


def test_cleanup_takes_its_arguments_in_the_order_of_lance(lake: VersionedTable) -> None:
    with_versions(lake)
    lake.dataset().tags.create("keep", 2)
    write_fragments(pa.table({"a": [9]}), lake.uri, mode="append")
    stray = lake.files() - lake.needed()
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        lake.catalog.cleanup_old_versions(ID, NOW, None, None)
    stats = lake.catalog.cleanup_old_versions(ID, NOW, True, False)
    assert stats.versions == (1, 3, 4, 5)
    assert not lake.files() & (stray - {"_refs/tags/keep.json"})


@pytest.mark.parametrize("older_than", [timedelta(-1), "soon"])
def test_invalid_age_is_refused_and_nothing_is_removed(
    lake: VersionedTable, older_than: timedelta | str
) -> None:
    with_versions(lake)
    before = lake.files()
    with pytest.raises(InvalidInputError):
        lake.catalog.cleanup_old_versions(ID, older_than)
    assert lake.files() == before


def test_builder_keeps_the_versions_that_were_the_latest_when_it_looked(lake: VersionedTable) -> None:
    with_versions(lake)
    builder = CleanupPolicyBuilder().retain_n_versions(lake.dataset(), 2)
    lake.append(7)
    assert lake.catalog.cleanup_with_policy(ID, builder.build()).versions == (1, 2, 3, 4)
    assert lake.versions() == [5, 6, 7]


@pytest.mark.parametrize("more", [6, 100])
def test_builder_keeps_every_version_when_there_are_no_more(lake: VersionedTable, more: int) -> None:
    with_versions(lake)
    policy = CleanupPolicyBuilder().retain_n_versions(lake.dataset(), more).build()
    assert lake.catalog.cleanup_with_policy(ID, policy).versions == ()


def test_cleanup_of_a_missing_declared_or_dropped_table_is_not_found(lake: VersionedTable) -> None:
    with pytest.raises(TableNotFoundError):
        lake.catalog.cleanup_old_versions(["nope"])
    lake.catalog.declare_table({"id": ["declared"]})
    with pytest.raises(TableNotFoundError):
        lake.catalog.cleanup_old_versions(["declared"])
    lake.make([1])
    lake.catalog.drop_table({"id": ID})
    with pytest.raises(TableNotFoundError):
        lake.catalog.cleanup_old_versions(ID)


def test_cleanup_accepts_durations_with_units(lake: VersionedTable) -> None:
    with_versions(lake)
    assert lake.catalog.cleanup_old_versions(ID, older_than="7d").versions == ()
    assert lake.catalog.cleanup_old_versions(ID, older_than="0s").versions == (1, 2, 3, 4, 5)


class TestAutoCleanup:
    def test_auto_cleanup_can_be_switched_on_and_off(self, lake: VersionedTable) -> None:
        lake.make([1])
        assert lake.catalog.get_auto_cleanup(ID) is None
        wanted = AutoCleanup(interval=3, older_than=timedelta(hours=36))
        assert lake.catalog.set_auto_cleanup(ID, wanted) == 2
        assert lake.catalog.get_auto_cleanup(ID) == wanted
        assert lake.versions() == [1, 2]
        lake.catalog.set_auto_cleanup(ID, None)
        assert lake.catalog.get_auto_cleanup(ID) is None

    def test_lance_applies_the_auto_cleanup_settings(self, lake: VersionedTable) -> None:
        lake.make([1])
        lake.catalog.set_auto_cleanup(ID, AutoCleanup(interval=2, older_than=timedelta(0)))
        for value in range(2, 8):
            lake.append(value)
        assert len(lake.dataset().versions()) < 4
        assert lake.values() == [1, 2, 3, 4, 5, 6, 7]

    @pytest.mark.parametrize("older_than", [timedelta(milliseconds=1), timedelta(days=3, microseconds=7)])
    def test_age_of_auto_cleanup_is_kept_to_the_microsecond(
        self, lake: VersionedTable, older_than: timedelta
    ) -> None:
        lake.make([1])
        lake.catalog.set_auto_cleanup(ID, AutoCleanup(100, older_than))
        assert lake.catalog.get_auto_cleanup(ID) == AutoCleanup(100, older_than)

    def test_unreadable_age_is_an_error_that_says_what_to_do(self, lake: VersionedTable) -> None:
        lake.make([1])
        lake.dataset().update_config(
            {"lance.auto_cleanup.interval": "3", "lance.auto_cleanup.older_than": "7"}
        )
        with pytest.raises(InvalidInputError, match=r"'7'.*set_auto_cleanup"):
            lake.catalog.get_auto_cleanup(ID)

    @pytest.mark.parametrize(
        "wanted",
        [AutoCleanup(50, retain_versions=2), AutoCleanup(50, timedelta(7), 2), AutoCleanup(50, timedelta(7))],
    )
    def test_each_setting_replaces_the_one_before(self, lake: VersionedTable, wanted: AutoCleanup) -> None:
        lake.make([1])
        assert lake.catalog.set_auto_cleanup(ID, AutoCleanup(1, timedelta(1), 5)) == 2
        assert lake.catalog.set_auto_cleanup(ID, wanted) == 3, "in one commit, in which both rules hold"
        assert lake.catalog.get_auto_cleanup(ID) == wanted
        assert len(lake.dataset().versions()) == 3

    def test_lance_keeps_as_many_versions_as_auto_cleanup_says(self, lake: VersionedTable) -> None:
        lake.make([1])
        lake.catalog.set_auto_cleanup(ID, AutoCleanup(1, retain_versions=3))
        for value in range(2, 8):
            lake.append(value)
        assert [each["version"] for each in lake.dataset().versions()] == [6, 7, 8]

    def test_cleanup_that_others_set_without_a_rule_is_shown(self, lake: VersionedTable) -> None:
        lake.make([1])
        lake.dataset().update_config({"lance.auto_cleanup.interval": "5"})
        assert lake.catalog.get_auto_cleanup(ID) == AutoCleanup(5)

    @pytest.mark.parametrize("interval", ["x", "-1", "1.5", "", "9" * 5000])
    def test_unreadable_interval_is_an_error(self, lake: VersionedTable, interval: str) -> None:
        lake.make([1])
        lake.dataset().update_config({"lance.auto_cleanup.interval": interval})
        with pytest.raises(InvalidInputError, match="set_auto_cleanup"):
            lake.catalog.get_auto_cleanup(ID)

    @pytest.mark.parametrize(
        "wanted",
        [
            AutoCleanup(0, timedelta(1)),
            AutoCleanup(1, timedelta(-1)),
            AutoCleanup(1, retain_versions=0),
            AutoCleanup(1),
        ],
    )
    def test_invalid_auto_cleanup_settings_are_refused(
        self, lake: VersionedTable, wanted: AutoCleanup
    ) -> None:
        lake.make([1])
        with pytest.raises(InvalidInputError):
            lake.catalog.set_auto_cleanup(ID, wanted)
        assert lake.versions() == [1]

    def test_auto_cleanup_of_a_missing_table_is_not_found(self, lake: VersionedTable) -> None:
        for act in (
            lambda: lake.catalog.get_auto_cleanup(ID),
            lambda: lake.catalog.set_auto_cleanup(ID, None),
        ):
            with pytest.raises(RelanceError) as caught:
                act()
            assert isinstance(caught.value, TableNotFoundError)


@pytest.mark.parametrize("folder", ["_indices", "_indices/deep", "data/sub"])
def test_link_inside_a_table_leads_no_cleanup_out_of_the_root(tmp_path: Path, folder: str) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path / "lake"))
    create(catalog, "t")
    outside = tmp_path / "outside" / "sub"
    outside.mkdir(parents=True)
    (outside / "canary").write_text("keep")
    os.utime(outside / "canary", (1e9, 1e9))
    link = tmp_path / "lake" / "t.lance" / folder
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside.parent)
    with pytest.raises(InvalidTableStateError, match="link"):
        catalog.cleanup_old_versions(["t"], older_than=NOW, delete_unverified=True)
    assert (outside / "canary").read_text() == "keep"
    link.unlink()
    link.mkdir()  # an empty folder is no reason to refuse
    catalog.cleanup_old_versions(["t"], older_than=NOW)


def test_link_inside_the_manifest_leads_no_upkeep_out_of_the_root(tmp_path: Path) -> None:
    catalog = DirectoryNamespace(root=str(tmp_path / "lake"))
    create(catalog, "t")
    outside = tmp_path / "outside" / "sub"
    outside.mkdir(parents=True)
    (outside / "canary").write_text("keep")
    os.utime(outside / "canary", (1e9, 1e9))
    (tmp_path / "lake" / "__manifest" / "_indices" / "link").symlink_to(outside.parent)
    with pytest.raises(InvalidTableStateError, match="link"):
        catalog.maintain_manifest()
    assert (outside / "canary").read_text() == "keep"


def _clone(lake: VersionedTable, version: int, name: str = "copy") -> str:
    """Make a table of the root that reads the files of a version, and return where it is."""
    in_rows = lake.lake.mode.get("manifest_enabled") != "false"
    folder = f"{lake.lake.uri}/{name if in_rows else f'{name}.lance'}"
    lake.dataset().shallow_clone(folder, version)
    if in_rows:
        lake.catalog.register_table({"id": [name], "location": name})
    return folder


@pytest.mark.parametrize("dropped", [False, True])
def test_cleanup_keeps_files_that_a_shallow_clone_reads(lake: VersionedTable, dropped: bool) -> None:
    with_versions(lake)
    copy = _clone(lake, 4)
    if dropped:
        lake.catalog.drop_table({"id": ["copy"]})
    told = lake.catalog.cleanup_old_versions(ID, older_than=NOW, dry_run=True)
    done = lake.catalog.cleanup_old_versions(ID, older_than=NOW)
    assert sorted(lance.dataset(copy).to_table()["a"].to_pylist()) == [3, 4]
    assert (done.versions, done.data_files, done.transaction_files) == ((1, 2, 3, 4, 5), 2, 5)
    assert replace(done, dry_run=True) == told
    assert lake.values() == [5, 6]
    assert lake.versions() == [6]
    kept = lake.files() - lake.needed()
    assert len(kept) == 2
    assert all(each.startswith("data/") for each in kept)
    again = lake.catalog.cleanup_old_versions(ID, older_than=NOW, delete_unverified=True)
    assert (again.data_files, lake.files() - lake.needed()) == (0, kept), "also of files that no version has"
    without = lake.catalog.cleanup_old_versions(
        ID, older_than=NOW, delete_unverified=True, look_for_clones=False
    )
    assert without.data_files == 2
    assert lake.files() == lake.needed()


def test_cleanup_beside_a_table_that_may_be_a_clone_is_refused(lake: VersionedTable) -> None:
    with_versions(lake)
    copy = Path(_clone(lake, 4))
    for each in copy.glob("_versions/*.manifest"):
        each.write_bytes(each.read_bytes()[:10])
    before = lake.files()
    with pytest.raises(InvalidTableStateError, match="may be a shallow clone"):
        lake.lake.open().cleanup_old_versions(ID, older_than=NOW)
    assert lake.files() == before
