"""From an id to where its table is, who decides about it, and which of its generations are dropped.

The only module that knows both kinds of place: a root table in its home directory, about which arbiter
and marker decide, and a table in any other directory, about which its row decides.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from relance.catalog.arbiter import (
    ATTEMPTS,
    control_of,
    home_row,
    home_rows,
    home_state,
    move_row,
    other_owner,
    row_at,
    settle,
    too_busy,
    without,
)
from relance.catalog.context import FLAT, Context
from relance.catalog.layout import (
    ONE_TABLE_FAILS,
    Bodies,
    KnownProperties,
    NameSnapshot,
    inspect_name,
    list_manifests,
    list_root,
    newest_manifest,
    sign_deregistered,
)
from relance.catalog.manifest.row import ObjectType, Row, user_properties
from relance.catalog.manifest.store import Change, Manifest, Snapshot, rereading, transact
from relance.catalog.manifest.table import RECENT_SECONDS
from relance.catalog.states import (
    MARGIN,
    Control,
    Situation,
    State,
    is_dropped_again,
    is_purged,
    seconds,
    state_of,
)
from relance.errors import (
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotFoundError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
    for_python,
)
from relance.identifiers import DELIMITER, TableId, format_id, parse_namespace_id, shell_id, shown_id
from relance.locations import (
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
    table_directory,
    table_location,
)
from relance.storage.at_once import map_at_once
from relance.storage.protocol import ObjectStorage

MAX_DIRECTORY_BYTES = 240


@dataclass(frozen=True, slots=True)
class Exists:
    """The table exists and is visible."""

    id: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SoftDeleted:
    """The table was dropped; its files still exist unless a purge has started."""

    id: tuple[str, ...]
    deleted_at: datetime
    """By the store's clock."""
    purge_after: datetime | None
    """When its retention period ends and it can be purged, unless it is written to in the meantime."""
    deletion_id: str
    version: int
    """The latest version when it was dropped; 0 if it had none or it is unknown."""
    state: str
    """`deleted`; `purging` while its files are being deleted; `reviving` while a create replaces it."""
    cascade_id: str | None = None
    """The id of the namespace drop that this table was part of."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """The table does not exist, was purged, or is deregistered."""

    id: tuple[str, ...]


TableStatus = Exists | SoftDeleted | NotFound


@dataclass(frozen=True, slots=True)
class Inside:
    """What lies in the directory of a visible table."""

    has_versions: bool
    reserved: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A visible table."""

    table_id: TableId
    directory: str
    properties: dict[str, str] = field(default_factory=dict)
    home: NameSnapshot | None = None
    """Of a table in its home directory."""
    has_row: bool = True
    """Whether the properties are those of a row; if not, only Lance knows them."""

    def is_only_declared(self, storage: ObjectStorage) -> bool:
        """Tell whether the table has no version yet."""
        return not self.inside(storage).has_versions

    def inside(self, storage: ObjectStorage) -> Inside:
        """Return whether the table has versions and whether it is declared, from one look."""
        if self.home is not None:
            return Inside(self.home.has_versions, self.home.reserved)
        versions, reserved = f"{self.directory}/{VERSIONS_DIRECTORY}/", f"{self.directory}/{RESERVED_FILE}"
        there = storage.which_exist([versions, reserved])
        return Inside(versions in there, reserved in there)


@dataclass(frozen=True, slots=True)
class Generation:
    """One dropped table, in its home directory or wherever its row leads."""

    table_id: TableId
    control: Control
    """Of a drop that no verb has adopted yet: what adopting it would write."""
    dropped_at: datetime | None
    """By the store's clock; None in a row of which only the clock of a client is known."""
    row: Row | None = None
    home: NameSnapshot | None = None

    @property
    def deletion_id(self) -> str:
        return self.control.id

    @property
    def directory(self) -> str:
        """Where its files are.

        Raises:
            TableNotFoundError: its row leads to no place below the root.
        """
        return table_directory(self.table_id.name) if self.row is None else require_directory(self.row)

    @property
    def name(self) -> str:
        return self.table_id.object_id

    def ttl(self, context: Context) -> timedelta:
        ttl = _dropped_control(self.control).ttl
        return context.timing.drop_ttl if ttl is None else ttl

    def status(self, context: Context) -> SoftDeleted:
        """Return the status as users see it."""
        control = _dropped_control(self.control)
        deleted_at = self.dropped_at or control.deleted_at or context.clock.now()
        due = period_end(deleted_at, self.ttl(context))
        return SoftDeleted(
            id=tuple(self.table_id.parts),
            deleted_at=deleted_at,
            purge_after=due,
            deletion_id=control.id or self.control.id,
            version=control.version,
            state=self.control.state.value,
            cascade_id=self.row.cascade if self.row is not None else None,
        )


def period_end(begin: datetime, period: timedelta) -> datetime | None:
    """Return when a period ends; None if no calendar has that day."""
    try:
        return begin + period
    except OverflowError:
        return None


def _dropped_control(control: Control) -> Control:
    """Return the body of the drop that a claim was taken from."""
    return control.before if control.before is not None else control


@dataclass(frozen=True, slots=True)
class NameState:
    """What one look at an id showed."""

    table_id: TableId
    snapshot: Snapshot | None
    """The manifest; older than the look at the home directory."""
    row: Row | None
    """The row at this id, unless that is of the home directory."""
    home: NameSnapshot | None
    """The home directory, if it counts for this id."""
    dropped: tuple[Generation, ...]
    """Oldest first."""
    home_row: Row | None = None

    @property
    def visible(self) -> bool:
        if self.home is not None and self.home.is_visible:
            return True
        return self.row is not None and self.row.object_type == ObjectType.TABLE and self.row.is_visible

    @property
    def abandoned(self) -> Generation | None:
        """The table in the home directory whose purge has begun and may be unfinished."""
        home = self.home
        if home is None or home.marked is None or home.situation is not Situation.PURGING:
            return None
        return Generation(self.table_id, home.marked.control, None, home=home)

    @property
    def properties(self) -> dict[str, str]:
        row = self.row if self.row is not None else self.home_row
        return row.properties if row is not None else {}


def home_counts(context: Context, snapshot: Snapshot | None, table_id: TableId) -> bool:
    """Tell whether the home directory of the id's name is the place of its table."""
    if table_id.namespace:
        return False
    if snapshot is None:
        return True
    if other_owner(snapshot, table_id.name) is not None:
        return False
    return context.dir_listing or bool(home_rows(snapshot, table_id.name))


# Visible tables.


@rereading
def find_table(
    context: Context, table_id: TableId, *, properties: bool = True, versions: bool = False
) -> Found:
    """Return the visible table.

    Raises:
        TableNotFoundError: there is none, or it is hidden.
    """
    manifest = context.manifest
    if manifest is None:
        return find_in(context, None, table_id, versions=versions)
    if not table_id.namespace and context.dir_listing:
        home = inspect_name(context, table_id.name, versions=versions)
        # A few seconds of age do no harm: nobody who looks at both can get the name of a visible table.
        if home.is_visible and other_owner(manifest.recent(), table_id.name) is None:
            own = _home_row(manifest, table_id.name) if properties else None
            return _found_at_home(table_id, home, own)
    return find_in(context, manifest.latest(), table_id, versions=versions)


def _found_at_home(table_id: TableId, home: NameSnapshot, row: Row | None) -> Found:
    properties = row.properties if row is not None else {}
    return Found(table_id, home.directory, properties, home, has_row=row is not None)


def find_in(
    context: Context, snapshot: Snapshot | None, table_id: TableId, *, versions: bool = False
) -> Found:
    """Return the visible table at one version of the manifest, which is older than the look at its home.

    Raises:
        TableNotFoundError: there is none, or it is hidden.
    """
    row = row_at(snapshot, table_id.object_id)
    if home_counts(context, snapshot, table_id):
        home = inspect_name(context, table_id.name, versions=versions)
        if not home.is_visible:
            raise not_found(context, NameState(table_id, snapshot, None, home, ()))
        return _found_at_home(table_id, home, home_row(snapshot, table_id.name))
    if row is None or row.object_type != ObjectType.TABLE or not row.is_visible:
        raise not_found(context, NameState(table_id, snapshot, row, None, ()))
    directory = require_directory(row)
    context.connection.require_folder(directory)
    return Found(table_id, directory, row.properties)


def require_directory(row: Row) -> str:
    """Return the directory that a row leads to.

    Raises:
        TableNotFoundError: its location is not below the root.
    """
    try:
        return table_location(row.location or "")
    except InvalidInputError as cause:
        raise for_python(
            TableNotFoundError(
                f"table id '{shown_id(row.original_id)}' has no valid location in the manifest "
                f"({cause.detail})",
                hint="list repair options: relance scrub",
            ),
            "; run scrub() for repair options",
        ) from cause


def _home_row(manifest: Manifest, name: str) -> Row | None:
    """Return the row of a table in its home directory, as it was a few seconds ago at most."""
    row = row_at(manifest.recent(), name)
    return row if row is not None and row.is_home else home_row(manifest.latest(), name)


def lance_properties(context: Context, home: NameSnapshot) -> dict[str, str]:
    """Return the properties that Lance has of a table in its home directory.

    A table that Lance cannot read has none. They are remembered for as long as its latest version stays the
    same, so that a client that looks at the table again asks nothing more; where the look at the table did
    not show that version, on an object store they can be 10 seconds old.
    """
    newest, now = home.newest, context.clock.monotonic()
    known = context.memory.properties.get(home.directory)
    if newest is None and home.has_versions:
        if known is not None and now - known.seen < RECENT_SECONDS and not context.storage.cheap_lookups:
            return dict(known.properties)
        newest = newest_manifest(context.storage, home.directory)
    if newest is None:
        return {}
    if known is None or known.newest != newest:
        try:
            head = context.tables.head(home.directory)
        except InternalError:
            return {}  # a damaged table can be described, registered and dropped all the same
        if head is None:
            return {}
        known = KnownProperties(newest, user_properties(head.properties), now)
        if head.version != newest.version:
            return dict(known.properties)
    context.memory.properties[home.directory] = replace(known, seen=now)
    return dict(known.properties)


def not_found(context: Context, state: NameState) -> TableNotFoundError:
    """Return the error for a table that readers do not see, with what became of it."""
    table_id = state.table_id
    home = state.home
    try:
        if home is not None and home.is_live and home.deregistered:
            sign_deregistered(context, home)
            return deregistered(table_id)
        if home is not None and (home.has_versions or home.reserved) and home.marked is None:
            home = inspect_name(context, table_id.name, bodies=Bodies.ALL)
        generations = list(_generations_of(context, state.snapshot, table_id, home, state.row))
    except RelanceError:
        return TableNotFoundError(f"table id '{table_id}'")
    if generations:
        return for_python(
            TableNotFoundError(
                f"table id '{table_id}' {why_hidden(context, generations[-1])}",
                hint=f"to restore it: relance undrop {shell_id(table_id.parts)}",
            ),
            f": undrop_table({table_id.parts})",
        )
    if home is not None and (home.situation is Situation.PURGING or is_purged(home.marked)):
        return TableNotFoundError(f"table id '{table_id}' was purged")
    return TableNotFoundError(f"table id '{table_id}'")


def deregistered(table_id: TableId) -> TableNotFoundError:
    """Return the error for a table that is deregistered."""
    return for_python(
        TableNotFoundError(
            f"table id '{table_id}' is deregistered",
            hint=f"to restore it: relance register {shell_id(table_id.parts)} "
            f"{table_directory(table_id.name)}",
        ),
        f"; to restore it, call register_table with location '{table_directory(table_id.name)}'",
    )


def why_hidden(context: Context, generation: Generation) -> str:
    """Return the state of a dropped table, as the end of an error message."""
    status = generation.status(context)
    dropped = f"was dropped on {_second(status.deleted_at)}"
    if generation.control.state is State.PURGING:
        return f"{dropped} and is being purged"
    if generation.control.state is State.REVIVING:
        return f"{dropped} and is being re-created"
    if status.purge_after is None:
        return f"{dropped} and can be undropped"
    if status.purge_after <= context.clock.now():
        return f"{dropped} and can be undropped until it is purged"
    return f"{dropped} and can be undropped until {_second(status.purge_after)}"


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


# Dropped tables.


@rereading
def state_of_name(context: Context, table_id: TableId, *, versions: bool = False) -> NameState:
    """Return the visible table of an id and its dropped generations, all from one look at each.

    Raises:
        InvalidTableStateError: the arbiter cannot be understood.
    """
    snapshot = context.latest()
    row = row_at(snapshot, table_id.object_id)
    own = None if table_id.namespace else home_row(snapshot, table_id.name)
    home = None
    # A dropped table stays in its home directory also when another object got the name.
    if not table_id.namespace and (context.dir_listing or own is not None):
        home = inspect_name(context, table_id.name, bodies=Bodies.ALL, versions=versions)
    if row is not None and row.is_home:
        row = None
    generations = tuple(in_order(_generations_of(context, snapshot, table_id, home, row)))
    if row is not None and home is not None and home.is_live:
        home = None  # the other object hides it
    return NameState(table_id, snapshot, row, home, generations, own)


def _generations_of(
    context: Context, snapshot: Snapshot | None, table_id: TableId, home: NameSnapshot | None, row: Row | None
) -> Iterator[Generation]:
    if snapshot is not None:
        dropped = snapshot.dropped(table_id.object_id)
        of_rows = _of_rows([*dropped, *([row] if row is not None and row.is_reviving else [])])
        yield from (each for each in of_rows if isinstance(each, Generation))
    if home is not None and (generation := generation_at_home(context, home)) is not None:
        yield generation


def _of_rows(rows: Sequence[Row]) -> Iterator[Generation | Unreadable]:
    for row in rows:
        if row.object_type != ObjectType.TABLE or row.is_home:
            continue
        try:
            control = control_of(row)
        except InvalidTableStateError as error:
            yield Unreadable(row.original_parts, error)
            continue
        if control is not None:
            yield generation_of_row(row, control)


def generation_of_row(row: Row, control: Control) -> Generation:
    """Return the generation that a row holds."""
    parts = row.original_parts
    dropped = _dropped_control(control)
    known = dropped.deleted_at if dropped.by_store_clock else None
    return Generation(TableId(parts[:-1], parts[-1]), control, known, row)


def generation_at_home(context: Context, home: NameSnapshot, *, abandoned: bool = False) -> Generation | None:
    """Return the dropped table in a home directory, whose bodies were read; None if there is none.

    `abandoned` ones are those of which a purge has left no version.
    """
    table_id = TableId((), home.name)
    marked, mark = home.marked, home.mark
    is_left_over = abandoned and state_of(marked) is State.PURGING  # whatever it still has
    if not is_left_over and (home.situation is Situation.VISIBLE or not (home.has_versions or home.reserved)):
        return None
    if marked is not None and marked.state in {State.DELETED, State.REVIVING, State.PURGING}:
        control = marked.control
        dropped = _dropped_control(control)
        if mark is not None and mark.modified is not None and is_dropped_again(marked, mark):
            return Generation(table_id, replace(control, ttl=mark.ttl), mark.modified, home=home)
        if dropped.state is State.DELETED:
            return Generation(table_id, control, replace(marked, control=dropped).dropped_at, home=home)
    if mark is None:
        return None
    unadopted = Control(
        State.DELETED,
        mark.id or "",
        id=mark.id or "",
        version=home.version,
        ttl=mark.ttl,
        deleted_at=mark.modified,
    )
    return Generation(table_id, unadopted, mark.modified, home=home)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A table that may be dropped, of which nobody can tell because its arbiter is damaged."""

    id: tuple[str, ...]
    error: RelanceError


def all_generations(context: Context, *, abandoned: bool = False) -> list[Generation]:
    """Return the dropped generations of all tables, oldest first; damaged ones are left to scrub().

    For a purge run also `abandoned` ones, of which a purge has left no version.
    """
    return look_for_dropped(context, abandoned=abandoned)[0]


@rereading
def look_for_dropped(
    context: Context, *, abandoned: bool = False
) -> tuple[list[Generation], list[Unreadable]]:
    """Return the same, and the tables whose arbiter cannot be understood; one hides no other."""
    snapshot = context.latest()
    names: set[str] = set()
    if context.dir_listing:
        listing = list_root(context)
        names |= listing.hidden() & (listing.directories | listing.markers.keys())
        if abandoned:
            names |= listing.claimed()  # a purge that died may have removed directory and marker
    looks: list[Generation | Unreadable | None] = []
    if snapshot is not None:
        rows = snapshot.dropped()
        names |= {row.original_id for row in rows if row.is_home}
        looks += _of_rows([*rows, *snapshot.reviving()])

    def look(name: str) -> Generation | Unreadable | None:
        try:
            home = inspect_name(context, name, bodies=Bodies.ALL)
            return generation_at_home(context, home, abandoned=abandoned)
        except (InvalidTableStateError, *ONE_TABLE_FAILS) as error:
            return Unreadable((name,), error)

    looks += map_at_once(context.storage, look, sorted(names))
    found = [each for each in looks if isinstance(each, Generation)]
    return in_order(found), [each for each in looks if isinstance(each, Unreadable)]


def in_order(generations: Iterable[Generation]) -> list[Generation]:
    """Return generations with the oldest drop first."""

    def age(generation: Generation) -> tuple[float, list[str], str]:
        dropped = _dropped_control(generation.control)
        at = generation.dropped_at or dropped.deleted_at
        return (at.timestamp() if at is not None else 0.0, generation.table_id.parts, generation.deletion_id)

    return sorted(generations, key=age)


def table_status(context: Context, table_id: TableId) -> TableStatus:
    """Return whether the table exists, is dropped, or is not there; a purged one is not there.

    Raises:
        InvalidTableStateError: its arbiter cannot be understood.
    """
    state, parts = state_of_name(context, table_id), tuple(table_id.parts)
    if state.visible:
        return Exists(parts)
    return state.dropped[-1].status(context) if state.dropped else NotFound(parts)


def list_dropped_tables(context: Context, namespace: Sequence[str] | None = None) -> list[SoftDeleted]:
    """Return the dropped tables, of all or of one namespace, oldest drop first."""
    wanted = None if namespace is None else tuple(namespace)
    return [
        generation.status(context)
        for generation in all_generations(context)
        if wanted is None or generation.table_id.namespace == wanted
    ]


# Retention.


def newest_write(context: Context, generation: Generation) -> datetime | None:
    """Return when the newest version of a dropped table was written, by the store's clock."""
    files = list_manifests(context.storage, generation.directory, None)
    times = [file.info.modified for file in files if file.info.modified is not None]
    return context.clock.at_store(max(times)) if times else None


def is_expired(context: Context, generation: Generation, written: datetime | None = None) -> bool:
    """Tell whether the retention period ended, which begins with the last write after the drop.

    Exact only with the time of that write.
    """
    dropped = generation.dropped_at
    if dropped is None:
        return False  # it has no time by the store's clock yet
    due = period_end(max(dropped, written or dropped) + MARGIN, generation.ttl(context))
    return due is not None and context.store_now() >= due


def fence_is_up(context: Context, control: Control) -> bool:
    """Tell whether a write that was taken over may still commit."""
    return control.fence is not None and seconds(context.store_now()) < control.fence


# What rows require.


def require_root_namespace(parts: Sequence[str] | None) -> None:
    """Check that a namespace id names the root.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it names a child namespace.
    """
    namespace = parse_namespace_id(parts, existing=True)
    if namespace:
        raise UnsupportedOperationError(f"namespace '{format_id(namespace)}': {FLAT}")


def require_namespace(snapshot: Snapshot, namespace: Sequence[str]) -> Row | None:
    """Return the row of a namespace, None for the root.

    Raises:
        NamespaceNotFoundError: there is none.
    """
    if not namespace:
        return None
    object_id = DELIMITER.join(namespace)
    row = row_at(snapshot, object_id)
    if row is None or row.object_type != ObjectType.NAMESPACE or not row.is_visible:
        raise NamespaceNotFoundError(f"namespace '{format_id(namespace)}'")
    return row


@contextmanager
def parent_first(context: Context, table_id: TableId) -> Iterator[None]:
    """Report the namespace of a missing table if that is missing too; no request is made for it.

    Raises:
        NamespaceNotFoundError: the table's namespace does not exist.
    """
    try:
        yield
    except TableNotFoundError as failure:
        if context.manifest is None:
            raise
        try:
            require_namespace(context.manifest.recent(), table_id.namespace)
        except NamespaceNotFoundError as missing:
            raise NamespaceNotFoundError(f"{missing.detail} ({failure.detail})") from failure
        raise


def refuse_protected(row: Row | None) -> None:
    """Check that nobody asked for the object to be kept.

    Raises:
        InvalidTableStateError: it is protected.
    """
    if row is not None and row.is_protected:
        raise for_python(
            InvalidTableStateError(
                f"{row.object_type} '{shown_id(row.object_id)}' is protected",
                hint=f"to allow it: relance unprotect {shell_id(row.parts)}",
            ),
            f": unprotect({list(row.parts)}) first",
        )


def require_row(context: Context, snapshot: Snapshot, table_id: TableId) -> Row:
    """Return the row of a visible table outside its home directory.

    Raises:
        TableNotFoundError: there is none.
    """
    row = row_at(snapshot, table_id.object_id)
    if row is None or row.object_type != ObjectType.TABLE or not row.is_visible or row.is_home:
        other = None if row is None or row.is_home else row
        raise not_found(context, NameState(table_id, snapshot, other, None, ()))
    return row


def taken(table_id: TableId, row: Row) -> TableAlreadyExistsError:
    """Return the error for a name that another object has."""
    if row.object_type != ObjectType.TABLE:
        return TableAlreadyExistsError(f"table id '{table_id}': the name is taken by a {row.object_type}")
    return TableAlreadyExistsError(f"table id '{table_id}' exists at '{row.location}'")


def home_row_at(snapshot: Snapshot, table_id: TableId) -> Row | None:
    """Return the home row at a table's id, None if nothing is there; its namespace must exist.

    Raises:
        NamespaceNotFoundError: the namespace does not exist.
        TableAlreadyExistsError: another object has the name.
    """
    require_namespace(snapshot, table_id.namespace)
    row = row_at(snapshot, table_id.object_id)
    if row is not None and not row.is_home:
        raise taken(table_id, row)
    return row


# Giving names.


def new_directory(table_id: TableId) -> str:
    """Return the name of a directory that no table ever had."""
    return hashed_directory(secrets.token_hex(4), table_id)


def hashed_directory(digest: str, table_id: TableId) -> str:
    """Return the name of a table's directory outside its home."""
    # A file name has its limit and an id of many parts has not; the row says where the table is.
    name = f"{digest}_{table_id.object_id}".encode()[:MAX_DIRECTORY_BYTES].decode(errors="ignore")
    # Whoever lists directories would take one with this ending for the home of a root table.
    return f"{name}_" if name.endswith(TABLE_SUFFIX) else name


def remove_unknown(context: Context, directory: str) -> None:
    """Remove a directory that this call made and no row leads to; what stays is an orphan for upkeep."""
    with suppress(RelanceError):
        for _ in context.storage.delete_below(directory, before_batch=lambda: None, largest_batch=1000):
            pass
        context.storage.prune(directory)


def insert_row(context: Context, row: Row) -> None:
    """Give a name to a table outside its home directory, where a dropped table stays as it is.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    manifest = context.require_manifest(to_do="adding a table")

    transact(manifest, lambda snapshot: (free_name(context, snapshot, row), None))


def free_name(context: Context, snapshot: Snapshot, row: Row) -> Change:
    """Return what adds a row at an id that nothing visible has.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    table_id = TableId(row.parts[:-1], row.parts[-1])

    def namespace_is_there(later: Snapshot) -> None:
        require_namespace(later, table_id.namespace)

    _ = home_row_at(snapshot, table_id)  # refuses an id that another object has
    change = Change(added=(row,), checks=namespace_is_there)
    return change if table_id.namespace else change.plus(free_home(context, snapshot, table_id.name))


def free_home(context: Context, snapshot: Snapshot, name: str) -> Change:
    """Return what moves the row of a hidden table in the home directory of a name out of the way.

    Raises:
        TableAlreadyExistsError: the table is visible.
    """
    if row_at(snapshot, name) is None and not context.dir_listing:
        return Change()
    for _ in range(ATTEMPTS):
        home = inspect_name(context, name, bodies=Bodies.HIDDEN)
        if settle(context, home):
            break
    else:
        raise too_busy(name)
    if home.is_visible:
        raise TableAlreadyExistsError(f"table id '{name}' exists at '{home.directory}'")
    state, rows = home_state(home), home_rows(snapshot, name)
    if not state.hidden:
        return without(snapshot, rows)
    shown = (row for row in rows if not row.is_dropped)
    return Change().plus(*(move_row(snapshot, row, row.dropped(state.deletion_id, None)) for row in shown))
