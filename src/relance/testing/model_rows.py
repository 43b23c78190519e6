"""A model of the manifest table: all rows in one object, replaced by compare-and-swap.

One commit is one conditional request, as with the real one. As Lance does, it lets a commit through that
comes after an insert by another client, and then it checks and withdraws as the real manifest does.
tests/catalog/manifest/test_model_rows.py holds it against Lance.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from relance.catalog.manifest.row import Row, decode_row, encode_row, preferred
from relance.catalog.manifest.store import (
    Change,
    ManifestConflictError,
    RowsSnapshot,
    Snapshot,
    require_undisturbed,
)
from relance.catalog.states import new_nonce
from relance.errors import (
    InternalError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.storage.protocol import ObjectStorage, Version

MODEL_KEY = "__manifest/model"


class _Kind(StrEnum):
    """What made a version."""

    REWRITE = "rewrite"
    """Of the head: refuses every commit of ours that was planned before."""
    INSERT = "insert"
    """By another client: a commit of ours that was planned before goes through after it."""


@dataclass(frozen=True)
class ModelSnapshot(RowsSnapshot):
    """All rows at one version."""

    commits: tuple[tuple[str, str], ...] = ()
    """A token and a kind for every version, as Lance keeps its transactions."""
    stored: Version | None = None


class ModelManifest:
    """The manifest over any storage."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def recent(self) -> Snapshot:
        return self.latest()

    def latest(self) -> ModelSnapshot:
        try:
            stored = self._storage.read(MODEL_KEY)
        except KeyNotFoundError:
            return ModelSnapshot(())
        return read_model(stored.body, stored.version)

    def commit(self, read: Snapshot, change: Change) -> None:
        assert isinstance(read, ModelSnapshot)  # ours, from latest()
        removed, kept = _split(read.rows, change)
        version = self._put(read, removed, change.added, read.metadata)
        if version == read.version + 1:
            return
        landed = self.latest()  # or later: what came since is not ours to judge, but does no harm here
        others = Counter(row.object_id for row in _without(landed.rows, change.added))
        left = Counter(row.object_id for row in kept)
        wanted = {row.object_id for row in change.added}
        reverted = RowsSnapshot(
            (*_without(landed.rows, change.added), *removed), landed.version, landed.metadata
        )
        try:
            others = Counter({object_id: others[object_id] for object_id in wanted})
            require_undisturbed(reverted, read.metadata, change, others, left)
        except RelanceError as failure:
            if self._withdraw(change, removed, left):
                raise ManifestConflictError(failure.detail) from failure

    def set_metadata(self, values: Mapping[str, str]) -> None:
        read = self.latest()
        self._put(read, (), (), {**read.metadata, **values})

    def remove_duplicates(self, object_id: str) -> None:
        read = self.latest()
        same = [row for row in read.rows if row.object_id == object_id]
        if len(same) > 1:
            visible = preferred(same)
            self._put(read, [row for row in same if row is not visible], (), read.metadata)

    def back_off(self, attempt: int) -> None:
        """Nobody waits in a model."""

    def foreign_insert(self, row: Row) -> bool:
        """Add a row as another client's merge_insert does; tell whether its id was free."""
        while True:
            read = self.latest()
            if any(other.object_id == row.object_id for other in read.rows):
                return False
            try:
                self._put(read, (), (row,), read.metadata, kind=_Kind.INSERT)
            except ManifestConflictError:
                continue
            return True

    def _withdraw(self, change: Change, removed: Sequence[Row], left: Mapping[str, int]) -> bool:
        while True:
            read = self.latest()
            kept = _without(read.rows, change.added)
            others = Counter(row.object_id for row in kept)
            taken = any(others[row.object_id] > left.get(row.object_id, 0) for row in removed)
            if len(kept) + len(change.added) > len(read.rows) or taken:
                return False
            try:
                self._put(read, change.added, removed, read.metadata)
            except ManifestConflictError:
                continue
            return True

    def _put(
        self,
        read: ModelSnapshot,
        removed: Iterable[Row],
        added: Iterable[Row],
        metadata: Mapping[str, str],
        *,
        kind: _Kind = _Kind.REWRITE,
    ) -> int:
        """Write a version, and return its number."""
        token, base = new_nonce(), read
        while True:
            rows = [*_without(base.rows, removed), *added]
            commits = [*base.commits, (token, kind)]
            body = json.dumps(
                {"rows": [encode_row(row) for row in rows], "commits": commits, "metadata": dict(metadata)}
            ).encode()
            try:
                if base.stored is None:
                    self._storage.create(MODEL_KEY, body)
                else:
                    self._storage.replace(MODEL_KEY, body, expected=base.stored)
            except (KeyExistsError, KeyChangedError, OutcomeUnknownError) as failure:
                version, base = self._resolve_outcome(token, read, kind, failure)
                if version is not None:
                    return version
            else:
                return len(commits)

    def _resolve_outcome(
        self, token: str, read: ModelSnapshot, kind: _Kind, failure: RelanceError
    ) -> tuple[int | None, ModelSnapshot]:
        """Return the version if it was written, and what to write it on otherwise."""
        latest = self.latest()
        for version, (other, _) in enumerate(latest.commits, start=1):
            if other == token:
                return version, latest
        if isinstance(failure, OutcomeUnknownError):
            raise failure
        kinds = {other for _, other in latest.commits[read.version :]}
        if read.version == 0 or kind is _Kind.INSERT or kinds != {_Kind.INSERT}:
            raise ManifestConflictError("the manifest changed meanwhile") from failure
        return None, latest


def _split(rows: Sequence[Row], change: Change) -> tuple[list[Row], list[Row]]:
    """Return what the change removes, which is what readers see, and what keeps the same ids."""
    removed, kept = [], []
    for object_id in {*change.removed, *(row.object_id for row in change.added)}:
        same = [row for row in rows if row.object_id == object_id]
        if not same:
            continue
        if object_id not in change.removed:
            raise InternalError(f"the manifest already contains '{object_id}'")
        removed.append(preferred(same))
        kept += [row for row in same if row is not removed[-1]]
    return removed, kept


def _without(rows: Iterable[Row], removed: Iterable[Row]) -> list[Row]:
    """Return the rows except one for each that is removed; equal rows are alike."""
    gone = [encode_row(row) for row in removed]
    kept = []
    for row in rows:
        columns = encode_row(row)
        if columns in gone:
            gone.remove(columns)
        else:
            kept.append(row)
    return kept


def read_model(body: bytes, version: Version | None) -> ModelSnapshot:
    """Return the rows that the model's object holds."""
    fields = json.loads(body)
    commits = tuple((token, kind) for token, kind in fields["commits"])
    rows = tuple(decode_row(columns) for columns in fields["rows"])
    return ModelSnapshot(rows, len(commits), fields["metadata"], commits, version)
