"""Delete the files of dropped tables: one, those named, or all whose retention period ended.

Many small tables go together: the claims are taken by one call, the files of all deleted by two, and one
commit of the manifest syncs all rows. A disk takes whole directories away instead. Each table has its own
claim and its own result. Only what was listed before the claim and is not younger than the newest version
then is deleted, so that what another client writes in the meantime stays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice

from relance.catalog.arbiter import (
    ATTEMPTS,
    Claim,
    HomeState,
    Lease,
    SwapLostError,
    begin_lease,
    busy,
    control_of,
    delete_marks,
    end_create,
    end_row_create,
    half_way,
    is_dead,
    is_same,
    move_row,
    needs_adoption,
    row_claim,
    settle,
    swap_file,
    swap_files,
    swap_row,
    sync_many,
    takeover_time,
    tidy,
    too_busy,
    without,
)
from relance.catalog.context import Context
from relance.catalog.drop import drops_of
from relance.catalog.layout import (
    ONE_TABLE_FAILS,
    Bodies,
    NameSnapshot,
    inspect_name,
    list_root,
    read_control,
)
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot
from relance.catalog.rename import decide
from relance.catalog.resolve import (
    Generation,
    NameState,
    Unreadable,
    all_generations,
    fence_is_up,
    generation_at_home,
    generation_of_row,
    is_expired,
    look_for_dropped,
    newest_write,
    not_found,
    period_end,
    require_directory,
    state_of_name,
)
from relance.catalog.states import (
    MARGIN,
    Control,
    Marked,
    Situation,
    State,
    cleared,
    control_text,
    from_seconds,
    is_strict,
    new_nonce,
    purged,
    purging,
    returned,
    seconds,
)
from relance.clock import require_moment
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
    for_python,
)
from relance.foreign_json import parse_json
from relance.identifiers import TableId, why_unusable
from relance.locations import DEREGISTERED_FILE, TABLE_SUFFIX, VERSION_HINT, VERSIONS_DIRECTORY, table_file
from relance.storage.at_once import map_at_once
from relance.storage.ballast import emptying
from relance.storage.probe import require_replace
from relance.storage.protocol import ObjectInfo, ObjectStorage, TrashClaim, Version

UNIQUE_NAMES = frozenset({"data", "_deletions", "_indices", "_transactions"})
"""Directories of a table whose files are never named twice; a manifest's name comes again."""

LARGEST_BATCH = 4000
"""Files per look at the lease."""

REMEMBERED = 500
"""A table of so many files is listed once and purged together with others; one of more by itself."""

MOST_TABLES = 1024
"""Tables that are claimed together; if the process dies, so many wait for their leases to end."""

_REPORTED = 100
"""How many of the files that are left are named."""

_ROUNDS = 5
"""How often the directory is listed again before what is left is reported."""


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """Progress of a purge, passed to the progress callback after each batch."""

    id: tuple[str, ...]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """Options of a purge."""

    force: bool = False
    """Purge even if the retention period has not ended."""
    rate_limit: float | None = None
    """Maximum number of files per second."""
    progress: Callable[[PurgeProgress], None] | None = None
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of purging one table."""

    id: tuple[str, ...]
    files: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()
    """Keys that remain after the purge."""
    error: RelanceError | None = None
    dry_run: bool = False

    @property
    def purged(self) -> bool:
        return self.error is None and not self.dry_run


def look_inside(storage: ObjectStorage, directory: str) -> tuple[ObjectInfo, ...] | None:
    """Return the files of a table; None when they are too many to be remembered."""
    files = tuple(islice(storage.list_recursive(directory), REMEMBERED + 1))
    return files if len(files) <= REMEMBERED else None


def _is_never_named_twice(directory: str, key: str) -> bool:
    """Tell whether a file of a table has a name that no later table can have."""
    return key[len(directory) + 1 :].partition("/")[0] in UNIQUE_NAMES


# What may be purged.


@dataclass(frozen=True)
class Ready:
    """A dropped table that may be purged: its arbiter as it was read, and what was listed after that."""

    generation: Generation
    files: tuple[ObjectInfo, ...] | None
    """All files in its directory; None when they are too many to be remembered."""
    upto: int | None
    """When the newest version was written, in seconds: nothing younger is deleted."""
    keeps_files: bool = False
    """Another table shares the directory, so only the row goes."""

    @property
    def table_id(self) -> TableId:
        return self.generation.table_id

    @property
    def home(self) -> NameSnapshot:
        assert self.generation.home is not None  # of a table in its home directory
        return self.generation.home

    @property
    def marked(self) -> Marked:
        assert self.home.marked is not None  # the look adopted what was not ours
        return self.home.marked

    @cached_property
    def left_behind(self) -> frozenset[str]:
        """Files that belong to the dropped table even if they are younger than its newest version."""
        if self.generation.row is not None or not self.is_fresh:
            return frozenset()
        listed = (info.key for info in self.files or ())
        keys = {key for key in listed if _is_never_named_twice(self.home.directory, key)}
        hiding = {table_file(self.home.name, DEREGISTERED_FILE)} if self.home.deregistered else set()
        return frozenset(keys | hiding)

    @property
    def is_fresh(self) -> bool:
        """Whether no other purge had claimed it, which may have deleted something."""
        return self.generation.control.state is not State.PURGING


def make_ready(
    context: Context,
    generation: Generation,
    *,
    force: bool,
    snapshot: Snapshot | None = None,
) -> Ready:
    """Look whether a dropped table may be purged now, and what it holds.

    `snapshot` is the manifest as it was before this look.

    Raises:
        InvalidTableStateError: it is live, or its retention period did not end.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another client holds it.
        UnsupportedOperationError: the store does not honour conditions.
    """
    if generation.row is not None:
        return _row_ready(context, generation, force=force)
    require_replace(context.storage, to_do="purging")
    name = generation.table_id.name
    snapshot = context.latest(writing=True) if snapshot is None else snapshot
    home = generation.home
    if home is not None and home.has_versions and home.newest is None:
        home = None  # the look that found it did not ask for the latest version
    for _ in range(ATTEMPTS):
        if home is None:
            home = inspect_name(context, name, bodies=Bodies.ALL, versions=True)
        if _settle(context, home):
            return _home_ready(context, home, snapshot, force=force)
        home = None
    raise too_busy(name)


def _settle(context: Context, home: NameSnapshot) -> bool:
    """Settle what another client left of a dropped table, a rename too; False means: look again."""
    marked = home.marked
    if marked is not None and marked.state is State.DELETED and marked.control.to:
        with suppress(SwapLostError):
            decide(context, home.name, marked)
        return False
    return settle(context, home)


def _home_ready(context: Context, home: NameSnapshot, snapshot: Snapshot | None, *, force: bool) -> Ready:
    table_id, marked = TableId((), home.name), home.marked
    generation = generation_at_home(context, home)
    if generation is None and marked is not None and marked.state is State.PURGING:
        generation = Generation(table_id, marked.control, None, home=home)
    if generation is None or marked is None:
        raise _nothing_dropped(context, NameState(table_id, snapshot, None, home, ()))
    written = home.newest.info.modified if home.newest is not None else None
    _require_due(context, generation, written, force=force)
    if marked.state is State.PURGING:
        return Ready(generation, look_inside(context.storage, home.directory), marked.control.upto)
    if fence_is_up(context, marked.control):
        until = from_seconds(marked.control.fence or 0).isoformat(timespec="seconds")
        raise ConcurrentModificationError(
            f"table id '{table_id}' is dropped, but a write that started before the drop may still be in "
            f"progress: purge it after {until}"
        )
    _refuse_shared(snapshot, home.directory, table_id)
    files = look_inside(context.storage, home.directory)
    return Ready(generation, files, _upto(context, home.directory, written, files))


def _upto(
    context: Context, directory: str, written: datetime | None, files: tuple[ObjectInfo, ...] | None
) -> int:
    """Return when the newest version was written, or the newest file where there is no version."""
    if written is not None:
        return seconds(max(written, _hint_written(context, directory, files) or written))
    times = [context.clock.at_store(info.modified) for info in files or () if info.modified is not None]
    return seconds(max(times)) if times else seconds(context.store_now())


def _hint_written(context: Context, directory: str, files: tuple[ObjectInfo, ...] | None) -> datetime | None:
    """Return when Lance noted the newest version in its hint, which it does right after writing that."""
    key = f"{directory}/{VERSIONS_DIRECTORY}/{VERSION_HINT}"
    if files is not None:
        modified = next((info.modified for info in files if info.key == key), None)
    else:
        try:
            modified = context.storage.head(key).modified
        except KeyNotFoundError:
            return None
    return None if modified is None else context.clock.at_store(modified)


def _require_due(context: Context, generation: Generation, written: datetime | None, *, force: bool) -> None:
    """Check that the retention period ended, or that the purge which claimed the table is dead.

    Raises:
        InvalidTableStateError: the period goes on, and the purge is not forced.
        ConcurrentModificationError: the other purge may go on.
    """
    claim = _claim_of(generation)
    if claim.state is State.PURGING:
        if not is_dead(context, claim.control, claim.modified):
            raise busy(context, generation.name, claim)
    elif not force and not is_expired(context, generation, written):
        raise _too_early(context, generation, written)


def _too_early(context: Context, generation: Generation, written: datetime | None) -> InvalidTableStateError:
    due, because = generation.status(context).purge_after, ""
    if written is not None and generation.dropped_at is not None and written > generation.dropped_at:
        due = period_end(written, generation.ttl(context))
        because = " (another client wrote to it after the drop, which restarts the period)"
    name = f"table id '{generation.table_id}'"
    if due is None:
        detail, wait = f"the retention period of {name} does not end", ""
    elif due > context.store_now():
        detail, wait = f"{name} can be undropped until {_second(due)}{because}", "wait until then, or "
    else:
        later = due + MARGIN + timedelta(seconds=1)  # to the second
        detail = (
            f"the retention period of {name} ended on {_second(due)}{because}, within the error of clocks"
        )
        wait = f"retry after {_second(later)}, or "
    return for_python(
        InvalidTableStateError(
            detail,
            hint=f"{wait}pass --force to purge it now",
        ),
        ": purge it later, or pass force=True to purge it now",
    )


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _refuse_shared(snapshot: Snapshot | None, directory: str, table_id: TableId) -> None:
    """Check that no row leads to a directory, above it or below it.

    Raises:
        InvalidTableStateError: one does.
    """
    if snapshot is None:
        return
    for row in snapshot.sharing([directory]):
        if not (row.is_home and row.original_id == table_id.name):
            raise _also_used(f"{table_id}", directory, row)


def _refuse_known_to_manifest(context: Context, tables: Sequence[_Held]) -> None:
    """Let those tables fail to which rows lead that a catalog without the manifest does not know."""
    if context.manifest is not None:
        return  # it was asked when the tables were looked at
    with _failing(tables):
        snapshot = context.any_snapshot()
        for table in tables:
            with _failing([table]):
                _refuse_shared(snapshot, table.directory, table.ready.table_id)


def _also_used(object_id: str, directory: str, other: Row) -> InvalidTableStateError:
    first = ": purge that one first" if other.is_dropped else ""
    return InvalidTableStateError(
        f"nothing was purged: the files of table id '{object_id}' at '{directory}' also belong to "
        f"'{other.original_id}' (location '{other.location}'){first}"
    )


def _row_ready(context: Context, generation: Generation, *, force: bool) -> Ready:
    row = generation.row
    assert row is not None  # the caller looked
    control = generation.control
    if control.state is State.REVIVING:
        end_row_create(context, row)
        raise ConcurrentModificationError(f"table id '{generation.table_id}' was being created; retry")
    is_table, claimed = row.object_type == ObjectType.TABLE, control.state is State.PURGING
    if claimed or not is_table:
        _require_due(context, generation, None, force=force)
    if not is_table:
        return Ready(generation, (), None, keeps_files=True)
    directory = require_directory(row)
    written = newest_write(context, generation)
    if not claimed:
        if generation.dropped_at is None:
            generation = _start_period(context, generation)
        _require_due(context, generation, written, force=force)
    snapshot = context.require_manifest(to_do="purging").latest()
    if is_shared(context, snapshot, row):
        return Ready(generation, (), None, keeps_files=True)
    files = look_inside(context.storage, directory)
    return Ready(generation, files, None if written is None else seconds(written))


def _start_period(context: Context, generation: Generation) -> Generation:
    """Start the retention period of a row that has no time of the store: now, when a purge first sees it."""
    row = generation.row
    assert row is not None  # a file has a time
    now = context.store_now()
    control = replace(generation.control, nonce=new_nonce(), deleted_at=now, by_store_clock=True)
    changed = row.with_control(control_text(control))
    swap_row(context, row, lambda snapshot, found: move_row(snapshot, found, changed))
    return generation_of_row(changed, control)


def is_shared(context: Context, snapshot: Snapshot, row: Row) -> bool:
    """Tell whether another row, or a root table's home directory, uses the directory of a row.

    Raises:
        InvalidTableStateError: a row uses only a part of it: without this row nobody would know of the rest.
    """
    directory = require_directory(row)
    others = [other for other in snapshot.sharing([directory]) if other.object_id != row.object_id]
    for other in others:
        if str(other.normalized_location).startswith(f"{directory}/"):
            raise _also_used(row.original_id, directory, other)
    if others:
        return True
    # Also in a catalog of the manifest alone: others on the same root see its directories.
    top = directory.split("/")[0]
    name = top.removesuffix(TABLE_SUFFIX)
    if top == name or why_unusable(name) is not None:
        return False
    home = inspect_name(context, name, bodies=Bodies.ALL)
    return (home.is_live and not home.deregistered) or home.situation is not Situation.VISIBLE


# Deleting.


@dataclass(slots=True)
class _Held:
    """A table under our claim, as far as its purge has come."""

    ready: Ready
    claim: Claim
    options: PurgeOptions
    files: int = 0
    bytes: int = 0
    deleting: bool = False
    """Something may have been deleted."""
    harmless: bool = False
    """The delete under way is of names that never come again: it may be carried out at any later time."""
    result: PurgeResult | None = None
    """Set once it is over."""

    @property
    def id(self) -> tuple[str, ...]:
        return tuple(self.ready.table_id.parts)

    @property
    def directory(self) -> str:
        return self.ready.generation.directory

    @property
    def is_listed(self) -> bool:
        """Whether its files are known, and may all be deleted at once."""
        return self.ready.files is not None and not self.options.rate_limit

    @property
    def largest_batch(self) -> int:
        """Files until the next look at the lease; at most a second's worth when there is a rate."""
        rate = self.options.rate_limit
        return LARGEST_BATCH if rate is None else max(1, min(LARGEST_BATCH, int(rate)))

    @property
    def can_be_released(self) -> bool:
        """Whether the purge failed while nothing that it sent can still hit a later table."""
        error = None if self.result is None else self.result.error
        if error is None or isinstance(error, SwapLostError):
            return False  # it is over, or another client has the claim
        return self.harmless or not (self.deleting and isinstance(error, ServiceUnavailableError))

    @property
    def ended(self) -> PurgeResult:
        """The result; no error of a purge that may have deleted something says that nothing happened."""
        assert self.result is not None  # it was taken to its end
        failure = self.result.error
        if failure is None or not self.deleting or isinstance(failure, OutcomeUnknownError):
            return self.result
        effect = f"is purged in part ({self.files} files)" if self.files else "may be purged in part"
        error = half_way(str(self.ready.table_id), effect, failure)
        error.__cause__ = failure
        return replace(self.result, error=error)

    def add(self, infos: Sequence[ObjectInfo]) -> None:
        """Count files that were deleted, report them and keep to the rate."""
        self.files += len(infos)
        self.bytes += sum(info.size for info in infos)
        if self.options.progress is not None:
            self.options.progress(PurgeProgress(self.id, self.files, self.bytes))
        if self.options.rate_limit:
            self.options.sleep(len(infos) / self.options.rate_limit)

    def end(self, *, left: tuple[str, ...] = (), error: RelanceError | None = None) -> None:
        self.result = PurgeResult(self.id, self.files, self.bytes, left, error)

    def still_ours(self) -> bool:
        """Look at the lease, and renew it in time; a table whose claim is lost fails."""
        if self.result is None:
            with _failing([self]):
                self.claim.ensure()
        return self.result is None

    def is_doomed(self, context: Context, info: ObjectInfo) -> bool:
        """Tell whether a file may be deleted: it is not younger than the newest version at the claim.

        What a writer that failed left after that version may go, too, if it was there before the claim and
        no later table can have its name, and so may the file that deregistered the table.
        """
        upto = self.claim.control.upto if self.claim.marked is not None else None
        if upto is None or info.key in self.ready.left_behind:
            return True
        return info.modified is not None and seconds(context.clock.at_store(info.modified)) <= upto


def _going_on(tables: Sequence[_Held]) -> list[_Held]:
    return [table for table in tables if table.result is None]


@contextmanager
def _failing(tables: Sequence[_Held]) -> Iterator[None]:
    """Make an error in the block the result of those tables that go on."""
    try:
        yield
    except RelanceError as error:
        for table in _going_on(tables):
            table.end(error=error)


@emptying()
def purge_ready(context: Context, ready: Sequence[Ready], options: PurgeOptions) -> list[PurgeResult]:
    """Claim tables and delete their files; failures are part of the results, which are in their order.

    Tables of many files go last, so that small ones do not wait for them.
    """
    results: dict[int, PurgeResult] = {}
    by_row = [number for number, table in enumerate(ready) if table.generation.row is not None]
    by_row.sort(key=lambda number: ready[number].files is None)
    purged_rows = map_at_once(
        context.storage, lambda number: _purge_row(context, ready[number], options), by_row
    )
    results.update(zip(by_row, purged_rows, strict=True))
    for numbers in _groups(ready, options):
        group = _purge_group(context, [ready[number] for number in numbers], options)
        results.update(zip(numbers, group, strict=True))
    return [results[number] for number in range(len(ready))]


def _groups(ready: Sequence[Ready], options: PurgeOptions) -> list[list[int]]:
    """Return which tables in home directories go together; one of many files, or with a rate, goes alone."""
    groups: list[list[int]] = []
    alone: list[list[int]] = []
    room = 0
    for number, table in enumerate(ready):
        if table.generation.row is not None:
            continue
        if table.files is None or options.rate_limit is not None:
            alone.append([number])
            continue
        if not groups or len(groups[-1]) == MOST_TABLES or len(table.files) > room:
            groups.append([])
            room = LARGEST_BATCH
        groups[-1].append(number)
        room -= len(table.files)
    return groups + alone


def _purge_group(context: Context, group: Sequence[Ready], options: PurgeOptions) -> list[PurgeResult]:
    snapshot = context.latest()
    lease = begin_lease(context)  # it counts from before the request, whose response may come late
    tables = [_Held(ready, _claim_on_file(context, ready, lease), options) for ready in group]
    with _releasing(context, tables):
        _refuse_known_to_manifest(context, tables)
        claims = [(table, table.claim.control, table.ready.marked) for table in _going_on(tables)]
        _swap_arbiters(context, claims)
        held = _going_on(tables)
        with context.storage.reserve(len(held)):  # for their tombstones
            _purge_held(context, held, snapshot)
    return [table.ended for table in tables]


def _swap_arbiters(context: Context, swaps: Sequence[tuple[_Held, Control, Marked]]) -> None:
    """Swap arbiters, all at once; a table whose arbiter another client changed fails."""
    outcomes = swap_files(context, [(table.claim.name, control, over) for table, control, over in swaps])
    for (table, _, _), outcome in zip(swaps, outcomes, strict=True):
        if isinstance(outcome, RelanceError):
            table.end(error=outcome)
        else:
            table.claim.marked = outcome


def _claim_on_file(context: Context, ready: Ready, lease: Lease) -> Claim:
    """Return a purge's claim in the arbiter's file, which is still to be written over what was read."""
    over = ready.marked
    claimed = Marked(purging(over, context.timing, upto=ready.upto), over.version)
    return Claim(context, ready.table_id.name, lease, claimed)


@contextmanager
def _releasing(context: Context, tables: Sequence[_Held]) -> Iterator[None]:
    """Release the claims of tables whose purge fails or is stopped, even while they are being taken."""
    try:
        yield
    except BaseException:
        _release(context, [table for table in tables if table.result is None or table.can_be_released])
        raise
    _release(context, [table for table in tables if table.can_be_released])


def _release(context: Context, tables: Sequence[_Held]) -> None:
    """Give claims back: as they were if nothing was deleted, else for the next purge to go on at once."""

    def release(table: _Held) -> None:
        claim = table.claim
        with suppress(RelanceError):
            if claim.control.state is not State.PURGING or not claim.reread():
                return  # it was given back, or is lost
            control = claim.control
            if table.deleting or not table.ready.is_fresh:
                claim.swap(replace(control, nonce=new_nonce(), stopped=True))
            else:
                claim.swap(returned(control, fence=control.origin.fence))

    map_at_once(context.storage, release, tables)


@contextmanager
def claimed_without_files(context: Context, home: NameSnapshot, lease: Lease) -> Iterator[_Held]:
    """Hold a purge's claim on a name without files for the block; whatever stops that releases the claim.

    Whoever takes it over deletes no file either.

    Raises:
        ConcurrentModificationError: another client changed something after the look.
    """
    name, marked = home.name, home.marked
    assert marked is not None  # there is something to claim
    ready = Ready(Generation(TableId((), name), marked.control, None, home=home), (), 0)
    table = _Held(ready, _claim_on_file(context, ready, lease), PurgeOptions())
    with _releasing(context, [table]), _failing([table]):
        table.claim.marked = swap_file(context, name, table.claim.control, over=marked)
        now = inspect_name(context, name, bodies=Bodies.ALL)
        has_marker = (home.marker is not None, now.marker is not None)
        if len({*has_marker}) > 1 or not now.is_empty or not is_same(now.marked, table.claim.marked):
            raise ConcurrentModificationError(f"table id '{name}' was changed by another client")
        try:
            table.deleting = True
            yield table
        except RelanceError as failure:
            table.deleting = isinstance(failure, ServiceUnavailableError)  # else nothing was done
            raise
    if table.result is not None and table.result.error is not None:
        raise table.result.error


def _purge_held(context: Context, tables: Sequence[_Held], snapshot: Snapshot | None) -> None:
    """Take tables to their end; what became of each is in its result."""
    map_at_once(context.storage, lambda table: _look_again(context, table), _going_on(tables))
    listed = [table for table in _going_on(tables) if table.is_listed]
    _take_away(context, listed)
    _delete_listed(context, _going_on(listed))
    _end(context, tables, snapshot)


def _look_again(context: Context, table: _Held) -> None:
    """Look at the name under the claim, and give it back to what another client did before the claim."""
    claim, listed = table.claim, table.ready.home.newest
    with _failing([table]):
        # The arbiter is not read: while the lease lasts nobody else changes it.
        home = inspect_name(context, claim.name, versions=True)
        control, newest, fresh = claim.control, home.newest, table.ready.is_fresh
        modified = None if newest is None else newest.info.modified
        younger = control.upto is not None and modified is not None and seconds(modified) > control.upto
        still_there = (newest is not None and not younger) or (fresh and listed is None and home.reserved)
        if fresh and younger and newest is not None and listed is not None:
            still_there = newest.version > listed.version
        before = control.before
        # After a strict drop a missing marker means nothing.
        strict = before is not None and is_strict(Marked(before, Version("")), context.timing)
        if home.marker is None and still_there and not strict:
            claim.swap(cleared(undid=control.id))
            raise InvalidTableStateError(
                f"table id '{claim.name}' was undropped by another client; nothing was purged"
            )
        if fresh and younger and still_there:
            claim.swap(returned(control, fence=None))  # a purge waits until the fence is down
            raise _written_to(claim)


def _written_to(claim: Claim) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{claim.name}' was written to by another client; nothing was purged"
    )


def _take_away(context: Context, tables: Sequence[_Held]) -> None:
    """Remove directories that the store can take away whole; others are left as they are."""
    left = {table.directory: table for table in tables if table.still_ours()}
    claims = {
        directory: TrashClaim(
            json.dumps({"name": table.claim.name, "id": table.claim.control.id, "token": table.claim.token}),
            None if table.claim.control.upto is None else from_seconds(table.claim.control.upto + 1),
        )
        for directory, table in left.items()
    }

    def still_owned(directory: str) -> bool:
        table = left[directory]
        with _failing([table]):  # it alone: raised from here, the error would stop the others
            table.deleting = table.still_ours() and table.claim.is_held()
        return table.deleting

    told = context.storage.remove_directories(claims, still_owned=still_owned)
    gone: Sequence[str] | None = ()
    while gone is not None:
        for directory in gone:
            table = left.pop(directory)
            table.add(table.ready.files or ())
            table.ready = replace(table.ready, files=())
        gone = None
        with _failing([*left.values()]):
            gone = next(told, None)


def _delete_listed(context: Context, tables: Sequence[_Held]) -> None:
    """Delete what was listed of small tables: the newest version first of all, while the leases are fresh."""
    storage = context.storage
    for comes_again in (True, False):
        going = [table for table in tables if table.still_ours()]
        keys: list[str] = []
        for table in going:
            table.deleting = True
            keys += _doomed(context, table, comes_again=comes_again)
        try:
            storage.delete_many(keys)
        except RelanceError as error:
            # Deletes of names that come again may still be under way, and must not meet a later table: then
            # all keep their claims until nothing that was sent can take effect. Other names do no harm, and
            # a refusal or a failure of a disk is an answer: the rest is done for each table by itself, and
            # its error told.
            if comes_again and not isinstance(error, ONE_TABLE_FAILS):
                for table in going:
                    table.end(error=error)
            return
    for table in _going_on(tables):
        table.add([info for info in table.ready.files or () if table.is_doomed(context, info)])


def _doomed(context: Context, table: _Held, *, comes_again: bool) -> list[str]:
    versions = f"{table.directory}/{VERSIONS_DIRECTORY}/"
    keys = [
        info.key
        for info in table.ready.files or ()
        if _is_never_named_twice(table.directory, info.key) is not comes_again
        and table.is_doomed(context, info)
    ]
    # In order of their names the newest version comes first.
    return sorted(keys, key=lambda key: (not key.startswith(versions), key))


def _end(context: Context, tables: Sequence[_Held], snapshot: Snapshot | None) -> None:
    """Delete what is left of tables, then their markers, and write their tombstones."""
    emptied = _empty(context.storage, [table for table in _going_on(tables) if table.is_listed])
    for table in _going_on(tables):
        if table.directory not in emptied:
            table.deleting = True
            with _failing([table]):
                delete_directory(context, table)
    ending = [table for table in tables if table.still_ours()]
    with _failing(ending):
        try:
            _delete_marks(context, ending)
        except ONE_TABLE_FAILS:
            for table in ending:  # to see whose marker it is
                with _failing([table]):
                    _delete_marks(context, [table])
    tombs: list[tuple[_Held, Control, Marked]] = []
    for table in ending:
        if table.still_ours():
            assert table.claim.marked is not None  # of a table in its home directory
            tombs.append((table, purged(table.claim.control), table.claim.marked))
    _swap_arbiters(context, tombs)
    buried = _going_on([table for table, _, _ in tombs])
    if buried and context.manifest is not None:
        with _failing(buried):
            sync_many(context, snapshot, {table.claim.name: HomeState(False, False) for table in buried})
    for table in _going_on(buried):
        table.end()


def _delete_marks(context: Context, tables: Sequence[_Held]) -> None:
    signs = [table.claim.name + suffix for table in tables for suffix in sorted(table.ready.home.signs)]
    delete_marks(context, {table.claim.name: table.claim.lease for table in tables}, also=signs)


def _empty(storage: ObjectStorage, tables: Sequence[_Held]) -> set[str]:
    """Return the directories in which nothing is left: what came late is found by looking again."""
    try:
        storage.prune(*(table.directory for table in tables))
        left = storage.which_exist([f"{table.directory}/" for table in tables])
    except RelanceError:
        return set()  # each one is looked at by itself, and its error told
    return {table.directory for table in tables if f"{table.directory}/" not in left}


def delete_directory(context: Context, table: _Held) -> None:
    """Delete the doomed files of a table, and list again until none is there; it fails if some remain.

    Raises:
        ConcurrentModificationError: the lease ended, or another client took the claim over.
    """
    storage, directory = context.storage, table.directory
    for _ in range(_ROUNDS):
        # Manifests first, while the lease is fresh: their names come again in a later table.
        children = storage.list_level(directory).directories
        first = [f"{directory}/{child}" for child in children if child not in UNIQUE_NAMES]
        for prefix in (*first, directory):
            infos = (info for info in storage.list_recursive(prefix) if table.is_doomed(context, info))
            while batch := list(islice(infos, table.largest_batch)):
                table.claim.ensure()
                table.harmless = all(_is_never_named_twice(directory, info.key) for info in batch)
                storage.delete_many(info.key for info in batch)
                table.harmless = False
                table.add(batch)
        if not any(table.is_doomed(context, info) for info in storage.list_recursive(directory)):
            storage.prune(directory)
            return
    doomed = (info.key for info in storage.list_recursive(directory) if table.is_doomed(context, info))
    left = tuple(islice((key for key in doomed if _is_there(storage, key)), _REPORTED))
    if left:
        error = InvalidTableStateError(
            f"purge of table id '{table.claim.name}' is incomplete: {len(left)} files remain. Run purge again"
        )
        table.end(left=left, error=error)


def _is_there(storage: ObjectStorage, key: str) -> bool:
    """Tell an object from a folder object of S3, which is listed without its slash and cannot be named."""
    try:
        storage.head(key)
    except KeyNotFoundError:
        return False
    return True


# Tables that their row decides about.


def _purge_row(context: Context, ready: Ready, options: PurgeOptions) -> PurgeResult:
    """Claim the row, delete the files and then the row; a failure is part of the result."""
    try:
        claim = _claim_on_row(context, ready.generation)
    except RelanceError as failure:
        return PurgeResult(tuple(ready.table_id.parts), error=failure)
    table = _Held(ready, claim, options)
    with _releasing(context, [table]), _failing([table]):
        row, mine = ready.generation.row, claim.row
        assert row is not None  # the caller looked
        assert mine is not None  # it is a claim on a row
        swap_row(context, row, lambda snapshot, found: move_row(snapshot, found, mine))
        _finish_row(context, table)
    return table.ended


def _claim_on_row(context: Context, generation: Generation) -> Claim:
    """Return a purge's claim on a row, which is still to be written."""
    row, lease = generation.row, begin_lease(context)
    assert row is not None  # the caller looked
    claimed = purging(row_claim(generation.control), context.timing, upto=None)
    claimed = replace(claimed, since=seconds(context.store_now()))
    return Claim(context, generation.name, lease, None, row.with_control(control_text(claimed)))


def _finish_row(context: Context, table: _Held) -> None:
    """Delete the files of a generation that was claimed, then its row."""
    ready, claim = table.ready, table.claim
    assert claim.row is not None  # a row was claimed
    is_table = claim.row.object_type == ObjectType.TABLE
    # Of two names that go at once, the one that goes last takes the files.
    if not (is_table and ready.keeps_files and _remove_row(context, claim, only_shared=True)):
        if is_table:
            written = newest_write(context, ready.generation)
            late = written is not None and (ready.upto is None or seconds(written) > ready.upto)
            if late and not ready.keeps_files:
                raise _written_to(claim)
            table.deleting = True
            delete_directory(context, table)
            if table.result is not None:
                return  # some files remain
            claim.ensure()
        _remove_row(context, claim)
    table.end()


def _remove_row(context: Context, claim: Claim, *, only_shared: bool = False) -> bool:
    """Remove a claimed row, with `only_shared` only while others use its directory; False: it stays."""
    assert claim.row is not None  # a row was claimed
    removed = True

    def plan(snapshot: Snapshot, row: Row) -> Change:
        nonlocal removed
        removed = not only_shared or is_shared(context, snapshot, row)
        if not removed:
            return Change()
        return without(snapshot, [row])

    swap_row(context, claim.row, plan)
    return removed


# The verbs.


@emptying()
def purge_table(
    context: Context, table_id: TableId, options: PurgeOptions, deletion_id: str | None = None
) -> list[PurgeResult]:
    """Purge the dropped generations of one table, or the one that is named; failures are in the results."""
    try:
        generations = dropped_generations(context, table_id, deletion_id)
    except RelanceError as error:
        return [PurgeResult(tuple(table_id.parts), error=error)]
    return purge_generations(context, generations, options)


def dropped_generations(context: Context, table_id: TableId, deletion_id: str | None) -> list[Generation]:
    """Return the generations to purge.

    Raises:
        InvalidTableStateError: the table is live, and nothing of its name is dropped.
        TableNotFoundError: there is nothing to purge.
    """
    state = state_of_name(context, table_id, versions=True)
    if chosen := drops_of(state, deletion_id):
        return chosen
    if (abandoned := state.abandoned) is not None and deletion_id in {None, abandoned.deletion_id}:
        return [abandoned]
    raise _nothing_dropped(context, state)


def _nothing_dropped(context: Context, state: NameState) -> RelanceError:
    """Return the error for a name of which nothing is dropped; a late marker is removed."""
    home = state.home
    if home is not None and home.marker is not None and home.situation is Situation.VISIBLE:
        tidy(context, home)
    live = home is not None and home.is_live
    if not live and not state.visible:
        return not_found(context, state)
    kind = "deregistered, not dropped" if live and home is not None and home.deregistered else "live"
    return InvalidTableStateError(
        f"table id '{state.table_id}' is {kind}, and cannot be purged: drop it first"
    )


@emptying()
def purge_generations(
    context: Context, generations: Sequence[Generation], options: PurgeOptions
) -> list[PurgeResult]:
    """Purge dropped generations; failures are part of the results, which are in their order."""
    with suppress(RelanceError):  # what was left there is in nobody's way; scrub() says why it stays
        recover_trash(context)
    results: dict[int, PurgeResult] = {}
    by_row = [number for number, each in enumerate(generations) if each.row is not None]
    rest = [number for number, each in enumerate(generations) if each.row is None]
    # A table in a home directory goes last: it alone is refused while another one shares its files.
    for numbers in (by_row, rest):
        for start in range(0, len(numbers), MOST_TABLES):
            chunk = numbers[start : start + MOST_TABLES]
            purged = _purge_chunk(context, [generations[number] for number in chunk], options)
            results.update(zip(chunk, purged, strict=True))
    return [results[number] for number in range(len(generations))]


def _purge_chunk(
    context: Context, generations: Sequence[Generation], options: PurgeOptions
) -> list[PurgeResult]:
    """Look at generations and purge them together, all of home directories or all of rows."""
    snapshot = context.latest(writing=True) if generations[0].row is None else None

    def look(generation: Generation) -> Ready | PurgeResult:
        try:
            return make_ready(context, generation, force=options.force, snapshot=snapshot)
        except RelanceError as failure:
            return PurgeResult(tuple(generation.table_id.parts), error=failure)

    looked = map_at_once(context.storage, look, generations)
    ready = [table for table in looked if isinstance(table, Ready)]
    finished = iter(purge_ready(context, ready, options))
    return [next(finished) if isinstance(table, Ready) else table for table in looked]


def recover_trash(context: Context) -> list[str]:
    """Remove or restore what dead purges of this disk took away; return the directories that came back."""

    def may_delete(prefix: str, record: str) -> bool:
        try:
            fields = parse_json(record)
            marked = read_control(context, fields["name"])
        except (ValueError, TypeError, KeyError, RelanceError):
            return False
        # The purge of the same deletion may go on, or is over: then nothing of it was undropped.
        return (
            marked is not None
            and marked.state in {State.PURGING, State.PURGED}
            and marked.control.id == fields.get("id")
        )

    return list(context.storage.recover_trash(may_delete).restored)


def is_due(context: Context, generation: Generation) -> bool:
    """Tell whether a purge of all tables looks at this one: it may have expired, or a purge of it died."""
    control = generation.control
    if control.state is State.PURGING:
        return is_dead(context, control, _claim_of(generation).modified)
    if control.state is State.REVIVING:
        return True  # if its create does not go on
    if generation.dropped_at is None:
        return True  # its period starts when a purge first sees it
    return is_expired(context, generation)


def claimed_for(context: Context, generation: Generation) -> timedelta:
    """Return how long another purge has to wait until it can take over the claim on a dropped table."""
    control, claimed = generation.control, _claim_of(generation).modified
    if control.state is not State.PURGING or control.stopped or claimed is None:
        return timedelta(0)
    return takeover_time(context, control, claimed) - context.store_now()


@emptying()
def purge_tables(
    context: Context,
    table_ids: list[TableId] | None,
    *,
    deleted_before: datetime | None,
    dry_run: bool,
    options: PurgeOptions,
) -> list[PurgeResult]:
    """Purge the named tables, or all that are due; one failure does not stop the rest.

    Raises:
        InvalidInputError: `deleted_before` has no time zone.
    """
    context = context.for_looking() if dry_run else context
    if deleted_before is not None:
        require_moment(deleted_before, what="deleted_before")
    results: list[PurgeResult] = []
    chosen: list[Generation] = []
    unreadable: list[Unreadable] = []
    if table_ids is None:
        dropped, unreadable = look_for_dropped(context, abandoned=True)
        chosen = [each for each in dropped if is_due(context, each)]
        if not dry_run:
            chosen = [each for each in chosen if _still_dropped(context, each)]
    for table_id in table_ids or ():
        try:
            chosen += dropped_generations(context, table_id, None)
        except RelanceError as error:
            results.append(PurgeResult(tuple(table_id.parts), error=error, dry_run=dry_run))
    chosen = [each for each in chosen if dropped_before(each, deleted_before)]
    if dry_run:
        results += [would_purge(context, each, options) for each in chosen]
    else:
        results += purge_generations(context, chosen, options)
    if table_ids is None:
        # Written to since: it is not due after all, which is no failure of a purge of everything.
        results = [
            each for each in results if not isinstance(each.error, InvalidTableStateError) or each.left
        ]
        results += [PurgeResult(each.id, error=each.error, dry_run=dry_run) for each in unreadable]
        if not dry_run:
            _purge_namespaces(context, deleted_before, options)
            settle_visible(context)
    return results


def dropped_before(generation: Generation, moment: datetime | None) -> bool:
    """Tell whether a table was dropped before a moment, if any, by the store's clock if that is known."""
    at = generation.dropped_at or generation.control.deleted_at
    return moment is None or (at is not None and at < moment)


def _still_dropped(context: Context, generation: Generation) -> bool:
    """End what a create claimed that does not go on: the next run looks at it again."""
    if generation.control.state is not State.REVIVING:
        return True
    with suppress(RelanceError):
        if generation.row is not None:
            end_row_create(context, generation.row)
        elif generation.home is not None:
            end_create(context, generation.home)
    return False


def settle_visible(context: Context) -> None:
    """Remove late markers beside visible tables, and adopt undrops by other clients.

    A drop soon after an adoption is strict, so an adoption should not wait for the next drop.
    """
    if not context.dir_listing:
        return
    listing = list_root(context)
    names = listing.directories & listing.doubtful() & (listing.markers.keys() | listing.claimed())
    for name in sorted(names):
        with suppress(RelanceError):
            home = inspect_name(context, name, bodies=Bodies.ALL)
            if home.is_live and needs_adoption(home):
                settle(context, home)
            elif home.is_live and home.mark is not None:
                tidy(context, home)


def would_purge(context: Context, generation: Generation, options: PurgeOptions) -> PurgeResult:
    """Return what a purge would remove, or why it would refuse; changes nothing."""
    parts = tuple(generation.table_id.parts)
    try:
        written = newest_write(context, generation)
        _require_due(context, generation, written, force=options.force)
        if generation.row is None:
            _refuse_shared(context.any_snapshot(), generation.directory, generation.table_id)
        elif context.manifest is not None and is_shared(context, context.manifest.latest(), generation.row):
            return PurgeResult(parts, dry_run=True)
    except RelanceError as error:
        return PurgeResult(parts, error=error, dry_run=True)
    infos = list(context.storage.list_recursive(generation.directory))
    return PurgeResult(parts, len(infos), sum(info.size for info in infos), dry_run=True)


def _claim_of(generation: Generation) -> Marked:
    """Return the arbiter of a generation that a purge has claimed, with the time of the claim."""
    if generation.home is not None and generation.home.marked is not None:
        return generation.home.marked
    return row_claim(generation.control)


def list_purgable(context: Context, deleted_before: datetime | None) -> list[Generation]:
    """Return the dropped tables whose retention period ended, and that were dropped before the cut-off.

    Raises:
        InvalidInputError: `deleted_before` has no time zone.
    """
    context = context.for_looking()
    if deleted_before is not None:
        require_moment(deleted_before, what="deleted_before")
    due: list[Generation] = []
    for generation in all_generations(context):
        dropped = generation.control.state is State.DELETED and dropped_before(generation, deleted_before)
        if dropped and is_expired(context, generation):
            with suppress(TableNotFoundError):  # its row leads nowhere: scrub() reports it
                if is_expired(context, generation, newest_write(context, generation)):
                    due.append(generation)
    return due


def _purge_namespaces(context: Context, deleted_before: datetime | None, options: PurgeOptions) -> None:
    """Remove the rows of dropped namespaces whose period ended; they have no files."""
    if context.manifest is None:
        return
    for row in context.manifest.latest().dropped():
        with suppress(RelanceError):
            control = control_of(row) if row.object_type == ObjectType.NAMESPACE else None
            if control is None:
                continue
            generation = generation_of_row(row, control)
            if dropped_before(generation, deleted_before):
                _purge_row(context, make_ready(context, generation, force=False), options)


def interruption_of(error: RelanceError) -> RelanceError:
    """Return what stopped a purge that may have deleted something, or the error itself."""
    cause = error.__cause__
    return cause if isinstance(error, OutcomeUnknownError) and isinstance(cause, RelanceError) else error


def sum_up(results: list[PurgeResult]) -> PurgeResult:
    """Return the results of several generations of one table as one."""
    return PurgeResult(
        id=results[0].id,
        files=sum(each.files for each in results),
        bytes=sum(each.bytes for each in results),
        left=tuple(key for each in results for key in each.left),
    )
