"""Give a table another name, within its namespace or in another.

A table in its home directory is copied into a fresh directory, and the old name becomes an ordinary drop.
Any other table keeps its directory: one commit of the manifest renames it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from relance.catalog.arbiter import (
    ATTEMPTS,
    HomeState,
    SwapLostError,
    begin_lease,
    delete_mark,
    home_row,
    home_rows,
    is_same,
    move_row,
    put_mark,
    settle,
    swap_file,
    sync,
    tidy,
    too_busy,
)
from relance.catalog.context import Context
from relance.catalog.copying import CopyProgress, copy_directory, remove_copy
from relance.catalog.drop import drop_properties, show_row, swap_deleted, ttl_at_home, undrop
from relance.catalog.layout import Bodies, NameSnapshot, inspect_name, read_control
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, ManifestConflictError, Snapshot, transact
from relance.catalog.resolve import (
    NameState,
    free_name,
    home_counts,
    new_directory,
    not_found,
    refuse_protected,
    require_directory,
    require_row,
)
from relance.catalog.states import Mark, Marked, cleared, new_nonce, undid
from relance.errors import (
    ConcurrentModificationError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.identifiers import TableId
from relance.locations import table_directory
from relance.storage.probe import require_create_only, require_replace


def rename(
    context: Context,
    table_id: TableId,
    target: TableId,
    progress: Callable[[CopyProgress], None] | None = None,
) -> None:
    """Show the table under another id.

    Raises:
        TableNotFoundError: there is no such table.
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: the new namespace does not exist.
        InvalidTableStateError: it is protected, or the new name's home is where it is registered.
        UnsupportedOperationError: the catalog has no manifest; there the directory is the name.
    """
    context.require_manifest(to_do="renaming a table")
    snapshot = context.latest(writing=True)
    if not home_counts(context, snapshot, table_id):
        _rename_row(context, table_id, target)
        return
    for _ in range(ATTEMPTS):
        if _rename_home(context, table_id, target, progress):
            return
    raise too_busy(table_id)


def _rename_row(context: Context, table_id: TableId, target: TableId) -> None:
    manifest = context.require_manifest(to_do="renaming a table")

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        row = require_row(context, snapshot, table_id)
        require_directory(row)
        return show_row(context, snapshot, row, row.renamed(target.object_id)), None

    transact(manifest, plan)


def _rename_home(
    context: Context,
    table_id: TableId,
    target: TableId,
    progress: Callable[[CopyProgress], None] | None,
) -> bool:
    """Copy the table, drop the old name and show the copy; False means: look again, nothing was changed."""
    snapshot, name = context.latest(writing=True), table_id.name
    assert snapshot is not None  # the caller looked
    old = home_row(snapshot, name)
    refuse_protected(old)
    home = inspect_name(context, name, bodies=Bodies.ALL, versions=True)
    marked = home.marked
    if not home.is_visible:
        raise not_found(context, NameState(table_id, snapshot, None, home, ()))
    if not settle(context, home):
        return False
    if home.marker is not None:
        tidy(context, home)
        return False
    require_create_only(context.storage, to_do="renaming a table")
    if marked is not None:
        require_replace(context.storage, to_do="renaming a table")
    directory = new_directory(target)
    source = old or Row(name, ObjectType.TABLE, home.directory)
    row = replace(source.restored(target.object_id), location=directory)
    free_name(context, snapshot, row)  # refuses before anything is written
    retention = ttl_at_home(context, old, context.tables.head(home.directory))
    copied: set[str] = set()
    try:
        copy_directory(context, home.directory, directory, copied=copied, progress=progress)
        deleted = _hide(context, home, target, directory, retention)
    except BaseException:
        remove_copy(context, directory)
        raise
    if deleted is None:
        remove_copy(context, directory)
        return False
    try:
        while copy_directory(context, home.directory, directory, copied=copied):
            # A version landed between the copy and the drop, or a create over the drop wrote one.
            if not is_same(read_control(context, name), deleted):
                raise _undone(name)
        _show(context, name, row, deleted, snapshot)
    except OutcomeUnknownError:
        raise  # the row may be there: an undrop or a purge run decides
    except BaseException as failure:
        with _undoing(name, failure):
            happened = decide(context, name, deleted)
        if not happened:
            remove_copy(context, directory)
        raise
    plain = replace(deleted.control, nonce=new_nonce(), to="", at="")
    with suppress(RelanceError):  # a purge run does it otherwise
        swap_file(context, name, plain, over=deleted)
    return True


def _hide(
    context: Context, home: NameSnapshot, target: TableId, directory: str, retention: timedelta
) -> Marked | None:
    """Drop the old name, with a note where its table went; None means that another client came first."""
    name, marked, lease = home.name, home.marked, begin_lease(context)
    if not is_same(read_control(context, name), marked):
        return None
    deletion_id, deleted_at = new_nonce(), context.clock.now()
    drop_properties(deletion_id, deleted_at, retention)
    mark = Mark(deleted_at, retention, deletion_id, undid(marked), to=target.object_id, at=directory)
    try:
        put_mark(context, name, mark, over=None)
    except KeyExistsError:
        return None
    try:
        deleted = swap_deleted(context, name, marked, mark, home.version, lease)
        if deleted is None:
            raise ConcurrentModificationError(f"table id '{name}' was dropped while it was renamed")
    except BaseException as failure:
        with _undoing(name, failure):
            undrop(context, TableId((), name), deletion_id=deletion_id)
        raise
    return deleted


@contextmanager
def _undoing(name: str, failure: BaseException) -> Iterator[None]:
    """Undo the drop of a rename that failed.

    Raises:
        OutcomeUnknownError: that failed, too; the table stays dropped.
    """
    try:
        yield
    except RelanceError as cause:
        raise OutcomeUnknownError(
            f"table id '{name}' could not be renamed ({failure}) and may be dropped now ({cause.detail}); "
            "check its status, undrop it if need be, then retry"
        ) from failure


def _show(context: Context, name: str, row: Row, deleted: Marked, first: Snapshot) -> None:
    """Move the old name's row out of sight and add the new one, in one commit.

    Raises:
        TableAlreadyExistsError: another object got the new name.
        ConcurrentModificationError: the drop of the old name was undone.
    """
    manifest, deletion_id = context.require_manifest(to_do="renaming a table"), deleted.control.id

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        # The first one is older than our drop: the sync of an undrop refuses a commit on it.
        if snapshot is not first and not is_same(read_control(context, name), deleted):
            raise _undone(name)
        change = replace(free_name(context, snapshot, row), always=True)
        old_rows = home_rows(snapshot, name)
        for old in old_rows:
            if not old.is_dropped:
                # The versions that rows keep belong to the copy.
                dropped = Change(added=(old.dropped(deletion_id, None),))
                change = change.plus(move_row(snapshot, old, row), dropped)
        if not old_rows:
            new = Row(name, ObjectType.TABLE, table_directory(name))
            change = change.plus(Change(added=(new.dropped(deletion_id, None),)))
        return change, None

    try:
        manifest.commit(first, plan(first)[0])
    except ManifestConflictError:
        manifest.back_off(0)
        transact(manifest, plan)


def _undone(name: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{name}' was undropped or created again by another client while it was renamed; retry"
    )


def take_back(context: Context, name: str, deleted: Marked) -> None:
    """Undo the drop of a rename that did not happen: the marker first, then the arbiter, then the row.

    Raises:
        RelanceError: another client was faster.
    """
    lease, snapshot = begin_lease(context), context.latest()
    if not is_same(read_control(context, name), deleted):
        raise SwapLostError(f"table id '{name}' was changed by another client")
    delete_mark(context, name, lease)
    control = deleted.control
    swap_file(context, name, cleared(undid=control.id, fence=control.fence), over=deleted)
    sync(context, name, snapshot, HomeState(visible=True, hidden=False))


def decide(context: Context, name: str, marked: Marked) -> bool:
    """End a rename that was stopped: its drop becomes plain if the copy has a row, else it is undone.

    Returns whether the rename happened.

    Raises:
        RelanceError: another client was faster.
    """
    manifest = context.require_manifest(to_do="ending a rename")
    # First a body of our own, with the same time: a rename that is only slow must not plan its commit again.
    control = replace(marked.control, nonce=new_nonce(), since=marked.time)
    claim = swap_file(context, name, control, over=marked)

    def plan(snapshot: Snapshot) -> tuple[Change, bool]:
        happened = bool(snapshot.sharing([control.at]))
        # The empty commit refuses the one of the rename, which was planned on an older snapshot.
        return Change(always=not happened), happened

    if transact(manifest, plan):
        # The old name was dropped when the rename said so, not now.
        swap_file(context, name, replace(control, nonce=new_nonce(), to="", at=""), over=claim)
        return True
    take_back(context, name, claim)
    return False
