"""Names and ids of tables and namespaces: one validation for every entry point, one way to write them. Pure.

Where a table lies on storage is in locations.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from relance.errors import InvalidInputError

DELIMITER = "$"
"""Joins the parts of an id into the object id."""

MAX_NAME_BYTES = 220
"""A file name holds 255 bytes; the longest thing we add to a name must still fit."""

RESERVED_NAMES = frozenset({"__manifest", "__dropped"})
"""Names the catalog format itself uses. Nothing new gets them, but other clients may have given them."""

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN_PART = re.compile(r"[^.`/$\s]+")

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
"""Most names are plain; they need no look at each character."""

# Each of these is cut off, decoded or refused by one of: object-store URIs (% # ?), the id and path
# separators ($ / \), other clients' path encoding (* " < > |). A name must work everywhere or nowhere.
_REFUSED_CHARACTERS = {
    "$": "it separates the parts of an id",
    "/": "it separates folders",
    "\\": "it separates folders",
    "%": "URIs use it for escapes",
    "#": "it ends the path of a URI",
    "?": "it ends the path of a URI",
    "*": "other Lance clients cannot address it",
    '"': "other Lance clients cannot address it",
    "<": "other Lance clients cannot address it",
    ">": "other Lance clients cannot address it",
    "|": "other Lance clients cannot address it",
}


@dataclass(frozen=True, slots=True)
class TableId:
    """A validated table id: the namespace it is in, and its name."""

    namespace: tuple[str, ...]
    name: str

    @property
    def parts(self) -> list[str]:
        return [*self.namespace, self.name]

    @property
    def object_id(self) -> str:
        """The key of its rows in the manifest."""
        return DELIMITER.join(self.parts)

    def __str__(self) -> str:
        return self.object_id

    def __format__(self, spec: str) -> str:
        """Return the id as messages show it and commands take it: a shell would expand what follows a $."""
        return format(format_id(self.parts), spec)


def parse_table_id(parts: Sequence[str] | None, *, existing: bool = False) -> TableId:
    """Return the validated id; with `existing` also reserved names, which other clients may have given.

    Raises:
        InvalidInputError: the id is missing or empty, or a part is not a usable name.
    """
    if parts is None:
        raise InvalidInputError("table id is required")
    checked = _check_parts(parts, what="table", existing=existing)
    if not checked:
        raise InvalidInputError("table id is empty: it needs at least the table's name")
    return TableId(namespace=checked[:-1], name=checked[-1])


def parse_namespace_id(parts: Sequence[str] | None, *, existing: bool = False) -> tuple[str, ...]:
    """Return the validated namespace id; the empty tuple is the root. `existing` is as for a table.

    Raises:
        InvalidInputError: the id is missing, or a part is not a usable name.
    """
    if parts is None:
        raise InvalidInputError("namespace id is required; use [] for the root")
    return _check_parts(parts, what="namespace", existing=existing)


def _check_parts(parts: Sequence[str], *, what: str, existing: bool) -> tuple[str, ...]:
    if isinstance(parts, str) or not all(isinstance(part, str) for part in parts):
        raise InvalidInputError(f"{what} id must be a list of strings, got {parts!r}")
    for part in parts:
        reason = why_unusable(part)
        if part in RESERVED_NAMES and not existing:
            reason = "it is reserved; what another client gave this name can be listed, described and read"
        if reason is not None:
            raise InvalidInputError(f"invalid {what} name {part!r}: {reason}")
    return tuple(parts)


def why_unusable(name: str) -> str | None:
    """Return the reason why `name` cannot name a table or namespace, or None when it can."""
    if _PLAIN.fullmatch(name):
        return None
    if not name:
        return "it is empty"
    if name in {".", ".."}:
        return "it refers to a directory"
    if name != name.strip():
        return "it starts or ends with whitespace"
    return _why_characters_unusable(name)


def _why_characters_unusable(name: str) -> str | None:
    for character in name:
        if character in _REFUSED_CHARACTERS:
            return f"it contains {character!r} ({_REFUSED_CHARACTERS[character]})"
        # Cc control, Cf format (invisible), Cs lone surrogate, Co private, Cn unassigned, Zl/Zp line ends.
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
            return f"it contains the unprintable character U+{ord(character):04X}"
    if unicodedata.normalize("NFC", name) != name:
        return "it is not in Unicode normalization form C, so file systems may treat it as another name"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    return None


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
            f"invalid table id {text!r}: use a form like prod.users, with backticks around a name "
            "that contains a dot, like prod.`my.table`"
        )
    return tuple(parts)


def _parse_json_id(text: str) -> tuple[str, ...]:
    try:
        parts = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInputError(f"invalid table id {text!r}: looks like JSON but is not a list of strings")
    return tuple(parts)


def shown_id(object_id: str) -> str:
    """Return an object id as messages show it: a shell would expand what follows its delimiter."""
    return format_id(object_id.split(DELIMITER))


def shell_id(parts: Sequence[str]) -> str:
    """Return an id quoted for a shell, which would otherwise run the text between backticks."""
    return shlex.quote(format_id(parts))


def format_id(parts: Sequence[str]) -> str:
    """Return the text that means this id, with backticks only where they are needed."""
    return ".".join(
        part if _PLAIN_PART.fullmatch(part) and not part.startswith("[") else f"`{part.replace('`', '``')}`"
        for part in parts
    )
