"""A name with its generations: the visible table, if there is one, and the dropped ones.

One dropped generation may lie in the directory of the name, any number elsewhere by their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.states import State
from relance.lifecycle.status import SoftDeleted, soft_deleted
from relance.listing.lookup import TableFacts, look_up
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Snapshot, rereading
from relance.operations.context import Context
from relance.operations.directory.dropped import dropped_markers, is_dropped
from relance.operations.places import left_behind
from relance.resolution import Place, locate
from relance.storage.protocol import Version


@dataclass(frozen=True, slots=True)
class Generation:
    """One dropped table: by its row, or, when that is None, by the marker beside its directory."""

    table_id: TableId
    marker: Marker
    entry: Entry | None = None
    version: Version | None = None
    """Of the marker beside its directory, where it was just read."""

    @property
    def stored(self) -> StoredMarker | None:
        return None if self.version is None else StoredMarker(self.marker, self.version)

    @property
    def status(self) -> SoftDeleted | None:
        cascade = self.entry.cascade if self.entry is not None else None
        return soft_deleted(tuple(self.table_id.parts), self.marker, cascade_id=cascade)


@dataclass(frozen=True, slots=True)
class NameState:
    """What one look at a name showed."""

    place: Place
    visible: bool
    dropped: list[Generation]
    """Oldest first."""
    at_home: TableFacts | None
    """What is in the directory of the name, where that counts."""
    left_behind: Entry | None
    """The row of a drop in the directory of the name, whether or not that was undone since."""


@rereading
def state_of_name(context: Context, table_id: TableId) -> NameState:
    """Return the visible table and the dropped ones, all seen in one version of the manifest.

    Raises:
        InvalidTableStateError: a marker cannot be understood.
    """
    snapshot = None if context.manifest is None else context.manifest.latest()
    place = locate(snapshot, table_id, dir_listing=context.settings.dir_listing)
    facts = None if table_id.namespace else look_up(context.storage, table_id.name)
    moved = frozenset({table_id.name}) if facts is not None and facts.state is State.MOVED else frozenset()
    dropped = [] if snapshot is None else list(_rows(snapshot, str(table_id), moved))
    if place.entry is not None and (held := _held(table_id, place.entry)) is not None:
        dropped.append(held)
    if facts is not None and facts.marker is not None and is_dropped(facts.marker):
        dropped.append(Generation(table_id, facts.marker.marker))
    if place.in_directory:
        renamed = place.entry is not None and place.entry.moved_to is not None
        visible = facts is not None and facts.is_visible and not renamed
    else:
        entry = place.entry
        visible = entry is not None and entry.object_type == ObjectType.TABLE and entry.is_visible
    return NameState(place, visible, _in_order(dropped), facts, left_behind(snapshot, table_id))


def _held(table_id: TableId, entry: Entry) -> Generation | None:
    """Return the generation that a create is writing over: dropped still, but at its name."""
    marker = entry.marker if entry.object_type == ObjectType.TABLE else None
    if marker is None or entry.has_own_directory:
        return None
    return Generation(table_id, marker, entry)


@rereading
def all_generations(context: Context) -> list[Generation]:
    """Return the dropped generations of all tables, oldest first; damaged markers are left to scrub()."""
    snapshot = None if context.manifest is None else context.manifest.latest()
    at_home = [] if snapshot is None else [each for each in snapshot.dropped() if each.has_own_directory]
    markers: dict[str, Marker] = {}
    if context.settings.dir_listing:
        markers = {name: stored.marker for name, stored in dropped_markers(context).items()}
    moved: set[str] = set()
    for entry in at_home:
        name = entry.original_id
        stored = None if name in markers else read_marker(context.storage, name)
        if stored is not None and is_dropped(stored):
            markers[name] = stored.marker
        elif stored is not None and stored.marker.state is State.MOVED:
            moved.add(name)
    found = [] if snapshot is None else [*_rows(snapshot, None, moved), *_claimed(snapshot)]
    found += [Generation(TableId((), name), marker) for name, marker in markers.items()]
    return _in_order(found)


def _claimed(snapshot: Snapshot) -> Iterator[Generation]:
    """Yield the generations that a create is writing over, wherever."""
    for entry in snapshot.held():
        found = _held(TableId(entry.parts[:-1], entry.parts[-1]), entry)
        if found is not None:
            yield found


def _rows(snapshot: Snapshot, object_id: str | None, moved: AbstractSet[str]) -> Iterator[Generation]:
    """Yield the generations that rows decide about; `moved` are names whose directory is left to its row."""
    for entry in snapshot.dropped(object_id):
        marker = entry.marker
        if entry.object_type != ObjectType.TABLE or marker is None:
            continue
        if entry.has_own_directory and entry.original_id not in moved:
            continue  # the marker beside its directory tells
        parts = entry.original_parts
        yield Generation(TableId(parts[:-1], parts[-1]), marker, entry)


def _in_order(found: list[Generation]) -> list[Generation]:
    dated = [each for each in found if each.marker.deleted_at is not None]
    return sorted(
        dated, key=lambda each: (each.marker.deleted_at, each.table_id.parts, each.marker.deletion_id)
    )
