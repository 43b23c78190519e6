"""The names of the tables in a root, from one listing. What one table is, is in lookup."""

from __future__ import annotations

from relance.listing.root_view import RootView, view_root
from relance.locations import DEREGISTERED_FILE, RESERVED_FILE, VERSIONS_DIRECTORY, table_file
from relance.storage.protocol import ObjectStorage


def list_tables(storage: ObjectStorage, *, include_declared: bool) -> list[str]:
    """Return the visible names, sorted by their bytes.

    Costs one listing of the root. Names that the listing leaves in doubt are settled together:
    those whose create did not finish, declared ones when they are to be left out, and all of them
    where other clients may have left markers inside the tables.
    """
    view = view_root(storage.list_level(""))
    names = view.directories - view.hidden
    if storage.cheap_lookups:
        unfinished = foreign = names  # looking inside costs next to nothing, so nothing is left to signs
    else:
        unfinished = names & _perhaps_without_version(view, include_declared=include_declared)
        foreign = frozenset() if view.migrated else names
    visible = names - _without_table(storage, unfinished, include_declared=include_declared)
    return sorted(visible - _with(storage, foreign & visible, DEREGISTERED_FILE), key=str.encode)


def _perhaps_without_version(view: RootView, *, include_declared: bool) -> frozenset[str]:
    if include_declared:
        return view.creating
    return view.creating | view.declared if view.migrated else view.directories


def _without_table(
    storage: ObjectStorage, names: frozenset[str], *, include_declared: bool
) -> frozenset[str]:
    left = names - _with(storage, names, f"{VERSIONS_DIRECTORY}/")
    return left - _with(storage, left, RESERVED_FILE) if include_declared else left


def _with(storage: ObjectStorage, names: frozenset[str], file: str) -> frozenset[str]:
    files = {table_file(name, file): name for name in names}
    return frozenset(files[found] for found in storage.which_exist(list(files)))
