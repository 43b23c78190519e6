"""Keeps the row of a root table in step with the marker beside its directory, which decides.

Whoever moves the marker calls `follow_marker` afterwards; whoever finds the two out of step after a
crash, too. The name itself is the manifest's: whoever makes a hidden table visible claims it first.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from relance.errors import TableAlreadyExistsError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts, look_up
from relance.locations import table_directory
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.drop import soft_drop
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
    """Another table, or a namespace, has the name: what is in the directory cannot be seen."""


def follow_marker(
    context: Context,
    table_id: TableId,
    properties: dict[str, str] | None = None,
    *,
    claim: str | None = None,
) -> Followed:
    """Make the rows of a root table say what its marker and directory say.

    `properties` are given to the row of a table that is visible. A row that another client claimed is
    left to that client; `claim` is the token of one's own claim, which is given up.
    """
    manifest = context.manifest
    followed = Followed.OWN
    if manifest is None:
        return followed
    for _ in range(_ROUNDS):
        seen, followed = _follow_once(context, manifest, table_id.name, properties, claim)
        # The marker may have moved after it was read, by a client that found the rows as they should be.
        if _same(seen, look_up(context.storage, table_id.name)):
            break
    return followed


def _follow_once(
    context: Context, manifest: Manifest, name: str, properties: dict[str, str] | None, claim: str | None
) -> tuple[TableFacts, Followed]:
    def plan(snapshot: Snapshot) -> tuple[Change, tuple[TableFacts, Followed]]:
        facts = look_up(context.storage, name)
        seen = facts, _whose(snapshot, facts)
        if is_held(context, snapshot, name, claim):
            return Change(), seen
        return wanted_change(snapshot, facts, properties), seen

    return transact(manifest, plan)


def _whose(snapshot: Snapshot, facts: TableFacts) -> Followed:
    row = snapshot.get([facts.name]).get(facts.name)
    if facts.state is State.MOVED or (row is not None and row.moved_to is not None):
        return Followed.MOVED
    if row is not None and not row.has_own_directory:
        return Followed.TAKEN
    return Followed.OWN


def give_way(context: Context, table_id: TableId) -> TableAlreadyExistsError:
    """Drop what was just created in the directory of a name that another object got meanwhile."""
    with suppress(TableNotFoundError):  # another client did so
        soft_drop(context, table_id, None)
        follow_marker(context, table_id)
    return TableAlreadyExistsError(f"table id '{table_id}': another object got this name meanwhile")


def is_held(context: Context, snapshot: Snapshot, name: str, claim: str | None = None) -> bool:
    """Tell whether another client claimed the row of a root table, and may still go on."""
    row = snapshot.get([name]).get(name)
    marker = row.marker if row is not None and row.has_own_directory else None
    if marker is None or (claim is not None and marker.token == claim):
        return False
    return not holder_is_gone(marker, now=context.clock.now(), timing=context.timing)


def claim_name(context: Context, table_id: TableId, marker: Marker) -> str | None:
    """Keep the name of a hidden root table for it while its marker is moved, and return the claim's token.

    Without the claim, a table in a fresh directory could take the name meanwhile, and this one would
    be visible beside it under the same name.

    Raises:
        TableAlreadyExistsError: another table has the name.
        ConcurrentModificationError: another client claimed it.
    """
    manifest = context.manifest
    if manifest is None:
        return None
    token, name = new_nonce(), table_id.name
    until = context.clock.now() + context.timing.lease

    def plan(snapshot: Snapshot) -> tuple[Change, str]:
        live = snapshot.get([name]).get(name)
        if live is not None and _is_not_ours(context, snapshot, live):
            raise taken(table_id, live)
        gone = [each for each in snapshot.dropped(name) if each.has_own_directory]
        source = live if live is not None else (gone[-1] if gone else None)
        base = source if source is not None else _new(name)
        claimed = replace(marker, state=State.REVIVING, nonce=token, token=token, lease_until=until)
        row = base.restored(name).with_marker(replace(claimed, before=State.DELETED))
        return (Change(added=(row,)) if source is None else move(snapshot, source, row)), token

    return transact(manifest, plan)


def hold_name(context: Context, table_id: TableId, properties: dict[str, str]) -> None:
    """Give a root table that is about to be created its row, so that nobody else takes the name.

    Raises:
        TableAlreadyExistsError: another table has the name.
        ConcurrentModificationError: another client claimed it.
    """
    manifest = context.manifest
    if manifest is None:
        return

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        live = snapshot.get([table_id.name]).get(table_id.name)
        if live is None:
            return Change(added=(_new(table_id.name).with_properties(properties),)), None
        if _is_not_ours(context, snapshot, live):
            raise taken(table_id, live)
        shown = live.restored(table_id.name)
        return (Change() if shown == live else move(snapshot, live, shown)), None

    transact(manifest, plan)


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


def _is_not_ours(context: Context, snapshot: Snapshot, row: Entry) -> bool:
    """Tell whether a row with the name of a directory leads elsewhere, or another client holds it."""
    if not row.has_own_directory or row.moved_to is not None:
        return True
    return is_held(context, snapshot, row.object_id)


def _same(one: TableFacts, other: TableFacts) -> bool:
    return one.marker == other.marker and one.holds_table == other.holds_table


def wanted_change(snapshot: Snapshot, facts: TableFacts, properties: dict[str, str] | None = None) -> Change:
    """Return what brings the rows of a root table in step; nothing when they are."""
    live = snapshot.get([facts.name]).get(facts.name)
    if live is not None and (live.object_type != ObjectType.TABLE or not live.has_own_directory):
        live, name_is_free = None, False
    else:
        name_is_free = True
    gone = [each for each in snapshot.dropped(facts.name) if each.has_own_directory]
    if live is not None and live.moved_to is not None:
        return Change()  # a rename is under way, and finishes this itself
    if facts.state is State.MOVED:
        return _give_back(snapshot, live)
    if facts.state is State.PURGING and live is not None and live.marker is not None:
        return _show_dropped(snapshot, facts, live, gone)  # the claim is given up, and a purge was first
    if facts.state in _CLAIMED:
        return Change()
    if facts.state is State.DELETED and facts.marker is not None:
        return _show_dropped(snapshot, facts, live, gone)
    if facts.holds_table and not facts.hidden:
        return (
            _show_live(snapshot, facts, live, gone, properties) if name_is_free else _without(snapshot, gone)
        )
    return _without(snapshot, gone if live is None else [live, *gone])


def _give_back(snapshot: Snapshot, live: Entry | None) -> Change:
    """Return what makes a claimed row one of a dropped table again, whose directory is its row's now."""
    marker = live.marker if live is not None else None
    if live is None or marker is None:
        return Change()
    return move(snapshot, live, live.dropped(moves.recover(marker, new_nonce())).by_row())


def _show_live(
    snapshot: Snapshot,
    facts: TableFacts,
    live: Entry | None,
    gone: list[Entry],
    properties: dict[str, str] | None,
) -> Change:
    source = live if live is not None else (gone[-1] if gone else _new(facts.name))
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
    base = source.restored(facts.name) if source is not None else _new(facts.name)
    dropped = base.dropped(marker)
    if source is None:
        return Change(added=(dropped,))
    others = _without(snapshot, [each for each in gone if each is not source])
    change = move(snapshot, source, dropped)
    return Change((*change.removed, *others.removed), change.added)


def _new(name: str) -> Entry:
    return Entry(name, ObjectType.TABLE, table_directory(name))


def _without(snapshot: Snapshot, entries: list[Entry]) -> Change:
    removed: list[str] = []
    for each in entries:
        removed += (each.object_id, *move_versions(snapshot, each.object_id, None).removed)
    return Change(removed=tuple(removed))
