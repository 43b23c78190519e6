"""Names and their lifecycle: create-namespace, rename, drop, undrop, register, deregister, protect."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.output import Answer
from relance.cli.params import ANY, DROPPED, DURATION, NAMESPACE, TABLE, yes_option
from relance.cli.state import State, pass_state
from relance.cli.words import id_text, in_shell, moment
from relance.units import plural

if TYPE_CHECKING:
    from relance.namespace import DirectoryNamespace

Id = tuple[str, ...]


def _each(state: State, names: Sequence[Id], act: Callable[[Id], tuple[dict[str, Any], str]]) -> Answer:
    """Apply an action to each name; a failure does not affect the others."""
    from relance.errors import RelanceError

    done: list[dict[str, Any]] = []
    text: list[str] = []
    failures: list[Failure] = []
    for name in names:
        try:
            fields, line = act(name)
        except (RelanceError, CliError) as error:
            failure = state.failure(error, name)
            failures.append(failure)
            done.append({"name": id_text(name), "error": failure.as_json()})
            if len(names) > 1:
                text.append(f"{id_text(name)}: failed: {failure.what}")
        else:
            done.append({"name": id_text(name), **fields, "error": None})
            text.append(line)
    if not failures:
        return Answer({"done": done}, text)
    codes = {each.exit_code for each in failures}
    problem = failures[0]
    if len(names) > 1:
        what = f"{len(failures)} of {len(names)} failed"
        exit_code = codes.pop() if len(codes) == 1 else Exit.FAILED
        problem = Failure("Partial", what, failures[0].to_do, exit_code)
    return Answer({"done": done}, text, problem)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    if wrong := [each for each in texts if "=" not in each]:
        raise CliError(f"property {wrong[0]!r} has no value", "write it as NAME=VALUE", Exit.USAGE)
    split = (each.partition("=") for each in texts)
    return {name: value for name, _, value in split}


_property = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property to set; repeatable.",
)


@click.command(cls=Command, name="create-namespace")
@click.argument("namespace", type=NAMESPACE)
@_property
@click.option("--parents", "-p", is_flag=True, help="Also create missing parent namespaces.")
@click.option("--exist-ok", is_flag=True, help="Succeed if the namespace already exists.")
@pass_state
def create_namespace(
    state: State, namespace: Id, *, properties: Sequence[str], parents: bool, exist_ok: bool
) -> Answer:
    """Create a namespace."""
    catalog = state.new_catalog
    pairs = _pairs(properties)
    for depth in range(1, len(namespace)) if parents else ():
        catalog.create_namespace({"id": list(namespace[:depth]), "mode": "exist_ok"})
    catalog.create_namespace(
        {
            "id": list(namespace),
            "mode": "exist_ok" if exist_ok else "create",
            "properties": pairs or None,
        }
    )
    name = id_text(namespace)
    text = f"namespace {name} exists" if exist_ok else f"created namespace {name}"
    return Answer({"namespace": name, "properties": pairs}, [text])


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@click.argument("new_name", type=ANY)
@pass_state
def rename(state: State, table: Id, new_name: Id) -> Answer:
    """Rename a table, or move it to another namespace; a table in the root is copied."""
    state.catalog.rename_table(
        {"id": list(table), "new_table_name": new_name[-1], "new_namespace_id": list(new_name[:-1])}
    )
    old, new = id_text(table), id_text(new_name)
    return Answer({"table": new, "before": old}, [f"renamed {old} to {new}"])


@click.command(cls=Command)
@click.argument("names", type=ANY, nargs=-1, required=True)
@click.option("--namespace", "namespaces", is_flag=True, help="Drop namespaces instead of tables.")
@click.option("--cascade", is_flag=True, help="With --namespace: also drop everything inside.")
@click.option("--ttl", type=DURATION, help="Retention period, such as 30d. Default: the drop_ttl in effect.")
@click.option(
    "--purge", "purge_now", is_flag=True, help="Delete the tables' files immediately and permanently."
)
@yes_option
@pass_state
def drop(
    state: State,
    names: Sequence[Id],
    *,
    namespaces: bool,
    cascade: bool,
    ttl: timedelta | None,
    purge_now: bool,
    yes: bool,
) -> Answer:
    """Drop tables or namespaces; undrop restores them."""
    if cascade and not namespaces:
        raise CliError("--cascade requires --namespace", "pass --namespace as well", Exit.USAGE)
    if purge_now and namespaces:
        raise CliError(
            "--purge applies only to tables", "drop the namespace, then run: relance purge", Exit.USAGE
        )
    catalog = state.catalog
    if purge_now:
        for each in names:
            catalog.table_exists({"id": list(each)})
        confirm(
            f"permanently deleting {plural(len(names), 'table')}",
            [id_text(each) for each in names],
            yes=yes,
            preview="without --purge, the drop can be undone",
        )
    wishes = {} if ttl is None else {"ttl_ms": str(round(ttl.total_seconds() * 1000))}

    def act(name: Id) -> tuple[dict[str, Any], str]:
        if namespaces:
            behavior = "cascade" if cascade else "restrict"
            response = catalog.drop_namespace({"id": list(name), "behavior": behavior, "context": wishes})
            told = response.properties or {}
        else:
            more = {**wishes, "purge": "true"} if purge_now else wishes
            told = _drop_table(catalog, name, more)
        return _told(name, told, namespace=namespaces)

    return _each(state, names, act)


def _drop_table(catalog: DirectoryNamespace, name: Id, wishes: dict[str, str]) -> dict[str, str]:
    from relance.errors import NamespaceNotFoundError, TableNotFoundError

    try:
        return catalog.drop_table({"id": list(name), "context": wishes}).properties or {}
    except TableNotFoundError as missing:
        try:
            catalog.namespace_exists({"id": list(name)})
        except NamespaceNotFoundError:
            raise missing from None
        to_do = f"to drop it: relance drop --namespace {in_shell(name)}"
        raise CliError(f"{id_text(name)} is a namespace, not a table", to_do, Exit.NOT_FOUND) from missing


def _told(name: Id, told: dict[str, str], *, namespace: bool) -> tuple[dict[str, Any], str]:
    due = datetime.fromtimestamp(int(told["purge_after_ms"]) / 1000, UTC)
    fields: dict[str, Any] = {
        "deletion_id": told["deletion_id"],
        "cascade_id": told.get("cascade_id"),
        "purge_after": due,
        "purged": told.get("purged") == "true",
    }
    if fields["purged"]:
        return fields, f"{id_text(name)}: dropped and purged"
    flag = " --namespace" if namespace else ""
    until = f" until {moment(due)}" if due > datetime.now(UTC) else ""
    return fields, f"{id_text(name)}: dropped; to restore it{until}: relance undrop{flag} {in_shell(name)}"


@click.command(cls=Command)
@click.argument("name", type=DROPPED)
@click.option("--namespace", "namespaces", is_flag=True, help="Restore a namespace instead of a table.")
@click.option("--deletion-id", help="Which drop to undo, if there are several; see relance ls --dropped.")
@click.option("--as", "new_name", type=ANY, help="Restore the table under another id.")
@pass_state
def undrop(
    state: State, name: Id, *, namespaces: bool, deletion_id: str | None, new_name: Id | None
) -> Answer:
    """Restore a dropped table or namespace.

    Undropping a namespace restores exactly the tables and namespaces of that drop.
    """
    from relance.catalog.resolve import Exists

    if namespaces:
        if new_name is not None:
            raise CliError("--as applies only to tables", "undrop the namespace without --as", Exit.USAGE)
        back = state.catalog.undrop_namespace(name, cascade_id=deletion_id)
        return Answer(
            {"restored": [id_text(each) for each in back]}, [f"restored {id_text(each)}" for each in back]
        )
    found = state.catalog.undrop_table(name, deletion_id=deletion_id, new_id=new_name)
    text = f"restored {id_text(found.id)}"
    if not isinstance(found, Exists):
        text = f"restored {id_text(found.id)}; it is deregistered, as it was before the drop"
    return Answer({"restored": [id_text(found.id)]}, [text])


@click.command(cls=Command)
@click.argument("table", type=ANY)
@click.argument("location")
@_property
@click.option("--overwrite", is_flag=True, help="Replace an existing registration of the name.")
@pass_state
def register(state: State, table: Id, location: str, *, properties: Sequence[str], overwrite: bool) -> Answer:
    """Add an existing table directory in the root to the catalog."""
    pairs = _pairs(properties)
    response = state.catalog.register_table(
        {
            "id": list(table),
            "location": location,
            "mode": "overwrite" if overwrite else "create",
            "properties": pairs or None,
        }
    )
    name = id_text(table)
    return Answer(
        {"table": name, "location": response.location}, [f"registered {name} at {response.location}"]
    )


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@pass_state
def deregister(state: State, table: Id) -> Answer:
    """Remove a table from the catalog without deleting its data."""
    response = state.catalog.deregister_table({"id": list(table)})
    name, place = id_text(table), str(response.location).rstrip("/").rpartition("/")[2]
    text = f"deregistered {name}; to undo: relance register {in_shell(table)} {shlex.quote(place)}"
    return Answer({"table": name, "location": response.location}, [text])


@click.command(cls=Command)
@click.argument("names", type=ANY, nargs=-1, required=True)
@pass_state
def protect(state: State, names: Sequence[Id]) -> Answer:
    """Protect tables or namespaces from being dropped."""

    def act(name: Id) -> tuple[dict[str, Any], str]:
        state.catalog.protect(name)
        return {"protected": True}, f"{id_text(name)} is protected"

    return _each(state, names, act)


@click.command(cls=Command)
@click.argument("names", type=ANY, nargs=-1, required=True)
@pass_state
def unprotect(state: State, names: Sequence[Id]) -> Answer:
    """Remove the protection from tables or namespaces."""

    def act(name: Id) -> tuple[dict[str, Any], str]:
        state.catalog.unprotect(name)
        return {"protected": False}, f"{id_text(name)} is no longer protected"

    return _each(state, names, act)
