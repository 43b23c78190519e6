"""Keeps the row of a root table in step with the marker beside its directory, which decides.

A client without a manifest moves the marker alone: whoever finds the two out of step calls
`follow_marker`. How clients with one move it is in announcing. The name itself is the manifest's:
whoever is about to create a table in the directory of its name holds that first.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from relance.errors import ConcurrentModificationError, TableAlreadyExistsError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle.marker_store import new_nonce, read_marker, stored_state
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts, look_up
from relance.locations import table_directory
from relance.manifest.entry import Entry, Hold, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.drop import soft_drop
from relance.operations.pending import announced_row, dropped_at_home, refuse_pending
from relance.operations.places import left_behind, place_of
from relance.operations.rows.lookups import move, move_versions, taken
from relance.resolution import Place

_ROUNDS = 5

_CLAIMED = frozenset({State.PURGING, State.REVIVING, State.SWEEPING})


class Followed(StrEnum):
    """Whose the name turned out to be when the rows were brought in step."""

    OWN = "own"
    """The marker beside the directory decides about it."""
    MOVED = "moved"
    """The table in the directory was renamed: a change of its marker came too late."""
    TAKEN = "taken"
    """Another table, or a namespace, has the name: the table in the directory cannot be seen."""


def follow_marker(
    context: Context,
    table_id: TableId,
    properties: dict[str, str] | None = None,
    *,
    hold: NameHold | None = None,
) -> Followed:
    """Make the rows of a root table say what its marker and directory say.

    `properties` are given to the row of a table that is visible. A row that another client is at work on
    is left to that client; one's own hold on the name is given up.
    """
    manifest = context.manifest
    followed = Followed.OWN
    if manifest is None:
        return followed
    for _ in range(_ROUNDS):
        seen, followed = _follow_once(
            context, manifest, table_id.name, properties, hold.token if hold else None
        )
        # The marker may have moved after it was read, by a client that found the rows as they should be.
        if _same(seen, look_up(context.storage, table_id.name)):
            break
    return followed


def _follow_once(
    context: Context, manifest: Manifest, name: str, properties: dict[str, str] | None, own: str | None
) -> tuple[TableFacts, Followed]:
    def plan(snapshot: Snapshot) -> tuple[Change, tuple[TableFacts, Followed]]:
        facts = look_up(context.storage, name)
        seen = facts, _whose(snapshot, facts)
        if is_held(context, snapshot, facts, own):
            return Change(), seen
        return wanted_change(snapshot, facts, properties), seen

    return transact(manifest, plan)


def _whose(snapshot: Snapshot, facts: TableFacts) -> Followed:
    row = snapshot.get([facts.name]).get(facts.name)
    if facts.state is State.MOVED or (row is not None and row.moved_to is not None):
        return Followed.MOVED
    if row is not None and not row.has_own_directory and facts.is_visible:
        return Followed.TAKEN
    return Followed.OWN


def give_way(context: Context, table_id: TableId) -> TableAlreadyExistsError:
    """Drop what was just created in the directory of a name that another object got meanwhile."""
    with suppress(TableNotFoundError):  # another client did so
        soft_drop(context, table_id, None)
        follow_marker(context, table_id)
    return TableAlreadyExistsError(f"table id '{table_id}': another object has taken this name")


def is_held(context: Context, snapshot: Snapshot, facts: TableFacts, own: str | None = None) -> bool:
    """Tell whether another client is at work on the rows of a root table, and may still go on."""
    if announced_row(snapshot, facts.name) is not None:
        return True
    row = snapshot.get([facts.name]).get(facts.name)
    hold = row.hold if row is not None and row.has_own_directory else None
    if hold is None or hold.token == own or facts.is_visible:
        return False  # a table that is there needs nobody to keep its name
    return context.clock.now() <= hold.until + context.timing.clock_skew


@dataclass(slots=True)
class NameHold:
    """Keeps the name of a root table that is about to be created, so that nobody else takes it."""

    context: Context
    table_id: TableId
    properties: dict[str, str]
    token: str = field(default_factory=new_nonce)
    _renew_at: float | None = None

    def __call__(self) -> None:
        """Hold the name, or go on doing so.

        Raises:
            TableAlreadyExistsError: another table has the name.
            ConcurrentModificationError: something else is under way with it.
        """
        clock, lease = self.context.clock, self.context.timing.lease
        asked = clock.monotonic()
        if self.context.manifest is None or (self._renew_at is not None and asked < self._renew_at):
            return
        hold = Hold(self.token, clock.now() + lease)
        transact(self.context.manifest, lambda snapshot: (self._plan(snapshot, hold), None))
        self._renew_at = asked + lease.total_seconds() / 2

    def _plan(self, snapshot: Snapshot, hold: Hold) -> Change:
        name = self.table_id.name
        refuse_pending(snapshot, name)
        live = snapshot.get([name]).get(name)
        if live is None:
            return self._plan_new(snapshot, hold)
        if not live.has_own_directory:
            raise taken(self.table_id, live)
        facts = look_up(self.context.storage, name)
        if facts.is_visible:
            return Change()
        return move(snapshot, live, live.restored(name).with_hold(hold))

    def _plan_new(self, snapshot: Snapshot, hold: Hold) -> Change:
        """Hold a name without a row, unless another row leads to its directory since it was looked at."""
        name, storage = self.table_id.name, self.context.storage
        gone = dropped_at_home(snapshot, name)
        marker = read_marker(storage, name)
        if stored_state(marker) is State.MOVED or (gone and _is_there(look_up(storage, name))):
            raise ConcurrentModificationError(f"table id '{name}' was changed by another client")
        added = new_home_row(name).with_properties(self.properties).with_hold(hold)
        return Change(_without(snapshot, gone).removed, (added,))


def _is_there(facts: TableFacts) -> bool:
    """Tell whether a table is there that is visible, or hidden by its marker: rows of drops are of use."""
    return facts.is_visible or (facts.marker is not None and facts.marker.marker.hides)


def place_in_step(context: Context, table_id: TableId) -> Place:
    """Return where the table is, after its row came back that was left as a drop had made it.

    Otherwise a table that a client without manifest undropped would have lost its protection.
    """
    place = place_of(context, table_id)
    if context.manifest is None or not place.in_directory or place.entry is not None:
        return place
    if left_behind(context.manifest.latest(), table_id) is None:
        return place
    follow_marker(context, table_id)
    return place_of(context, table_id)


def _same(one: TableFacts, other: TableFacts) -> bool:
    return one.marker == other.marker and one.holds_table == other.holds_table


def wanted_change(snapshot: Snapshot, facts: TableFacts, properties: dict[str, str] | None = None) -> Change:
    """Return what brings the rows of a root table in step; nothing when they are."""
    live = snapshot.get([facts.name]).get(facts.name)
    if live is not None and (live.object_type != ObjectType.TABLE or not live.has_own_directory):
        live, name_is_free = None, False
    else:
        name_is_free = True
    gone = dropped_at_home(snapshot, facts.name)
    if live is not None and live.moved_to is not None:
        return Change()  # a rename is under way, and finishes this itself
    if facts.state is State.MOVED:
        return Change() if live is None else _without(snapshot, [live])  # the directory is another row's
    if facts.state is State.PURGING and live is not None:
        return _show_dropped(snapshot, facts, live, gone)
    if facts.state in _CLAIMED:
        return Change()
    if facts.state is State.DELETED and facts.marker is not None:
        return _show_dropped(snapshot, facts, live, gone)
    if facts.is_visible and not name_is_free:
        return Change()  # a drop that was undone keeps its row, the table's again once the name is free
    if facts.is_visible:
        return _show_live(snapshot, facts, live, gone, properties)
    return _without(snapshot, gone if live is None else [live, *gone])


def _show_live(
    snapshot: Snapshot,
    facts: TableFacts,
    live: Entry | None,
    gone: list[Entry],
    properties: dict[str, str] | None,
) -> Change:
    source = live if live is not None else (gone[-1] if gone else new_home_row(facts.name))
    shown = source.restored(facts.name)
    if properties is not None:
        shown = shown.with_properties(properties)
    if live is not None and not gone and shown == live:
        return Change()
    others = _without(snapshot, [each for each in gone if each is not source])
    if source is not live and live is None and not gone:
        return Change(added=(shown,))
    change = move(snapshot, source, shown)
    return Change((*change.removed, *others.removed), change.added)


def _show_dropped(snapshot: Snapshot, facts: TableFacts, live: Entry | None, gone: list[Entry]) -> Change:
    assert facts.marker is not None  # the caller looked
    marker = facts.marker.marker
    if live is None and len(gone) == 1 and gone[0].marker == marker:
        return Change()
    source = live if live is not None else (gone[-1] if gone else None)
    base = source.restored(facts.name) if source is not None else new_home_row(facts.name)
    dropped = base.dropped(marker)
    if source is None:
        return Change(added=(dropped,))
    others = _without(snapshot, [each for each in gone if each is not source])
    change = move(snapshot, source, dropped)
    return Change((*change.removed, *others.removed), change.added)


def new_home_row(name: str) -> Entry:
    """Return the row of a root table in the directory of its name."""
    return Entry(name, ObjectType.TABLE, table_directory(name))


def _without(snapshot: Snapshot, entries: list[Entry]) -> Change:
    removed: list[str] = []
    for each in entries:
        removed += (each.object_id, *move_versions(snapshot, each.object_id, None).removed)
    return Change(removed=tuple(removed))
