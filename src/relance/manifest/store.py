"""Reading the manifest, and changing it by commits that nothing can come between.

A protocol, because the lifecycle is explored over a model of it (testing.model_manifest), which is
itself checked against Lance. The real one is in lance_manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from relance.errors import ConcurrentModificationError
from relance.manifest.entry import Entry

_P = ParamSpec("_P")
_T = TypeVar("_T")

_READS = 4
"""How often something is read again."""
_ATTEMPTS = 500
"""How often a change is tried again while others are faster."""


class ManifestConflictError(ConcurrentModificationError):
    """The manifest changed since it was read, or what was read is gone; nothing was written."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does: rows that go, by id, and rows that come, whose ids must not be left taken."""

    removed: tuple[str, ...] = ()
    added: tuple[Entry, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.removed and not self.added


NO_CHANGE = Change()


class Snapshot(Protocol):
    """The manifest at one version."""

    @property
    def version(self) -> int:
        """0 when there is no manifest yet."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Of the table, not of a row: feature flags and settings that hold for every client."""

    def get(self, ids: Iterable[str]) -> dict[str, Entry]:
        """Return the rows with these ids.

        Raises:
            InvalidTableStateError: one of them is damaged or there twice.
        """

    def below(self, prefix: str) -> list[Entry]:
        """Return all rows whose id starts with `prefix`."""

    def dropped(self, original_id: str | None = None) -> list[Entry]:
        """Return the rows of dropped objects, of all or of those that had this id."""

    def held(self) -> list[Entry]:
        """Return the rows of dropped tables that a create has claimed: they are at their id already."""

    def at_location(self, locations: Iterable[str]) -> list[Entry]:
        """Return the rows that lead to one of these directories or to something below it."""

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield every row as it is, damaged and doubled ones too."""

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        """Yield the names of a namespace's visible children of one type after a name, by their bytes."""

    def own_directories(self) -> frozenset[str]:
        """Return the names of root tables whose rows lead to the directory of that name."""

    def moved(self) -> frozenset[str]:
        """Return the ids of tables that have another name now, which their old marker may not tell yet."""

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        """Yield the ids of all visible tables after one, by their bytes."""


class Manifest(Protocol):
    """The manifest of one root."""

    def latest(self) -> Snapshot:
        """Return the manifest as it is now.

        Raises:
            InvalidTableStateError: there is something else under its name.
            UnsupportedOperationError: a newer client's features are in use.
        """

    def commit(self, read: Snapshot, change: Change) -> None:
        """Write the change, if nobody changed the manifest since `read`.

        Raises:
            ManifestConflictError: somebody did.
            OutcomeUnknownError: no answer; it may have been written.
        """

    def back_off(self, attempt: int) -> None:
        """Wait a moment before the next attempt, so that rivals do not stay in step."""

    def wait_until(self, over: Callable[[], bool]) -> bool:
        """Wait a moment for another client, and tell whether what was waited for came."""

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
            if not change.is_empty:
                manifest.commit(snapshot, change)
        except ManifestConflictError:
            manifest.back_off(attempt)
            continue
        return result
    raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")
