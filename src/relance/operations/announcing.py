"""Moves the marker of a root table where a manifest has the names, in three steps that anyone can finish.

The row says what the marker is to become; then the marker becomes it, if it is still what it was; then
the row says what came of it. So between clients with a manifest the first step decides who is next, and
what was read of rows and marker holds until one's own commit. A client without a manifest moves the
marker alone: then the second step fails and the row follows that client.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from relance.errors import ConcurrentModificationError
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, new_nonce, read_marker
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.manifest.entry import Announcement, Entry
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.claims import swap
from relance.operations.directory.moving import move_away
from relance.operations.directory.registration import deregister
from relance.operations.in_step import new_home_row, wanted_change
from relance.operations.pending import PendingChangeError, announced_row, dropped_at_home, refuse_pending
from relance.operations.rows.lookups import move, refuse_protected, require_writable, taken
from relance.operations.rows.rename import end_move

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ATTEMPTS = 8
"""How often an operation starts again because another one came first."""


def announced_swap(context: Context, name: str, marker: Marker, *, over: StoredMarker | None) -> StoredMarker:
    """Swap the marker, with the row in step.

    Raises:
        ConcurrentModificationError: another client moved it first.
        TableAlreadyExistsError: the table was to be shown, and another one has its name.
        InvalidTableStateError: the table was to be hidden, and is protected.
    """
    manifest = context.manifest
    if manifest is None:
        return swap(context, name, marker, over=over)
    announcement = Announcement(marker, _nonce(over))

    def plan(snapshot: Snapshot) -> tuple[Change, Entry]:
        row, change = _announce(context, snapshot, name, announcement)
        return change, row

    try:
        row = transact(manifest, plan)
    except PendingChangeError:
        finish(context, TableId((), name))
        raise
    return _do(context, manifest, name, row, over)


def _announce(
    context: Context, snapshot: Snapshot, name: str, announcement: Announcement
) -> tuple[Entry, Change]:
    """Return the row that tells, and what puts it there."""
    refuse_pending(snapshot, name)
    live, marker = snapshot.get([name]).get(name), announcement.marker
    gone = dropped_at_home(snapshot, name)
    if marker.state is State.MOVED:  # only a dropped table is left to its row this way
        if not gone:
            raise ConcurrentModificationError(f"table id '{name}' was changed by another client")
        row = gone[-1].announcing(announcement)
        return row, move(snapshot, gone[-1], row)
    if live is not None and live.has_own_directory:
        if marker.state in {State.DELETED, State.DEREGISTERED}:
            refuse_protected(live)
        row = live.announcing(announcement)
        return row, move(snapshot, live, row)
    if live is not None:
        raise taken(TableId((), name), live)
    if gone:
        row = gone[-1].restored(name).announcing(announcement)
        return row, move(snapshot, gone[-1], row)
    if _nonce(read_marker(context.storage, name)) != announcement.over:
        # It had a row, under which it was moved since: another one must not lead to the same directory.
        raise ConcurrentModificationError(f"table id '{name}' was changed by another client")
    row = new_home_row(name).announcing(announcement)
    return row, Change(added=(row,))


def _do(
    context: Context, manifest: Manifest, name: str, row: Entry, over: StoredMarker | None
) -> StoredMarker:
    """Do what one's own row announces.

    Raises:
        ConcurrentModificationError: another client moved the marker first, or called it off.
    """
    announced = row.announced
    assert announced is not None  # the caller put it there
    stored = _move(context, name, announced, over)
    has_name = _settle(context, manifest, name, row)
    if stored is None or not _is_done(announced.marker, stored.marker):
        raise ConcurrentModificationError(f"table id '{name}' was changed by another client")
    if announced.marker.state is State.REVIVING and not has_name:
        with suppress(ConcurrentModificationError):  # taken over: it is no longer ours to give back
            swap(context, name, moves.recover(announced.marker, new_nonce()), over=stored)
        raise PendingChangeError(name)
    return StoredMarker(announced.marker, stored.version)


def _move(
    context: Context, name: str, announced: Announcement, over: StoredMarker | None
) -> StoredMarker | None:
    """Move the marker from what it was, unless somebody did, and return what is there then."""
    try:
        return swap(context, name, announced.marker, over=over)
    except ConcurrentModificationError:
        return read_marker(context.storage, name)


def _is_done(marker: Marker, found: Marker) -> bool:
    """Tell from the marker that is there now whether it was this one before."""
    if found.nonce == marker.nonce:
        return True
    if marker.state is State.REVIVING:
        return False  # a claim that is not there any more is lost
    if marker.deletion_id:
        return marker.deletion_id in {found.deletion_id, found.undid}
    return found.state is State.DELETED and bool(marker.undid) and found.undid == marker.undid


def _settle(context: Context, manifest: Manifest, name: str, row: Entry) -> bool:
    """Let the row say what came of what it announced, and tell whether the table has its name then."""
    announced = row.announced
    assert announced is not None  # the caller looked

    def plan(snapshot: Snapshot) -> tuple[Change, bool]:
        live = snapshot.get([name]).get(name)
        found = snapshot.get([row.object_id]).get(row.object_id)
        if found is None or found.announced != announced:
            return Change(), live is not None and live.has_own_directory  # another client did
        facts = look_up(context.storage, name)
        if _nonce(facts.marker) == announced.over and announced.marker.state is not State.REVIVING:
            raise ConcurrentModificationError(f"too many concurrent changes to table id '{name}'; retry")
        change = wanted_change(snapshot, facts)
        if found.object_id not in change.removed:
            left = found.settled()
            kept = left.by_row() if facts.state is State.MOVED else left
            change = Change((*change.removed, found.object_id), (*change.added, kept))
        has_name = any(each.object_id == name and each.has_own_directory for each in change.added)
        return change, has_name

    return transact(manifest, plan)


def _nonce(stored: StoredMarker | None) -> str:
    return "" if stored is None else stored.marker.nonce


def finish(context: Context, table_id: TableId) -> None:
    """Finish what another client began with a root table, and left so.

    Raises:
        ConcurrentModificationError: another client holds the marker.
        UnsupportedOperationError: a newer client's features are in use.
    """
    manifest = context.manifest
    if manifest is None or table_id.namespace:
        return
    name, snapshot = table_id.name, require_writable(manifest)
    live = snapshot.get([name]).get(name)
    if live is not None and live.moved_to is not None:
        _finish_rename(context, manifest, table_id, live.moved_to)
    row = announced_row(snapshot, name)
    if row is None or manifest.wait_until(lambda: _is_over(manifest, name, row)):
        return
    assert row.announced is not None  # it was chosen by that
    over = read_marker(context.storage, name)
    if row.announced.marker.state is not State.REVIVING and _nonce(over) == row.announced.over:
        _move(context, name, row.announced, over)
    # A create cannot be done for another client: it is called off, unless its marker is there already.
    _settle(context, manifest, name, row)


def _finish_rename(context: Context, manifest: Manifest, table_id: TableId, moved_to: str) -> None:
    """Hide the old name of a table that was moved to another id, or to none: only its row says so yet."""
    if moved_to:
        move_away(context, table_id.name)
    else:
        facts = look_up(context.storage, table_id.name)
        if facts.is_visible:
            deregister(context, table_id, facts)
    end_move(manifest, table_id)


def _is_over(manifest: Manifest, name: str, row: Entry) -> bool:
    now = announced_row(manifest.latest(), name)
    return now is None or now.announced != row.announced


def finishing(operation: Callable[Concatenate[Context, _P], _T]) -> Callable[Concatenate[Context, _P], _T]:
    """Make an operation start again after what stood in its way was finished."""

    @wraps(operation)
    def run(context: Context, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(_ATTEMPTS):
            try:
                return operation(context, *arguments, **options)
            except PendingChangeError as pending:
                finish(context, TableId((), pending.name))
        return operation(context, *arguments, **options)

    return run
