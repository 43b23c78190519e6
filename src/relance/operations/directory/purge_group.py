"""Delete the files of tables that were found ready for it: many small ones together, others one by one.

Together means fewer requests and fewer syncs: the claims are taken by one call, the files of all deleted by
two, and one look tells which directories are empty. A disk takes whole directories away instead. Each table
has its own claim and its own result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relance.errors import InvalidTableStateError, PermissionDeniedError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, new_nonce
from relance.listing.signs import remove_signs
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.deletion import (
    LARGEST_BATCH,
    Inside,
    Progress,
    PurgeOptions,
    PurgeResult,
    delete_directory,
    is_never_named_twice,
)
from relance.operations.directory.claims import Claim, claim_purges, settle_all
from relance.storage.protocol import Deleted, ObjectStorage

MOST_TABLES = 1024
"""Claimed together; if the process dies, so many wait for their leases to end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A table that may be purged: its marker as it was read, and what was in its directory after that.

    When the claim is taken over that very marker, all that was listed belongs to the drop: nobody could
    write a table there without changing the marker.
    """

    table_id: TableId
    stored: StoredMarker
    inside: Inside


@dataclass(slots=True)
class _Held:
    """A table under our claim, as far as its purge has come."""

    table_id: TableId
    claim: Claim
    done: Progress
    inside: Inside
    result: PurgeResult | None = None
    """Set once it is over."""

    @property
    def directory(self) -> str:
        return table_directory(self.table_id.name)

    @property
    def is_listed(self) -> bool:
        """Whether its files are known, and may all be deleted at once."""
        return self.inside.files is not None and not self.done.options.rate_limit

    def fail(self, error: RelanceError, left: tuple[str, ...] = ()) -> None:
        self.result = self.done.result(left=left, error=error)

    @property
    def ended(self) -> PurgeResult:
        assert self.result is not None  # it was taken to its end
        return self.result

    def still_ours(self) -> bool:
        """Look at the lease, and renew it in time; a table whose claim is lost fails."""
        try:
            self.claim.ensure()
        except RelanceError as error:
            self.fail(error)
        return self.result is None


def purge_ready(context: Context, ready: Sequence[Ready], options: PurgeOptions) -> list[PurgeResult]:
    """Claim the tables and delete their files; failures are part of the results, which are in their order."""
    results: dict[int, PurgeResult] = {}
    for numbers in _groups(ready, options):
        group = [ready[number] for number in numbers]
        claims = claim_purges(context, [(each.table_id.name, each.stored) for each in group])
        begun = [_begin(each, claim, options) for each, claim in zip(group, claims, strict=True)]
        with context.storage.reserve(len(group)):  # for their tombstones
            _purge_held(context, [each for each in begun if isinstance(each, _Held)])
        done = [each.ended if isinstance(each, _Held) else each for each in begun]
        results.update(zip(numbers, done, strict=True))
    return [results[number] for number in range(len(ready))]


def purge_claimed(context: Context, table_id: TableId, claim: Claim, done: Progress) -> PurgeResult:
    """Delete the files of a table that was claimed; a failure is part of the result."""
    held = _Held(table_id, claim, done, Inside(None, 0))
    _purge_held(context, [held])
    return held.ended


def _begin(ready: Ready, claim: Claim | RelanceError, options: PurgeOptions) -> _Held | PurgeResult:
    done = Progress(tuple(ready.table_id.parts), options)
    if isinstance(claim, RelanceError):
        return done.result(error=claim)
    return _Held(ready.table_id, claim, done, ready.inside)


def _groups(ready: Sequence[Ready], options: PurgeOptions) -> Iterator[list[int]]:
    """Yield the numbers of tables to purge together; one of many files, or with a rate, goes alone."""
    group: list[int] = []
    files = 0
    for number, each in enumerate(ready):
        if each.inside.files is None or options.rate_limit is not None:
            yield [number]
            continue
        if len(group) == MOST_TABLES or files + each.inside.count > LARGEST_BATCH:
            yield group
            group, files = [], 0
        group.append(number)
        files += each.inside.count
    if group:
        yield group


def _purge_held(context: Context, tables: Sequence[_Held]) -> None:
    """Take tables to their end; what became of each is in its result."""
    listed = [each for each in tables if each.is_listed]
    _discard(context, listed)
    _delete_listed(context.storage, _going_on(listed))
    _end(context, tables)


def _discard(context: Context, tables: Sequence[_Held]) -> None:
    """Take tables to their end whose directories the store can take away; others are left as they are."""
    left = {each.directory: each for each in tables if each.still_ours()}
    told = context.storage.discard(list(left), sure=lambda directory: left[directory].still_ours())
    while True:
        try:
            gone = next(told, None)
        except RelanceError as error:
            for each in _going_on(list(left.values())):
                each.fail(error)
            return
        if gone is None:
            return
        emptied = [left.pop(directory) for directory in gone]
        for each in emptied:
            each.done.add(Deleted(each.inside.count, each.inside.bytes))
        _end(context, emptied)


def _end(context: Context, tables: Sequence[_Held]) -> None:
    """Delete what is left of tables and write their tombstones."""
    storage = context.storage
    emptied = _empty(storage, [each for each in _going_on(tables) if each.is_listed])
    for each in _going_on(tables):
        if each.directory not in emptied:
            _delete_rest(storage, each)
    remove_signs(storage, *(each.table_id.name for each in _going_on(tables)))
    ending = [each for each in _going_on(tables) if each.still_ours()]
    now = context.clock.now()
    settled = [
        (each.claim, moves.finish_purge(each.claim.stored.marker, new_nonce(), at=now)) for each in ending
    ]
    for each, failure in zip(ending, settle_all(context, settled), strict=True):
        each.result = each.done.result(error=failure)


def _delete_listed(storage: ObjectStorage, tables: Sequence[_Held]) -> None:
    """Delete what was listed of small tables. Manifests first, while the leases are fresh."""
    for comes_again in (True, False):
        going = [each for each in _going_on(tables) if each.still_ours()]
        keys = [
            info.key
            for each in going
            for info in each.inside.files or ()
            if is_never_named_twice(each.directory, info.key) is not comes_again
        ]
        try:
            storage.delete_many(keys)
        except RelanceError as error:
            # Deletes of names that come again may still be under way, and must not meet a later table: then
            # all keep their claims until nothing that was sent can take effect. Other names do no harm, and
            # a refusal is an answer: the rest is done for each table by itself, and its error told.
            if comes_again and not isinstance(error, PermissionDeniedError):
                for each in going:
                    each.fail(error)
            return
    for each in _going_on(tables):
        each.done.add(Deleted(each.inside.count, each.inside.bytes))


def _empty(storage: ObjectStorage, tables: Sequence[_Held]) -> set[str]:
    """Return the directories in which nothing is left: what came late is found by looking again."""
    try:
        storage.prune(*(each.directory for each in tables))
        left = storage.which_exist([f"{each.directory}/" for each in tables])
    except RelanceError:
        return set()  # each one is looked at by itself, and its error told
    return {each.directory for each in tables if f"{each.directory}/" not in left}


def _delete_rest(storage: ObjectStorage, table: _Held) -> None:
    try:
        left = delete_directory(storage, table.directory, before_batch=table.claim.ensure, done=table.done)
    except RelanceError as error:
        table.fail(error)
        return
    if left:
        what = (
            f"purge of table id '{table.table_id}' is incomplete: {len(left)} files remain. Run purge again"
        )
        table.fail(InvalidTableStateError(what), left)


def _going_on(tables: Sequence[_Held]) -> list[_Held]:
    return [each for each in tables if each.result is None]
