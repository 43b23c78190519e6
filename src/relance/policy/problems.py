"""What is wrong in a policy file: by file, line and key. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from relance.errors import InvalidInputError
from relance.jobs.settings import shown
from relance.policy.lines import KeyPath, Scan

MAX_PROBLEMS = 20
"""After so many nobody reads on, and neither does the parser."""

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint."""

    file: str
    line: int
    key: str
    """Like rules[2].compact.target_rows; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.message}"


class PolicyError(InvalidInputError):
    """A policy file cannot be used; `problems` has all that was found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[PolicyError], tuple[tuple[Problem, ...]]]:
        return (type(self), (self.problems,))


class Complaints:
    """Gathers what is wrong in one file."""

    def __init__(self, file: str, places: Scan) -> None:
        self._file = file
        self._places = places
        self._problems: list[Problem] = []
        self.hints: list[str] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Note a complaint.

        Raises:
            PolicyError: these are enough.
        """
        self._problems.append(Problem(self._file, self.line_of(path), shown_path(path), message))
        if len(self._problems) >= MAX_PROBLEMS:
            self.settle()

    def hint(self, path: KeyPath, message: str) -> None:
        """Note what is right and could be said more simply."""
        self.hints.append(str(Problem(self._file, self.line_of(path), shown_path(path), message)))

    def line_of(self, path: KeyPath) -> int:
        return self._places.line_of(path)

    def settle(self) -> None:
        """Raise what was gathered.

        Raises:
            PolicyError: there is something.
        """
        if self._problems:
            raise PolicyError(sorted(self._problems, key=lambda each: each.line))


def refuse(file: str, line: int, message: str) -> NoReturn:
    """Complain about a file as a whole.

    Raises:
        PolicyError: always.
    """
    raise PolicyError([Problem(file, line, "", message)])


def shown_path(path: KeyPath) -> str:
    """Return a path as a person would write it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) and len(part) <= _SHOWN else shown(part)
            text += f".{name}" if text else name
    return text
