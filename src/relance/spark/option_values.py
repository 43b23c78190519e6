"""What the text of one option means, or an error that names the option. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from relance.config import parse_flag
from relance.errors import InvalidInputError

_BYTES = re.compile(r"([0-9]+)\s*([kmgt]?)(?:i?b)?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def flag(options: Mapping[str, str], name: str) -> bool:
    """Return a flag; one that is not given is off."""
    return name in options and parse_flag(options[name], what=f"option {name!r}")


def optional_flag(options: Mapping[str, str], name: str) -> bool | None:
    """Return a flag, or None when it is not given."""
    return flag(options, name) if name in options else None


def whole_number(options: Mapping[str, str], name: str, *, least: int) -> int | None:
    """Return a number of at least `least`, or None when it is not given.

    Raises:
        InvalidInputError: it is no such number.
    """
    text = options.get(name)
    if text is None:
        return None
    plain = text.strip()
    if not (plain.isascii() and plain.isdecimal()) or not least <= int(plain) < 1 << 63:
        raise InvalidInputError(f"option {name!r} must be a whole number of at least {least}, got {text!r}")
    return int(plain)


def byte_count(options: Mapping[str, str], name: str) -> int | None:
    """Return a size such as `64mb` or `1048576` in bytes, or None when it is not given.

    Raises:
        InvalidInputError: it is no size.
    """
    text = options.get(name)
    if text is None:
        return None
    found = _BYTES.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidInputError(f"option {name!r} must be a size such as 128mb, got {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def timestamp(options: Mapping[str, str], name: str) -> datetime | None:
    """Return an ISO time; one without a zone is in UTC.

    Raises:
        InvalidInputError: it is none.
    """
    text = options.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as cause:
        raise InvalidInputError(
            f"option {name!r} must be a time such as 2026-03-01T12:00:00Z, got {text!r}"
        ) from cause


def names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return a list of names: a JSON list, or names with commas between them.

    Raises:
        InvalidInputError: a name is empty or comes twice.
    """
    text = options.get(name)
    if text is None:
        return None
    if text.lstrip().startswith("["):
        found = _json(name, text)
        if not all(isinstance(each, str) for each in found):
            raise InvalidInputError(f"option {name!r} must be a JSON list of names, got {text!r}")
    else:
        found = [each.strip() for each in text.split(",")] if text.strip() else []
    if "" in found:
        raise InvalidInputError(f"option {name!r} contains an empty name: {text!r}")
    twice = sorted({each for each in found if found.count(each) > 1})
    if twice:
        raise InvalidInputError(f"option {name!r} names {twice[0]!r} twice")
    return tuple(found)


def json_map(options: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return a JSON object; one that is not given is empty.

    Raises:
        InvalidInputError: it is none.
    """
    text = options.get(name)
    if text is None:
        return {}
    found = _json(name, text)
    if not isinstance(found, dict):
        raise InvalidInputError(f"option {name!r} must be a JSON object such as {{}}, got {text!r}")
    return found


def one_of(options: Mapping[str, str], name: str, *choices: str) -> str | None:
    """Return one of the choices, or None when it is not given.

    Raises:
        InvalidInputError: it is none of them.
    """
    text = options.get(name)
    if text is None:
        return None
    plain = text.strip().lower()
    if plain not in choices:
        raise InvalidInputError(f"option {name!r} must be {' or '.join(choices)}, got {text!r}")
    return plain


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as cause:
        raise InvalidInputError(f"option {name!r} is not valid JSON: {text!r}") from cause
