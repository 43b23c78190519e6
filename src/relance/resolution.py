"""From an id to where the table is, who decides about it, and what state it is in.

The only module that knows V1 and V2 both. A root table in the directory of its name is decided about
by the marker beside that directory, whichever way it was found; every other table by its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relance.errors import TableNotFoundError, UnsupportedOperationError
from relance.identifiers import DELIMITER, TableId, parse_namespace_id, parse_table_id
from relance.lifecycle.marker import Marker
from relance.lifecycle.status import why_hidden
from relance.listing.lookup import TableFacts, look_up
from relance.locations import VERSIONS_DIRECTORY, table_directory
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Snapshot
from relance.storage.protocol import ObjectStorage

_FLAT = "a catalog without a manifest (V1) is flat; child namespaces require manifest_enabled=true"


def root_table_id(parts: Sequence[str] | None) -> TableId:
    """Return the validated id of a table at the root.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it lies in a child namespace.
    """
    table_id = parse_table_id(parts)
    if table_id.namespace:
        raise UnsupportedOperationError(f"table id '{table_id}' has several parts: {_FLAT}")
    return table_id


def require_root_namespace(parts: Sequence[str] | None) -> None:
    """Check that a namespace id names the root.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it names a child namespace.
    """
    namespace = parse_namespace_id(parts)
    if namespace:
        raise UnsupportedOperationError(f"namespace '{DELIMITER.join(namespace)}': {_FLAT}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table of an id is or would be, and who decides about it."""

    table_id: TableId
    entry: Entry | None
    """Its row, visible or not; None when it has none."""
    in_directory: bool
    """The marker beside the directory of its name decides; otherwise the row."""


def locate(snapshot: Snapshot | None, table_id: TableId, *, dir_listing: bool) -> Place:
    """Return the place of a table: the manifest first, then the directory."""
    if snapshot is None:
        return Place(table_id, None, in_directory=True)
    entry = snapshot.get([str(table_id)]).get(str(table_id))
    if table_id.namespace:
        return Place(table_id, entry, in_directory=False)
    if entry is None:
        return Place(table_id, None, in_directory=dir_listing)
    return Place(table_id, entry, in_directory=entry.has_own_directory)


@dataclass(frozen=True, slots=True)
class Found:
    """A visible table."""

    table_id: TableId
    directory: str
    properties: dict[str, str] = field(default_factory=dict)
    facts: TableFacts | None = None
    """Of a table in the directory of its name."""

    def is_only_declared(self, storage: ObjectStorage) -> bool:
        """Tell whether the table has no version yet."""
        if self.facts is not None:
            return self.facts.only_declared
        return not storage.which_exist([f"{self.directory}/{VERSIONS_DIRECTORY}/"])


def find_table(storage: ObjectStorage, snapshot: Snapshot | None, place: Place) -> Found:
    """Return the visible table.

    Raises:
        TableNotFoundError: there is none, or it is hidden.
    """
    table_id, entry = place.table_id, place.entry
    if entry is not None and entry.moved_to is not None:
        if not entry.moved_to:
            raise _deregistered(table_id)
        new = entry.moved_to.replace(DELIMITER, ".")
        raise TableNotFoundError(f"table id '{table_id}' was renamed to '{new}'")
    if place.in_directory:
        return _found_in_directory(storage, place)
    if entry is None or entry.object_type != ObjectType.TABLE or not entry.is_visible:
        raise not_found_row(snapshot, table_id, entry)
    if not entry.location:
        raise TableNotFoundError(
            f"table id '{table_id}' has no location in the manifest; run scrub() for repair options"
        )
    return Found(table_id, entry.location, entry.properties)


def _found_in_directory(storage: ObjectStorage, place: Place) -> Found:
    table_id = place.table_id
    facts = look_up(storage, table_id.name)
    if facts.marker is not None and facts.marker.marker.hides:
        raise not_found(table_id, facts.marker.marker)
    if facts.deregistered_inside:
        raise _deregistered(table_id)
    if not facts.holds_table:
        raise not_found(table_id, None)
    properties = place.entry.properties if place.entry is not None else {}
    return Found(table_id, table_directory(table_id.name), properties, facts)


def _deregistered(table_id: TableId) -> TableNotFoundError:
    return TableNotFoundError(
        f"table id '{table_id}' is deregistered; to restore it, call register_table with location "
        f"'{table_id}.lance'"
    )


def not_found(table_id: TableId, marker: Marker | None) -> TableNotFoundError:
    """Return the error for a table that is not there for readers, with what became of it."""
    if marker is None or not marker.hides:
        return TableNotFoundError(f"table id '{table_id}'")
    return TableNotFoundError(f"table id '{table_id}' {why_hidden(table_id.parts, marker)}")


def not_found_row(snapshot: Snapshot | None, table_id: TableId, entry: Entry | None) -> TableNotFoundError:
    """Return the same for a table that its row decides about."""
    if entry is not None and entry.object_type == ObjectType.TABLE and entry.marker is not None:
        return not_found(table_id, entry.marker)
    gone = [] if snapshot is None else snapshot.dropped(str(table_id))
    markers = [each.marker for each in gone if each.object_type == ObjectType.TABLE and each.marker]
    newest = max(markers, key=lambda each: (each.deleted_at is not None, each.deleted_at), default=None)
    return not_found(table_id, newest)
