"""Remove old versions of a table with the files that only they need.

Which files those are is Lance's to say; which versions, the policy's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import lance

from relance.catalog.context import Context
from relance.catalog.layout import list_manifests
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.operations.cleaning.clones import OR_SKIP, files_of_clones, find_clones
from relance.operations.cleaning.policy import DEFAULT_AGE, CleanupPolicy, Version
from relance.operations.cleaning.retired_files import NO_VERSION_IS_SO_OLD, plan_removal
from relance.operations.managed_versions import synchronise, version_keeper
from relance.operations.targets import Target, open_for_writing
from relance.storage.links import require_no_links


@dataclass(frozen=True, slots=True)
class RemovalStats:
    """What a cleanup removed, or, as a dry run, would remove."""

    bytes_removed: int = 0
    old_versions: int = 0
    data_files: int = 0
    deletion_files: int = 0
    index_files: int = 0
    transaction_files: int = 0
    failed_deletes: int = 0
    """Files that could not be deleted; the next cleanup tries again."""
    versions: tuple[int, ...] = ()
    dry_run: bool = False


def cleanup_old_versions(
    context: Context,
    table_id: TableId,
    policy: CleanupPolicy,
    *,
    dry_run: bool,
    look_for_clones: bool = True,
) -> RemovalStats:
    """Remove the versions that the policy lets go, and files that were never committed.

    Files that a shallow clone in the root reads stay.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
        InvalidTableStateError: a version that is to go is tagged, or a table cannot be read that may be a
            clone of this one.
    """
    policy = with_rule(policy, context.clock.now())
    target = open_for_writing(context, table_id.parts)
    with lance_errors(f"table id '{table_id}'", target.options):
        chosen = policy.choose(dated(target.dataset.versions()), tags_of(target.dataset))
    require_no_links(context.storage, target.found.directory)
    told = _cleaned(context, target, chosen, policy, dry_run=True)
    # A clone has versions and transactions of its own.
    if look_for_clones and told.data_files + told.deletion_files + told.index_files:
        directory = target.found.directory
        clones = find_clones(context, besides=[directory], or_else=OR_SKIP)
        cloned = files_of_clones(context, clones, directory)
        if cloned:
            return _clean_around(context, target, chosen, policy, cloned, dry_run=dry_run)
    return told if dry_run else _cleaned(context, target, chosen, policy, dry_run=False)


def _clean_around(
    context: Context,
    target: Target,
    chosen: list[int],
    policy: CleanupPolicy,
    cloned: frozenset[str],
    *,
    dry_run: bool,
) -> RemovalStats:
    """Remove the chosen versions, and the files that Lance lets go and no clone reads."""
    listed = list_manifests(context.storage, target.found.directory, None)
    removal = plan_removal(context, target, chosen, policy, cloned, listed)
    if removal is None:
        return RemovalStats(versions=tuple(chosen), dry_run=dry_run)
    if not dry_run:
        for task in removal.tasks:
            task.run(context)
        forget_versions(context, target.found.table_id)
    kinds = Counter(each.kind for each in removal.files)
    return RemovalStats(
        bytes_removed=sum(each.size for each in removal.files),
        old_versions=kinds["manifest"],
        data_files=kinds["data"],
        deletion_files=kinds["deletion"],
        index_files=kinds["index"],
        transaction_files=kinds["transaction"],
        versions=tuple(chosen),
        dry_run=dry_run,
    )


def with_rule(policy: CleanupPolicy, now: datetime) -> CleanupPolicy:
    """Return the policy, with the rule of age that holds when it has none."""
    return policy if policy.has_rule else replace(policy, before_timestamp=now - DEFAULT_AGE)


def clean(
    context: Context, target: Target, chosen: list[int], policy: CleanupPolicy, *, dry_run: bool
) -> RemovalStats:
    """Remove the chosen versions of an opened table, and files that were never committed.

    Raises:
        InvalidTableStateError: there is a link below the table's directory; nothing was removed.
    """
    require_no_links(context.storage, target.found.directory)
    return _cleaned(context, target, chosen, policy, dry_run=dry_run)


def _cleaned(
    context: Context, target: Target, chosen: list[int], policy: CleanupPolicy, *, dry_run: bool
) -> RemovalStats:
    with lance_errors(f"table id '{target.found.table_id}'", target.options):
        stats = _clean(target.dataset, chosen, policy, dry_run=dry_run)
    if chosen and not dry_run:
        forget_versions(context, target.found.table_id)
    return RemovalStats(
        bytes_removed=stats.bytes_removed,
        old_versions=stats.old_versions,
        data_files=stats.data_files_removed,
        deletion_files=stats.deletion_files_removed,
        index_files=stats.index_files_removed,
        transaction_files=stats.transaction_files_removed,
        failed_deletes=stats.failed_deletes,
        versions=tuple(chosen),
        dry_run=dry_run,
    )


def forget_versions(context: Context, table_id: TableId) -> None:
    """Have the rows of versions go with them, where the catalog manages versions."""
    keeper = version_keeper(context)
    if keeper is not None:
        synchronise(context, keeper, table_id)


def dated(versions: Iterable[Mapping[str, Any]]) -> list[Version]:
    """Return the versions that Lance lists, with their time."""
    # Lance tells the time in this machine's zone, without saying so.
    return [Version(each["version"], each["timestamp"].astimezone(UTC)) for each in versions]


def tags_of(dataset: lance.LanceDataset) -> dict[str, int]:
    """Return the tags of main; those of a branch count versions of its own."""
    return {name: int(tag["version"]) for name, tag in dataset.tags.list().items() if not tag.get("branch")}


def _clean(
    dataset: lance.LanceDataset, versions: list[int], policy: CleanupPolicy, *, dry_run: bool
) -> lance.CleanupStats:
    # By number, not by age: the versions were chosen, and one that is committed meanwhile is none of them.
    older_than = None if versions else NO_VERSION_IS_SO_OLD
    if dry_run:
        return dataset.explain_cleanup_old_versions(
            older_than=older_than,
            versions=versions or None,
            delete_unverified=policy.delete_unverified,
            error_if_tagged_old_versions=False,
        ).stats
    return dataset.cleanup_old_versions(
        older_than=older_than,
        versions=versions or None,
        delete_unverified=policy.delete_unverified,
        # Looked at before; a tag that came since protects its version, and that is no error.
        error_if_tagged_old_versions=False,
        delete_rate_limit=policy.rate_limit,
    )
