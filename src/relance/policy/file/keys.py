"""Every key that a policy file can have, and what it may hold: parser, schema and docs follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from relance.policy.actions import Kind


class Holds(StrEnum):
    """What a key may hold."""

    FLAG = "true or false"
    COUNT = "a whole number"
    SHARE = "a number from 0 to 1"
    TEXT = "a string"
    DURATION = "a duration like 7d, 12h or 1d 6h"
    SIZE = "a number of bytes, or a size like 500GB or 128MiB"


@dataclass(frozen=True, slots=True)
class Key:
    """A key that holds one value."""

    name: str
    holds: Holds
    meaning: str
    minimum: int = 1
    """Of counts and sizes."""
    required: bool = False


_RATE = Key(
    "rate_limit",
    Holds.COUNT,
    "Maximum files deleted per second per process; defaults to the rule's rate_limit.",
)

LIMIT_KEYS = (
    Key("max_tables", Holds.COUNT, "Maximum number of tables a run may act on.", minimum=0),
    Key("max_bytes_deleted", Holds.SIZE, "Maximum bytes a run may delete.", minimum=0),
    Key("max_rows_deleted", Holds.COUNT, "Maximum rows a run may delete.", minimum=0),
)

PART_KEYS: Mapping[Kind, tuple[Key, ...]] = {
    Kind.DROP_TTL: (),  # a duration, and no table
    Kind.PROTECT: (Key("on", Holds.FLAG, "Whether drops are refused; false removes protection."),),
    Kind.DELETE_ROWS: (
        Key("delete_where", Holds.TEXT, "SQL predicate that selects the rows to delete.", required=True),
        Key("time_column", Holds.TEXT, "Timestamp or date column in the predicate; required with now()."),
    ),
    Kind.COMPACT: (
        Key("target_rows", Holds.COUNT, "Target number of rows per fragment."),
        Key("target_bytes", Holds.SIZE, "Target size of a fragment."),
        Key("deletion_threshold", Holds.SHARE, "Rewrite fragments whose share of deleted rows exceeds this."),
        Key("partial_progress", Holds.COUNT, "Commit whenever this many tasks have finished."),
        Key("defer_index_remap", Holds.FLAG, "Do not update indexes; record which rows moved instead."),
        Key("batch_size", Holds.COUNT, "Rows read per batch."),
        Key(
            "min_fragments",
            Holds.COUNT,
            "Below this many fragments, compact only above the deletion threshold.",
        ),
    ),
    Kind.REFRESH_INDEXES: (
        Key("max_lag_rows", Holds.COUNT, "Number of unindexed rows to tolerate.", minimum=0),
        Key("max_lag_ratio", Holds.SHARE, "Share of unindexed rows to tolerate."),
        Key("segment_rows", Holds.COUNT, "Build the index in segments once this many rows are unindexed."),
    ),
    Kind.CLEAN_UP: (
        Key("older_than", Holds.DURATION, "Remove only versions older than this."),
        Key("retain_versions", Holds.COUNT, "Keep at least this many of the latest versions."),
        Key("allow_young", Holds.FLAG, "Allow removing versions younger than 24 hours."),
        Key("ignore_clones", Holds.FLAG, "Skip the search for shallow clones; only for a lake without any."),
        _RATE,
    ),
    Kind.PURGE: (_RATE,),
    Kind.REMOVE_ORPHANS: (
        Key("older_than", Holds.DURATION, "Remove a directory only if all its files are older than this."),
        Key(
            "allow_young",
            Holds.FLAG,
            "Allow older_than below 24 hours; only safe while no tables are being created.",
        ),
        Key("with_versions", Holds.FLAG, "Also remove directories that contain a version."),
        _RATE,
    ),
    Kind.MAINTAIN_MANIFEST: (),
}

NOT_TRUE = {Kind.DELETE_ROWS, Kind.CLEAN_UP}
"""Parts for which `true` says too little."""

COMMON_KEYS: Mapping[str, str] = {
    "window": "Time of day during which runs may act on the tables, such as 22:00-06:00.",
    "days": "Days on which the window opens, such as mon or sat.",
    "timezone": "Time zone of the window, such as Europe/Berlin; defaults to UTC.",
    "rate_limit": "Maximum files deleted per second per process, unless the action sets its own.",
}
"""Keys of a rule, and of the defaults, beside the parts."""

RULE_KEYS: Mapping[str, str] = {
    "name": "Name of the rule, shown in plans, reports and the history.",
    "tables": "Pattern or list of patterns that table ids must match: prod.*, **.events_*, **.",
    "properties": "Required table properties: a string that may contain *, true (set) or false (not set).",
}
"""Keys that only a rule has."""

FILE_KEYS: Mapping[str, str] = {
    "limits": "Limits for one run; a run that would exceed any of them does nothing.",
    "defaults": "A rule for all tables, read before the others.",
    "rules": "The rules, read from top to bottom.",
}
