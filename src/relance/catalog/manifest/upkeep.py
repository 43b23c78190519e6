"""Keeps the manifest table small and indexed, off the path of any request.

Commits leave sealed heads, unindexed rows and old versions behind. Upkeep merges small files, brings
the indexes up to date (other clients' writes drop them) and removes old versions.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import lance
import pyarrow as pa
from lance.dataset import LanceOperation
from lance.fragment import write_fragments

from relance.catalog.manifest.row import HEAD_ID
from relance.catalog.manifest.snapshot import LanceSnapshot, in_reader, manifest_errors
from relance.catalog.manifest.table import INDEXES, LanceManifest
from relance.errors import ConcurrentModificationError, RelanceError

_FULL_ROWS = 100_000
"""Files of this many rows are not merged any more."""
_MANY_FILES = 8
"""Upkeep is due when so many files could be merged."""
_MANY_VERSIONS = 200
"""Upkeep is due when so many commits came since the last one."""
_DEAD_SHARE = 0.2
"""A full file with this share of deleted rows is written anew."""

KEEP_VERSIONS_FOR = timedelta(minutes=30)
"""Versions younger than this stay. Longer than from a client's read to the last moment at which a commit
based on it can take effect, whatever clock is ahead: 15 s, a minute for the commit, 15 minutes for which
a store carries out a signed request, 5 minutes of clock skew. table.READ_FOR_SECONDS tells what happens
otherwise."""


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What one round of upkeep did."""

    files_merged: int = 0
    rows_indexed: int = 0
    indexes_built: tuple[str, ...] = ()
    versions_removed: int = 0
    bytes_removed: int = 0


def keep_up(
    manifest: LanceManifest, *, keep_versions_for: timedelta = KEEP_VERSIONS_FOR, clean: bool = True
) -> UpkeepReport:
    """Do all that is due; what a concurrent commit gets in the way of is left for the next round.

    Old versions are removed with `clean`; younger ones than by default only while nobody else commits.

    Raises:
        RelanceError: the table cannot be read or written.
    """
    if manifest.open() is None:
        return UpkeepReport()
    merged = in_reader(lambda: _merge_files(manifest))
    built, indexed = in_reader(lambda: _refresh_indexes(manifest))
    if not clean:
        return UpkeepReport(merged, indexed, built)
    dataset = manifest.table.open_apart()
    assert dataset is not None  # a manifest is never removed
    manifest.table.require_no_links()
    with manifest_errors(manifest.options):
        removed = dataset.cleanup_old_versions(older_than=keep_versions_for)
    return UpkeepReport(merged, indexed, built, removed.old_versions, removed.bytes_removed)


def look_ahead(manifest: LanceManifest, *, keep_versions_for: timedelta = KEEP_VERSIONS_FOR) -> UpkeepReport:
    """Return what a round would do now; changes nothing.

    Raises:
        RelanceError: the table cannot be read.
    """
    if manifest.open() is None:
        return UpkeepReport()
    merged = in_reader(lambda: len(_mergeable_files(manifest.latest())))
    dataset = manifest.table.open_apart()
    assert dataset is not None  # a manifest is never removed
    with manifest_errors(manifest.options):
        there = {index.field_names[0]: index for index in dataset.describe_indices()}
        missing = tuple(column for column in INDEXES if column not in there)
        indexed = [index.num_rows_indexed for column, index in there.items() if column == "object_id"]
        unindexed = max(dataset.count_rows() - indexed[0], 0) if indexed else 0
        removed = dataset.explain_cleanup_old_versions(older_than=keep_versions_for).stats
    return UpkeepReport(merged, unindexed, missing, removed.old_versions, removed.bytes_removed)


def _merge_files(manifest: LanceManifest) -> int:
    """Write small files and files with many dead rows into one; the head is left to commits."""
    snapshot = manifest.latest()
    dataset = snapshot.dataset
    assert dataset is not None  # the caller looked
    worth = _mergeable_files(snapshot)
    if not worth:
        return 0
    with manifest_errors(manifest.options):
        rows = pa.concat_tables([fragment.to_table() for fragment in worth]).sort_by("object_id")
        own = dataset.checkout_version(snapshot.version)  # writing borrows the object, which threads share
        written = write_fragments(rows, own, mode="append") if len(rows) else []
        removed = [fragment.fragment_id for fragment in worth]
        operation = LanceOperation.Update(removed_fragment_ids=removed, new_fragments=list(written))
        try:
            with manifest_errors(manifest.options):
                lance.LanceDataset.commit(
                    own,
                    operation,
                    read_version=snapshot.version,
                    max_retries=0,
                    storage_options=dict(manifest.options) or None,
                )
        except ConcurrentModificationError:
            return 0  # a row in one of them was changed meanwhile: the next round merges them
    return len(worth)


def _mergeable_files(snapshot: LanceSnapshot) -> list[lance.LanceFragment]:
    """Return the files to merge: none if that is only one that has no dead rows."""
    assert snapshot.dataset is not None  # the caller looked
    worth = _worth_merging(snapshot, snapshot.dataset)
    return worth if len(worth) > 1 or any(fragment.num_deletions for fragment in worth) else []


def _worth_merging(snapshot: LanceSnapshot, dataset: lance.LanceDataset) -> list[lance.LanceFragment]:
    head = {located.fragment for located in snapshot.find([HEAD_ID])}
    return [
        fragment
        for fragment in dataset.get_fragments()
        if fragment.fragment_id not in head
        and (
            fragment.physical_rows < _FULL_ROWS
            or fragment.num_deletions > _DEAD_SHARE * fragment.physical_rows
        )
    ]


def _refresh_indexes(manifest: LanceManifest) -> tuple[tuple[str, ...], int]:
    dataset = manifest.table.open_apart()
    assert dataset is not None  # a manifest is never removed
    try:
        with manifest_errors(manifest.options):
            there = {index.field_names[0]: index for index in dataset.describe_indices()}
            missing = tuple(column for column in INDEXES if column not in there)
            for column in missing:
                kind, name = INDEXES[column]
                dataset.create_scalar_index(column, kind, name=name, replace=True)
            unindexed = 0
            if "object_id" in there:
                unindexed = dataset.count_rows() - there["object_id"].num_rows_indexed
                dataset.optimize.optimize_indices()
    except ConcurrentModificationError:
        return (), 0  # the next round does it
    return missing, max(unindexed, 0)


class BackgroundUpkeep:
    """Starts a round of upkeep on a thread of its own when a commit finds one due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last_version = 0

    def __call__(self, manifest: LanceManifest, committed: lance.LanceDataset) -> None:
        """Note a commit; costs nothing but a look at the new version."""
        version = int(committed.version)
        if not self._last_version:
            self._last_version = version
        many_files = len(committed.get_fragments()) > _MANY_FILES + self._full_files(committed)
        if version - self._last_version < _MANY_VERSIONS and not many_files:
            return
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self._last_version = version
            # No daemon: the interpreter must not end while it is inside Lance.
            self._thread = threading.Thread(target=self._run, args=(manifest,), name="relance-upkeep")
            self._thread.start()

    @staticmethod
    def _full_files(dataset: lance.LanceDataset) -> int:
        return sum(1 for fragment in dataset.get_fragments() if fragment.physical_rows >= _FULL_ROWS)

    def _run(self, manifest: LanceManifest) -> None:
        try:
            # Lance reads every version that is left: so not each time, but half of them at once.
            oldest = datetime.now(UTC) - 2 * KEEP_VERSIONS_FOR
            keep_up(manifest, clean=manifest.table.has_versions_before(oldest))
        except RelanceError:
            return  # the next commit that finds it due tries again; maintain_manifest() tells why it fails

    def wait(self) -> None:
        """Wait for the round that is going on, if any."""
        thread = self._thread
        if thread is not None:
            thread.join()
