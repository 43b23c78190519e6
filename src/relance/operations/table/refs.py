"""The names that tags and branches may have. Pure."""

from __future__ import annotations

import re

from relance.errors import InvalidInputError

_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LONGEST = 200
"""A name is a file name with a suffix, in each store."""


def check_tag_name(name: str) -> str:
    """Return the name if a tag may have it: letters, digits, '.', '-' and '_'.

    Letters are ASCII: Lance takes others and cannot list the tags of the table any more.

    Raises:
        InvalidInputError: it may not.
    """
    _check(name, [name], "tag")
    return name


def check_branch_name(name: str) -> str:
    """Return the name if a branch may have it: as a tag's, and several of those with '/' between.

    Raises:
        InvalidInputError: it may not, or is the one of the branch that is always there.
    """
    if name == "main":
        raise InvalidInputError("'main' is reserved for the default branch: choose another name")
    _check(name, name.split("/"), "branch")
    return name


def _check(name: str, parts: list[str], kind: str) -> None:
    if not all(_PART.fullmatch(part) and not part.endswith((".", ".lock")) for part in parts):
        raise InvalidInputError(
            f"invalid {kind} name {name!r}: use letters, digits, '-' and '_', with '.' only in between"
        )
    if ".." in name or len(name) > _LONGEST:
        raise InvalidInputError(
            f"invalid {kind} name {name!r}: it must not contain '..' or be longer than {_LONGEST} characters"
        )
