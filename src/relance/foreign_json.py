"""JSON that another client may have written, parsed within limits. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MOST_LEVELS = 100
"""Deeper values are refused: to compare or to write them would exhaust the stack."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in UTF-8, -16 or -32.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Hardly any text has so many brackets, and only those can be so deep.
    if text.count("[") + text.count("{") > MOST_LEVELS:
        _check_levels(value)
    return value


def members(text: str) -> list[tuple[str, str, str]]:
    """Split the text of a JSON object that `parse_json` accepts into its members, in order.

    Each is its key, the text of its value, and its whole text. Members written back as text keep what
    Python's values lose: numbers out of range, digits beyond a float's precision, duplicate keys.
    """
    found: list[tuple[str, str, str]] = []
    at = text.index("{") + 1
    while (start := _skip_space(text, at)) < len(text) and text[start] == '"':
        key, colon = _DECODER.raw_decode(text, start)
        begin = _skip_space(text, _skip_space(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        found.append((key, text[begin:end], text[at:end].rstrip()))
        at = _skip_space(text, end) + 1
    return found


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _check_levels(value: Any) -> None:
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError("nested too deeply")
