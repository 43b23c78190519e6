"""What became of a name, and of all dropped names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from relance.errors import InvalidTableStateError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.retention import is_purgeable
from relance.lifecycle.states import State
from relance.lifecycle.status import Exists, NotFound, SoftDeleted, TableStatus, soft_deleted
from relance.listing.lookup import look_up
from relance.listing.root_view import view_root
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.directory.purge import PurgeOptions, PurgeResult, purge_name, purgeable_marker

_PARALLEL = 16

_DROPPED = frozenset({State.DELETED, State.PURGING, State.REVIVING})


def table_status(context: Context, table_id: TableId) -> TableStatus:
    """Return whether the table exists, is dropped, or is not there; a purged one is not there.

    Raises:
        InvalidTableStateError: its marker cannot be understood.
    """
    facts = look_up(context.storage, table_id.name)
    parts = tuple(table_id.parts)
    if facts.marker is not None and facts.state in _DROPPED:
        return soft_deleted(parts, facts.marker.marker) or NotFound(parts)
    return Exists(parts) if facts.holds_table and not facts.hidden else NotFound(parts)


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    stored: StoredMarker | None
    error: RelanceError | None


def list_dropped_tables(context: Context) -> list[SoftDeleted]:
    """Return the dropped tables, oldest drop first: one listing, and one read for each of them.

    Damaged markers are left out; scrub() reports them.
    """
    found = [each for each in _hidden(context) if each.stored and each.stored.marker.state in _DROPPED]
    dropped = (soft_deleted((each.name,), each.stored.marker) for each in found if each.stored)
    return sorted((each for each in dropped if each is not None), key=lambda each: (each.deleted_at, each.id))


def list_purgable_tables(context: Context, deleted_before: datetime | None) -> list[SoftDeleted]:
    """Return the dropped tables whose time has passed, and that were dropped before the cut-off."""
    now = context.clock.now()
    purgable = []
    for each in _hidden(context):
        if each.stored is None or not is_purgeable(each.stored.marker, now=now, timing=context.timing):
            continue
        dropped = soft_deleted((each.name,), each.stored.marker)
        if dropped is not None and (deleted_before is None or dropped.deleted_at < deleted_before):
            purgable.append(dropped)
    return sorted(purgable, key=lambda each: (each.deleted_at, each.id))


def _hidden(context: Context) -> list[_Found]:
    names = sorted(view_root(context.storage.list_level("")).hidden)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(lambda name: _read(context, name), names))


def _read(context: Context, name: str) -> _Found:
    try:
        return _Found(name, read_marker(context.storage, name), None)
    except InvalidTableStateError as error:
        return _Found(name, None, error)


def purge_tables(
    context: Context,
    table_ids: list[TableId] | None,
    *,
    deleted_before: datetime | None,
    dry_run: bool,
    options: PurgeOptions,
) -> list[PurgeResult]:
    """Purge the named tables, or all whose time has passed; one failure does not stop the rest."""
    if table_ids is None:
        due = list_purgable_tables(context, deleted_before)
        table_ids = [TableId(namespace=(), name=each.id[-1]) for each in due]
    elif deleted_before is not None:
        table_ids = [each for each in table_ids if _dropped_before(context, each, deleted_before)]
    if dry_run:
        return [_would_purge(context, each, options) for each in table_ids]
    return [purge_name(context, each, options) for each in table_ids]


def _dropped_before(context: Context, table_id: TableId, cut_off: datetime) -> bool:
    status = table_status(context, table_id)
    return not isinstance(status, SoftDeleted) or status.deleted_at < cut_off


def _would_purge(context: Context, table_id: TableId, options: PurgeOptions) -> PurgeResult:
    """Return what a purge would remove, or why it would refuse."""
    parts = tuple(table_id.parts)
    try:
        purgeable_marker(context, table_id, force=options.force)
    except RelanceError as error:
        return PurgeResult(parts, error=error, dry_run=True)
    infos = list(context.storage.list_recursive(table_directory(table_id.name)))
    return PurgeResult(parts, len(infos), sum(info.size for info in infos), dry_run=True)
