"""Pages of a sorted list of names. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def page_of(names: Sequence[str], *, token: str | None, limit: int | None) -> tuple[list[str], str | None]:
    """Return the page after `token` (the last name of the page before) and the token of the next one.

    `names` are sorted by their bytes. A negative limit means none, zero gives nothing.
    """
    rest = [name for name in names if name.encode() > token.encode()] if token else list(names)
    if limit is None or limit < 0:
        return rest, None
    page = rest[:limit]
    return page, page[-1] if page and len(rest) > limit else None
