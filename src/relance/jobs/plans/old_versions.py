"""Clean up: old versions go, with the files that only they need. Lance says which files those are.

A table of ordinary size is cleaned by Lance in one go. Of a giant one, one that was cloned, or when there
is a rate to keep, the files that Lance names are deleted in tasks, which are in retired_files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import lance

from relance.catalog.context import Context
from relance.catalog.layout import ManifestFile, list_manifests
from relance.catalog.states import new_nonce
from relance.errors import ConcurrentModificationError, InvalidInputError
from relance.jobs.base import Effect, Estimate, Figures, TablePlan
from relance.jobs.plans.tables import all_tables
from relance.operations.cleaning.cleanup import (
    RemovalStats,
    clean,
    dated,
    forget_versions,
    tags_of,
    with_rule,
)
from relance.operations.cleaning.clones import clones_of_run, files_of_clones
from relance.operations.cleaning.policy import CleanupPolicy, Version
from relance.operations.cleaning.retired_files import DeleteFiles, Removal, Removed, plan_removal
from relance.operations.targets import Target, open_for_writing

FLOOR = timedelta(hours=24)
"""Versions younger than this stay unless it is said by name that they may go."""

GIANT_FILES = 20_000
"""From so many files on they are deleted in tasks."""

_BYTES_PER_FILE = 150
"""Of a manifest."""
_ALLOW_YOUNG = "choose older versions, or pass --allow-young if no job uses them"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Removes the versions that a policy lets go, and old files that were never committed.

    Tags, branches and shallow clones in the same root keep what they name. Files that no version names
    stay for seven days, since a job that is under way may have written them.
    """

    policy: CleanupPolicy = field(default_factory=CleanupPolicy)
    allow_young: bool = False
    """Let the policy also take versions younger than 24 hours, and files that no version names."""
    as_of: int | None = None
    """Count versions as if this one were the latest: newer ones stay, and no older one goes for them."""
    look_for_clones: bool = True
    """Open the other tables of the root to see whether they read files of this one."""
    giant_files: int = GIANT_FILES
    is_pinned: bool = False
    """Take the policy's moments as they are: they were checked where the run was planned."""
    run: str = field(default_factory=new_nonce)
    """Tells one run from another: the clones are looked for once in each."""
    name: str = field(default="clean up", init=False)
    visits_at_once: int = field(default=4, init=False)

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        return all_tables(context)

    def pin(self, context: Context) -> CleanUp:
        """Return the job with the moment before which versions may go.

        Raises:
            InvalidInputError: the policy takes young versions, which was not allowed.
        """
        if self.is_pinned:
            return self
        now = context.clock.now()
        return replace(self, policy=self._allowed(with_rule(self.policy, now), now), is_pinned=True)

    def plan(self, context: Context, table: tuple[str, ...]) -> TablePlan | None:
        """Choose the versions that go.

        Raises:
            TableNotFoundError: there is no such table.
            InvalidTableStateError: a version that is to go is tagged, or a clone cannot be read.
            InvalidInputError: the policy takes young versions, which was not allowed.
            ConcurrentModificationError: the table went while it was looked at.
        """
        policy = self.pin(context).policy
        shared = clones_of_run(self.run, context.root.uri)
        target = open_for_writing(context, table, session=shared.session)
        manifests = list_manifests(context.storage, target.found.directory, None)
        if not manifests:
            raise ConcurrentModificationError(
                f"table id '{target.found.table_id}' no longer has any version; retry"
            )
        with target.errors():
            versions = _versions(target.dataset, policy, manifests)
            chosen = policy.choose(self._known(versions), tags_of(target.dataset))
        clones = shared.get(context) if self.look_for_clones else []
        cloned = files_of_clones(context, clones, target.found.directory)
        small = _size(manifests) < self.giant_files
        if small and not cloned and policy.rate_limit is None:
            return CleanedByLance(context, target, chosen, policy, len(versions))
        found = plan_removal(context, target, chosen, policy, cloned, manifests)
        return None if found is None else CleanedInTasks(found, found.tasks, len(manifests))

    def _known(self, versions: Sequence[Version]) -> list[Version]:
        return [each for each in versions if self.as_of is None or each.number <= self.as_of]

    def _allowed(self, policy: CleanupPolicy, now: datetime) -> CleanupPolicy:
        if self.allow_young:
            return policy
        if policy.delete_unverified:
            raise InvalidInputError(
                "delete_unverified removes files of jobs in progress: set allow_young if there are none",
                hint=_ALLOW_YOUNG,
            )
        floor = now - FLOOR
        if policy.before_timestamp is None:
            return replace(policy, before_timestamp=floor)
        if policy.before_timestamp > floor:
            raise InvalidInputError(
                "the policy removes versions younger than 24 hours, which jobs may still use: "
                "choose an earlier time or set allow_young",
                hint=_ALLOW_YOUNG,
            )
        return policy


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
class CleanedByLance:
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
class CleanedInTasks:
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
