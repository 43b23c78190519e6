"""The problems that scrub can find. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relance.errors import RelanceError


class Problem(StrEnum):
    """The kinds of inconsistency in a root."""

    DAMAGED_MARKER = "corrupt marker"
    MARKER_WITHOUT_DATA = "marker without data"
    DATA_WITHOUT_TABLE = "data without a table"
    STALE_PURGE = "abandoned purge"
    STALE_REVIVAL = "abandoned create"
    STALE_WRITE = "abandoned overwrite"
    STALE_SWEEP = "abandoned sweep"
    DATA_BELOW_TOMBSTONE = "data under a tombstone"
    STALE_SIGN = "stale sign file"
    UNREADABLE_MANIFEST = "unusable manifest"
    DUPLICATE_ROW = "duplicate id in the manifest"
    DAMAGED_ROW = "corrupt row"
    BAD_LOCATION = "row with an invalid location"
    ROW_WITHOUT_FILES = "row without files"
    NO_NAMESPACE = "object in a missing namespace"
    OUT_OF_STEP = "row out of sync with its marker"
    ORPHAN_DIRECTORY = "directory without a row"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, its remedy, and whether it was repaired."""

    name: str
    problem: Problem
    remedy: str
    repaired: bool = False
    error: RelanceError | None = None
