"""Better hints for failed commands: what the catalog knows of the tables and namespaces that they named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relance.cli.exits import Exit
from relance.cli.words import id_text, in_shell, moment

if TYPE_CHECKING:
    from relance.catalog import Catalog
    from relance.errors import RelanceError

Id = tuple[str, ...]

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
            return next(filter(None, (_dropped(catalog, each) for each in ids)), None)
    return None


def _dropped(catalog: Catalog, table: Id) -> Advice | None:
    from relance import SoftDeleted

    status = catalog.status(table)
    if not isinstance(status, SoftDeleted) or status.state != "deleted":
        return None
    until = "" if status.purge_after is None else f" until {moment(status.purge_after)}"
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
