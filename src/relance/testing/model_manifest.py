"""A model of the manifest table: all rows in one object, replaced by compare-and-swap.

One commit is one conditional request, as with the real one. tests/testing/test_model_manifest.py
holds it against Lance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relance.errors import (
    InternalError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.lifecycle.marker_store import new_nonce
from relance.manifest.entry import DROPPED_PREFIX, Entry, ObjectType, decode_row, encode_row
from relance.manifest.store import Change, ManifestConflictError, Snapshot
from relance.storage.protocol import ObjectStorage, Version

MODEL_KEY = "__manifest/model"


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """All rows at one version."""

    rows: Mapping[str, Entry]
    tokens: tuple[str, ...]
    """Of every commit so far, as Lance keeps its transactions."""
    metadata: Mapping[str, str]
    stored: Version | None

    @property
    def version(self) -> int:
        return len(self.tokens)

    def get(self, ids: Iterable[str]) -> dict[str, Entry]:
        return {each: self.rows[each] for each in ids if each in self.rows}

    def below(self, prefix: str) -> list[Entry]:
        return [entry for object_id, entry in self.rows.items() if object_id.startswith(prefix)]

    def dropped(self, original_id: str | None = None) -> list[Entry]:
        found = self.below(DROPPED_PREFIX)
        return [each for each in found if original_id is None or each.original_id == original_id]

    def held(self) -> list[Entry]:
        return [each for each in self.rows.values() if each.is_held]

    def at_location(self, locations: Iterable[str]) -> list[Entry]:
        wanted = tuple(locations)
        return [
            each
            for each in self.rows.values()
            if each.location and any(each.location == w or each.location.startswith(f"{w}/") for w in wanted)
        ]

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        return iter([encode_row(each) for each in self.rows.values()])

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        parent = tuple(namespace)
        found = (
            entry.parts[-1]
            for entry in self.rows.values()
            if entry.object_type == object_type and entry.is_visible and entry.parts[:-1] == parent
        )
        return iter(sorted(name for name in found if after is None or name > after))

    def own_directories(self) -> frozenset[str]:
        return frozenset(
            each.object_id for each in self.rows.values() if each.is_visible and each.has_own_directory
        )

    def moved(self) -> frozenset[str]:
        return frozenset(each.object_id for each in self.rows.values() if each.moved_to is not None)

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        found = (each.object_id for each in self.rows.values() if each.object_type == ObjectType.TABLE)
        shown = (each for each in found if self.rows[each].is_visible)
        return iter(sorted(each for each in shown if after is None or each > after))


class ModelManifest:
    """The manifest over any storage."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def latest(self) -> ModelSnapshot:
        try:
            stored = self._storage.read(MODEL_KEY)
        except KeyNotFoundError:
            return ModelSnapshot({}, (), {}, None)
        return read_model(stored.body, stored.version)

    def commit(self, read: Snapshot, change: Change) -> None:
        assert isinstance(read, ModelSnapshot)  # ours, from latest()
        rows = {key: entry for key, entry in read.rows.items() if key not in change.removed}
        for each in change.added:
            if each.object_id in rows:
                raise InternalError(f"the manifest already contains '{each.object_id}'")
            rows[each.object_id] = each
        self._put(read, rows, read.metadata)

    def set_metadata(self, values: Mapping[str, str]) -> None:
        read = self.latest()
        self._put(read, dict(read.rows), {**read.metadata, **values})

    def back_off(self, attempt: int) -> None:
        """Nobody waits in a model."""

    def wait_until(self, over: Callable[[], bool]) -> bool:
        """Nobody waits in a model: others are met in the middle of what they do."""
        return False

    def _put(self, read: ModelSnapshot, rows: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
        token = new_nonce()
        body = json.dumps(
            {
                "rows": [encode_row(entry) for entry in rows.values()],
                "tokens": [*read.tokens, token],
                "metadata": dict(metadata),
            }
        ).encode()
        try:
            if read.stored is None:
                self._storage.create(MODEL_KEY, body)
            else:
                self._storage.replace(MODEL_KEY, body, expected=read.stored)
        except (KeyExistsError, KeyChangedError, OutcomeUnknownError) as failure:
            self._settle(token, failure)

    def _settle(self, token: str, failure: RelanceError) -> None:
        if token in self.latest().tokens:
            return
        if isinstance(failure, OutcomeUnknownError):
            raise failure
        raise ManifestConflictError("the manifest changed meanwhile") from failure


def read_model(body: bytes, version: Version | None) -> ModelSnapshot:
    """Return the rows that the model's object holds."""
    fields = json.loads(body)
    rows = {row["object_id"]: decode_row(row) for row in fields["rows"]}
    return ModelSnapshot(rows, tuple(fields["tokens"]), fields["metadata"], version)
