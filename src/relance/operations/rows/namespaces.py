"""Namespaces as rows: create, drop with all that is in them, and undrop exactly that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
)
from relance.identifiers import DELIMITER
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import NO_CHANGE, Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.rows.claims import settle_revival
from relance.operations.rows.drop import ttl_of
from relance.operations.rows.lookups import move, refuse_protected, require_namespace

_SHOWN = 5
"""How many names an error shows."""


class CreateMode(StrEnum):
    """What to do when the namespace exists."""

    CREATE = "create"
    EXIST_OK = "exist_ok"
    OVERWRITE = "overwrite"


def create(
    context: Context,
    manifest: Manifest,
    namespace: tuple[str, ...],
    properties: dict[str, str],
    mode: CreateMode,
) -> dict[str, str]:
    """Create the namespace and return its properties; overwriting replaces the properties alone.

    Raises:
        NamespaceAlreadyExistsError: it exists and the mode is create, or a table has its name.
        NamespaceNotFoundError: its parent does not exist.
    """
    object_id = DELIMITER.join(namespace)

    def plan(snapshot: Snapshot) -> tuple[Change, dict[str, str]]:
        require_namespace(snapshot, namespace[:-1])
        old = snapshot.get([object_id]).get(object_id)
        if old is None:
            if _is_directory_table(context, namespace):
                raise NamespaceAlreadyExistsError(f"'{object_id}': the name is taken by a table")
            return Change(added=(Entry(object_id, ObjectType.NAMESPACE, None, properties),)), properties
        if old.object_type != ObjectType.NAMESPACE:
            raise NamespaceAlreadyExistsError(f"'{object_id}': the name is taken by a {old.object_type}")
        if mode is CreateMode.CREATE:
            raise NamespaceAlreadyExistsError(f"'{object_id}'")
        if mode is CreateMode.EXIST_OK or old.properties == properties:
            return NO_CHANGE, old.properties
        return Change(removed=(object_id,), added=(old.with_properties(properties),)), properties

    return transact(manifest, plan)


def _is_directory_table(context: Context, parts: tuple[str, ...]) -> bool:
    """Tell whether the directory of a name at the root shows a table, which may have no row."""
    if len(parts) > 1 or not context.settings.dir_listing:
        return False
    facts = look_up(context.storage, parts[0])
    return facts.is_visible


def drop(
    context: Context,
    manifest: Manifest,
    namespace: tuple[str, ...],
    ttl: timedelta | None,
    *,
    cascade: bool,
) -> Marker:
    """Hide the namespace, and with `cascade` all that is in it, under one deletion id.

    Raises:
        NamespaceNotFoundError: it does not exist.
        NamespaceNotEmptyError: something is in it, and that is not to go too.
        InvalidTableStateError: it, or something in it, is protected.
        ConcurrentModificationError: a table in it is being created.
    """
    object_id, cascade_id, now = DELIMITER.join(namespace), new_nonce(), context.clock.now()

    def plan(snapshot: Snapshot) -> tuple[Change, Marker]:
        entry = require_namespace(snapshot, namespace)
        assert entry is not None  # the root cannot be dropped
        inside = _objects_in(snapshot, object_id)
        if inside and not cascade:
            raise NamespaceNotEmptyError(
                f"'{object_id}' (contains {len(inside)} child objects: {_some(inside)})"
            )
        _refuse_busy(inside)
        for each in (entry, *inside):
            refuse_protected(each)
        span = ttl if ttl is not None else ttl_of(context, snapshot, entry)
        top = moves.drop(None, cascade_id, at=now, ttl=span, version=0)
        change = move(snapshot, entry, entry.dropped(top, cascade=cascade_id))
        removed, added = list(change.removed), list(change.added)
        for number, each in enumerate(inside):
            marker = moves.drop(None, f"{cascade_id}-{number}", at=now, ttl=span, version=0)
            part = move(snapshot, each, each.dropped(marker, cascade=cascade_id))
            removed += part.removed
            added += part.added
        return Change(tuple(removed), tuple(added)), top

    try:
        return transact(manifest, plan)
    except (NamespaceNotEmptyError, ConcurrentModificationError):
        # Perhaps only of a create that is gone: what it claimed is no longer in the way then.
        held = [each for each in manifest.latest().below(object_id + DELIMITER) if each.is_held]
        if not held:
            raise
    for each in held:
        settle_revival(context, manifest, each)
    return transact(manifest, plan)


def _objects_in(snapshot: Snapshot, object_id: str) -> list[Entry]:
    """Return what is in a namespace at any depth; the versions of a table belong to the table."""
    below = snapshot.below(object_id + DELIMITER)
    return [each for each in below if each.object_type != ObjectType.VERSION]


def _refuse_busy(inside: Sequence[Entry]) -> None:
    for each in inside:
        if not each.is_visible:
            raise ConcurrentModificationError(f"'{each.object_id}' is being changed by another client; retry")


def _some(entries: Sequence[Entry]) -> str:
    names = ", ".join(each.object_id for each in entries[:_SHOWN])
    return names if len(entries) <= _SHOWN else f"{names}, …"


def undrop(
    context: Context, manifest: Manifest, namespace: tuple[str, ...], cascade_id: str | None
) -> list[Entry]:
    """Bring back exactly what one drop of the namespace took, and return it; the newest if none is named.

    Raises:
        NamespaceNotFoundError: there is no such drop, or the parent does not exist.
        NamespaceAlreadyExistsError, TableAlreadyExistsError: a name is taken.
        InvalidTableStateError: a purge has begun on a part of it.
    """
    object_id = DELIMITER.join(namespace)

    def plan(snapshot: Snapshot) -> tuple[Change, list[Entry]]:
        top = _newest_drop(snapshot, object_id, cascade_id)
        parts = [
            each for each in snapshot.dropped() if each.cascade is not None and each.cascade == top.cascade
        ]
        for each in parts:
            if each.marker is None or each.marker.state is not State.DELETED:
                raise InvalidTableStateError(
                    f"nothing was undropped: '{each.original_id}', part of the same drop, is being purged"
                )
        require_namespace(snapshot, namespace[:-1])
        _refuse_taken(context, snapshot, parts)
        removed: list[str] = []
        added: list[Entry] = []
        for each in parts:
            part = move(snapshot, each, each.restored(each.original_id))
            removed += part.removed
            added += part.added
        return Change(tuple(removed), tuple(added)), [each.restored(each.original_id) for each in parts]

    return transact(manifest, plan)


def _newest_drop(snapshot: Snapshot, object_id: str, cascade_id: str | None) -> Entry:
    found = [
        (each.marker.deleted_at, each.object_id, each)
        for each in snapshot.dropped(object_id)
        if each.object_type == ObjectType.NAMESPACE
        and each.marker is not None
        and each.marker.deleted_at is not None
        and each.cascade == each.marker.deletion_id  # dropped by itself, not as part of another one
        if cascade_id is None or each.cascade == cascade_id
    ]
    if not found:
        wanted = f" with cascade id '{cascade_id}'" if cascade_id else ""
        raise NamespaceNotFoundError(f"namespace '{object_id}' is not dropped{wanted}")
    return max(found)[2]


def _refuse_taken(context: Context, snapshot: Snapshot, parts: Sequence[Entry]) -> None:
    ids = sorted(each.original_id for each in parts)
    rows = snapshot.get(ids)
    for each in ids:
        message = f"'{each}': rename or drop it first; nothing was undropped"
        if each in rows and rows[each].object_type != ObjectType.TABLE:
            raise NamespaceAlreadyExistsError(message)
        if each in rows or _is_directory_table(context, tuple(each.split(DELIMITER))):
            raise TableAlreadyExistsError(f"table id {message}")
