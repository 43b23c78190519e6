"""Purge dropped tables, wherever they are: one, those named, or all whose time has passed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    RelanceError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.lifecycle.marker_store import read_marker
from relance.lifecycle.retention import is_due, is_purgeable
from relance.lifecycle.states import State
from relance.locations import table_directory
from relance.manifest.entry import ObjectType
from relance.operations.context import Context
from relance.operations.deletion import PurgeOptions, PurgeResult
from relance.operations.directory.dropped import is_dropped
from relance.operations.directory.purge import purge_name, purge_names, purgeable_marker
from relance.operations.generations import Generation, all_generations, state_of_name
from relance.operations.in_step import Followed, follow_marker
from relance.operations.rename import renamed_meanwhile
from relance.operations.rows.claims import settle_revival
from relance.operations.rows.declare import settle_name
from relance.operations.rows.lookups import require_writable
from relance.operations.rows.purge import purge_row, require_purgeable
from relance.resolution import not_found
from relance.storage.at_once import map_at_once


def purge_table(
    context: Context, table_id: TableId, options: PurgeOptions, deletion_id: str | None = None
) -> list[PurgeResult]:
    """Purge the dropped generations of one table, or the one that is named; failures are in the results."""
    if context.manifest is None and deletion_id is None:
        return [purge_name(context, table_id, options)]
    try:
        found = dropped_generations(context, table_id, deletion_id)
    except RelanceError as error:
        return [PurgeResult(tuple(table_id.parts), error=error)]
    return purge_generations(context, found, options)


def dropped_generations(context: Context, table_id: TableId, deletion_id: str | None) -> list[Generation]:
    """Return the generations to purge.

    Raises:
        InvalidTableStateError: the table is live, and nothing of its name is dropped.
        TableNotFoundError: there is nothing to purge.
    """
    if context.manifest is not None:
        settle_name(context, context.manifest, table_id)
    else:
        stored = read_marker(context.storage, table_id.name)
        if stored is not None and is_dropped(stored) and deletion_id in {None, stored.marker.deletion_id}:
            return [Generation(table_id, stored.marker, version=stored.version)]  # no other can be dropped
    state = state_of_name(context, table_id)
    chosen = [each for each in state.dropped if deletion_id in {None, each.marker.deletion_id}]
    if chosen:
        return chosen
    if state.dropped:
        raise TableNotFoundError(f"table id '{table_id}' has no drop with deletion id '{deletion_id}'")
    if state.visible:
        raise InvalidTableStateError(f"table id '{table_id}' is live and cannot be purged: drop it first")
    stored = state.at_home.marker if state.at_home is not None else None
    if stored is not None and stored.marker.hides and stored.marker.state is not State.MOVED:
        return [Generation(table_id, stored.marker)]  # deregistered, or files below a tombstone
    raise not_found(table_id, stored.marker if stored is not None else None)


def purge_generations(
    context: Context, generations: Sequence[Generation], options: PurgeOptions
) -> list[PurgeResult]:
    """Purge dropped generations; failures are part of the results, which are in their order."""
    by_marker = [each.table_id for each in generations if each.entry is None]
    purged = iter(
        purge_names(context, by_marker, options, before_look=lambda each: bring_in_step(context, each))
    )
    begun = [(each, next(purged) if each.entry is None else None) for each in generations]
    return map_at_once(context.storage, lambda each: _purge_rest(context, *each, options), begun)


def _purge_rest(
    context: Context, generation: Generation, purged: PurgeResult | None, options: PurgeOptions
) -> PurgeResult:
    """Have the manifest follow a marker that was purged, or purge what its row decides about."""
    if purged is None:
        assert context.manifest is not None  # the row came from it
        assert generation.entry is not None  # others have their result
        return purge_row(context, context.manifest, generation.entry, options)
    try:
        if purged.purged:
            follow_marker(context, generation.table_id)
    except RelanceError as error:
        return replace(purged, error=error)
    return purged


def bring_in_step(context: Context, table_id: TableId) -> None:
    """Have the drop in the manifest first: a rename that came before it is not to lose its files.

    Raises:
        ConcurrentModificationError: the table was renamed before the drop.
    """
    if context.manifest is not None:
        require_writable(context.manifest)
    if follow_marker(context, table_id) is Followed.MOVED:
        raise renamed_meanwhile(context, table_id)


def purge_tables(
    context: Context,
    table_ids: list[TableId] | None,
    *,
    deleted_before: datetime | None,
    dry_run: bool,
    options: PurgeOptions,
) -> list[PurgeResult]:
    """Purge the named tables, or all that are due; one failure does not stop the rest."""
    results: list[PurgeResult] = []
    chosen: list[Generation] = []
    if table_ids is None:
        now = context.clock.now()
        if not dry_run:
            _settle_held(context)
        dropped = all_generations(context)
        chosen = [each for each in dropped if is_due(each.marker, now=now, timing=context.timing)]
    for table_id in table_ids or ():
        try:
            chosen += dropped_generations(context, table_id, None)
        except RelanceError as error:
            results.append(PurgeResult(tuple(table_id.parts), error=error, dry_run=dry_run))
    if deleted_before is not None:
        chosen = [
            each for each in chosen if each.marker.deleted_at and each.marker.deleted_at < deleted_before
        ]
    if dry_run:
        results += [would_purge(context, each, options) for each in chosen]
    else:
        results += purge_generations(context, chosen, options)
    if table_ids is None and not dry_run:
        _purge_namespaces(context, deleted_before, options)
    return results


def _settle_held(context: Context) -> None:
    """Give back what creates have claimed that are gone: it may be purged then."""
    if context.manifest is None:
        return
    for entry in context.manifest.latest().held():
        with suppress(ConcurrentModificationError):  # not gone, or another client was first
            settle_revival(context, context.manifest, entry)


def would_purge(context: Context, generation: Generation, options: PurgeOptions) -> PurgeResult:
    """Return what a purge would remove, or why it would refuse."""
    parts, entry = tuple(generation.table_id.parts), generation.entry
    try:
        if entry is None:
            purgeable_marker(context, generation.table_id, force=options.force)
            directory = table_directory(generation.table_id.name)
        else:
            require_purgeable(context, entry, force=options.force)
            directory = entry.location or ""
    except RelanceError as error:
        return PurgeResult(parts, error=error, dry_run=True)
    infos = list(context.storage.list_recursive(directory))
    return PurgeResult(parts, len(infos), sum(info.size for info in infos), dry_run=True)


def _purge_namespaces(context: Context, deleted_before: datetime | None, options: PurgeOptions) -> None:
    """Remove the rows of dropped namespaces whose time has passed; they have no files."""
    if context.manifest is None:
        return
    now = context.clock.now()
    for entry in context.manifest.latest().dropped():
        marker = entry.marker
        if entry.object_type != ObjectType.NAMESPACE or marker is None:
            continue
        old = deleted_before is None or (marker.deleted_at is not None and marker.deleted_at < deleted_before)
        if old and is_purgeable(marker, now=now, timing=context.timing):
            purge_row(context, context.manifest, entry, options)


def sum_up(results: list[PurgeResult]) -> PurgeResult:
    """Return the results of several generations of one table as one."""
    return PurgeResult(
        id=results[0].id,
        files=sum(each.files for each in results),
        bytes=sum(each.bytes for each in results),
        left=tuple(key for each in results for key in each.left),
    )
