"""Where a table is: an id in a catalog, or a path that Lance opens by itself. Pure."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relance.config import STORAGE_PREFIX
from relance.errors import InvalidInputError
from relance.identifiers import DELIMITER, why_unusable
from relance.locations import TABLE_SUFFIX

Pairs = tuple[tuple[str, str], ...]

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN_PART = re.compile(r"[^.`/$\s]+")


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
        raise InvalidInputError("no table is named: give its id or path, as in load('prod.users')")
    if "/" in text:
        return _parse_path(text, properties)
    if "root" not in properties:
        raise InvalidInputError(
            f"table {text!r} needs option 'root', the catalog it is in; for a path write './{text}'"
        )
    return CatalogAddress(parse_id(text), tuple(sorted(properties.items())))


def _parse_path(text: str, properties: Mapping[str, str]) -> Address:
    if "root" in properties:
        raise InvalidInputError(f"{text!r} is a path: leave out option 'root', or give the id of a table")
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
            raise InvalidInputError(f"option {name!r} is about a catalog, and {text!r} is in none")
    return tuple(sorted((k.removeprefix(STORAGE_PREFIX), v) for k, v in properties.items()))


def parse_id(text: str) -> tuple[str, ...]:
    """Return the parts of an id: with '$' between them, or with '.' and backticks around odd names.

    Raises:
        InvalidInputError: a part is empty or a backtick has no partner.
    """
    if text.startswith("["):
        return _parse_json_id(text)
    if DELIMITER in text:
        parts = text.split(DELIMITER)
    else:
        parts, position = [], 0
        while found := _PART.match(text, position):
            parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
            position = found.end() + 1
            if text[found.end() : position] != ".":
                break
        if position != len(text) + 1:
            parts = []
    if not parts or not all(part.strip() for part in parts):
        raise InvalidInputError(
            f"table id {text!r} is malformed: write it like prod.users, "
            "and a name with a dot in backticks, like prod.`my.table`"
        )
    return tuple(parts)


def _parse_json_id(text: str) -> tuple[str, ...]:
    try:
        parts = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInputError(f"table id {text!r} starts like a JSON list of names and is none")
    return tuple(parts)


def format_id(parts: Sequence[str]) -> str:
    """Return the text that means this id, with backticks only where they are needed."""
    return ".".join(
        part if _PLAIN_PART.fullmatch(part) and not part.startswith("[") else f"`{part.replace('`', '``')}`"
        for part in parts
    )
