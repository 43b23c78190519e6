"""One row of the manifest: what it says and how it is written. Pure.

A dropped object is a row that other clients tolerate and do not list: its id becomes
`__dropped$<deletion id>`, and its metadata carries what it was. For a table in a hash directory, and for
a namespace, the metadata also holds the lifecycle's state, which is opaque here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from relance.errors import InvalidInputError
from relance.foreign_json import members, parse_json
from relance.identifiers import DELIMITER
from relance.locations import TABLE_SUFFIX, table_location

DROPPED = "__dropped"
DROPPED_PREFIX = DROPPED + DELIMITER
HEAD_ID = f"{DROPPED_PREFIX}head"
"""The row that every commit of ours rewrites, so that no two of them can overlap."""

_OURS = "relance."
CONTROL = f"{_OURS}control"
"""Metadata key: the state of a dropped generation whose row decides. A row that has it is hidden."""
_ORIGINAL = f"{_OURS}id"
_CASCADE = f"{_OURS}cascade"
_PROTECTED = f"{_OURS}protected"
_TEXT = f"{_OURS}text"
"""Metadata key: another client's metadata that is not a JSON object; written as it was if the only key."""
_THEIRS = f"{_OURS}theirs"
"""Metadata key: what a user has under the keys of a dropped row, put aside while the row is dropped."""

_STATE = (CONTROL, _ORIGINAL, _CASCADE, _THEIRS)
"""The keys of a dropped row. In any other row they are the user's."""

HIDING_KEYS = (_ORIGINAL, CONTROL)
"""A row that is not visible has one of these in its metadata; others may have them, too."""

FORMAT_1_KEYS = frozenset(
    f"{_OURS}{key}" for key in ("marker", "announced", "over", "held", "moved_to", "by_row")
)
"""Metadata keys of the first format, which only its conversion reads."""


class ObjectType(StrEnum):
    """What a row stands for."""

    NAMESPACE = "namespace"
    TABLE = "table"
    VERSION = "table_version"


_OWN_TYPES = {f"relance_{each}": each for each in (ObjectType.TABLE, ObjectType.NAMESPACE)}
"""Types that dropped rows and the head have where native clients allow it: nobody takes them for others."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `columns` holds every column as it was read, so that unknown ones survive."""

    object_id: str
    object_type: str
    location: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Any JSON values: other clients may write numbers, nulls and nested ones."""
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.object_id.split(DELIMITER))

    @property
    def is_dropped(self) -> bool:
        """Whether Relance moved the row here: other clients may have objects of their own below this id."""
        if not self.object_id.startswith(DROPPED_PREFIX):
            return False
        return self.object_type == ObjectType.VERSION or isinstance(self.metadata.get(_ORIGINAL), str)

    @property
    def is_reviving(self) -> bool:
        """Whether a create has claimed this row of a dropped table, which is at its id again."""
        return not self.is_dropped and _is_state(self.metadata.get(CONTROL))

    @property
    def is_visible(self) -> bool:
        return not self.is_dropped and not self.is_reviving

    @property
    def properties(self) -> dict[str, str]:
        """The user's properties as text; our own keys are not among them."""
        if not self.metadata:
            return {}  # mostly, and every description of a table asks
        own = {_TEXT, *self._own}
        return self._texts(*(key for key in self.metadata if key not in own))

    @property
    def has_our_keys(self) -> bool:
        """Whether Relance, and no other client, must have written this row."""
        return not self._own.isdisjoint(self.metadata)

    @property
    def _own(self) -> frozenset[str]:
        """The keys that are ours in this row: a user may have others that begin with `relance.`."""
        state = frozenset[str]() if self.is_visible else frozenset(_STATE)
        return state | {_PROTECTED} if self.is_protected else state

    @property
    def is_of_format_1(self) -> bool:
        """Whether the row was written by the first format and has to be converted."""
        return not FORMAT_1_KEYS.isdisjoint(self.metadata)

    @property
    def control_text(self) -> str | None:
        """The state of a dropped generation, for whoever understands it."""
        return None if self.is_visible else self._texts(CONTROL).get(CONTROL)

    @property
    def original_id(self) -> str:
        """The id before the drop."""
        original = self.metadata.get(_ORIGINAL)
        return original if self.is_dropped and isinstance(original, str) else self.object_id

    @property
    def original_parts(self) -> tuple[str, ...]:
        return tuple(self.original_id.split(DELIMITER))

    @property
    def cascade(self) -> str | None:
        """Names the drop of a namespace that this one was part of."""
        cascade = None if self.is_visible else self.metadata.get(_CASCADE)
        return None if cascade is None else self._texts(_CASCADE)[_CASCADE]

    @property
    def is_protected(self) -> bool:
        return self.metadata.get(_PROTECTED) in ("true", True)

    @property
    def normalized_location(self) -> str | None:
        """The directory that the row leads to; None if it is never followed."""
        try:
            return None if self.location is None else table_location(self.location)
        except InvalidInputError:
            return None

    @property
    def is_home(self) -> bool:
        """Whether this is a home row: its arbiter and marker decide, in whichever position it is."""
        name = self.original_id
        return (
            self.object_type == ObjectType.TABLE
            and DELIMITER not in name
            and "/" not in name
            and self.normalized_location == name + TABLE_SUFFIX
        )

    def with_properties(self, properties: Mapping[str, str]) -> Row:
        """Return the row with other properties; keys that nobody can set through the catalog stay."""
        ours = {key: value for key, value in self.metadata.items() if key.startswith(_OURS) and key != _TEXT}
        return replace(self, metadata={**properties, **ours})

    def protected(self, *, on: bool) -> Row:
        return self._with(_PROTECTED, "true" if on else None)

    def renamed(self, object_id: str) -> Row:
        return replace(self, object_id=object_id)

    def dropped(self, deletion_id: str, control_text: str | None, *, cascade: str | None = None) -> Row:
        """Return the row of a dropped generation; a home row carries no state."""
        row, before = self, self.columns.get("metadata")
        aside = {*_STATE, *(key for key, *_ in _members(before) if key == _TEXT)}
        theirs = {key: value for key, value in self.metadata.items() if key in aside}
        if self.is_visible and theirs:
            row = self._with(_THEIRS, "{" + ",".join(_written(theirs, before)) + "}")
        row = row._with(_ORIGINAL, self.original_id)._with(_CASCADE, cascade).with_control(control_text)
        return replace(row, object_id=DROPPED_PREFIX + deletion_id)

    def with_control(self, control_text: str | None) -> Row:
        return self._with(CONTROL, control_text)

    def restored(self, object_id: str) -> Row:
        """Return the row without a trace of the drop."""
        if self.is_visible:
            return replace(self, object_id=object_id)
        theirs = _members(self._texts(_THEIRS).get(_THEIRS))
        ours = {*_STATE, *(key for key, *_ in theirs)}
        kept = {key: value for key, value in self.metadata.items() if key not in ours}
        if not theirs:
            return replace(self, object_id=object_id, metadata=kept)
        text = _joined([*_written(kept, self.columns.get("metadata")), *(whole for *_, whole in theirs)])
        columns = {**self.columns, "metadata": text}
        return replace(self, object_id=object_id, metadata=_decode_metadata(text), columns=columns)

    def reviving(self, control_text: str) -> Row:
        """Return the row at its old id, still hidden: a create writes over it."""
        return replace(self, object_id=self.original_id).with_control(control_text)

    def _texts(self, *keys: str) -> dict[str, str]:
        """Return these members as text; a value that is not a string as the JSON that was written."""
        values = {key: self.metadata[key] for key in keys if key in self.metadata}
        if all(isinstance(value, str) for value in values.values()):
            return values
        written = {key: value for key, value, _ in _members(self.columns.get("metadata"))}
        return {
            key: value if isinstance(value, str) else written.get(key) or _dump(value)
            for key, value in values.items()
        }

    def _with(self, key: str, value: str | None) -> Row:
        metadata = {name: other for name, other in self.metadata.items() if name != key}
        if value is not None:
            metadata[key] = value
        return replace(self, metadata=metadata)


def overlaps(directory: str, directories: Iterable[str]) -> bool:
    """Tell whether a directory is one of these, or lies above or below one; all are normalized."""
    return any(
        directory == other or directory.startswith(f"{other}/") or other.startswith(f"{directory}/")
        for other in directories
    )


def decode_row(columns: Mapping[str, Any]) -> Row:
    """Return what a row of the table says; metadata of any kind is tolerated."""
    return Row(
        object_id=columns["object_id"],
        object_type=_OWN_TYPES.get(columns["object_type"], columns["object_type"]),
        location=columns["location"],
        metadata=_decode_metadata(columns["metadata"]),
        columns=columns,
    )


def encode_row(row: Row, *, own_types: bool = False) -> dict[str, Any]:
    """Return the columns of a row; metadata that was not changed is written as it was.

    With `own_types` dropped rows and the head get types of their own, which native clients do not know.
    """
    text = row.columns.get("metadata")
    if text is None or _decode_metadata(text) != row.metadata:
        text = _encode_metadata(row.metadata, text)
    return {
        "base_objects": None,
        **row.columns,
        "object_id": row.object_id,
        "object_type": _own_type(row) if own_types else str(row.object_type),
        "location": row.location,
        "metadata": text,
    }


def _is_state(value: Any) -> bool:
    """Tell whether a user cannot have written this: it has the outline of an arbiter's body."""
    body = _decode_metadata(value) if isinstance(value, str) else {}
    return body.keys() >= {"format", "state"}


def _own_type(row: Row) -> str:
    own = f"relance_{row.object_type}"
    return own if own in _OWN_TYPES and (row.is_dropped or row.object_id == HEAD_ID) else str(row.object_type)


def _decode_metadata(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        metadata = parse_json(text)
    except ValueError:
        metadata = None
    return metadata if isinstance(metadata, dict) else {_TEXT: text}


def _encode_metadata(metadata: Mapping[str, Any], before: str | None = None) -> str | None:
    """Return metadata as text; members that did not change keep their spelling in the text before."""
    if not metadata:
        return None  # as native writes it
    if metadata.keys() == {_TEXT} and isinstance(metadata[_TEXT], str):
        return str(metadata[_TEXT])
    return _joined(_written(metadata, before))


def _members(text: str | None) -> list[tuple[str, str, str]]:
    """Return key, value and the whole of each member as written; none if it is no JSON object."""
    if text is None or _decode_metadata(text) == {_TEXT: text}:
        return []
    return members(text)


def _written(metadata: Mapping[str, Any], before: str | None) -> Iterator[str]:
    old = _decode_metadata(before)
    same = {key for key, value in metadata.items() if key in old and old[key] == value}
    written = [(key, whole) for key, _, whole in _members(before) if key in same]
    yield from (whole for _, whole in written)
    present = {key for key, _ in written}
    for key, value in metadata.items():
        if key not in present:
            yield f" {_dump(key)}: {_dump(value)}"


def _joined(written: Iterable[str]) -> str:
    return "{" + ",".join(written).strip() + "}"


def _dump(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        return json.dumps(value, allow_nan=False)
    return text


def preferred(rows: Sequence[Row]) -> Row:
    """Return the row that counts if several have one id: one that is not ours, as far as that shows.

    Among equals their content decides, which no rewrite of the table's files changes. Relance never
    leaves two by itself: a client died before it withdrew the one that came second.
    """
    if len(rows) == 1:
        return rows[0]
    return min(rows, key=lambda row: (row.has_our_keys, repr(sorted(encode_row(row).items()))))


def user_properties(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the properties among the metadata of a Lance table."""
    return {key: value for key, value in metadata.items() if not key.startswith(_OURS)}


def check_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the properties a user sets.

    Raises:
        InvalidInputError: a key is one of ours.
    """
    for key in properties or {}:
        if key.startswith(_OURS):
            raise InvalidInputError(
                f"property {key!r} cannot be set: keys that start with {_OURS!r} are reserved for the catalog"
            )
    return dict(properties or {})
