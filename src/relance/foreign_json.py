"""JSON that another client may have written, parsed within limits. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MOST_LEVELS = 100
"""Deeper values are refused: to compare or to write them would exhaust the stack."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
