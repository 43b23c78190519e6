"""What a policy wants done to one table. Pure: doing it is in pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

Setting = str | int | float | bool


class Kind(StrEnum):
    """Kinds of actions, in the order in which they are done."""

    PROTECT = "protect"
    DROP_TTL = "drop_ttl"
    DELETE_ROWS = "delete_rows"
    COMPACT = "compact"
    REFRESH_INDEXES = "refresh_indexes"
    CLEAN_UP = "clean_up"
    PURGE = "purge"
    REMOVE_ORPHANS = "remove_orphans"
    MAINTAIN_MANIFEST = "maintain_manifest"


class Unknown(str):
    """The name of a kind, an outcome or a state in a history row that a newer release wrote."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """As an enum has it: all are shown alike."""
        return "UNKNOWN"

    @property
    def value(self) -> str:
        return str(self)


AnyKind = Kind | Unknown

_Word = TypeVar("_Word", bound=StrEnum)


def known_or_text(words: type[_Word], text: str) -> _Word | Unknown:
    """Return the member of an enum for a text, or the text itself when this release has no such member."""
    return words(text) if text in words.__members__.values() else Unknown(text)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do to one table, or to the root: ()."""

    kind: AnyKind
    """Unknown only in the history."""
    table: tuple[str, ...]
    rule: str
    """The name of the rule that asks for it."""
    why: str
    """In a few words, with the figures that decided."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """As JSON could hold them; what they mean is the kind's business."""
