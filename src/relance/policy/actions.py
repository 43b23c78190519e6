"""What a policy wants done to one table, as plans and the history keep it. Pure: doing it is in pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

Setting = str | int | float | bool


class Unknown(str):
    """The name of an outcome or a state in a history row that a newer release wrote."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """As an enum has it: all are shown alike."""
        return "UNKNOWN"

    @property
    def value(self) -> str:
        return str(self)


_Word = TypeVar("_Word", bound=StrEnum)


def known_or_text(words: type[_Word], text: str) -> _Word | Unknown:
    """Return the member of an enum for a text, or the text itself when this release has no such member."""
    return words(text) if text in words.__members__.values() else Unknown(text)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do to one table, or to the root: ()."""

    kind: str
    """Of a job; one that this release does not know only in the history."""
    table: tuple[str, ...]
    rule: str
    """The name of the rule that asks for it."""
    why: str
    """In a few words, with the figures that decided."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Of the job, as JSON could hold them."""
