"""What the lifecycle asks of the manifest: snapshots, and commits that nothing of ours can come between.

Protocols, because the lifecycle is explored over a model of them (testing.model_rows), which is itself
checked against Lance. The real manifest is in table, its snapshots are in snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from relance.catalog.manifest.row import (
    DROPPED_PREFIX,
    HEAD_ID,
    ObjectType,
    Row,
    encode_row,
    overlaps,
    preferred,
)
from relance.errors import ConcurrentModificationError
from relance.identifiers import shown_id

_P = ParamSpec("_P")
_T = TypeVar("_T")

_READS = 4
"""How often something is read again."""
_ATTEMPTS = 500
"""How often a change is tried again while others are faster."""


class ManifestConflictError(ConcurrentModificationError):
    """The manifest changed since it was read, or what was read is gone; no change is left behind."""


class Snapshot(Protocol):
    """The manifest at one version. If several rows have one id, it shows the one that `preferred` names."""

    @property
    def version(self) -> int:
        """0 when there is no manifest yet."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Of the table, not of a row: feature flags and settings that hold for every client."""

    def get(self, ids: Iterable[str]) -> dict[str, Row]:
        """Return the rows with these ids."""

    def below(self, prefix: str) -> list[Row]:
        """Return all rows whose id starts with `prefix`."""

    def dropped(self, original_id: str | None = None) -> list[Row]:
        """Return the rows of dropped objects, of all or of those that had this id."""

    def reviving(self) -> list[Row]:
        """Return the rows of dropped tables that a create has claimed: they are at their id already."""

    def sharing(self, directories: Iterable[str]) -> list[Row]:
        """Return the tables, dropped ones too, whose directory is one of these or lies above or below one.

        However a location is spelled, and doubled rows too: nothing may be deleted that they lead to.
        """

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the columns of every row, doubled ones too."""

    def duplicates(self) -> Iterator[str]:
        """Yield the ids that several rows have, for scrub."""

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        """Yield the names of a namespace's visible children of one type after a name, by their bytes."""

    def home_names(self) -> frozenset[str]:
        """Return the names of root tables that have a visible home row."""

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        """Yield the ids of all visible tables after one, by their bytes."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does: rows that go, by id, and rows that come, whose ids must not be left taken."""

    removed: tuple[str, ...] = ()
    added: tuple[Row, ...] = ()
    checks: Callable[[Snapshot], None] | None = None
    """Raises a RelanceError when what the change was planned on no longer holds: a namespace that must be
    there, for example. Called only if another client's commit slipped in, on what it left."""
    always: bool = False
    """Commit even if nothing changes, so that no concurrent change of ours gets through."""

    @property
    def is_empty(self) -> bool:
        return not self.removed and not self.added

    def plus(self, *others: Change) -> Change:
        """Return this change with those of others; of two rows of one id the later one counts."""
        changes = (self, *others)
        checks = [change.checks for change in changes if change.checks is not None]

        def check_all(later: Snapshot) -> None:
            for check in checks:
                check(later)

        removed = dict.fromkeys(object_id for change in changes for object_id in change.removed)
        added = {row.object_id: row for change in changes for row in change.added}
        return Change(
            tuple(removed),
            tuple(added.values()),
            checks=check_all if checks else None,
            always=any(change.always for change in changes),
        )


NO_CHANGE = Change()


class Manifest(Protocol):
    """The manifest of one root."""

    def latest(self) -> Snapshot:
        """Return the manifest as it is now.

        Raises:
            InvalidTableStateError: there is something else under its name.
            UnsupportedOperationError: a newer client's features are in use.
        """

    def recent(self) -> Snapshot:
        """Return the manifest as it was a few seconds ago at most, from memory where possible."""

    def commit(self, read: Snapshot, change: Change) -> None:
        """Write the change, if nobody changed the manifest since `read` in a way that matters to it.

        Raises:
            ManifestConflictError: somebody did; nothing was written, or it was withdrawn.
            OutcomeUnknownError: no answer; it may have been written.
        """

    def remove_duplicates(self, object_id: str) -> None:
        """Of several rows with one id, remove all but the one that readers see.

        Raises:
            ConcurrentModificationError: another client changed the manifest.
        """

    def back_off(self, attempt: int) -> None:
        """Wait a moment before the next attempt, so that rivals do not stay in step."""

    def set_metadata(self, values: Mapping[str, str]) -> None:
        """Set keys of the table's metadata, which every client of the root sees."""


def rereading(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make a function that only reads start again when the version it reads was removed meanwhile."""

    @wraps(read)
    def reread(*arguments: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(_READS):
            with suppress(ManifestConflictError):
                return read(*arguments, **options)
        return read(*arguments, **options)

    return reread


def transact(manifest: Manifest, plan: Callable[[Snapshot], tuple[Change, _T]]) -> _T:
    """Carry out what `plan` decides on the manifest it was decided on; plan again when others were first.

    `plan` only reads, and refuses by raising.

    Raises:
        ConcurrentModificationError: others were first every time.
    """
    for attempt in range(_ATTEMPTS):
        try:
            snapshot = manifest.latest()
            change, result = plan(snapshot)
            if change.always or not change.is_empty:
                manifest.commit(snapshot, change)
        except ManifestConflictError:
            manifest.back_off(attempt)
            continue
        return result
    raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")


def require_undisturbed(
    without: Snapshot,
    metadata: Mapping[str, str],
    change: Change,
    others: Mapping[str, int],
    left: Mapping[str, int],
) -> None:
    """Check a change that landed after another client's commit, which did not refuse it.

    `without` is the manifest as it would be without the change, `metadata` what it was planned on,
    `others` and `left` count the other rows that its ids have now and had then.

    Raises:
        RelanceError: it must be withdrawn.
    """
    if dict(without.metadata) != dict(metadata):
        raise ManifestConflictError("another client changed the manifest's settings at the same time")
    for object_id in sorted(others):
        if others[object_id] > left.get(object_id, 0):
            raise ManifestConflictError(f"another client added '{shown_id(object_id)}' at the same time")
    if change.checks is not None:
        change.checks(without)


@dataclass(frozen=True)
class RowsSnapshot:
    """A snapshot of rows that are all in memory."""

    rows: Sequence[Row]
    version: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def get(self, ids: Iterable[str]) -> dict[str, Row]:
        return {object_id: self._by_id[object_id] for object_id in ids if object_id in self._by_id}

    def below(self, prefix: str) -> list[Row]:
        return [row for object_id, row in self._by_id.items() if object_id.startswith(prefix)]

    def dropped(self, original_id: str | None = None) -> list[Row]:
        rows = [row for row in self.below(DROPPED_PREFIX) if row.is_dropped]
        return [row for row in rows if original_id in {None, row.original_id}]

    def reviving(self) -> list[Row]:
        return [row for row in self._by_id.values() if row.is_reviving]

    def sharing(self, directories: Iterable[str]) -> list[Row]:
        directories = [*directories]
        return [row for row in self.rows if is_sharing(row, directories)]

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        return iter([encode_row(row) for row in self.rows])

    def duplicates(self) -> Iterator[str]:
        counts = Counter(row.object_id for row in self.rows)
        return iter(sorted(object_id for object_id, count in counts.items() if count > 1))

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        parent = tuple(namespace)
        names = (row.parts[-1] for row in self._visible(object_type) if row.parts[:-1] == parent)
        return iter(sorted(name for name in names if after is None or name > after))

    def home_names(self) -> frozenset[str]:
        return frozenset(row.object_id for row in self._visible(ObjectType.TABLE) if row.is_home)

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        ids = (row.object_id for row in self._visible(ObjectType.TABLE))
        return iter(sorted(object_id for object_id in ids if after is None or object_id > after))

    def _visible(self, object_type: str) -> Iterator[Row]:
        return (row for row in self._by_id.values() if row.object_type == object_type and row.is_visible)

    @cached_property
    def _by_id(self) -> dict[str, Row]:
        return {row.object_id: row for row in one_per_id(self.rows) if row.object_id != HEAD_ID}


def one_per_id(rows: Iterable[Row]) -> list[Row]:
    """Return one row for every id, the one that counts."""
    by_id: dict[str, list[Row]] = {}
    for row in rows:
        by_id.setdefault(row.object_id, []).append(row)
    return [preferred(same) for same in by_id.values()]


def is_sharing(row: Row, directories: Iterable[str]) -> bool:
    """Tell whether a row is a table whose directory is one of these or lies above or below one."""
    directory = row.normalized_location
    return row.object_type == ObjectType.TABLE and directory is not None and overlaps(directory, directories)
