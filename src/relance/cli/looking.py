"""Browse a catalog: ls, show, status, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from relance.cli.base import Command
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer, Branch, Part
from relance.cli.params import ANY, NAMESPACE, TABLE, all_namespace_ids, all_table_ids
from relance.cli.sizes import SIZE_HEADINGS, Size, sizes_of
from relance.cli.state import State, pass_state
from relance.cli.words import id_text, in_shell, moment, moment_cell
from relance.units import count, in_bytes, plural

if TYPE_CHECKING:
    from relance.catalog import Catalog
    from relance.catalog.resolve import SoftDeleted
    from relance.operations.arrow_json import ArrowType
    from relance.operations.inspection import Inspected

Id = tuple[str, ...]


@click.command(cls=Command)
@click.argument("namespace", type=NAMESPACE, required=False)
@click.option("--recursive", "-r", is_flag=True, help="Include nested namespaces.")
@click.option("--tree", is_flag=True, help="Show everything as a tree.")
@click.option("--sizes", is_flag=True, help="Add rows, size, fragments and version; opens every table.")
@click.option("--tables", "only_tables", is_flag=True, help="List only tables.")
@click.option("--namespaces", "only_namespaces", is_flag=True, help="List only namespaces.")
@click.option("--dropped", is_flag=True, help="List dropped tables and when their retention period ends.")
@pass_state
def ls(
    state: State,
    namespace: Id | None,
    *,
    recursive: bool,
    tree: bool,
    sizes: bool,
    only_tables: bool,
    only_namespaces: bool,
    dropped: bool,
) -> Answer:
    """List tables and namespaces."""
    catalog, inside = state.view, namespace or ()
    if inside:
        catalog.namespace_properties(inside)
    if dropped:
        return _list_dropped(catalog, namespace, sizes=sizes or tree)
    both = only_tables == only_namespaces
    spaces, tables = _find(catalog, inside, deep=recursive or tree)
    spaces = spaces if both or only_namespaces else []
    tables = tables if both or only_tables else []
    found = sizes_of(lambda table: _size(catalog, table), tables) if sizes else {}
    result = {
        "root": catalog.root_uri,
        "namespace": id_text(inside) if inside else None,
        "namespaces": [{"namespace": id_text(each)} for each in spaces],
        "tables": [{"table": id_text(each), **_size_fields(found.get(each), sizes)} for each in tables],
    }
    if tree:
        return Answer(result, [_tree(catalog.root_uri, inside, spaces, tables, found)])
    rows = [[id_text(each), "namespace", *([""] * len(SIZE_HEADINGS) if sizes else [])] for each in spaces]
    rows += [[id_text(each), "table", *(found[each].cells if sizes else [])] for each in tables]
    headings = ["NAME", "KIND", *(SIZE_HEADINGS if sizes else [])]
    empty = f"nothing found in {id_text(inside) if inside else catalog.root_uri}"
    return Answer(result, [Grid(headings, rows, frozenset(SIZE_HEADINGS), empty)])


def _find(catalog: Catalog, inside: Id, *, deep: bool) -> tuple[list[Id], list[Id]]:
    if not deep:
        spaces = [(*inside, each) for each in catalog.namespaces(inside)]
        return spaces, [(*inside, each) for each in catalog.tables(inside)]
    depth = len(inside)
    spaces = [each for each in all_namespace_ids(catalog) if each[:depth] == inside and each != inside]
    return spaces, [each for each in all_table_ids(catalog) if each[:depth] == inside]


def _size(catalog: Catalog, table: Id) -> Size:
    from relance.operations.inspection import inspect_table

    found = inspect_table(catalog.context, catalog.table_id(table))
    measured = found.summary or {}
    return Size(
        rows=int(measured.get("total_rows", 0)),
        bytes=int(measured.get("total_files_size", 0)),
        fragments=int(measured.get("total_fragments", 0)),
        version=found.version,
    )


def _size_fields(found: Size | None, wanted: bool) -> dict[str, Any]:
    return found.as_json() if found is not None and wanted else {}


def _tree(root: str, inside: Id, spaces: Sequence[Id], tables: Sequence[Id], found: dict[Id, Size]) -> Branch:
    inner: dict[Id, list[Id]] = {}
    leaves: dict[Id, list[Id]] = {}
    for each in spaces:
        inner.setdefault(each[:-1], []).append(each)
    for each in tables:
        leaves.setdefault(each[:-1], []).append(each)

    def branch(at: Id, label: str) -> Branch:
        below = [branch(each, f"{each[-1]}/") for each in inner.get(at, [])]
        return Branch(label, [*below, *(Branch(_leaf(each, found)) for each in leaves.get(at, []))])

    return branch(inside, id_text(inside) if inside else root)


def _leaf(table: Id, found: dict[Id, Size]) -> str:
    return table[-1] if table not in found else f"{table[-1]}  ({found[table].summary})"


def _list_dropped(catalog: Catalog, namespace: Id | None, *, sizes: bool) -> Answer:
    if sizes:
        raise CliError(
            "--dropped cannot be combined with --sizes or --tree",
            "to see sizes: relance purge --dry-run",
            Exit.USAGE,
        )
    found = [
        each for each in catalog.dropped() if namespace is None or each.id[: len(namespace)] == namespace
    ]
    grid = Grid(
        ["NAME", "STATE", "VERSION", "DROPPED (UTC)", "PURGE AFTER (UTC)", "DELETION ID"],
        [
            [
                id_text(each.id),
                each.state,
                count(each.version or None),
                moment_cell(each.deleted_at),
                moment_cell(each.purge_after),
                each.deletion_id,
            ]
            for each in found
        ],
        frozenset({"VERSION"}),
        "no dropped tables",
        keep=frozenset({"DELETION ID"}),
    )
    return Answer({"root": catalog.root_uri, "dropped": [dropped_fields(each) for each in found]}, [grid])


def dropped_fields(status: SoftDeleted) -> dict[str, Any]:
    """Return a dropped table for `--json`."""
    return {
        "table": id_text(status.id),
        "state": status.state,
        "version": status.version,
        "deleted_at": status.deleted_at,
        "purge_after": status.purge_after,
        "deletion_id": status.deletion_id,
        "cascade_id": status.cascade_id,
    }


@click.command(cls=Command)
@click.argument("name", type=ANY)
@pass_state
def show(state: State, name: Id) -> Answer:
    """Show a table (columns, size, indexes, tags) or a namespace."""
    catalog = state.view
    from relance.errors import NamespaceNotFoundError, TableNotFoundError
    from relance.operations.inspection import inspect_table

    try:
        found = inspect_table(catalog.context, catalog.table_id(name))
    except TableNotFoundError as missing:
        try:
            return _show_namespace(catalog, name)
        except NamespaceNotFoundError:
            raise missing from None
    return _show_table(catalog, name, found)


def _show_namespace(catalog: Catalog, name: Id) -> Answer:
    properties = catalog.namespace_properties(name)
    spaces, tables = _find(catalog, name, deep=False)
    result = {
        "namespace": id_text(name),
        "properties": properties,
        "protected": catalog.is_protected(name),
        "namespaces": len(spaces),
        "tables": len(tables),
    }
    facts = [
        ["namespace", id_text(name)],
        ["contains", f"{plural(len(spaces), 'namespace')}, {plural(len(tables), 'table')}"],
        ["protected", "yes" if result["protected"] else "no"],
        *([f"property {key}", value] for key, value in sorted(properties.items())),
    ]
    return Answer(result, [_facts(facts)])


def _show_table(catalog: Catalog, name: Id, found: Inspected) -> Answer:
    from relance.operations.arrow_json import fields_to_json
    from relance.operations.inspection import refs_of

    measured, refs = found.summary or {}, refs_of(catalog.context, found)
    result = {
        "table": id_text(name),
        "location": found.location,
        "declared": bool(found.declared),
        "version": found.version,
        "rows": _number(measured, "total_rows"),
        "bytes": _number(measured, "total_files_size"),
        "fragments": _number(measured, "total_fragments"),
        "deleted_rows": _number(measured, "total_deletion_file_rows"),
        "protected": catalog.is_protected(name),
        "properties": dict(found.properties),
        "columns": [
            {"name": each.name, "type": _type_text(each.type), "nullable": each.nullable}
            for each in ([] if found.schema is None else fields_to_json(found.schema))
        ],
        "indexes": [
            {"name": index, "columns": list(columns), "status": "SUCCEEDED"}
            for index, columns in refs.indexes
        ],
        "tags": {tag: content["version"] for tag, content in refs.tags.items()},
        "branches": list(refs.branches),
    }
    return Answer(result, _table_text(result))


def _number(measured: Mapping[str, str], name: str) -> int | None:
    return int(measured[name]) if name in measured else None


def _table_text(result: dict[str, Any]) -> list[Part]:
    facts = [
        ["table", result["table"]],
        ["location", result["location"]],
        ["version", count(result["version"])],
        ["rows", count(result["rows"])],
        ["deleted rows", count(result["deleted_rows"])],
        ["size", f"{in_bytes(result['bytes'])} in {plural(result['fragments'] or 0, 'fragment')}"],
        ["protected", "yes" if result["protected"] else "no"],
        *([f"tag {tag}", f"version {version}"] for tag, version in sorted(result["tags"].items())),
        *(["branch", each] for each in result["branches"]),
        *([f"index {each['name']}", ", ".join(each["columns"])] for each in result["indexes"]),
        *([f"property {key}", value] for key, value in sorted(result["properties"].items())),
    ]
    if result["declared"]:
        return [_facts([*facts[:2], ["state", "declared, no data yet"], *facts[6:]])]
    columns = [
        [each["name"], each["type"], "yes" if each["nullable"] else "no"] for each in result["columns"]
    ]
    return [_facts(facts), "", Grid(["COLUMN", "TYPE", "NULLS"], columns, prose=frozenset({"TYPE"}))]


def _type_text(kind: ArrowType) -> str:
    inner = [f"{each.name}: {_type_text(each.type)}" for each in kind.fields or []]
    length = f"[{kind.length}]" if kind.length is not None else ""
    if kind.length is not None and kind.type.startswith("decimal"):  # the spec encodes both in one number
        length = "({}, {})".format(*divmod(kind.length, 1000))
    return f"{kind.type}{length}" + (f"<{', '.join(inner)}>" if inner else "")


def _facts(rows: Sequence[Sequence[str]]) -> Grid:
    return Grid(["NAME", "VALUE"], rows, prose=frozenset({"VALUE"}), header=False)


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@pass_state
def status(state: State, table: Id) -> Answer:
    """Show whether a table exists or is dropped, and when its retention period ends.

    The exit code is 3 if there is no such table.
    """
    found = state.view.status(table)
    from relance.catalog.resolve import Exists, SoftDeleted

    name = id_text(table)
    if isinstance(found, Exists):
        return Answer({"table": name, "status": "exists"}, [f"{name} exists"])
    if isinstance(found, SoftDeleted):
        text = f"{name} was dropped on {moment(found.deleted_at)} ({found.state}){_period(found.purge_after)}"
        return Answer(
            {"status": "dropped", **dropped_fields(found)},
            [text, f"to restore it: relance undrop {in_shell(table)}"],
        )
    missing = Failure(
        "TableNotFoundError",
        f"table {name} not found",
        "list tables: relance ls --tree",
        Exit.NOT_FOUND,
        4,
    )
    return Answer({"table": name, "status": "not found"}, [], missing)


def _period(end: datetime | None) -> str:
    if end is None:
        return ""
    return f"; its retention period {'ended' if end <= datetime.now(UTC) else 'ends'} on {moment(end)}"


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show only the newest N.")
@pass_state
def versions(state: State, table: Id, *, limit: int | None) -> Answer:
    """List the versions of a table, newest first, with their tags."""
    request = {"id": list(table), "descending": True, "limit": limit}
    found = state.catalog.list_table_versions(request).versions
    tags: dict[int, list[str]] = {}
    for tag, content in state.catalog.list_table_tags({"id": list(table)}).tags.items():
        if content.branch in {None, "main"}:
            tags.setdefault(content.version, []).append(tag)
    entries = [
        {
            "version": each.version,
            "at": _at(each.timestamp_millis),
            "tags": sorted(tags.get(each.version, [])),
        }
        for each in found
    ]
    rows = [[count(each["version"]), moment_cell(each["at"]), ", ".join(each["tags"])] for each in entries]  # type: ignore[arg-type]  # the values of a mixed dictionary
    grid = Grid(
        ["VERSION", "CREATED (UTC)", "TAGS"], rows, frozenset({"VERSION"}), "no versions", frozenset({"TAGS"})
    )
    return Answer({"table": id_text(table), "versions": entries}, [grid])


def _at(millis: int | None) -> datetime | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)
