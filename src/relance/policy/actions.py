"""What a policy wants done to one table. Pure: doing it is in pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do to one table, or to the root: ()."""

    kind: Kind
    table: tuple[str, ...]
    rule: str
    """The name of the rule that asks for it."""
    why: str
    """In a few words, with the figures that decided."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """As JSON could hold them; what they mean is the kind's business."""
