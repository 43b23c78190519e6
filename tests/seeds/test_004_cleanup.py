"""Cleaning up old versions, sentence by sentence.

`table` is a table of six versions in a catalog of each mode: 1, 3 and 5 overwrite it, 2, 4 and 6 append to
it. Others read and write it with pylance, at its location. Versions are as old as the catalog's clock says.
"""

from __future__ import annotations

import inspect
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from tests.seeds.sentences import Page, deviates, holds
from tests.support.cleaning import CLEANING_MODES, ID, VersionedTable, with_versions
from tests.support.jobs.lakes import JobLake
from tests.support.lakes import QUIET

import relance
from relance import AutoCleanup, CleanupPolicy, CleanupPolicyBuilder, DirectoryNamespace, RemovalStats
from relance.errors import InvalidTableStateError
from relance.testing.clock import ManualClock

NOW = timedelta(0)
DAY = timedelta(days=1)
A_MOMENT = timedelta(minutes=10)
ALL_BUT_THE_LATEST = CleanupPolicy(retain_versions=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture(params=CLEANING_MODES)
def table(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> VersionedTable:
    mode = CLEANING_MODES[request.param]
    lake = JobLake(str(tmp_path / "lake"), mode, settings=QUIET, manual_clock=clock)
    made = with_versions(VersionedTable(lake))
    clock.advance(A_MOMENT)  # the clock stood still while Lance's went on
    return made


def _bytes_on_disk(table: VersionedTable) -> int:
    return sum((Path(table.uri) / each).stat().st_size for each in table.files())


def _manifests(table: VersionedTable) -> set[str]:
    return {each for each in table.files() if each.startswith("_versions/")}


def _leave_behind(table: VersionedTable, *, days: float = 0) -> str:
    """Write a data file that no version names, as a write that failed so long ago did."""
    before = table.files()
    write_fragments(pa.table({"a": [9]}), table.uri, mode="append")
    (stray,) = table.files() - before
    then = time.time() - days * DAY.total_seconds()
    os.utime(Path(table.uri) / stray, (then, then))
    return stray


def _created(table: VersionedTable, version: int) -> datetime:
    """Return when a version was committed."""
    found = {each["version"]: each["timestamp"] for each in table.dataset().versions()}
    at: datetime = found[version]
    return at.astimezone(UTC)


@holds(
    Page.CLEANUP,
    "Concrete tool for removing old dataset versions and their unreferenced files from storage "
    "to reclaim space",
)
def test_cleanup_frees_the_space_of_old_versions(table: VersionedTable) -> None:
    before = _bytes_on_disk(table)
    stats = table.catalog.cleanup_old_versions(ID, NOW)
    assert before - _bytes_on_disk(table) == stats.bytes_removed > 0
    assert table.files() == table.needed()


@holds(
    Page.CLEANUP,
    "Dataset::cleanup_old_versions constructs a CleanupPolicy from its arguments and delegates to "
    "cleanup_with_policy",
)
def test_both_entry_points_choose_alike(table: VersionedTable, clock: ManualClock) -> None:
    clock.advance(30 * DAY)
    policy = CleanupPolicy(before_timestamp=clock.now() - 29 * DAY)
    told = table.catalog.cleanup_with_policy(ID, policy, dry_run=True)
    assert told.old_versions == 5
    assert table.catalog.cleanup_old_versions(ID, 29 * DAY, dry_run=True) == told


@holds(Page.CLEANUP, "Iterates all manifest files in the _versions/ directory.")
def test_every_manifest_is_looked_at_whoever_wrote_it(table: VersionedTable) -> None:
    lance.write_dataset(pa.table({"a": [7]}), table.uri, mode="append")
    assert table.catalog.cleanup_with_policy(ID, ALL_BUT_THE_LATEST).versions == (1, 2, 3, 4, 5, 6)


@holds(
    Page.CLEANUP,
    "Applies the cleanup policy to determine which manifests are old and should be removed",
)
def test_policy_says_which_manifests_go(table: VersionedTable) -> None:
    assert len(_manifests(table)) == 6
    assert table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=4)).versions == (1, 2, 3)
    assert table.versions() == [each["version"] for each in table.dataset().versions()] == [4, 5, 6]


@holds(Page.CLEANUP, "the latest manifest is always retained")
def test_latest_version_stays_whatever_the_policy_says(table: VersionedTable) -> None:
    future = datetime.now(UTC) + 1000 * DAY
    table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_timestamp=future, before_version=999))
    assert table.versions() == [6]
    assert table.catalog.cleanup_old_versions(ID, NOW).old_versions == 0
    assert table.values() == [5, 6]


@holds(Page.CLEANUP, "Tracks all files referenced by retained manifests (working set)")
def test_files_of_kept_versions_stay(table: VersionedTable) -> None:
    table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=4))
    assert [table.values(version) for version in (4, 5, 6)] == [[3, 4], [5], [5, 6]]
    assert table.needed() == table.files()


@holds(Page.CLEANUP, "all files referenced by any manifest (verified set)")
def test_files_that_some_version_named_go_however_young(table: VersionedTable) -> None:
    stray = _leave_behind(table)
    table.catalog.cleanup_old_versions(ID, NOW)
    assert table.files() == table.needed() | {stray}


@holds(Page.CLEANUP, "Scans storage for data files, deletion files, index files, and transaction files.")
def test_files_of_every_kind_are_removed(table: VersionedTable) -> None:
    table.overwrite(*range(100))
    table.dataset().create_scalar_index("a", "BTREE")
    table.dataset().delete("a < 10")
    table.overwrite(1)
    stats = table.catalog.cleanup_old_versions(ID, NOW)
    for removed in (stats.data_files, stats.deletion_files, stats.index_files, stats.transaction_files):
        assert removed > 0
    assert {each.partition("/")[0] for each in table.files()} == {"data", "_versions", "_transactions"}


@holds(
    Page.CLEANUP,
    "Deletes files that are not in the working set but are in the verified set "
    "(referenced only by old versions).",
)
def test_exactly_the_files_of_removed_versions_go(table: VersionedTable) -> None:
    before, named = table.files(), table.needed()
    table.catalog.cleanup_old_versions(ID, NOW)
    gone = before - table.files()
    assert len({each for each in gone if each.startswith("data/")}) == 4
    assert gone <= named
    assert table.files() == table.needed()


@holds(
    Page.CLEANUP,
    "Handles unverified files (not referenced by any manifest) based on the delete_unverified setting and "
    "the 7-day age threshold.",
)
@pytest.mark.parametrize(
    ("days", "delete_unverified", "stays"),
    [(6.9, False, True), (7.1, False, False), (6.9, True, False), (7.1, True, False)],
)
def test_setting_and_age_decide_about_unverified_files(
    table: VersionedTable, days: float, delete_unverified: bool, stays: bool
) -> None:
    stray = _leave_behind(table, days=days)
    table.catalog.cleanup_old_versions(ID, NOW, delete_unverified)
    assert (stray in table.files()) is stays


@holds(Page.CLEANUP, "Removes the old manifest files themselves.")
def test_old_manifests_go(table: VersionedTable) -> None:
    table.catalog.cleanup_old_versions(ID, NOW)
    assert len(_manifests(table)) == 1
    with pytest.raises(ValueError, match=r"not found"):
        lance.dataset(table.uri, version=1)


@holds(
    Page.CLEANUP,
    "Returns RemovalStats with the total bytes removed and count of old versions cleaned.",
)
def test_cleanup_returns_its_statistics(table: VersionedTable) -> None:
    stats = table.catalog.cleanup_old_versions(ID, NOW)
    assert isinstance(stats, RemovalStats)
    assert (stats.bytes_removed > 0, stats.old_versions) == (True, 5)
    assert table.catalog.cleanup_old_versions(ID, NOW) == RemovalStats()


@holds(
    Page.CLEANUP,
    "An alternative entry point, cleanup_with_policy, accepts a pre-built CleanupPolicy for more flexible "
    "configuration including version-count-based retention.",
)
def test_policy_can_count_versions(table: VersionedTable) -> None:
    stats = table.catalog.cleanup_with_policy(ID, CleanupPolicy(retain_versions=2))
    assert (stats.versions, table.versions()) == ((1, 2, 3, 4), [5, 6])


@holds(
    Page.CLEANUP,
    "The auto_cleanup_hook function enables automatic cleanup triggered every N versions, configured through "
    "dataset config keys lance.auto_cleanup.interval and lance.auto_cleanup.older_than.",
)
def test_commits_of_others_clean_up_every_n_versions(table: VersionedTable) -> None:
    table.catalog.set_auto_cleanup(ID, AutoCleanup(4, NOW))
    config = table.dataset().config()
    assert config["lance.auto_cleanup.interval"] == "4"
    assert config["lance.auto_cleanup.older_than"] == "0s"
    for value in (7, 8):
        lance.write_dataset(pa.table({"a": [value]}), table.uri, mode="append")
    assert [each["version"] for each in table.dataset().versions()] == [7, 8, 9]
    table.dataset().update_config({"lance.auto_cleanup.older_than": "1day 2h"})
    assert table.catalog.get_auto_cleanup(ID) == AutoCleanup(4, timedelta(hours=26))


@holds(
    Page.CLEANUP,
    "Call cleanup_old_versions periodically or after batch operations to reclaim storage.",
)
def test_repeated_cleanup_keeps_a_table_small(table: VersionedTable) -> None:
    sizes = []
    for value in range(5):
        table.overwrite(value)
        table.catalog.cleanup_old_versions(ID, NOW)
        sizes.append(len(table.files()))
    assert set(sizes) == {sizes[0]}
    assert table.values() == [4]


@holds(
    Page.CLEANUP,
    "For more control, build a CleanupPolicy using CleanupPolicyBuilder and call cleanup_with_policy.",
)
def test_built_policy_is_applied(table: VersionedTable) -> None:
    table.dataset().tags.create("keep", 2)
    stray = _leave_behind(table)
    policy = CleanupPolicyBuilder().before_version(4).delete_unverified(True)
    policy = policy.error_if_tagged_old_versions(False)
    assert table.catalog.cleanup_with_policy(ID, policy.build()).versions == (1, 3)
    assert stray not in table.files()


@holds(
    Page.CLEANUP,
    "older_than: Duration, delete_unverified: Option<bool>, error_if_tagged_old_versions: Option<bool>, "
    ") -> BoxFuture<'_, Result<RemovalStats>>",
)
def test_arguments_come_in_this_order_and_may_be_none(table: VersionedTable) -> None:
    stray = _leave_behind(table)
    names = list(inspect.signature(DirectoryNamespace.cleanup_old_versions).parameters)
    assert names[2:5] == ["older_than", "delete_unverified", "error_if_tagged_old_versions"]
    assert table.catalog.cleanup_old_versions(ID, NOW, None, None).old_versions == 5
    assert stray in table.files()
    table.catalog.cleanup_old_versions(ID, NOW, True, True)
    assert stray not in table.files()


@holds(
    Page.CLEANUP,
    "pub fn cleanup_with_policy( &self, policy: CleanupPolicy, ) -> BoxFuture<'_, Result<RemovalStats>>",
)
def test_policy_is_the_only_argument_of_cleanup_with_policy(table: VersionedTable) -> None:
    stats = table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=2))
    assert isinstance(stats, RemovalStats)
    assert stats.versions == (1,)


@holds(
    Page.CLEANUP,
    "use lance::dataset::cleanup::{CleanupPolicy, CleanupPolicyBuilder, RemovalStats};",
)
def test_three_names_can_be_imported() -> None:
    assert {"CleanupPolicy", "CleanupPolicyBuilder", "RemovalStats"} <= set(relance.__all__)
    assert isinstance(CleanupPolicyBuilder().build(), relance.CleanupPolicy)
    assert relance.RemovalStats is RemovalStats


@deviates(
    Page.CLEANUP,
    "Reference to the dataset to clean up.",
    because="cleanup is a method of the catalog and takes the id of a table",
)
def test_table_is_named_by_its_id(table: VersionedTable) -> None:
    assert table.catalog.cleanup_old_versions(["t"], NOW).old_versions == 5


@holds(Page.CLEANUP, "Remove versions older than this duration from the current time.")
def test_only_versions_older_than_the_duration_go(table: VersionedTable, clock: ManualClock) -> None:
    clock.advance(8 * DAY)
    assert table.catalog.cleanup_old_versions(ID, 9 * DAY).old_versions == 0
    assert table.catalog.cleanup_old_versions(ID, 7 * DAY).old_versions == 5


@deviates(
    Page.CLEANUP,
    "| older_than | Duration | Yes |",
    because="as in pylance, it may be left out and is two weeks then",
)
def test_duration_is_two_weeks_when_left_out(table: VersionedTable, clock: ManualClock) -> None:
    clock.advance(13 * DAY)
    assert table.catalog.cleanup_old_versions(ID).old_versions == 0
    clock.advance(2 * DAY)
    assert table.catalog.cleanup_old_versions(ID, None).old_versions == 5


@holds(
    Page.CLEANUP,
    "If Some(true), delete files not referenced by any manifest even if they are recent.",
)
def test_recent_unverified_files_go_when_asked_for(table: VersionedTable) -> None:
    stray = _leave_behind(table)
    table.catalog.cleanup_old_versions(ID, NOW, True)
    assert stray not in table.files()


@holds(
    Page.CLEANUP,
    "Default behavior (None/Some(false)) only deletes unverified files older than 7 days.",
)
@pytest.mark.parametrize("delete_unverified", [None, False])
def test_unverified_files_older_than_seven_days_go_by_default(
    table: VersionedTable, delete_unverified: bool | None
) -> None:
    young, old = _leave_behind(table, days=6.9), _leave_behind(table, days=7.1)
    table.catalog.cleanup_old_versions(ID, NOW, delete_unverified)
    assert table.files() & {young, old} == {young}


@holds(Page.CLEANUP, "If Some(true), return an error if tagged versions fall within the cleanup window.")
def test_tagged_version_in_the_window_is_an_error(table: VersionedTable, clock: ManualClock) -> None:
    table.dataset().tags.create("keep", 2)
    before = table.files()
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        table.catalog.cleanup_old_versions(ID, NOW, None, True)
    assert table.files() == before
    clock.advance(DAY)
    assert table.catalog.cleanup_old_versions(ID, 2 * DAY, None, True).old_versions == 0


@holds(Page.CLEANUP, "Defaults to true.")
def test_tagged_version_in_the_window_is_an_error_by_default(table: VersionedTable) -> None:
    table.dataset().tags.create("keep", 2)
    for arguments in ([NOW], [NOW, None, None]):
        with pytest.raises(InvalidTableStateError, match="'keep'"):
            table.catalog.cleanup_old_versions(ID, *arguments)
    assert table.catalog.cleanup_old_versions(ID, NOW, None, False).versions == (1, 3, 4, 5)
    assert table.values("keep") == [1, 2]


@holds(Page.CLEANUP, "Clean all versions before this timestamp.")
def test_versions_before_a_timestamp_go(table: VersionedTable) -> None:
    policy = CleanupPolicy(before_timestamp=_created(table, 4))
    assert table.catalog.cleanup_with_policy(ID, policy).versions == (1, 2, 3)


@holds(Page.CLEANUP, "Clean all versions before this version number.")
def test_versions_before_a_number_go(table: VersionedTable) -> None:
    assert table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=3)).versions == (1, 2)


@holds(Page.CLEANUP, "Delete unverified files regardless of age.")
def test_policy_can_delete_unverified_files_of_any_age(table: VersionedTable) -> None:
    strays = {_leave_behind(table), _leave_behind(table, days=3), _leave_behind(table, days=30)}
    table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=2, delete_unverified=True))
    assert table.files().isdisjoint(strays)


@holds(Page.CLEANUP, "Error if tagged versions would be cleaned.")
def test_policy_errs_only_if_a_tagged_version_would_be_cleaned(table: VersionedTable) -> None:
    table.dataset().tags.create("keep", 4)
    assert table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=4)).versions == (1, 2, 3)
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=5))


@holds(Page.CLEANUP, "| before_timestamp | Option<DateTime<Utc>> | None |")
def test_policy_has_no_timestamp_by_default(table: VersionedTable) -> None:
    assert CleanupPolicy().before_timestamp is None
    assert table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=6)).old_versions == 5


@holds(Page.CLEANUP, "| before_version | Option<u64> | None |")
def test_policy_has_no_version_by_default(table: VersionedTable) -> None:
    assert CleanupPolicy().before_version is None
    policy = CleanupPolicy(before_timestamp=datetime.now(UTC) + DAY)
    assert table.catalog.cleanup_with_policy(ID, policy).old_versions == 5


@holds(Page.CLEANUP, "| delete_unverified | bool | false |")
def test_policy_keeps_unverified_files_by_default(table: VersionedTable) -> None:
    assert CleanupPolicy().delete_unverified is False
    stray = _leave_behind(table)
    table.catalog.cleanup_with_policy(ID, ALL_BUT_THE_LATEST)
    assert stray in table.files()


@holds(Page.CLEANUP, "| error_if_tagged_old_versions | bool | true |")
def test_policy_errs_about_tags_by_default(table: VersionedTable) -> None:
    assert CleanupPolicy().error_if_tagged_old_versions is True
    table.dataset().tags.create("keep", 1)
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        table.catalog.cleanup_with_policy(ID, ALL_BUT_THE_LATEST)


@holds(Page.CLEANUP, "Set the timestamp cutoff for cleanup.")
def test_builder_sets_the_timestamp(table: VersionedTable) -> None:
    policy = CleanupPolicyBuilder().before_timestamp(_created(table, 3)).build()
    assert table.catalog.cleanup_with_policy(ID, policy).versions == (1, 2)


@holds(Page.CLEANUP, "Keep only the last N versions")
@pytest.mark.parametrize(
    ("n", "left"), [(1, [6]), (5, [2, 3, 4, 5, 6]), (6, [1, 2, 3, 4, 5, 6]), (9, [1, 2, 3, 4, 5, 6])]
)
def test_builder_keeps_the_last_n_versions(
    table: VersionedTable, clock: ManualClock, n: int, left: list[int]
) -> None:
    clock.advance(30 * DAY)  # without any rule, all would go
    policy = CleanupPolicyBuilder().retain_n_versions(lance.dataset(table.uri), n).build()
    table.catalog.cleanup_with_policy(ID, policy)
    assert table.versions() == left


@deviates(
    Page.CLEANUP,
    "(async, queries version list)",
    because="the call is synchronous, as everything in Python here; it does query the version list",
)
def test_builder_queries_the_versions_when_it_is_called(table: VersionedTable) -> None:
    builder = CleanupPolicyBuilder().retain_n_versions(lance.dataset(table.uri), 2)
    table.append(7)
    assert table.catalog.cleanup_with_policy(ID, builder.build()).versions == (1, 2, 3, 4)


@holds(Page.CLEANUP, "Control unverified file deletion.")
def test_builder_controls_unverified_files(table: VersionedTable) -> None:
    stray = _leave_behind(table)
    for on in (False, True):
        policy = CleanupPolicyBuilder().before_version(2).delete_unverified(on).build()
        table.catalog.cleanup_with_policy(ID, policy)
        assert (stray in table.files()) is not on


@holds(Page.CLEANUP, "Control tagged version error behavior.")
def test_builder_controls_the_error_about_tags(table: VersionedTable) -> None:
    table.dataset().tags.create("keep", 1)
    builder = CleanupPolicyBuilder().before_version(3)
    with pytest.raises(InvalidTableStateError, match="'keep'"):
        table.catalog.cleanup_with_policy(ID, builder.error_if_tagged_old_versions(True).build())
    policy = builder.error_if_tagged_old_versions(False).build()
    assert table.catalog.cleanup_with_policy(ID, policy).versions == (2,)


@holds(Page.CLEANUP, "Produce the final CleanupPolicy.")
def test_builder_produces_the_policy() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    builder = CleanupPolicyBuilder().before_timestamp(moment).before_version(7).delete_unverified(True)
    assert builder.build() == CleanupPolicy(moment, 7, delete_unverified=True)
    assert CleanupPolicyBuilder().build() == CleanupPolicy()


@holds(Page.CLEANUP, "Statistics about the cleanup operation.")
def test_statistics_of_a_dry_run_are_those_of_the_cleanup(table: VersionedTable) -> None:
    before = table.files()
    told = table.catalog.cleanup_old_versions(ID, NOW, dry_run=True)
    assert table.files() == before
    done = table.catalog.cleanup_old_versions(ID, NOW)
    assert (done.versions, done.old_versions, done.data_files, done.bytes_removed) == (
        told.versions,
        told.old_versions,
        told.data_files,
        told.bytes_removed,
    )


@holds(Page.CLEANUP, "Total bytes of storage reclaimed.")
def test_bytes_removed_are_those_that_are_gone_from_the_disk(table: VersionedTable) -> None:
    _leave_behind(table)
    before = _bytes_on_disk(table)
    stats = table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=4, delete_unverified=True))
    assert stats.bytes_removed == before - _bytes_on_disk(table)


@holds(Page.CLEANUP, "Number of old versions removed.")
def test_old_versions_counts_the_versions_that_are_gone(table: VersionedTable) -> None:
    stats = table.catalog.cleanup_with_policy(ID, CleanupPolicy(before_version=3))
    assert stats.old_versions == 6 - len(table.versions()) == 6 - len(_manifests(table)) == 2


@holds(Page.CLEANUP, "// Remove versions older than 7 days")
def test_first_example(table: VersionedTable, clock: ManualClock) -> None:
    clock.advance(8 * DAY)
    stats = table.catalog.cleanup_old_versions(ID, timedelta(days=7), None, None)
    assert (stats.old_versions, table.versions()) == (5, [6])


@holds(Page.CLEANUP, "// Using CleanupPolicyBuilder for more control:")
def test_second_example(table: VersionedTable) -> None:
    policy = (
        CleanupPolicyBuilder()
        .retain_n_versions(table.dataset(), 5)
        .delete_unverified(False)
        .error_if_tagged_old_versions(False)
        .build()
    )
    stats = table.catalog.cleanup_with_policy(ID, policy)
    assert (stats.old_versions, table.versions()) == (1, [2, 3, 4, 5, 6])
