"""How a column is named in messages and in options: nested names joined by dots."""

from __future__ import annotations


def below(path: str, name: str) -> str:
    """Return the path of a part of `path`; a name that holds a dot or a backtick is put in backticks."""
    quoted = f"`{name.replace('`', '``')}`" if "." in name or "`" in name or not name else name
    return f"{path}.{quoted}" if path else quoted
