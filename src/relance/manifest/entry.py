"""One row of the manifest: what it says and how it is written. Pure.

A dropped object is a row that other clients tolerate and do not show: its id becomes
`__dropped$<deletion id>`, and its metadata carries what it was and the lifecycle's marker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from relance.errors import InvalidInputError, InvalidTableStateError
from relance.identifiers import DELIMITER
from relance.lifecycle.marker import Marker, decode, encode
from relance.locations import TABLE_SUFFIX

DROPPED = "__dropped"
DROPPED_PREFIX = DROPPED + DELIMITER
HEAD_ID = f"{DROPPED_PREFIX}head"
"""The row that every commit of ours moves, so that no two of them can overlap."""

_OURS = "relance."
MARKER = f"{_OURS}marker"
"""Metadata key: the lifecycle's marker of a dropped object."""
_ORIGINAL = f"{_OURS}id"
_CASCADE = f"{_OURS}cascade"
_PROTECTED = f"{_OURS}protected"
MOVED_TO = f"{_OURS}moved_to"
"""Metadata key: the table has another name, which the marker of this one does not tell yet."""

BY_ROW = f"{_OURS}by_row"
"""Metadata key: the row decides about its table although that is in the directory of its name."""

_ANNOUNCED = f"{_OURS}announced"
_OVER = f"{_OURS}over"
_HELD = f"{_OURS}held"

HIDING = (MARKER, MOVED_TO)
"""A row whose metadata has one of these keys is not shown under its id."""


class ObjectType(StrEnum):
    """What a row stands for."""

    NAMESPACE = "namespace"
    TABLE = "table"
    VERSION = "table_version"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is about to happen to the marker beside the directory of a root table. Anyone may do it."""

    marker: Marker
    over: str
    """The nonce of the marker that this one replaces; empty when there is none."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A name that is kept for a root table while its first files are written."""

    token: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """A row. `row` holds every column as it was read, so that unknown ones survive."""

    object_id: str
    object_type: str
    location: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.object_id.split(DELIMITER))

    @property
    def is_dropped(self) -> bool:
        return self.object_id.startswith(DROPPED_PREFIX)

    @property
    def properties(self) -> dict[str, str]:
        """What users gave: our own keys are not theirs."""
        return {key: value for key, value in self.metadata.items() if not key.startswith(_OURS)}

    @property
    def marker(self) -> Marker | None:
        """The lifecycle's marker, as in V1's files.

        Raises:
            InvalidTableStateError: it cannot be understood.
        """
        text = self.metadata.get(MARKER)
        return None if text is None else decode(text.encode(), name=self.original_id)

    @property
    def is_held(self) -> bool:
        """Whether a create has claimed this row of a dropped table, which is at its id again."""
        return not self.is_dropped and MARKER in self.metadata

    @property
    def original_id(self) -> str:
        """The id before the drop."""
        return self.metadata.get(_ORIGINAL, self.object_id)

    @property
    def original_parts(self) -> tuple[str, ...]:
        return tuple(self.original_id.split(DELIMITER))

    @property
    def cascade(self) -> str | None:
        """Names the drop of a namespace that this one was part of."""
        return self.metadata.get(_CASCADE)

    @property
    def is_protected(self) -> bool:
        return self.metadata.get(_PROTECTED) == "true"

    @property
    def moved_to(self) -> str | None:
        """The new id of a renamed table, "" of a deregistered one, whose marker does not say so yet."""
        return self.metadata.get(MOVED_TO)

    @property
    def announced(self) -> Announcement | None:
        """What the marker of this root table is to become.

        Raises:
            InvalidTableStateError: it cannot be understood.
        """
        text = self.metadata.get(_ANNOUNCED)
        if text is None:
            return None
        return Announcement(decode(text.encode(), name=self.original_id), self.metadata.get(_OVER, ""))

    @property
    def hold(self) -> Hold | None:
        """Who keeps the name for a table that is being created.

        Raises:
            InvalidTableStateError: it cannot be understood.
        """
        text = self.metadata.get(_HELD)
        if text is None:
            return None
        token, _, until = text.partition(" ")
        try:
            return Hold(token, datetime.fromisoformat(until))
        except ValueError as cause:
            raise InvalidTableStateError(
                f"corrupt manifest row '{self.object_id}': {_HELD} is {text!r}"
            ) from cause

    @property
    def is_visible(self) -> bool:
        return not self.is_dropped and not any(key in self.metadata for key in HIDING)

    @property
    def has_own_directory(self) -> bool:
        """Whether this is a root table in the directory of its name, which a marker file decides about."""
        return self._is_at_home and BY_ROW not in self.metadata

    @property
    def _is_at_home(self) -> bool:
        return DELIMITER not in self.original_id and self.original_id + TABLE_SUFFIX == self.location

    def with_properties(self, properties: Mapping[str, str]) -> Entry:
        """Return the row with other properties; our own keys stay."""
        ours = {key: value for key, value in self.metadata.items() if key.startswith(_OURS)}
        return replace(self, metadata={**properties, **ours})

    def protected(self, *, on: bool) -> Entry:
        return self._with(_PROTECTED, "true" if on else None)

    def moved(self, to: str) -> Entry:
        return self._with(MOVED_TO, to)

    def announcing(self, announcement: Announcement) -> Entry:
        """Return the row with what is about to happen to its marker."""
        told = self.settled()._with(_ANNOUNCED, encode(announcement.marker).decode())
        return told._with(_OVER, announcement.over)

    def with_hold(self, hold: Hold) -> Entry:
        return self._with(_HELD, f"{hold.token} {hold.until.isoformat()}")

    def settled(self) -> Entry:
        """Return the row without what was about to happen."""
        return self._with(_ANNOUNCED, None)._with(_OVER, None)._with(_HELD, None)

    def by_row(self) -> Entry:
        """Return the row as one that decides by itself, wherever its table is."""
        return self._with(BY_ROW, "true" if self._is_at_home else None)

    def renamed(self, object_id: str) -> Entry:
        return replace(self, object_id=object_id)

    def dropped(self, marker: Marker, *, cascade: str | None = None) -> Entry:
        """Return the row of a dropped generation."""
        row = self.settled()._with(_ORIGINAL, self.object_id)._with(_CASCADE, cascade).with_marker(marker)
        return replace(row, object_id=DROPPED_PREFIX + marker.deletion_id)

    def with_marker(self, marker: Marker) -> Entry:
        return self._with(MARKER, encode(marker).decode())

    def restored(self, object_id: str) -> Entry:
        """Return the row without a trace of the drop."""
        plain = self.settled()._with(MARKER, None)._with(_ORIGINAL, None)._with(_CASCADE, None)
        return replace(plain, object_id=object_id)

    def reviving(self, marker: Marker) -> Entry:
        """Return the row at its old id, still hidden: a create writes over it."""
        return replace(self, object_id=self.original_id).with_marker(marker)

    def _with(self, key: str, value: str | None) -> Entry:
        metadata = {name: text for name, text in self.metadata.items() if name != key}
        if value is not None:
            metadata[key] = value
        return replace(self, metadata=metadata)


def decode_row(row: Mapping[str, Any]) -> Entry:
    """Return the entry that a row of the table holds.

    Raises:
        InvalidTableStateError: its metadata is not a JSON map of strings.
    """
    return Entry(
        object_id=row["object_id"],
        object_type=row["object_type"],
        location=row["location"],
        metadata=_decode_metadata(row["object_id"], row["metadata"]),
        row=row,
    )


def _decode_metadata(object_id: str, text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    try:
        metadata = json.loads(text)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidTableStateError(
            f"corrupt manifest row '{object_id}': its metadata is not a JSON object of strings. "
            "Nothing was changed; run scrub() for repair options"
        )
    return metadata


def encode_row(entry: Entry) -> dict[str, Any]:
    """Return the columns of an entry."""
    # Null when empty, as native writes it.
    metadata = json.dumps(dict(entry.metadata), ensure_ascii=False) if entry.metadata else None
    return {
        "base_objects": None,
        **entry.row,
        "object_id": entry.object_id,
        "object_type": entry.object_type,
        "location": entry.location,
        "metadata": metadata,
    }


def check_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the properties a user gives.

    Raises:
        InvalidInputError: a key is one of ours.
    """
    for key in properties or {}:
        if key.startswith(_OURS):
            raise InvalidInputError(
                f"property {key!r} cannot be set: keys that start with {_OURS!r} are reserved for the catalog"
            )
    return dict(properties or {})
