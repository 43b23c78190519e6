"""Lay out tables as lines of text: no number, id or word is ever cut or folded.

What does not fit a terminal is left out, a column at a time and from the middle; a note says so. Printing
is in output.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from relance.cli.words import printable

GAP = "…"
"""Stands for the columns that were left out at its place."""

_BETWEEN = "  "
_LEAST = 16
"""Minimum width of a column of prose."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below headings; columns named in `right` hold numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()
    empty: str = ""
    """Printed instead if there are no rows."""
    prose: frozenset[str] = frozenset()
    """Columns of sentences, which may be wrapped between words."""
    keep: frozenset[str] = frozenset()
    """Columns that are left out last."""
    can_choose: bool = False
    """The command has --columns."""
    header: bool = True
    """Print the headings."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as lines: headings first, if there are any."""

    lines: Sequence[str]
    note: str = ""
    """Says which columns were left out."""


def lay_out(grid: Grid, width: int | None) -> Layout:
    """Return a table as lines of at most `width` cells, or of any length if it is None.

    A single column is never left out, however long its values are: the terminal then breaks its lines.
    """
    grid = _without_empty_prose(grid)
    table = [
        [printable(cell) for cell in row]
        for row in ([grid.headings, *grid.rows] if grid.header else grid.rows)
    ]
    natural = [max(map(_width, column)) for column in zip(*table, strict=True)]
    prose = [heading in grid.prose for heading in grid.headings]
    chosen: Sequence[int] = range(len(natural))
    widths: Sequence[int] = natural
    if width is not None:
        least = [min(each, _LEAST) if wraps else each for each, wraps in zip(natural, prose, strict=True)]
        chosen = _fitting(least, [heading in grid.keep for heading in grid.headings], width)
        widths = _stretched(natural, least, chosen, width)
    is_right = [heading in grid.right for heading in grid.headings]
    lines = [
        line
        for row in table
        for line in _lines(
            [(row[number], widths[number], is_right[number]) for number in chosen], chosen, prose
        )
    ]
    left_out = len(natural) - len(chosen)
    return Layout(lines, _note(len(natural), len(chosen), grid.can_choose) if left_out else "")


def vertical(grid: Grid) -> Iterator[str]:
    """Yield a table as one line per value, each below the heading of its row."""
    headings = [printable(heading) for heading in grid.headings]
    width = max(map(_width, headings))
    for number, row in enumerate(grid.rows, 1):
        yield f"row {number}"
        for heading, cell in zip(headings, row, strict=True):
            yield f"  {_padded(heading, width)}  {printable(cell)}".rstrip()


def _without_empty_prose(grid: Grid) -> Grid:
    """Return the table without columns of prose that have nothing to say."""
    said = [
        heading not in grid.prose or any(row[number] for row in grid.rows)
        for number, heading in enumerate(grid.headings)
    ]
    if all(said) or not any(said):
        return grid
    rows = [list(compress(row, said)) for row in grid.rows]
    return replace(grid, headings=list(compress(grid.headings, said)), rows=rows)


def _note(columns: int, shown: int, can_choose: bool) -> str:
    ways = "choose with --columns, or see all with --vertical" if can_choose else "see all with --vertical"
    return f"{columns} columns, {shown} shown: {ways}"


def _fitting(least: Sequence[int], keep: Sequence[bool], width: int) -> Sequence[int]:
    """Return the columns to show: the first, those to keep, then as many as fit from both ends."""
    if sum(least) + len(_BETWEEN) * (len(least) - 1) <= width:
        return range(len(least))
    chosen = {0}

    def take(number: int) -> bool:
        if number not in chosen and _total(least, sorted({*chosen, number})) > width:
            return False
        chosen.add(number)
        return True

    for number, is_kept in enumerate(keep):
        if is_kept:
            take(number)
    left, right = 1, len(least) - 1
    from_left = from_right = True
    while left <= right and (from_left or from_right):
        if from_right:
            from_right = take(right)
            right -= from_right
        if from_left and left <= right:
            from_left = take(left)
            left += from_left
    return sorted(chosen)


def _total(widths: Sequence[int], chosen: Sequence[int]) -> int:
    """Return the width of a line of the chosen columns and the gaps between them."""
    gaps = sum(after - before > 1 for before, after in _neighbours(chosen, len(widths)))
    columns = sum(widths[number] for number in chosen) + len(_BETWEEN) * (len(chosen) - 1)
    return columns + gaps * len(_BETWEEN + GAP)


def _stretched(
    natural: Sequence[int], least: Sequence[int], chosen: Sequence[int], width: int
) -> Sequence[int]:
    """Give the room that is left to the columns of prose, which want it."""
    widths = list(least)
    room = width - _total(least, chosen)
    wanting = sorted((natural[number] - least[number], number) for number in chosen)
    for place, (more, number) in enumerate(wanting):
        given = min(more, max(0, room) // (len(wanting) - place))
        widths[number] += given
        room -= given
    return widths


def _neighbours(chosen: Sequence[int], columns: int) -> Iterator[tuple[int, int]]:
    """Yield each pair of columns that are shown next to each other, and the end of the table."""
    yield from zip(chosen, [*chosen[1:], columns], strict=True)


def _lines(
    cells: Sequence[tuple[str, int, bool]], chosen: Sequence[int], prose: Sequence[bool]
) -> Iterator[str]:
    """Yield the lines of one row; cells of prose may take several."""
    wrapped = [
        _wrapped(text, width) if prose[number] else [text]
        for (text, width, _), number in zip(cells, chosen, strict=True)
    ]
    for line in range(max(map(len, wrapped))):
        parts: list[str] = []
        for (_, width, is_right), texts, (before, after) in zip(
            cells, wrapped, _neighbours(chosen, len(prose)), strict=True
        ):
            text = texts[line] if line < len(texts) else ""
            parts.append(_padded(text, width, right=is_right))
            if after - before > 1:
                parts.append(GAP if line == 0 else " ")
        yield _BETWEEN.join(parts).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _padded(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
