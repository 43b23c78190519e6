"""Format ids, times and lists; amounts are in relance.units."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from relance.units import instant_to_second

_SHOWN = 20


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with control characters and invisible ones escaped, except those to keep."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else f"\\u{{{ord(each):X}}}" for each in text)


def id_text(parts: Sequence[str]) -> str:
    """Return an id in the form that commands accept."""
    from relance.identifiers import format_id

    return format_id(parts) if parts else "(root)"


def in_shell(parts: Sequence[str]) -> str:
    """Return an id quoted for a shell."""
    return shlex.quote(id_text(parts))


def moment(when: datetime | None) -> str:
    """Return a time in UTC, to the second; a dash if there is none."""
    return "-" if when is None else instant_to_second(when)


def moment_cell(when: datetime | None) -> str:
    """Return a time for a column whose heading names the zone."""
    return moment(when).removesuffix(" UTC")


def listed(names: Sequence[str], *, most: int = _SHOWN) -> list[str]:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    return [*names[:most], *([f"… and {rest} more"] if rest > 0 else [])]
