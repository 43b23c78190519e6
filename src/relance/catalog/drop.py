"""Drop a table so that it can be undropped, and undrop it. Deleting its files is in purge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from relance.catalog.arbiter import (
    ATTEMPTS,
    HomeState,
    Lease,
    NameTakenError,
    SwapLostError,
    after_effect,
    begin_lease,
    busy,
    control_of,
    delete_mark,
    end_row_create,
    home_row,
    is_same,
    move_row,
    other_owner,
    put_mark,
    refuse_purging,
    row_claim,
    same_row,
    settle,
    swap_file,
    swap_row,
    sync,
    too_busy,
)
from relance.catalog.context import Context
from relance.catalog.copying import show_copy
from relance.catalog.layout import (
    Bodies,
    NameSnapshot,
    inspect_name,
    newest_manifest,
    read_control,
    read_mark,
)
from relance.catalog.manifest.row import DROPPED_PREFIX, Row, user_properties
from relance.catalog.manifest.store import Change, Snapshot, transact
from relance.catalog.resolve import (
    Exists,
    Generation,
    NameState,
    NotFound,
    free_name,
    home_counts,
    not_found,
    refuse_protected,
    require_directory,
    require_row,
    state_of_name,
    taken,
)
from relance.catalog.states import (
    Control,
    Mark,
    Marked,
    Situation,
    State,
    after_of,
    cleared,
    control_text,
    counts,
    deleted,
    fence_of,
    is_deleted,
    new_nonce,
    plain,
    state_of,
    undid,
)
from relance.clock import to_millis
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from relance.identifiers import DELIMITER, TableId, shown_id
from relance.lance_io import TableHead
from relance.locations import MARKER_SUFFIX
from relance.storage.ballast import emptying
from relance.storage.probe import require_create_only, require_replace
from relance.storage.protocol import Version
from relance.units import parse_duration

TTL_CONFIG = "relance.drop_ttl"
"""Key in a table's Lance config that says how long a drop of it can be undone."""

TTL_PROPERTY = "drop_ttl"
"""Property of a table or of a namespace that says the same. The nearest one counts."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A drop that was made."""

    directory: str
    properties: dict[str, str]
    deletion_id: str
    deleted_at: datetime
    ttl: timedelta

    @property
    def response(self) -> dict[str, str]:
        """The properties of the response: the table's own, and what the drop did."""
        return {**self.properties, **drop_properties(self.deletion_id, self.deleted_at, self.ttl)}


def drop_properties(deletion_id: str, deleted_at: datetime, ttl: timedelta) -> dict[str, str]:
    """Return what a response says of a drop.

    Raises:
        InvalidInputError: the TTL leads to a time that no clock can show.
    """
    try:
        due = deleted_at + ttl
    except OverflowError:
        raise InvalidInputError(f"TTL {ttl} is out of range") from None
    return {
        "deleted_at_ms": str(to_millis(deleted_at)),
        "purge_after_ms": str(to_millis(due)),
        "deletion_id": deletion_id,
    }


@emptying()
def drop(context: Context, table_id: TableId, ttl: timedelta | None) -> Dropped:
    """Hide the table; its files stay until a purge.

    Raises:
        TableNotFoundError: there is no such table, or it is dropped already.
        InvalidTableStateError: it is protected.
        InvalidInputError: a TTL is not a duration.
    """
    snapshot = context.latest(writing=True)
    if snapshot is not None and not home_counts(context, snapshot, table_id):
        return _drop_row(context, table_id, ttl)
    return drop_home(context, table_id.name, ttl, snapshot)


# In the home directory.


def drop_home(
    context: Context, name: str, ttl: timedelta | None, snapshot: Snapshot | None = None
) -> Dropped:
    """Drop the table in the home directory of a name: the marker first, then the arbiter, then the row."""
    for _ in range(ATTEMPTS):
        snapshot = context.latest(writing=True) if snapshot is None else snapshot
        dropped = _drop_home_once(context, name, ttl, snapshot)
        if dropped is not None:
            return dropped
        snapshot = None
    raise too_busy(name)


def _drop_home_once(
    context: Context, name: str, ttl: timedelta | None, snapshot: Snapshot | None
) -> Dropped | None:
    """Do it once; None means that another client came first, and nothing was changed."""
    row = home_row(snapshot, name)
    refuse_protected(row)
    try:
        head = context.tables.head(f"{name}.lance")
    except ConcurrentModificationError:
        return None  # it vanished while it was read: see what became of it
    except InternalError:
        head = _unreadable_head(context, f"{name}.lance")
    lease = begin_lease(context)
    marked = read_control(context, name)
    if head is None or state_of(marked) not in {None, State.CLEARED, State.WRITING}:
        home = inspect_name(context, name, bodies=Bodies.ALL)
        if not home.is_live:
            raise not_found(context, NameState(TableId((), name), snapshot, None, home, ()))
        if not settle(context, home):
            return None
        marked = home.marked
    require_create_only(context.storage, to_do="dropping a table")
    if marked is not None:
        require_replace(context.storage, to_do="dropping a table again")
    retention = ttl if ttl is not None else ttl_at_home(context, row, head)
    deleted_at, deletion_id = context.clock.now(), new_nonce()
    drop_properties(deletion_id, deleted_at, retention)  # an impossible expiry is refused before any write
    mark = Mark(deleted_at, retention, deletion_id, undid(marked))
    try:
        put_mark(context, name, mark, over=None)
    except KeyExistsError:
        late = _late_mark(context, name, snapshot, marked, mark)
        if late is None:
            return None
        try:
            put_mark(context, name, mark, over=late)
        except (KeyChangedError, KeyNotFoundError) as cause:
            raise _in_doubt(name) from cause
    version = head.version if head is not None else 0
    state = HomeState(visible=False, hidden=True, deletion_id=deletion_id)
    # Only a table without a row gets those that Lance has.
    own = user_properties(head.properties) if head is not None and row is None else None
    with after_effect(name, "was dropped"):
        swap_deleted(context, name, marked, mark, version, lease)
        properties = sync(context, name, snapshot, state, properties=own)
    return Dropped(f"{name}.lance", properties, deletion_id, deleted_at, retention)


def _unreadable_head(context: Context, directory: str) -> TableHead | None:
    """Return what is known of a table that Lance cannot read, which can be dropped all the same."""
    newest = newest_manifest(context.storage, directory)
    return None if newest is None else TableHead(newest.version, {})


def _late_mark(
    context: Context, name: str, snapshot: Snapshot | None, marked: Marked | None, ours: Mark
) -> Version | None:
    """Return the version of a late marker, which a drop replaces; None to look again.

    The marker that was in the way may have been our own, from a request that was sent twice. Only while
    nobody ended a drop since is it certain that it was not.

    Raises:
        TableNotFoundError: it is no late one: the table is dropped.
        OutcomeUnknownError: another client may have undone this drop already.
    """
    home = inspect_name(context, name, bodies=Bodies.ALL)
    mark = home.mark
    if mark is None and home.marker is not None:
        mark = read_mark(context, name, home.marker)  # the look did not need its body
    if mark is None or mark.id == ours.id or not _is_first_since(mark, home.marked, marked):
        raise _in_doubt(name)
    if not home.is_live:
        raise not_found(context, NameState(TableId((), name), snapshot, None, home, ()))
    if not is_same(home.marked, marked):
        return None
    try:
        return context.storage.read(name + MARKER_SUFFIX).version
    except KeyNotFoundError as cause:
        raise _in_doubt(name) from cause


def _is_first_since(mark: Mark, now: Marked | None, then: Marked | None) -> bool:
    """Tell whether no drop ended between two looks at the arbiter, the later of which goes with a marker."""
    now = plain(now)
    if now is None or not is_deleted(now):
        return undid(now) == undid(then)
    if mark.is_foreign:
        return now.state is State.DELETED and after_of(now) == after_of(then)
    # The marker names the deletion that had ended last when its drop began.
    return mark.id == now.control.id and mark.after == undid(then)


def _in_doubt(name: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"table id '{name}' was dropped or undropped by another client at the same time; check its status"
    )


def swap_deleted(
    context: Context,
    name: str,
    marked: Marked | None,
    mark: Mark,
    version: int,
    lease: Lease,
) -> Marked | None:
    """Have the arbiter say what the marker says, within the lease that began before the marker was put.

    Returns the new arbiter; None when another client put it there for us.

    Raises:
        ConcurrentModificationError: another client changed the name meanwhile.
    """
    deletion_id = mark.id or ""
    for _ in range(ATTEMPTS):
        if not lease.has_ended:
            control = deleted(
                marked, deletion_id=deletion_id, version=version, ttl=mark.ttl, timing=context.timing
            )
            with suppress(SwapLostError):
                return swap_file(context, name, replace(control, to=mark.to, at=mark.at), over=marked)
        lease = begin_lease(context)
        home = inspect_name(context, name, bodies=Bodies.ALL)
        marked = home.marked
        state = state_of(marked)
        if (
            marked is not None
            and state in {State.DELETED, State.PURGING}
            and marked.control.id == deletion_id
        ):
            return None  # another client finished it for us
        ours = home.mark is not None and home.mark.id == deletion_id
        if (
            state in {State.DELETED, State.REVIVING, State.PURGING}
            or not ours
            or not counts(marked, home.mark)
        ):
            break
    raise ConcurrentModificationError(f"table id '{name}' was changed by another client while it was dropped")


def ttl_at_home(context: Context, row: Row | None, head: TableHead | None) -> timedelta:
    if row is not None and TTL_PROPERTY in row.properties:
        return parse_duration(
            row.properties[TTL_PROPERTY], what=f"property {TTL_PROPERTY!r} of '{shown_id(row.object_id)}'"
        )
    text = head.config.get(TTL_CONFIG) if head else None
    return (
        context.timing.drop_ttl if text is None else parse_duration(text, what=f"table config {TTL_CONFIG!r}")
    )


def _undrop_home(
    context: Context, table_id: TableId, snapshot: Snapshot | None, home: NameSnapshot, lease: Lease
) -> Exists | NotFound | None:
    """Undo the drop of a table in its home directory: the marker first, then the arbiter, then the row.

    The lease began before the look at the manifest and the one at the home directory after it. None means
    that another client came first, and nothing was changed.
    """
    name = table_id.name
    context.require_writable(snapshot)
    if (owner := other_owner(snapshot, name)) is not None:
        raise taken(table_id, owner)
    marked = home.marked
    if state_of(marked) is State.REVIVING:
        settle(context, home)
        return None
    if home.is_live:
        raise TableAlreadyExistsError(f"table id '{table_id}' is not dropped")
    refuse_purging(context, home)
    if home.situation is not Situation.DROPPED or not home.is_dropped:
        raise not_found(context, NameState(table_id, snapshot, None, home, ()))
    require_replace(context.storage, to_do="undropping")
    deletion_id = _deletion_of(home)
    delete_mark(context, name, lease)
    control = cleared(undid=deletion_id, fence=fence_of(marked, context.timing))
    with after_effect(name, "was undropped"):
        # If the swap is lost, a body that names our deletion may come from a create: both must not report
        # success.
        swap_file(context, name, control, over=marked)
        publish(context, name, snapshot, HomeState(visible=not home.deregistered, hidden=False))
    parts = tuple(table_id.parts)
    return NotFound(parts) if home.deregistered else Exists(parts)


def publish(
    context: Context,
    name: str,
    snapshot: Snapshot | None,
    state: HomeState,
    properties: dict[str, str] | None = None,
) -> dict[str, str]:
    """Have the manifest show a table in its home directory, and return its properties.

    Raises:
        NameTakenError: another object got the name meanwhile; the table was dropped again.
    """
    try:
        return sync(context, name, snapshot, state, properties=properties)
    except NameTakenError:
        with suppress(RelanceError):  # another client did so
            drop_home(context, name, None)
        raise


def _deletion_of(home: NameSnapshot) -> str:
    if home.marked is not None and home.marked.state is State.DELETED:
        return home.marked.control.id
    return (home.mark.id if home.mark is not None else None) or new_nonce()


# By a row.


def _drop_row(context: Context, table_id: TableId, ttl: timedelta | None) -> Dropped:
    manifest = context.require_manifest(to_do="dropping a table")
    deletion_id = new_nonce()

    def plan(snapshot: Snapshot) -> tuple[Change, Dropped]:
        # All that is asked for below, in one query: a snapshot keeps what it found.
        snapshot.get([table_id.object_id, *_ids_above(table_id.parts), DROPPED_PREFIX + deletion_id])
        row = require_row(context, snapshot, table_id)
        refuse_protected(row)
        directory = require_directory(row)
        retention = ttl if ttl is not None else ttl_of(context, snapshot, row)
        # Refused before the store is asked for its time, which may write a file.
        drop_properties(deletion_id, context.clock.now(), retention)
        deleted_at = context.store_now()
        control = row_deletion(deletion_id, deleted_at, retention)
        dropped = Dropped(directory, row.properties, deletion_id, deleted_at, retention)
        return move_row(snapshot, row, row.dropped(deletion_id, control_text(control))), dropped

    return transact(manifest, plan)


def row_deletion(deletion_id: str, deleted_at: datetime, ttl: timedelta) -> Control:
    """Return what the row of a dropped object says; the time is the store's."""
    return Control(
        State.DELETED, new_nonce(), id=deletion_id, ttl=ttl, deleted_at=deleted_at, by_store_clock=True
    )


def ttl_of(context: Context, snapshot: Snapshot, row: Row) -> timedelta:
    """Return the TTL that the table, or the nearest of its namespaces, or the catalog asks for.

    Raises:
        InvalidInputError: it is not a duration.
    """
    ids = _ids_above(row.parts)
    above = snapshot.get(ids) if ids else {}
    for holder in (row, *(above[object_id] for object_id in ids if object_id in above)):
        text = holder.properties.get(TTL_PROPERTY)
        if text is not None:
            return parse_duration(text, what=f"property {TTL_PROPERTY!r} of '{shown_id(holder.object_id)}'")
    return context.timing.drop_ttl


def _ids_above(parts: Sequence[str]) -> list[str]:
    """Return the ids of the namespaces that something is in, the nearest first."""
    return [DELIMITER.join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def _undrop_row(context: Context, row: Row, target: TableId) -> None:
    control = control_of(row)
    table_id = TableId(row.original_parts[:-1], row.original_parts[-1])
    if control is not None and control.state is State.PURGING:
        raise busy(context, row.original_id, row_claim(control))
    if control is None or control.state is not State.DELETED:
        raise not_found(context, NameState(table_id, context.latest(), row, None, ()))
    directory = require_directory(row)
    if not context.storage.which_exist([f"{directory}/"]):
        assert context.manifest is not None  # the row came from it
        same_row(context.manifest.latest(), row)  # gone by a purge that has begun since?
        raise InvalidTableStateError(
            f"cannot undrop table id '{row.original_id}': its files are missing from '{directory}'"
        )

    def plan(snapshot: Snapshot, found: Row) -> Change:
        return show_row(context, snapshot, found, found.restored(target.object_id))

    swap_row(context, row, plan)


def show_row(context: Context, snapshot: Snapshot, old: Row, new: Row) -> Change:
    """Return what replaces a row by a visible one, whose id nothing visible has.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
        InvalidTableStateError: it would be a home row, of which its directory's files decide.
    """
    change = free_name(context, snapshot, new).plus(move_row(snapshot, old, new))
    if new.is_home and not old.is_home:
        raise InvalidTableStateError(
            f"table id '{old.original_id}' is at '{new.location}', the home of '{new.original_id}', where "
            f"another client dropped or deregistered '{new.original_id}': deregister '{old.original_id}' and "
            f"register '{new.original_id}' instead"
        )
    return change


@emptying()
def undrop(
    context: Context, table_id: TableId, *, deletion_id: str | None = None, target: TableId | None = None
) -> Exists | NotFound:
    """Show the newest dropped generation again, or the one that is named, under its old id or another.

    Raises:
        TableNotFoundError: there is no dropped table of this name.
        TableAlreadyExistsError: the name is taken, or the table is not dropped.
        InvalidTableStateError: its files are gone, or the new id's home is where it is.
        ConcurrentModificationError: another client changed it meanwhile, or a purge has claimed it.
    """
    new_id = target or table_id
    if context.manifest is None and new_id != table_id:
        raise UnsupportedOperationError("undropping under another name requires manifest_enabled=true")
    for _ in range(ATTEMPTS):
        lease = begin_lease(context)
        if context.manifest is None and deletion_id is None:
            home = inspect_name(context, table_id.name, bodies=Bodies.HIDDEN)
            shown = _undrop_home(context, table_id, None, home, lease)
        else:
            shown = _undrop_once(context, table_id, deletion_id, new_id, lease)
        if shown is not None:
            return shown
    raise too_busy(table_id)


def _undrop_once(
    context: Context, table_id: TableId, deletion_id: str | None, target: TableId, lease: Lease
) -> Exists | NotFound | None:
    state = state_of_name(context, table_id)
    if state.row is not None and state.row.is_reviving:
        with suppress(SwapLostError):
            end_row_create(context, state.row)
        return None
    generation = chosen_generation(context, state, deletion_id)
    if generation.row is not None:
        _undrop_row(context, generation.row, target)
        return Exists(tuple(target.parts))
    home = generation.home
    assert home is not None  # it has no row of its own
    if target == table_id:
        return _undrop_home(context, table_id, state.snapshot, home, lease)
    if state_of(home.marked) is State.REVIVING:
        settle(context, home)
        return None
    refuse_purging(context, home)
    if home.situation is not Situation.DROPPED:
        raise not_found(context, NameState(table_id, state.snapshot, None, home, ()))
    try:
        show_copy(context, generation, target)
    except SwapLostError:
        return None
    return Exists(tuple(target.parts))


def chosen_generation(context: Context, state: NameState, deletion_id: str | None) -> Generation:
    """Return the newest dropped generation of a name, or the one that is asked for.

    One that a purge has claimed is passed over, unless there is no other.

    Raises:
        TableNotFoundError: there is none.
        TableAlreadyExistsError: the table is not dropped.
    """
    chosen = drops_of(state, deletion_id)
    left = [each for each in chosen if each.control.state is not State.PURGING]
    if left:
        return left[-1]
    if state.visible and (deletion_id is None or not state.dropped):
        raise TableAlreadyExistsError(f"table id '{state.table_id}' is not dropped")
    if chosen:
        return chosen[-1]
    raise not_found(context, state)


def drops_of(state: NameState, deletion_id: str | None) -> list[Generation]:
    """Return the dropped generations of a name, or only the one that is asked for.

    Raises:
        TableNotFoundError: others are dropped, but not that one.
    """
    chosen = [each for each in state.dropped if deletion_id in {None, each.deletion_id}]
    if state.dropped and not chosen:
        raise TableNotFoundError(f"table id '{state.table_id}' has no drop with deletion id '{deletion_id}'")
    return chosen
