"""The dropped generations of a table: one beside its directory, any number as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.lifecycle.status import SoftDeleted, soft_deleted
from relance.manifest.entry import Entry, ObjectType
from relance.operations.context import Context
from relance.operations.directory.dropped import dropped_marker, dropped_markers


@dataclass(frozen=True, slots=True)
class Generation:
    """One dropped table: by its row, or, when that is None, by the marker beside its directory."""

    table_id: TableId
    marker: Marker
    entry: Entry | None = None

    @property
    def status(self) -> SoftDeleted | None:
        cascade = self.entry.cascade if self.entry is not None else None
        return soft_deleted(tuple(self.table_id.parts), self.marker, cascade_id=cascade)


def generations_of(context: Context, table_id: TableId) -> list[Generation]:
    """Return the dropped generations of one table, oldest first.

    Raises:
        InvalidTableStateError: one cannot be understood.
    """
    found = list(_rows(context, str(table_id)))
    if not table_id.namespace:
        stored = dropped_marker(context, table_id.name)
        if stored is not None:
            found.append(Generation(table_id, stored.marker))
    return _in_order(found)


def all_generations(context: Context) -> list[Generation]:
    """Return the dropped generations of all tables, oldest first; damaged markers are left to scrub()."""
    found = list(_rows(context, None))
    if context.settings.dir_listing:
        markers = {name: stored.marker for name, stored in dropped_markers(context).items()}
    else:
        markers = dict(_markers_of_rows(context))
    found += [Generation(TableId((), name), marker) for name, marker in markers.items()]
    return _in_order(found)


def _rows(context: Context, object_id: str | None) -> Iterator[Generation]:
    if context.manifest is None:
        return
    for entry in context.manifest.latest().dropped(object_id):
        marker = entry.marker
        if entry.object_type != ObjectType.TABLE or entry.has_own_directory or marker is None:
            continue  # one in the directory of its name: the marker beside that tells
        parts = entry.original_parts
        yield Generation(TableId(parts[:-1], parts[-1]), marker, entry)


def _markers_of_rows(context: Context) -> Iterator[tuple[str, Marker]]:
    assert context.manifest is not None  # one of the two is on
    for entry in context.manifest.latest().dropped():
        if entry.has_own_directory:
            stored = dropped_marker(context, entry.original_id)
            if stored is not None:
                yield entry.original_id, stored.marker


def _in_order(found: list[Generation]) -> list[Generation]:
    dated = [each for each in found if each.marker.deleted_at is not None]
    return sorted(
        dated, key=lambda each: (each.marker.deleted_at, each.table_id.parts, each.marker.deletion_id)
    )
