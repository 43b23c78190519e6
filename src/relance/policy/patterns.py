"""Table patterns: ids in which `*` stands for any text in a part and `**` for any number of parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from relance.errors import InvalidInputError
from relance.identifiers import DELIMITER, parse_id

MAX_PATTERN_LENGTH = 1000

ANY_PARTS = "**"


@dataclass(frozen=True)
class TablePattern:
    """A pattern for the ids of tables; no name of a table can hold a `*`, so that each is a wildcard."""

    text: str
    parts: tuple[str, ...]

    @cached_property
    def _runs(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """Return what stands between each two `**`; every part as the texts between its `*`."""
        runs: list[list[tuple[str, ...]]] = [[]]
        for part in self.parts:
            if part == ANY_PARTS:
                runs.append([])
            else:
                runs[-1].append(tuple(part.split("*")))
        return tuple(map(tuple, runs))

    @property
    def is_any(self) -> bool:
        """Tell whether every table matches, as the pattern is written."""
        return all(part == ANY_PARTS for part in self.parts)

    def matches(self, table: Sequence[str]) -> bool:
        """Tell whether the id matches, in a time that no pattern can blow up."""
        runs = self._runs
        first, last = runs[0], runs[-1]
        end = len(table) - len(last)
        # The last run first: the name of a table tells more than the namespace it is in.
        if end < 0 or not _run_matches(last, table, end):
            return False
        if len(runs) == 1:
            return end == 0
        if len(first) > end or not _run_matches(first, table, 0):
            return False
        # Each run is taken where it first fits: that leaves the most for those after it.
        position = len(first)
        for run in runs[1:-1]:
            while position + len(run) <= end and not _run_matches(run, table, position):
                position += 1
            position += len(run)
            if position > end:
                return False
        return True

    def __str__(self) -> str:
        return self.text


def parse_pattern(text: str) -> TablePattern:
    """Return the pattern that a text such as `prod.*` or `**.events_*` means.

    Parts are separated by dots; a part with a dot in it stands in backticks, as in an id.

    Raises:
        InvalidInputError: it is no pattern.
    """
    if len(text) > MAX_PATTERN_LENGTH:
        raise InvalidInputError(
            f"pattern has {len(text)} characters; at most {MAX_PATTERN_LENGTH} are allowed"
        )
    if text.startswith("[") or DELIMITER in text:
        raise InvalidInputError(f"invalid pattern {text!r}: separate its parts with dots, as in prod.*")
    try:
        parts = parse_id(text)
    except InvalidInputError:
        raise InvalidInputError(
            f"invalid pattern {text!r}: use a form such as prod.* or **.events_*, "
            "with backticks around a part that contains a dot, as in prod.`my.table*`"
        ) from None
    for part in parts:
        if ANY_PARTS in part and part != ANY_PARTS:
            raise InvalidInputError(f"invalid pattern {text!r}: '**' must be a whole part, not in {part!r}")
    return TablePattern(text, parts)


def _run_matches(run: Sequence[tuple[str, ...]], table: Sequence[str], at: int) -> bool:
    return all(fits(pieces, table[offset]) for offset, pieces in enumerate(run, at))


def fits(pieces: Sequence[str], text: str) -> bool:
    """Tell whether a text is these pieces, in this order, with anything in between."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return first == text
    end = len(text) - len(last)
    position = len(first)
    if position > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in pieces[1:-1]:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
