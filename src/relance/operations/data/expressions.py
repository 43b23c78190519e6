"""SQL of a request, checked for what Lance panics at or leaves out instead of refusing it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relance.errors import InvalidInputError

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`")
_PLACEHOLDER = re.compile(r"\?|\$\w+")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_SECOND_STATEMENT = re.compile(r";\s*\S")


def check_expressions(texts: Iterable[str | None]) -> None:
    """Refuse placeholders, for which a request has no values, and anything after a semicolon.

    A parenthesis too many is refused as well: Lance takes it for the end.

    Raises:
        InvalidInputError: there is one.
    """
    for text in texts:
        plain = _QUOTED.sub("''", text or "")
        found = _PLACEHOLDER.search(plain)
        if found is not None:
            raise InvalidInputError(
                f"expression contains the placeholder {found[0]!r}, which has no value: {text!r}"
            )
        if _SECOND_STATEMENT.search(plain):
            raise InvalidInputError(f"expression continues after a semicolon: {text!r}")
        if not _is_balanced(_COMMENT.sub(" ", plain)):
            raise InvalidInputError(f"unbalanced closing parenthesis in expression: {text!r}")


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return True
