"""Namespaces as rows: create, list, describe, drop with all that is in them, and undrop exactly that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from itertools import islice

from relance.catalog.arbiter import control_of, end_row_create, move_row, row_at
from relance.catalog.context import Context
from relance.catalog.drop import Dropped, drop_properties, row_deletion, ttl_of
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot, rereading, transact
from relance.catalog.resolve import (
    free_home,
    free_name,
    refuse_protected,
    require_namespace,
    require_root_namespace,
)
from relance.catalog.states import State, control_text, new_nonce
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
)
from relance.identifiers import DELIMITER, shown_id
from relance.storage.ballast import emptying

_SHOWN = 5
"""How many names an error shows."""


class NamespaceMode(StrEnum):
    """What to do when the namespace exists."""

    CREATE = "create"
    EXIST_OK = "exist_ok"
    OVERWRITE = "overwrite"


@rereading
def list_namespaces(
    context: Context, namespace: Sequence[str], *, after: str | None, limit: int | None
) -> tuple[list[str], str | None]:
    """Return a page of the names of a namespace's children, and the token of the next one.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    snapshot = context.latest()
    if snapshot is None:
        require_root_namespace(list(namespace))
        return [], None
    require_namespace(snapshot, namespace)
    return page_of(snapshot.names(namespace, ObjectType.NAMESPACE, after=after), limit)


def page_of(names: Iterator[str], limit: int | None) -> tuple[list[str], str | None]:
    """Return the first names and the token of the next page; a negative limit means none."""
    if limit is None or limit < 0:
        return list(names), None
    shown = list(islice(names, min(limit + 1, sys.maxsize)))
    page = shown[:limit]
    return page, page[-1] if page and len(shown) > len(page) else None


@rereading
def namespace_properties(context: Context, namespace: Sequence[str]) -> dict[str, str]:
    """Return the properties of a namespace; the root has none.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    snapshot = context.latest()
    if snapshot is None:
        require_root_namespace(list(namespace))
        return {}
    row = require_namespace(snapshot, namespace)
    return row.properties if row is not None else {}


def create_namespace(
    context: Context, namespace: tuple[str, ...], properties: dict[str, str], mode: NamespaceMode
) -> dict[str, str]:
    """Create the namespace and return its properties; overwriting replaces the properties alone.

    Raises:
        NamespaceAlreadyExistsError: it exists and the mode is create, or a table has its name.
        NamespaceNotFoundError: its parent does not exist.
    """
    manifest, object_id = context.require_manifest(to_do="creating a namespace"), DELIMITER.join(namespace)

    def plan(snapshot: Snapshot) -> tuple[Change, dict[str, str]]:
        require_namespace(snapshot, namespace[:-1])
        old = row_at(snapshot, object_id)
        if old is None or old.is_home:
            row = Row(object_id, ObjectType.NAMESPACE, None, dict(properties))
            try:
                return free_name(context, snapshot, row), properties
            except TableAlreadyExistsError as cause:
                raise NamespaceAlreadyExistsError(
                    f"'{shown_id(object_id)}': the name is taken by a table"
                ) from cause
        if old.object_type != ObjectType.NAMESPACE:
            raise NamespaceAlreadyExistsError(
                f"'{shown_id(object_id)}': the name is taken by a {old.object_type}"
            )
        if mode is NamespaceMode.CREATE:
            raise NamespaceAlreadyExistsError(f"'{shown_id(object_id)}'")
        if mode is NamespaceMode.EXIST_OK or old.properties == properties:
            return Change(), old.properties
        return Change(removed=(object_id,), added=(old.with_properties(properties),)), properties

    return transact(manifest, plan)


@emptying()
def drop_namespace(
    context: Context, namespace: tuple[str, ...], ttl: timedelta | None, *, cascade: bool
) -> Dropped:
    """Hide the namespace, and with `cascade` all that is in it, under one deletion id.

    Raises:
        NamespaceNotFoundError: it does not exist.
        NamespaceNotEmptyError: something is in it, and that is not to go too.
        InvalidTableStateError: it, or something in it, is protected.
        ConcurrentModificationError: a table in it is being created.
    """
    manifest = context.require_manifest(to_do="dropping a namespace")
    object_id, cascade_id = DELIMITER.join(namespace), new_nonce()

    def plan(snapshot: Snapshot) -> tuple[Change, Dropped]:
        row = require_namespace(snapshot, namespace)
        assert row is not None  # the root cannot be dropped
        inside = _objects_in(snapshot, object_id)
        if inside and not cascade:
            raise NamespaceNotEmptyError(
                f"'{shown_id(object_id)}' (contains {len(inside)} child objects: {_some(inside)})"
            )
        _refuse_busy(inside)
        for held in (row, *inside):
            refuse_protected(held)
        retention = ttl if ttl is not None else ttl_of(context, snapshot, row)
        # Refused before the store is asked for its time, which may write a file.
        drop_properties(cascade_id, context.clock.now(), retention)
        now = context.store_now()
        dropped = Dropped("", {}, cascade_id, now, retention)
        known = {part.object_id for part in inside}

        def nothing_came(later: Snapshot) -> None:
            if {part.object_id for part in _objects_in(later, object_id)} != known:
                raise ConcurrentModificationError(f"'{shown_id(object_id)}' was changed by another client")

        changes = []
        for number, part in enumerate((row, *inside)):
            deletion_id = cascade_id if part is row else f"{cascade_id}-{number - 1}"
            control = control_text(row_deletion(deletion_id, now, retention))
            hidden = part.dropped(deletion_id, control, cascade=cascade_id)
            changes.append(move_row(snapshot, part, hidden))
        return Change(checks=nothing_came).plus(*changes), dropped

    try:
        return transact(manifest, plan)
    except (NamespaceNotEmptyError, ConcurrentModificationError):
        # Perhaps only because of a create that does not go on: it is ended then.
        claimed = [row for row in manifest.latest().below(object_id + DELIMITER) if row.is_reviving]
        if not claimed:
            raise
    for row in claimed:
        end_row_create(context, row)
    return transact(manifest, plan)


def _objects_in(snapshot: Snapshot, object_id: str) -> list[Row]:
    """Return what is in a namespace at any depth; the versions of a table belong to the table."""
    below = snapshot.below(object_id + DELIMITER)
    return [row for row in below if row.object_type != ObjectType.VERSION]


def _refuse_busy(inside: Sequence[Row]) -> None:
    for row in inside:
        if not row.is_visible:
            raise ConcurrentModificationError(
                f"'{shown_id(row.object_id)}' is being created by another client; retry"
            )


def _some(rows: Sequence[Row]) -> str:
    names = ", ".join(shown_id(row.object_id) for row in rows[:_SHOWN])
    return names if len(rows) <= _SHOWN else f"{names}, …"


@emptying()
def undrop_namespace(context: Context, namespace: tuple[str, ...], cascade_id: str | None) -> list[Row]:
    """Bring back exactly what one drop of the namespace took, and return it; the newest if none is named.

    Raises:
        NamespaceNotFoundError: there is no such drop, or the parent does not exist.
        NamespaceAlreadyExistsError, TableAlreadyExistsError: a name is taken.
        InvalidTableStateError: a purge has begun on a part of it.
    """
    manifest, object_id = context.require_manifest(to_do="undropping a namespace"), DELIMITER.join(namespace)

    def plan(snapshot: Snapshot) -> tuple[Change, list[Row]]:
        top = _newest_drop(snapshot, object_id, cascade_id)
        parts = [row for row in snapshot.dropped() if row.cascade is not None and row.cascade == top.cascade]
        for part in parts:
            control = control_of(part)
            if control is None or control.state is not State.DELETED:
                raise InvalidTableStateError(
                    f"nothing was undropped: '{part.original_id}', part of the same drop, is being purged"
                )
        require_namespace(snapshot, namespace[:-1])
        _refuse_taken(snapshot, parts)
        freed = Change() if namespace[:-1] else free_home(context, snapshot, namespace[0])
        shown = [part.restored(part.original_id) for part in parts]
        moved = (move_row(snapshot, *rows) for rows in zip(parts, shown, strict=True))
        return freed.plus(*moved), shown

    return transact(manifest, plan)


def _newest_drop(snapshot: Snapshot, object_id: str, cascade_id: str | None) -> Row:
    drops = []
    for row in snapshot.dropped(object_id):
        control = control_of(row) if row.object_type == ObjectType.NAMESPACE else None
        if control is None or control.deleted_at is None:
            continue
        # Dropped by itself, not as part of another one.
        if row.cascade == control.id and cascade_id in {None, row.cascade}:
            drops.append((control.deleted_at, row.object_id, row))
    if not drops:
        wanted = f" with cascade id '{cascade_id}'" if cascade_id else ""
        raise NamespaceNotFoundError(f"namespace '{shown_id(object_id)}' is not dropped{wanted}")
    return max(drops)[2]


def _refuse_taken(snapshot: Snapshot, parts: Sequence[Row]) -> None:
    """Check that no other object has the name of a part; tables in home directories are looked at later."""
    for object_id, row in sorted(snapshot.get([part.original_id for part in parts]).items()):
        message = f"'{shown_id(object_id)}': rename or drop it first; nothing was undropped"
        if row.object_type != ObjectType.TABLE:
            raise NamespaceAlreadyExistsError(message)
        if not row.is_home:
            raise TableAlreadyExistsError(f"table id {message}")
