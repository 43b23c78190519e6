"""Where a table is: an id in a catalog, or a path that Lance opens by itself. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from relance.config import STORAGE_PREFIX
from relance.errors import InvalidInputError
from relance.identifiers import format_id, parse_id, why_unusable
from relance.locations import TABLE_SUFFIX

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """A table of a catalog."""

    parts: tuple[str, ...]
    properties: Pairs = field(repr=False)
    """What the catalog is opened with, storage options among it: never shown."""

    def __str__(self) -> str:
        return format_id(self.parts)


@dataclass(frozen=True, slots=True)
class PathAddress:
    """A dataset that belongs to no catalog; it can only be read."""

    uri: str
    storage_options: Pairs = field(repr=False)

    def __str__(self) -> str:
        return self.uri


Address = CatalogAddress | PathAddress


def parse_address(text: str | None, properties: Mapping[str, str]) -> Address:
    """Return what the text given to `load` or `save` names, with the catalog's properties.

    Text with a '/' is a path. One that ends in `<name>.lance` is the table of this name in a
    directory catalog at its parent, so that a dropped table is not found by its path either.

    Raises:
        InvalidInputError: it names nothing, or an id is given without the root it belongs to.
    """
    if text is None or not text.strip():
        raise InvalidInputError("no table given: pass its id or path, as in load('prod.users')")
    if "/" in text:
        return _parse_path(text, properties)
    if "root" not in properties:
        raise InvalidInputError(
            f"table {text!r} needs option 'root', the root of its catalog; to load a path, write './{text}'"
        )
    return CatalogAddress(parse_id(text), tuple(sorted(properties.items())))


def _parse_path(text: str, properties: Mapping[str, str]) -> Address:
    if "root" in properties:
        raise InvalidInputError(f"{text!r} is a path: leave out option 'root' or pass a table id")
    parent, _, last = _absolute(text).rpartition("/")
    name = last.removesuffix(TABLE_SUFFIX)
    if name == last or not parent or why_unusable(name) is not None:
        return PathAddress(_absolute(text), _storage_options(text, properties))
    catalog = {"manifest_enabled": "false", **properties, "root": parent}
    return CatalogAddress((name,), tuple(sorted(catalog.items())))


def _absolute(text: str) -> str:
    # Tasks run in other directories than the session.
    return text.rstrip("/") if "://" in text else os.path.abspath(os.path.expanduser(text))


def _storage_options(text: str, properties: Mapping[str, str]) -> Pairs:
    for name in properties:
        if not name.startswith(STORAGE_PREFIX):
            raise InvalidInputError(
                f"option {name!r} applies only to tables in a catalog, but {text!r} is a plain path"
            )
    return tuple(sorted((k.removeprefix(STORAGE_PREFIX), v) for k, v in properties.items()))
