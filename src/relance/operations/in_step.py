"""Keeps the row of a root table in step with the marker beside its directory, which decides.

Whoever moves the marker calls this afterwards; whoever finds the two out of step after a crash, too.
"""

from __future__ import annotations

from relance.identifiers import TableId
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts, look_up
from relance.locations import table_directory
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.rows.lookups import move, move_versions

_ROUNDS = 5

_CLAIMED = frozenset({State.PURGING, State.REVIVING, State.SWEEPING})


def follow_marker(context: Context, table_id: TableId, properties: dict[str, str] | None = None) -> None:
    """Make the rows of a root table say what its marker and directory say.

    `properties` are given to the row of a table that is visible.
    """
    manifest = context.manifest
    if manifest is None:
        return
    for _ in range(_ROUNDS):
        seen = _follow_once(context, manifest, table_id.name, properties)
        # The marker may have moved after it was read, by a client that found the rows as they should be.
        if _same(seen, look_up(context.storage, table_id.name)):
            return


def _follow_once(
    context: Context, manifest: Manifest, name: str, properties: dict[str, str] | None
) -> TableFacts:
    def plan(snapshot: Snapshot) -> tuple[Change, TableFacts]:
        facts = look_up(context.storage, name)
        return wanted_change(snapshot, facts, properties), facts

    return transact(manifest, plan)


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
    if facts.state in _CLAIMED:
        return Change()
    if facts.state is State.DELETED and facts.marker is not None:
        return _show_dropped(snapshot, facts, live, gone)
    if facts.holds_table and not facts.hidden:
        return (
            _show_live(snapshot, facts, live, gone, properties) if name_is_free else _without(snapshot, gone)
        )
    return _without(snapshot, gone if live is None else [live, *gone])


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
