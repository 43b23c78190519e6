"""Remove the files of dropped tables, under a claim that nobody else can hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyNotFoundError,
    RelanceError,
)
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, new_nonce, stored_state
from relance.lifecycle.retention import holder_is_gone, is_purgeable, purge_after, writers_are_gone
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.listing.signs import remove_signs
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.directory.claims import Claim, busy, claim_purge, settled_marker
from relance.resolution import not_found
from relance.storage.probe import require_replace
from relance.storage.protocol import Deleted

_UNIQUE_NAMES = frozenset({"data", "_deletions", "_indices", "_transactions"})
"""Directories of a table whose files are never named twice; a manifest's name comes again."""

_LARGEST_BATCH = 4000
"""Files per look at the lease."""

_REPORTED = 100
"""How many of the files that are left are named."""

_ROUNDS = 5
"""How often the directory is listed again before what is left is reported."""


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """How far a purge has come; given to the progress callback after each batch."""

    id: tuple[str, ...]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """How to purge."""

    force: bool = False
    """Also before the table's time has passed."""
    rate_limit: float | None = None
    """Files per second at most."""
    progress: Callable[[PurgeProgress], None] | None = None
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What became of one table."""

    id: tuple[str, ...]
    files: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()
    """Keys that are still there although they were deleted."""
    error: RelanceError | None = None
    dry_run: bool = False

    @property
    def purged(self) -> bool:
        return self.error is None and not self.dry_run


def purge_name(context: Context, table_id: TableId, options: PurgeOptions) -> PurgeResult:
    """Claim the table and delete its files; a failure is part of the result.

    The result's error is InvalidTableStateError when the table is not dropped or its time has not
    passed, TableNotFoundError when there is none, ConcurrentModificationError when another client
    holds or took the claim.
    """
    done = _Progress(tuple(table_id.parts), options)
    try:
        require_replace(context.storage, to_do="purging")
        stored = purgeable_marker(context, table_id, force=options.force)
        claim = claim_purge(context, table_id.name, stored)
        left = _delete_all(context, claim, done)
        if left:
            failure = InvalidTableStateError(
                f"table id '{table_id}' is not gone: {len(left)} files are still there; purge it again"
            )
            return done.result(left=left, error=failure)
        remove_signs(context.storage, table_id.name)
        claim.ensure()
        claim.settle(moves.finish_purge(claim.stored.marker, new_nonce(), at=context.clock.now()))
    except RelanceError as failure:
        return done.result(error=failure)
    return done.result()


def purgeable_marker(context: Context, table_id: TableId, *, force: bool) -> StoredMarker:
    """Return the marker of a table that may be purged now.

    Raises:
        InvalidTableStateError: it is live, or its time has not passed.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another client holds it.
    """
    stored = settled_marker(context, table_id.name)
    now = context.clock.now()
    if stored is None or not stored.marker.hides:
        if look_up(context.storage, table_id.name).holds_table:
            raise InvalidTableStateError(f"table id '{table_id}' is live and cannot be purged: drop it first")
        raise not_found(table_id, None)
    marker = stored.marker
    match stored_state(stored):
        case State.DELETED if not force and not is_purgeable(marker, now=now, timing=context.timing):
            raise _too_early(table_id, marker)
        case State.DELETED if not writers_are_gone(marker, now=now, timing=context.timing):
            raise ConcurrentModificationError(
                f"table id '{table_id}' is dropped, but an overwrite that was under way may still be: "
                "purge it in half an hour"
            )
        case State.DEREGISTERED if not force:
            raise InvalidTableStateError(
                f"table id '{table_id}' is deregistered, not dropped: purge it with force=True"
            )
        case State.PURGING if not holder_is_gone(marker, now=now, timing=context.timing):
            raise busy(table_id.name, marker)
        case State.PURGED if not context.storage.which_exist([f"{table_directory(table_id.name)}/"]):
            raise not_found(table_id, marker)
    return stored


def _too_early(table_id: TableId, marker: Marker) -> InvalidTableStateError:
    """Return the error for a table whose time has not passed."""
    due = purge_after(marker)
    when = due.strftime("%Y-%m-%d %H:%M:%S UTC") if due else "never"
    return InvalidTableStateError(
        f"table id '{table_id}' can be undropped until {when}: purge it then, or now with force=True"
    )


def _delete_all(context: Context, claim: Claim, done: _Progress) -> tuple[str, ...]:
    """Delete every file, and list again until nothing is there. Returns what is left."""
    storage, directory = context.storage, table_directory(claim.name)
    for _ in range(_ROUNDS):
        # Manifests first, while the lease is fresh: their names come again in a later table.
        children = storage.list_level(directory).directories
        shared = [f"{directory}/{child}" for child in children if child not in _UNIQUE_NAMES]
        for prefix in (*shared, directory):
            for deleted in storage.delete_below(
                prefix, before_batch=claim.ensure, largest_batch=done.largest_batch
            ):
                done.add(deleted)
        if not storage.which_exist([f"{directory}/"]):
            storage.prune(directory)
            return ()
    left = (info.key for info in storage.list_recursive(directory))
    return tuple(islice((key for key in left if _is_there(context, key)), _REPORTED))


def _is_there(context: Context, key: str) -> bool:
    """Tell an object from a folder object of S3, which is listed without its slash and cannot be named."""
    try:
        context.storage.head(key)
    except KeyNotFoundError:
        return False
    return True


@dataclass(slots=True)
class _Progress:
    """Counts, reports and slows down."""

    id: tuple[str, ...]
    options: PurgeOptions
    files: int = 0
    bytes: int = 0

    @property
    def largest_batch(self) -> int:
        """Files until the next look at the lease; at most a second's worth when there is a rate."""
        rate = self.options.rate_limit
        return _LARGEST_BATCH if rate is None else max(1, min(_LARGEST_BATCH, int(rate)))

    def add(self, deleted: Deleted) -> None:
        self.files += deleted.files
        self.bytes += deleted.bytes
        if self.options.progress is not None:
            self.options.progress(PurgeProgress(self.id, self.files, self.bytes))
        if self.options.rate_limit:
            self.options.sleep(deleted.files / self.options.rate_limit)

    def result(self, *, left: tuple[str, ...] = (), error: RelanceError | None = None) -> PurgeResult:
        return PurgeResult(self.id, self.files, self.bytes, left, error)
