"""The names of visible tables, of one namespace or of the whole catalog."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from relance.catalog.context import Context
from relance.catalog.layout import list_names
from relance.catalog.manifest.row import ObjectType
from relance.catalog.manifest.store import Snapshot, rereading
from relance.catalog.resolve import require_namespace, require_root_namespace
from relance.identifiers import DELIMITER
from relance.locations import VERSIONS_DIRECTORY

_BATCH = 100
"""Tables that are looked into at a time."""


def names_in(
    context: Context, namespace: Sequence[str], *, after: str | None = None, declared: bool = True
) -> Iterator[str]:
    """Yield the names of a namespace's tables in order, those that come after one; all, or with a version.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    if context.manifest is None:
        require_root_namespace(namespace)
        return _after(list_names(context, include_declared=declared), after)
    snapshot = context.manifest.latest()
    require_namespace(snapshot, namespace)
    return _table_names(context, snapshot, namespace, after=after, declared=declared)


def ids_of_all(context: Context, *, after: str | None = None, declared: bool = True) -> Iterator[str]:
    """Yield the ids of the catalog's tables, likewise."""
    if context.manifest is None:
        return names_in(context, (), after=after, declared=declared)
    snapshot = context.manifest.latest()
    at_root = _table_names(context, snapshot, (), after=after, declared=declared)
    nested: Iterator[str] = (each for each in snapshot.table_ids(after=after) if DELIMITER in each)
    if not declared:
        nested = _with_versions(context, snapshot, nested, lambda each: each)
    return heapq.merge(at_root, nested)


@rereading
def list_names_in(context: Context, namespace: Sequence[str]) -> list[str]:
    """Return the names of a namespace's tables.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    return list(names_in(context, namespace))


@rereading
def list_all_ids(context: Context) -> list[tuple[str, ...]]:
    """Return the ids of the catalog's tables."""
    return [tuple(each.split(DELIMITER)) for each in ids_of_all(context)]


def _after(names: Sequence[str], token: str | None) -> Iterator[str]:
    return (name for name in names if not token or name.encode() > token.encode())


def _table_names(
    context: Context, snapshot: Snapshot, namespace: Sequence[str], *, after: str | None, declared: bool
) -> Iterator[str]:
    """Yield the names of the namespace's tables; at the root those of directories too."""
    prefix = "".join(part + DELIMITER for part in namespace)
    rows = snapshot.names(namespace, ObjectType.TABLE, after=after)
    if namespace:
        return rows if declared else _with_versions(context, snapshot, rows, lambda name: prefix + name)
    at_home = snapshot.home_names()
    elsewhere = [name for name in rows if name not in at_home]
    if context.settings.dir_listing:
        names = list_names(context, include_declared=declared)
    else:
        names = _at_home(context, snapshot, at_home, declared=declared)
    # The manifest wins where both know a name; of a table at home the directory tells whether it shows.
    known = {*elsewhere, *snapshot.names((), ObjectType.NAMESPACE, after=after)}
    listed = [name for name in names if name not in known]
    shown = (
        iter(elsewhere) if declared else _with_versions(context, snapshot, iter(elsewhere), lambda name: name)
    )
    return heapq.merge(shown, _after(listed, after), key=str.encode)


def _at_home(context: Context, snapshot: Snapshot, visible: frozenset[str], *, declared: bool) -> list[str]:
    """Return the names of tables in home directories that rows know, as arbiter and marker decide."""
    dropped = {row.original_id for row in snapshot.dropped() if row.is_home}
    names = visible | dropped
    if not names:
        return []
    return [name for name in list_names(context, include_declared=declared) if name in names]


def _with_versions(
    context: Context, snapshot: Snapshot, names: Iterator[str], id_of: Callable[[str], str]
) -> Iterator[str]:
    """Yield the names of those tables that have a version, looked up many at a time."""
    while batch := list(islice(names, _BATCH)):
        rows = snapshot.get(id_of(name) for name in batch)
        inside = {
            name: f"{row.normalized_location}/{VERSIONS_DIRECTORY}/"
            for name in batch
            if (row := rows.get(id_of(name))) is not None and row.normalized_location is not None
        }
        there = context.storage.which_exist(list(inside.values()))
        yield from (name for name in batch if inside.get(name) in there)
