"""What the text of one option means, or an error that names the option. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from relance.config import parse_flag
from relance.errors import InvalidInputError
from relance.units import parse_instant, parse_size


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
    """Return a size such as `64MB` or `64MiB` in bytes, or None when it is not given.

    Raises:
        InvalidInputError: it is no size, has no unit, or is 0.
    """
    text = options.get(name)
    if text is None:
        return None
    size = parse_size(text, what=f"option {name!r}")
    if not size:
        raise InvalidInputError(f"option {name!r} must be at least 1B, got {text!r}")
    return size


def byte_text(size: int | str | None) -> str | None:
    """Return a size as an option holds it; a number in Python code is one of bytes."""
    return f"{size}B" if isinstance(size, int) else size


def timestamp(options: Mapping[str, str], name: str) -> datetime | None:
    """Return an ISO time; one without a zone is in UTC.

    Raises:
        InvalidInputError: it is none.
    """
    text = options.get(name)
    return None if text is None else parse_instant(text, what=f"option {name!r}")


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
