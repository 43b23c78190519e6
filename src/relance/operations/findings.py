"""What a scrub can find. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relance.errors import RelanceError


class Problem(StrEnum):
    """What can be wrong with a name."""

    DAMAGED_MARKER = "damaged marker"
    MARKER_WITHOUT_DATA = "marker without data"
    DATA_WITHOUT_TABLE = "data hidden by nothing"
    STALE_PURGE = "purge whose holder is gone"
    STALE_REVIVAL = "create whose holder is gone"
    STALE_WRITE = "overwrite whose holder is gone"
    STALE_SWEEP = "sweep whose holder is gone"
    DATA_BELOW_TOMBSTONE = "data below a tombstone"
    STALE_SIGN = "sign that no longer tells anything"
    UNREADABLE_MANIFEST = "manifest that cannot be used"
    DUPLICATE_ROW = "id that is in the manifest twice"
    DAMAGED_ROW = "damaged row"
    BAD_LOCATION = "row that leads where no table may be"
    ROW_WITHOUT_FILES = "row without files"
    NO_NAMESPACE = "object in a namespace that does not exist"
    OUT_OF_STEP = "row and marker that do not agree"
    ORPHAN_DIRECTORY = "directory that no row leads to"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, what would mend it, and whether that was done."""

    name: str
    problem: Problem
    remedy: str
    repaired: bool = False
    error: RelanceError | None = None
