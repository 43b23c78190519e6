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
    TEXT = "a text"
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
    "rate_limit", Holds.COUNT, "Files deleted per second in each process; that of the rule if not set."
)

LIMIT_KEYS = (
    Key("max_tables", Holds.COUNT, "Tables that one run may do something to.", minimum=0),
    Key("max_bytes_deleted", Holds.SIZE, "Bytes that one run may delete.", minimum=0),
    Key("max_rows_deleted", Holds.COUNT, "Rows that one run may delete.", minimum=0),
)

PART_KEYS: Mapping[Kind, tuple[Key, ...]] = {
    Kind.DROP_TTL: (),  # a duration, and no table
    Kind.PROTECT: (Key("on", Holds.FLAG, "Whether drops are refused; false takes a protection away."),),
    Kind.DELETE_ROWS: (
        Key("delete_where", Holds.TEXT, "SQL predicate of the rows that go.", required=True),
        Key("time_column", Holds.TEXT, "Column of times or dates in it; needed with now()."),
    ),
    Kind.COMPACT: (
        Key("target_rows", Holds.COUNT, "Rows of a fragment that is large enough."),
        Key("target_bytes", Holds.SIZE, "Bytes of a fragment that is large enough."),
        Key("deletion_threshold", Holds.SHARE, "With a larger share of deleted rows it is written anew."),
        Key("partial_progress", Holds.COUNT, "Commit after every so many tasks."),
        Key("defer_index_remap", Holds.FLAG, "Leave indexes as they are, with a note of what moved."),
        Key("batch_size", Holds.COUNT, "Rows that are read at once."),
        Key("min_fragments", Holds.COUNT, "With fewer fragments only deleted rows are a reason."),
    ),
    Kind.REFRESH_INDEXES: (
        Key("max_lag_rows", Holds.COUNT, "Rows that an index may leave out.", minimum=0),
        Key("max_lag_ratio", Holds.SHARE, "Share of the rows that an index may leave out."),
        Key("segment_rows", Holds.COUNT, "From so many new rows on an index is built in parts."),
    ),
    Kind.CLEAN_UP: (
        Key("older_than", Holds.DURATION, "Age from which a version may go."),
        Key("retain_versions", Holds.COUNT, "So many of the latest versions stay."),
        Key("allow_young", Holds.FLAG, "Let versions younger than 24 hours go."),
        Key("ignore_clones", Holds.FLAG, "Do not look for shallow clones: for a lake that has none."),
        _RATE,
    ),
    Kind.PURGE: (_RATE,),
    Kind.REMOVE_ORPHANS: (
        Key("older_than", Holds.DURATION, "Age of every file from which a directory may go."),
        Key("allow_young", Holds.FLAG, "Let it be less than 24 hours: only where nobody creates tables."),
        Key("with_versions", Holds.FLAG, "Also directories that hold a version."),
        _RATE,
    ),
    Kind.MAINTAIN_MANIFEST: (),
}

NOT_TRUE = {Kind.DELETE_ROWS, Kind.CLEAN_UP}
"""Parts for which `true` says too little."""

COMMON_KEYS: Mapping[str, str] = {
    "window": "Span of the day in which something may be done, like 22:00-06:00.",
    "days": "Days on which the window opens, like mon or sat.",
    "timezone": "Time zone of the window, like Europe/Berlin; UTC if not set.",
    "rate_limit": "Files deleted per second in each process, where a part says nothing.",
}
"""Keys of a rule, and of the defaults, beside the parts."""

RULE_KEYS: Mapping[str, str] = {
    "name": "Name of the rule; plans, reports and the history show it.",
    "tables": "Pattern, or list of patterns, of the tables: prod.*, **.events_*, **.",
    "properties": "What properties of the table must be: a text with *, true (set) or false (not set).",
}
"""Keys that only a rule has."""

FILE_KEYS: Mapping[str, str] = {
    "limits": "How much one run may do; a run that would do more does nothing.",
    "defaults": "A rule for all tables that is read before the others.",
    "rules": "The rules, read from top to bottom.",
}
