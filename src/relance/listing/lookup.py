"""What one table is: its marker, and what lies in its directory. Names of all tables are in tables."""

from __future__ import annotations

from dataclasses import dataclass

from relance.lifecycle.marker_store import StoredMarker, read_marker, stored_state
from relance.lifecycle.states import State
from relance.listing.manifest_files import NamingScheme, manifest_key
from relance.locations import (
    DEREGISTERED_FILE,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
)
from relance.storage.protocol import ObjectStorage


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What was found under a name."""

    name: str
    marker: StoredMarker | None
    has_versions: bool
    reserved: bool
    """Declared: the spec's own file is in the directory, and stays there when data follows."""
    deregistered_inside: bool
    """Hidden by the spec's own file inside the directory."""
    empty: bool
    """Nothing at all lies in the directory."""

    @property
    def hidden(self) -> bool:
        return self.deregistered_inside or (self.marker is not None and self.marker.marker.hides)

    @property
    def state(self) -> State:
        """What the marker says."""
        return stored_state(self.marker)

    @property
    def holds_table(self) -> bool:
        """A table is there, hidden or not; leftovers of an unfinished create are none."""
        return self.has_versions or self.reserved

    @property
    def is_visible(self) -> bool:
        """A table is there, and nothing hides it."""
        return self.holds_table and not self.hidden

    @property
    def only_declared(self) -> bool:
        return self.reserved and not self.has_versions


def look_up(storage: ObjectStorage, name: str) -> TableFacts:
    """Return what is under `name`: one read and one listing.

    Raises:
        InvalidTableStateError: the marker cannot be understood.
    """
    marker = read_marker(storage, name)
    reserved, deregistered = table_file(name, RESERVED_FILE), table_file(name, DEREGISTERED_FILE)
    first = manifest_key(table_directory(name), None, 1, NamingScheme.V2)
    if storage.cheap_lookups and first in (found := storage.which_exist([first, reserved, deregistered])):
        # Most tables still have their first version; a folder of many need not be read then.
        return TableFacts(name, marker, True, reserved in found, deregistered in found, empty=False)
    level = storage.list_level(table_directory(name))
    files = {info.key for info in level.files}
    return TableFacts(
        name=name,
        marker=marker,
        has_versions=VERSIONS_DIRECTORY in level.directories,
        reserved=reserved in files,
        deregistered_inside=deregistered in files,
        empty=not level.directories and not level.files,
    )
