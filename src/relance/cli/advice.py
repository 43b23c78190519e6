"""Better hints for failed commands: what the catalog knows of the tables and namespaces that they named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from relance.cli.exits import Exit
from relance.cli.words import id_text, in_shell, moment

if TYPE_CHECKING:
    from relance.catalog import Catalog
    from relance.errors import RelanceError

Id = tuple[str, ...]

_ALIKE = 0.7
"""Ratio of equal characters from which a name is suggested."""

_STOPPED_BY_PROTECTION = frozenset({"drop", "deregister", "register"})


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say of an error instead of what it says itself."""

    to_do: str
    detail: str | None = None
    """The message without its prefix; None keeps it."""
    exit_code: Exit | None = None


def advice_on(error: RelanceError, catalog: Catalog, command: str, ids: Sequence[Id]) -> Advice | None:
    """Return what the state of the named objects says about an error, or None to keep what it says."""
    from relance.errors import (
        InvalidTableStateError,
        NamespaceNotFoundError,
        RelanceError,
        TableAlreadyExistsError,
        TableNotFoundError,
    )

    with suppress(RelanceError):  # it is the first error that counts
        if command == "undrop":
            is_taken = isinstance(error, NamespaceNotFoundError | TableAlreadyExistsError)
            is_there = all(_is_namespace(catalog, each) or _is_table(catalog, each) for each in ids)
            return Advice("nothing to restore: see relance ls --dropped") if is_taken and is_there else None
        if isinstance(error, InvalidTableStateError) and command in {"protect", "unprotect"}:
            exists = any(_is_namespace(catalog, each) or _is_table(catalog, each) for each in ids)
            to_do = "list what exists: relance ls --tree"
            return None if exists else Advice(to_do, exit_code=Exit.NOT_FOUND)
        if isinstance(error, InvalidTableStateError) and command in _STOPPED_BY_PROTECTION:
            named = [each for name in ids for each in (name, *_inside(catalog, name))]
            return next((_protected(each) for each in named if catalog.is_protected(each)), None)
        if isinstance(error, TableNotFoundError | TableAlreadyExistsError) and command != "purge":
            dropped = next(filter(None, (_dropped(catalog, each) for each in ids)), None)
            if dropped is not None:
                return dropped
        if isinstance(error, TableAlreadyExistsError) and command == "import":
            return Advice("to add the rows, pass --mode append; to replace all rows, pass --mode overwrite")
        if isinstance(error, NamespaceNotFoundError):
            return _missing_namespace(catalog, command, ids)
        if isinstance(error, TableNotFoundError):
            return _did_you_mean(catalog, ids, tables=True)
    return None


def _missing_namespace(catalog: Catalog, command: str, ids: Sequence[Id]) -> Advice | None:
    advice = _did_you_mean(catalog, ids, tables=False)
    if advice is not None:
        return advice
    if command == "import":
        return Advice("to create missing namespaces, pass --create-namespaces")
    # The last id is the new one; the object itself cannot be in a namespace that does not exist.
    missing = ids[-1] if command == "drop" or _is_namespace(catalog, ids[-1][:-1]) else ids[-1][:-1]
    if command in {"create-namespace", "rename", "undrop", "register"} and missing:
        return Advice(f"to create it: relance create-namespace --parents {in_shell(missing)}")
    return Advice("list namespaces: relance ls --tree")


def _did_you_mean(catalog: Catalog, ids: Sequence[Id], *, tables: bool) -> Advice | None:
    """Return the existing name that is most like one that was not found."""
    from relance.cli.params import all_namespace_ids, first_table_ids

    known = first_table_ids(catalog) if tables else []
    known += all_namespace_ids(catalog)
    listing = "list tables: relance ls --tree" if tables else "list namespaces: relance ls --tree"
    for each in ids:
        if each in known or not each:
            continue
        near = _nearest(each, known)
        if near is None and not tables:
            near = next(filter(None, (_nearest(each[:depth], known) for depth in range(1, len(each)))), None)
        if near is not None:
            return Advice(f"did you mean {in_shell(near)}? {listing}")
    return None


def _nearest(name: Id, known: Sequence[Id]) -> Id | None:
    """Return the id that is spelled most like this one, or that has the same name elsewhere."""
    if name in known:
        return None
    by_text = {".".join(each).casefold(): each for each in known}
    near = difflib.get_close_matches(".".join(name).casefold(), by_text, n=1, cutoff=_ALIKE)
    if near:
        return by_text[near[0]]
    same = [each for each in known if each[-1].casefold() == name[-1].casefold()]
    return same[0] if len(same) == 1 else None


def _dropped(catalog: Catalog, table: Id) -> Advice | None:
    from relance import SoftDeleted

    status = catalog.status(table)
    if not isinstance(status, SoftDeleted) or status.state != "deleted":
        return None
    until = ""
    if status.purge_after is not None:
        is_over = status.purge_after <= datetime.now(UTC)
        until = " until it is purged" if is_over else f" until {moment(status.purge_after)}"
    return Advice(
        f"to restore it: relance undrop {in_shell(table)}",
        f"table '{id_text(table)}' was dropped on {moment(status.deleted_at)} and can be undropped{until}",
    )


def _protected(name: Id) -> Advice:
    return Advice(f"to allow it: relance unprotect {in_shell(name)}", f"'{id_text(name)}' is protected")


def _inside(catalog: Catalog, name: Id) -> Sequence[Id]:
    from relance.cli.params import all_namespace_ids, all_table_ids  # which needs the state, which needs this

    if not _is_namespace(catalog, name):
        return []
    found = [*all_namespace_ids(catalog), *all_table_ids(catalog)]
    return [each for each in found if each[: len(name)] == name and each != name]


def _is_table(catalog: Catalog, name: Id) -> bool:
    from relance import Exists

    return isinstance(catalog.status(name), Exists)


def _is_namespace(catalog: Catalog, name: Id) -> bool:
    from relance.errors import NamespaceNotFoundError

    try:
        catalog.namespace_properties(name)
    except NamespaceNotFoundError:
        return False
    return True
