"""In which line of a TOML file each key stands, which tomllib does not tell. Pure.

Looks only at how the text is built, not at what values mean: tomllib judges that. Where the text cannot
be followed, the look ends, so that a text that costs tomllib too much never gets there: see Scan.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

MAX_DEPTH = 20
"""Parts of a dotted key, and lists or tables in each other: tomllib takes the square of that in time."""

_MAX_ITEMS = 2000
"""Items of a list beyond this have the line of the list."""

_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*+")
_BLANK = re.compile(r"[ \t]*+")
_END = re.compile(r"[ \t]*+(?:#[^\n]*)?(?:\n|\Z)")
_KEY = re.compile(r"([A-Za-z0-9_-]++)|\"((?:[^\"\\\n]|\\[^\n])*+)\"|'([^'\n]*+)'")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*+'{3,5}"
    r'|"(?!"")(?:[^"\\\n]|\\[^\n])*+"'
    r"|'(?!'')[^'\n]*+'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}\n#\"'\[{=]++")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Scan:
    """What a look at a text found."""

    lines: Mapping[KeyPath, int]
    """Of each key, table and item, the first line in which it is named."""
    end: int
    """Up to where the text may be read: all of it, or to the end of the line that could not be followed."""
    lost: int | None = None
    """The line that could not be followed."""
    too_deep: int | None = None
    """The line in which the text is nested too deeply to be read at all."""

    def line_of(self, path: KeyPath) -> int:
        """Return the line of a key; of one that is not there, that of what it would be in."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def scan(text: str) -> Scan:
    """Look for the keys of a text with `\\n` at its line ends. Never raises."""
    scanner = _Scanner(text)
    try:
        scanner.document()
    except _TooDeepError as error:
        return Scan(scanner.lines, error.position, too_deep=scanner.line_at(error.position))
    except _LostError as lost:
        end = text.find("\n", lost.position) + 1
        return Scan(scanner.lines, end or len(text), lost=scanner.line_at(lost.position))
    return Scan(scanner.lines, len(text))


class _LostError(Exception):
    def __init__(self, position: int) -> None:
        self.position = position


class _TooDeepError(_LostError):
    pass


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._position = 0
        self._line_ends = [found.start() for found in re.finditer("\n", text)]
        self._tables: dict[KeyPath, int] = {}
        """How many tables each array of tables has so far."""

    def line_at(self, position: int) -> int:
        # The end of a line is a part of it.
        return bisect_right(self._line_ends, position - 1) + 1

    def document(self) -> None:
        within: KeyPath = ()
        while self._skip(_GAP) < len(self._text):
            if self._text.startswith("[", self._position):
                within = self._header()
            else:
                self._assignment(within, 0)
            self._expect(_END)

    def _header(self) -> KeyPath:
        start = self._position
        is_array = self._text.startswith("[[", start)
        bracket = "]]" if is_array else "]"
        self._position += len(bracket)
        parts = self._key()
        if not self._text.startswith(bracket, self._position):
            raise _LostError(self._position)
        self._position += len(bracket)
        path: KeyPath = ()
        for number, part in enumerate(parts, 1):
            path = (*path, part)
            self._note(path, start)
            if is_array and number == len(parts):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path, start)
        return path

    def _assignment(self, within: KeyPath, depth: int) -> None:
        start = self._position
        path = within
        for part in self._key():
            path = (*path, part)
            self._note(path, start)
        self._take("=")
        self._skip(_BLANK)
        self._value(path, depth)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            bare, basic, literal = self._expect(_KEY).groups()
            parts.append(_unescaped(basic) if basic is not None else bare if bare is not None else literal)
            if len(parts) > MAX_DEPTH:
                raise _TooDeepError(self._position)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._position):
                return parts
            self._position += 1

    def _value(self, path: KeyPath, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _TooDeepError(self._position)
        first = self._text[self._position : self._position + 1]
        if first == "[":
            self._array(path, depth)
        elif first == "{":
            self._inline_table(path, depth)
        else:
            self._expect(_STRING if first in {'"', "'"} else _PLAIN)

    def _array(self, path: KeyPath, depth: int) -> None:
        self._position += 1
        number = 0
        while not self._ends(_GAP, "]"):
            self._note((*path, number), self._position) if number < _MAX_ITEMS else None
            self._value((*path, min(number, _MAX_ITEMS)), depth + 1)
            number += 1
            if self._ends(_GAP, "]"):
                return
            self._take(",")

    def _inline_table(self, path: KeyPath, depth: int) -> None:
        self._position += 1
        # With _GAP: later versions of TOML allow line ends here; tomllib tells whether it does.
        while not self._ends(_GAP, "}"):
            self._assignment(path, depth + 1)
            if self._ends(_GAP, "}"):
                return
            self._take(",")

    def _note(self, path: KeyPath, position: int) -> None:
        self.lines.setdefault(path, self.line_at(position))

    def _skip(self, what: re.Pattern[str]) -> int:
        self._position = self._expect(what).end()
        return self._position

    def _expect(self, what: re.Pattern[str]) -> re.Match[str]:
        found = what.match(self._text, self._position)
        if found is None:
            raise _LostError(self._position)
        self._position = found.end()
        return found

    def _take(self, character: str) -> None:
        if not self._text.startswith(character, self._position):
            raise _LostError(self._position)
        self._position += 1

    def _ends(self, gap: re.Pattern[str], bracket: str) -> bool:
        self._skip(gap)
        if not self._text.startswith(bracket, self._position):
            return False
        self._position += 1
        return True


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        if code is None:
            return _ESCAPED.get(found[3], found[3])
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else found[0]

    return _ESCAPE.sub(character, text)
