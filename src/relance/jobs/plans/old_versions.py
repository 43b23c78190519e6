"""Clean up: old versions go, with the files that only they need. Lance says which files those are.

A table of ordinary size is cleaned by Lance in one go. Of a giant one, one that was cloned, or when there
is a rate to keep, the files that Lance names are deleted in tasks, which are in retired_files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import lance

from relance.catalog.context import Context
from relance.catalog.layout import ManifestFile, list_manifests
from relance.catalog.states import new_nonce
from relance.errors import ConcurrentModificationError
from relance.jobs.base import Effect, Estimate, Expected, Figures, Name, TablePlan
from relance.jobs.cleanup import CleanUp
from relance.jobs.plans.tables import open_expected
from relance.operations.cleaning.cleanup import (
    RemovalStats,
    clean,
    dated,
    forget_versions,
    tags_of,
)
from relance.operations.cleaning.clones import clones_of_run, files_of_clones
from relance.operations.cleaning.policy import CleanupPolicy, Version
from relance.operations.cleaning.retired_files import DeleteFiles, Removal, Removed, plan_removal
from relance.operations.targets import Target

_BYTES_PER_FILE = 150
"""Of a manifest."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def plan_cleanup(
    job: CleanUp, run: str, context: Context, table: Name, expect: Expected | None
) -> TablePlan | None:
    """Choose the versions that go; jobs of one `run` look for shallow clones once.

    Raises:
        TableNotFoundError: there is no such table.
        InvalidTableStateError: a version that is to go is tagged, or a clone cannot be read.
        ConcurrentModificationError: the table went while it was looked at.
    """
    policy = CleanupPolicy(
        before_timestamp=job.before,
        before_version=job.before_version,
        retain_versions=job.retain_versions,
        delete_unverified=job.delete_unverified,
        error_if_tagged_old_versions=not job.skip_tagged,
        rate_limit=job.rate_limit,
    )
    shared = clones_of_run(run or new_nonce(), context.root.uri)
    target = open_expected(context, table, expect, session=shared.session)
    manifests = list_manifests(context.storage, target.found.directory, None)
    if not manifests:
        raise ConcurrentModificationError(
            f"table id '{target.found.table_id}' no longer has any version; retry"
        )
    with target.errors():
        versions = _versions(target.dataset, policy, manifests)
        known = [each for each in versions if job.as_of is None or each.number <= job.as_of]
        chosen = policy.choose(known, tags_of(target.dataset))
    clones = [] if job.ignore_clones else shared.get(context)
    cloned = files_of_clones(context, clones, target.found.directory)
    small = _size(manifests) < job.split_files
    if small and not cloned and policy.rate_limit is None:
        return CleanedByLance(context, target, chosen, policy, len(versions))
    found = plan_removal(context, target, chosen, policy, cloned, manifests)
    return None if found is None else CleanedInTasks(found, found.tasks, len(manifests))


def _versions(
    dataset: lance.LanceDataset, policy: CleanupPolicy, manifests: Sequence[ManifestFile]
) -> list[Version]:
    """Return the versions; their times, which take a read of each, only when the policy asks for them."""
    if policy.before_timestamp is not None:
        return dated(dataset.versions())
    return [Version(each.version, _LONG_AGO) for each in manifests]


def _size(manifests: Sequence[ManifestFile]) -> int:
    """Return about how many files a table has: a manifest is as long as its version has files."""
    largest = max((each.info.size for each in manifests), default=0)
    return len(manifests) + largest // _BYTES_PER_FILE


@dataclass(frozen=True, slots=True)
class CleanedByLance(TablePlan):
    """A table of ordinary size: it has no tasks, so it is never sent anywhere."""

    context: Context
    target: Target
    chosen: list[int]
    policy: CleanupPolicy
    versions: int
    tasks: Sequence[DeleteFiles] = ()

    @property
    def estimate(self) -> Estimate:
        stats = clean(self.context, self.target, self.chosen, self.policy, dry_run=True)
        return Estimate(files=_files(stats), bytes=stats.bytes_removed, versions=stats.old_versions)

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        stats = clean(context, self.target, self.chosen, self.policy, dry_run=False)
        note = f"{stats.failed_deletes} files could not be deleted" if stats.failed_deletes else ""
        return Effect(
            files=_files(stats),
            bytes=stats.bytes_removed,
            before=Figures(versions=self.versions),
            after=Figures(versions=self.versions - stats.old_versions),
            note=note,
        )


def _files(stats: RemovalStats) -> int:
    return (
        stats.old_versions
        + stats.data_files
        + stats.deletion_files
        + stats.index_files
        + stats.transaction_files
    )


@dataclass(frozen=True, slots=True)
class CleanedInTasks(TablePlan):
    """A table whose files are deleted in tasks."""

    removal: Removal
    tasks: tuple[DeleteFiles, ...]
    versions: int

    @property
    def estimate(self) -> Estimate:
        files = self.removal.files
        return Estimate(
            files=len(files),
            bytes=sum(each.size for each in files),
            versions=len(self.removal.retired.manifests),
            note=self._note(),
        )

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        removed: list[Removed] = list(values)
        retired = self.removal.retired
        forget_versions(context, retired.table_id)
        gone = len(retired.manifests)
        return Effect(
            files=gone + sum(each.files for each in removed),
            bytes=sum(size for _, size in retired.manifests) + sum(each.bytes for each in removed),
            before=Figures(versions=self.versions),
            after=Figures(versions=self.versions - gone),
            note=self._note(),
        )

    def _note(self) -> str:
        kept = self.removal.kept_for_clones
        return f"{kept} files kept for clones" if kept else ""
