"""Golden files: recorded behaviour as JSON, how it is written, and a readable comparison."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"
_WIDTH = 110
_RECORD_WIDTH = 200
"""What a value that holds no others may take: a record stays on one line."""


def read(name: str) -> Any:
    """Return a recorded document; an empty one if nothing was recorded yet."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(name: str, document: Any) -> None:
    """Record a document."""
    (FOLDER / f"{name}.json").write_text(as_text(document) + "\n")


def as_text(document: Any, indent: int = 0, before: int = 0) -> str:
    """Return the document as JSON with sorted keys; what fits on one line is on one line.

    Args:
        document: any JSON value.
        indent: the depth in spaces of the line that the value starts on.
        before: how many columns of that line are taken.
    """
    line = json.dumps(document, sort_keys=True, ensure_ascii=False)
    width = _WIDTH if _is_nested(document) else _RECORD_WIDTH
    if before + len(line) < width and (indent or not isinstance(document, dict)):
        return line
    inner = indent + 1
    if isinstance(document, Mapping) and document:
        pairs = ((f"{json.dumps(key, ensure_ascii=False)}: ", document[key]) for key in sorted(document))
        lines = [name + as_text(value, inner, inner + len(name)) for name, value in pairs]
        opened, closed = "{", "}"
    elif isinstance(document, list) and document:
        lines = [as_text(value, inner, inner) for value in document]
        opened, closed = "[", "]"
    else:
        return line
    return "\n".join(
        [opened, ",\n".join(" " * inner + each for each in lines), " " * indent + closed],
    )


def _is_nested(document: Any) -> bool:
    values = (
        document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    )
    return any(isinstance(each, dict | list) for each in values)


def _difference(recorded: Any, found: Any) -> tuple[Any, Any]:
    """Return both documents with only those keys whose values differ."""
    if not isinstance(recorded, dict) or not isinstance(found, dict):
        return recorded, found
    left: dict[str, Any] = {}
    right: dict[str, Any] = {}
    for key in sorted({*recorded, *found}):
        if key in recorded and key in found:
            if recorded[key] != found[key]:
                left[key], right[key] = _difference(recorded[key], found[key])
        elif key in recorded:
            left[key] = recorded[key]
        else:
            right[key] = found[key]
    return left, right


def command(name: str) -> str:
    """Return the command that records a golden file again."""
    return f"python -m tests.net.record {name}"


def assert_as_recorded(name: str, found: Any, recorded: Any) -> None:
    """Compare behaviour with its record in the golden file of this name.

    Raises:
        AssertionError: they differ; it has a diff and the command to re-record.
    """
    # Through JSON, so that tuples and enums compare as what is in the file.
    found = json.loads(json.dumps(found))
    if found == recorded:
        return
    before, after = (as_text(each).splitlines() for each in _difference(recorded, found))
    diff = difflib.unified_diff(before, after, "recorded", "now", lineterm="", n=len(before))
    raise AssertionError(
        f"{name} differs from tests/net/golden/{name}.json.\n"
        f"If the change is intended, re-record it: {command(name)}\n" + "\n".join(diff)
    )
