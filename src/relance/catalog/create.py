"""Create, overwrite and declare tables: exactly one of several racing creators succeeds.

A create over a dropped name revives it: a new version on top of what was there, so its history stays.
Over a name that stays dropped, a declare gives the new table a directory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from relance.catalog.arbiter import (
    ATTEMPTS,
    NO_VERSION,
    Claim,
    HomeState,
    Lease,
    SwapLostError,
    after_effect,
    begin_lease,
    control_of,
    delete_mark,
    end_create,
    end_row_create,
    home_row,
    home_state,
    is_same,
    move_row,
    refuse_purging,
    row_at,
    settle,
    swap_file,
    swap_row,
    sync,
    too_busy,
)
from relance.catalog.context import Context
from relance.catalog.drop import publish
from relance.catalog.layout import (
    Bodies,
    NameSnapshot,
    end_reservation,
    inspect_name,
    put_sign,
    read_control,
    remove_signs,
)
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot, transact
from relance.catalog.resolve import (
    Generation,
    generation_at_home,
    generation_of_row,
    home_counts,
    home_row_at,
    in_order,
    insert_row,
    new_directory,
    remove_unknown,
    require_directory,
    require_namespace,
    taken,
    why_hidden,
)
from relance.catalog.states import (
    Control,
    Marked,
    Situation,
    State,
    cleared,
    control_text,
    from_seconds,
    is_purged,
    new_nonce,
    returned,
    revived,
    reviving,
    seconds,
    state_of,
    writing,
)
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    for_python,
)
from relance.identifiers import TableId, shell_id
from relance.lance_io import CreateMode, NewTable, StagedData, VersionTakenError, WrittenData
from relance.locations import (
    CREATING_SUFFIX,
    DECLARED_SUFFIX,
    DEREGISTERED_FILE,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
)
from relance.storage.probe import capabilities, require_create_only, require_replace
from relance.storage.protocol import ObjectStorage
from relance.storage.readback import create_once

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Created:
    """Where the table is, and the version that was written or is there."""

    directory: str
    version: int
    properties: dict[str, str]


def create(context: Context, new: NewTable, mode: CreateMode, snapshot: Snapshot | None = None) -> Created:
    """Create, keep, overwrite or revive the table, as the mode and what is there say.

    `snapshot` is the manifest, if the caller has just read it.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        NamespaceNotFoundError: its namespace does not exist.
        ConcurrentModificationError: another client was faster.
    """
    for _ in range(ATTEMPTS):
        created = None
        try:
            created = _create_once(context, new, mode, snapshot)
        except _LookAgainError:
            pass
        except _BeatenError:
            if mode is CreateMode.CREATE:
                raise  # in other modes what is there now can be kept, or written over
        if created is not None:
            return created
        snapshot = None
    raise too_busy(new.table_id)


def _create_once(
    context: Context, new: NewTable, mode: CreateMode, snapshot: Snapshot | None
) -> Created | None:
    """Do what one look at the name asks for; None means: look again, nothing was committed."""
    place = _place(context, new.table_id, snapshot)
    if place.row is not None:
        return _create_over_row(context, new, mode, place.row)
    if place.home is None:
        if place.generation is not None and place.generation.row is not None:
            return _revive_row(context, new, place.generation.row)
        return _create_elsewhere(context, new)
    home = place.home
    if not _settle_home(context, home):
        return None
    if home.is_live and (home.deregistered or (home.has_versions and mode is CreateMode.CREATE)):
        raise already_exists(context, home)
    if home.is_live and home.has_versions:
        if mode is CreateMode.EXIST_OK:
            return Created(home.directory, home.version, place.properties)
        return _overwrite_home(context, place, home, new)
    if home.is_live and new.properties:
        raise _has_properties(new)
    if not home.is_live and state_of(home.marked) in {State.DELETED, State.PURGED, State.REVIVING}:
        return _revive_home(context, place, home, new)
    return _create_at_home(context, place, home, new)


def _has_properties(new: NewTable) -> InvalidInputError:
    return InvalidInputError(
        f"create_table cannot set properties for already declared table '{new.table_id}'"
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a create or a declare puts a table: over a row, in the home directory, or in a new one."""

    snapshot: Snapshot | None
    """The manifest; older than the look at the home directory."""
    row: Row | None = None
    home: NameSnapshot | None = None
    generation: Generation | None = None
    """The dropped generation to revive, where that is not in the home directory."""

    @property
    def properties(self) -> dict[str, str]:
        """Of the table in the home directory."""
        row = None if self.home is None else home_row(self.snapshot, self.home.name)
        return row.properties if row is not None else {}


def _place(context: Context, table_id: TableId, snapshot: Snapshot | None = None) -> _Place:
    """Look where a table of this id belongs: the manifest first, then the home directory.

    Raises:
        NamespaceNotFoundError: its namespace does not exist.
    """
    snapshot = context.latest() if snapshot is None else snapshot
    context.require_writable(snapshot)
    if snapshot is not None:
        require_namespace(snapshot, table_id.namespace)
        row = row_at(snapshot, table_id.object_id)
        if row is not None and not row.is_home:
            return _Place(snapshot, row)
    newest = None if snapshot is None else newest_dropped(snapshot, table_id.object_id)
    if not home_counts(context, snapshot, table_id):
        return _Place(snapshot, generation=newest)
    home = inspect_name(context, table_id.name, bodies=Bodies.HIDDEN, versions=True)
    if snapshot is not None and home.is_live and home.deregistered:
        return _Place(snapshot, generation=newest)  # it keeps its directory; the name gets a new one
    if newest is not None and not home.is_live:
        own = generation_at_home(context, home)
        if own is None or _is_newer(newest, own):
            return _Place(snapshot, generation=newest)
    return _Place(snapshot, home=home)


def _is_newer(one: Generation, other: Generation) -> bool:
    if one.dropped_at is None or other.dropped_at is None:
        return other.dropped_at is None
    return one.dropped_at > other.dropped_at


def newest_dropped(snapshot: Snapshot, object_id: str) -> Generation | None:
    """Return the newest dropped generation of a table outside its home directory that nobody has claimed."""
    generations = []
    for row in snapshot.dropped(object_id):
        control = None if row.is_home or row.object_type != ObjectType.TABLE else control_of(row)
        if control is not None and control.state is State.DELETED:
            generations.append(generation_of_row(row, control))
    return in_order(generations)[-1] if generations else None


def place_to_write(context: Context, table_id: TableId) -> tuple[str | None, str | None]:
    """Return the directory in which a create or an overwrite puts the table, None for a new one.

    With it the nonce of the arbiter that hides what is there, None when nothing does.

    Raises:
        NamespaceNotFoundError: the namespace does not exist.
        TableAlreadyExistsError: something else has the name.
    """
    place = _place(context, table_id)
    if place.row is not None:
        if place.row.object_type != ObjectType.TABLE:
            raise taken(table_id, place.row)
        control = control_of(place.row)
        return require_directory(place.row), None if control is None else control.nonce
    if place.home is None:
        generation = place.generation
        return (None, None) if generation is None else (generation.directory, generation.control.nonce)
    home = place.home
    refuse_purging(context, home)
    if home.is_live and home.deregistered:
        raise already_exists(context, home)
    refuse_occupied(context, table_id)
    hides = home.marked is not None and home.marked.state not in {State.CLEARED, State.WRITING}
    return home.directory, home.marked.control.nonce if hides and home.marked is not None else None


def begin_at_home(context: Context, table_id: TableId) -> None:
    """Make sure that listings do not take files in a new home directory for a table."""
    require_create_only(context.storage, to_do="creating a table")
    context.flag_root()
    # Listings see this sign and look twice, so that data without a version is never taken for a table.
    put_sign(context.storage, table_id.name, CREATING_SUFFIX)


def refuse_occupied(context: Context, table_id: TableId) -> None:
    """Check that nothing but a directory has the table's place on a disk: Lance would follow a link.

    Raises:
        TableAlreadyExistsError: a file or a symbolic link is there.
    """
    directory = table_directory(table_id.name)
    if context.storage.is_occupied(directory):
        raise TableAlreadyExistsError(
            f"table id '{table_id}': there is a file or a symbolic link at {directory!r}"
        )


def already_exists(context: Context, home: NameSnapshot) -> TableAlreadyExistsError:
    """Return the error for a home directory that is in use, with the ways out."""
    name = f"table id '{home.name}'"
    if home.is_live and home.deregistered:
        typed = shell_id([home.name])
        return for_python(
            TableAlreadyExistsError(
                f"{name} is deregistered",
                hint=f"restore it: relance register {typed} {home.directory}; or remove it: relance drop "
                f"{typed}",
            ),
            f": restore it with register_table (location '{home.directory}') or remove it with drop_table",
        )
    generation = generation_at_home(context, home)
    if generation is not None:
        return for_python(
            TableAlreadyExistsError(
                f"{name} {why_hidden(context, generation)}",
                hint=f"restore it: relance undrop {shell_id([home.name])}; or replace it with a create",
            ),
            f": undrop_table(['{home.name}']); alternatively, replace it with create_table or delete "
            f"it permanently with purge_table(['{home.name}'], force=True)",
        )
    if home.only_declared:
        return for_python(
            TableAlreadyExistsError(
                f"{name} is already declared",
                hint=f"write rows to it, or remove it: relance drop {shell_id([home.name])}",
            ),
            ": write to its location, create it with create_table, or remove it with drop_table",
        )
    return TableAlreadyExistsError(name)


def _settle_home(context: Context, home: NameSnapshot) -> bool:
    """Settle what another client left at a name, but not a create: this one takes it over. False: look again.

    Raises:
        ConcurrentModificationError: a purge is under way.
    """
    refuse_purging(context, home)
    return (state_of(home.marked) is State.REVIVING and not home.is_live) or settle(context, home)


# In the home directory.


def _create_at_home(context: Context, place: _Place, home: NameSnapshot, new: NewTable) -> Created:
    """Write the data, then commit version 1, which only one creator can.

    Raises:
        ConcurrentModificationError: another creator was faster, or the name was dropped meanwhile.
    """
    storage, name = context.storage, home.name
    refuse_occupied(context, new.table_id)
    begin_at_home(context, new.table_id)
    try:
        staged = _stage(context, new, home.directory, token=new_nonce(), version=0)
    except VersionTakenError as failure:
        # Whatever a look shows now: that table may be gone again.
        raise _beaten(storage, name, has_version=True) from failure
    except RelanceError as failure:
        now = inspect_name(context, name)
        if now.has_versions or not _is_unchanged(home, now):
            raise _beaten(storage, name, has_version=now.has_versions) from failure
        raise
    # Just before the commit: so one that lands after a purge was sent before its drop, not long after.
    now = inspect_name(context, name)
    with _discarding(context, staged):
        if now.has_versions or not _is_unchanged(home, now):
            raise _beaten(storage, name, has_version=now.has_versions)
        try:
            commit_exactly(
                context, home.directory, new, staged, version=1, timeout=context.timing.commit_timeout
            )
        except VersionTakenError as failure:
            raise _beaten(storage, name, has_version=True) from failure
    with after_effect(name, "was created"):
        # And after it: a client that saw no marker before may have come too late to be seen.
        if not _is_unchanged(home, inspect_name(context, name)):
            raise ConcurrentModificationError("another client dropped it at the same time")
        # A declared table has them in its row already.
        _write_properties(context, new, home.directory, new.properties or place.properties)
        properties = _publish(context, place, name, new.properties)
        reserved = [table_file(name, RESERVED_FILE)] if home.reserved else []
        signs = home.signs | {CREATING_SUFFIX}
        remove_signs(storage, [*(name + suffix for suffix in sorted(signs)), *reserved])
    return Created(home.directory, 1, properties)


def _is_unchanged(before: NameSnapshot, now: NameSnapshot) -> bool:
    """Tell whether the arbiter is the same and still nothing hides the table."""
    one, other = before.control, now.control
    same = one is other if one is None or other is None else one.e_tag == other.e_tag
    return same and now.situation is Situation.VISIBLE


class _BeatenError(ConcurrentModificationError):
    """Another client was faster, and nothing was committed."""


def _beaten(storage: ObjectStorage, name: str, *, has_version: bool) -> _BeatenError:
    if has_version:  # the winner may have removed its sign before this create put one
        remove_signs(storage, [name + CREATING_SUFFIX])
    return _BeatenError(f"table id '{name}' was created, dropped or purged by another client")


def _stage(context: Context, new: NewTable, directory: str, *, token: str, version: int) -> StagedData:
    return context.tables.stage(directory, new.data, token=token, version=version, options=new.options)


def commit_exactly(
    context: Context, directory: str, new: NewTable, staged: StagedData, *, version: int, timeout: timedelta
) -> None:
    """Commit staged data as exactly this version, and find out whether it landed when that is in doubt.

    Raises:
        VersionTakenError: another writer has the version.
        OutcomeUnknownError: nobody can tell; it may be there.
        RelanceError: it was not committed.
    """
    tables = context.tables
    try:
        tables.commit(directory, staged, version=version, timeout=timeout, options=new.options)
    except RelanceError as failure:
        try:
            landed = tables.committed_version(directory, [staged.token], after=version - 1)
        except RelanceError as unseen:
            raise OutcomeUnknownError(
                f"{failure.detail}; could not determine whether the commit succeeded: {unseen.detail}"
            ) from failure
        if landed != version:
            raise


@contextmanager
def _discarding(context: Context, staged: StagedData) -> Iterator[None]:
    """Remove staged data when the block fails and its commit did certainly not happen."""
    try:
        yield
    except ServiceUnavailableError:
        raise
    except RelanceError:
        context.tables.discard(staged)
        raise


def commit_next(
    context: Context,
    directory: str,
    new: NewTable,
    staged: StagedData,
    *,
    after: int,
    lease: Lease,
    may_go_on: Callable[[], bool],
) -> int | None:
    """Commit at the number after the latest version, and return it.

    `may_go_on` is asked each time another writer was faster, after the latest version was listed anew. None:
    it said no.

    Raises:
        ConcurrentModificationError: other writers are faster every time, or the lease ended.
    """
    number = after + 1
    with _discarding(context, staged):
        for _ in range(ATTEMPTS):
            timeout = min(context.timing.commit_timeout, lease.left)
            if timeout <= timedelta(0):
                break
            with suppress(VersionTakenError):
                commit_exactly(context, directory, new, staged, version=number, timeout=timeout)
                return number
            head = context.tables.head(directory)
            number = (head.version if head is not None else 0) + 1
            if not may_go_on():
                context.tables.discard(staged)
                return None
        raise too_busy(new.table_id)


def _write_properties(
    context: Context, new: NewTable, directory: str, properties: dict[str, str], lease: Lease | None = None
) -> None:
    """Store a table's properties where Lance's own clients read them, after its data is committed."""
    if not properties:
        return
    timeout = context.timing.commit_timeout
    if lease is not None:
        timeout = min(timeout, lease.left)
    context.tables.set_properties(
        directory, properties, token=new_nonce(), timeout=timeout, options=new.options
    )


def _publish(context: Context, place: _Place, name: str, properties: dict[str, str]) -> dict[str, str]:
    state = HomeState(visible=True, hidden=False)
    shown = publish(context, name, place.snapshot, state, properties or None)
    return dict(properties) if context.manifest is None else shown


def _revive_home(context: Context, place: _Place, home: NameSnapshot, new: NewTable) -> Created | None:
    """Create over a dropped or purged name, or over the claim of another create, which may be dead.

    None means that a claim came in between, before anything was committed: look again.
    """
    assert home.marked is not None  # there is something to claim
    name, marked = home.name, home.marked
    require_replace(context.storage, to_do="replacing a dropped table")
    _require_same_drop(new, marked.control)
    if marked.state is State.REVIVING:
        try:
            Claim(context, name, Lease(context, 0.0), marked).wait()
        except SwapLostError:
            return None
    token = new_nonce()
    try:
        staged = _stage(context, new, home.directory, token=token, version=home.version)
    except VersionTakenError:
        return None  # over a tombstone Lance expects no version: another create, or a late one, came first
    lease = begin_lease(context)
    control = reviving(marked, token, context.timing)
    with _claimed_home(context, name, control, over=marked, staged=staged) as claim:
        if not _is_still_hidden(context, home, claim):
            context.tables.discard(staged)
            return None
        version = commit_next(
            context,
            home.directory,
            new,
            staged,
            after=home.version,
            lease=lease,
            may_go_on=lambda: _may_revive(context, home, claim),
        )
        if version is None:
            return None
        signs = [name + suffix for suffix in sorted(home.signs)]
        inside = [table_file(name, DEREGISTERED_FILE)] if home.deregistered else []
        inside += [table_file(name, RESERVED_FILE)] if home.reserved else []
        with after_effect(name, "was written"):
            # While the claim is held, so that no purge comes in between.
            _write_properties(context, new, home.directory, new.properties, lease)
            if home.marker is not None or signs or inside:
                # The new table is not deregistered, whatever the dropped one was.
                delete_mark(context, name, lease, also=[*signs, *inside])
            swap_file(context, name, revived(control, fence=control.fence), over=claim)
    with after_effect(name, "was written"):
        properties = _publish(context, place, name, new.properties)
    return Created(home.directory, version, properties)


def _require_same_drop(new: NewTable, control: Control) -> None:
    """Check that a dropped table is still in the state that it had when its files were written.

    Raises:
        ConcurrentModificationError: it was dropped, purged or created anew since.
    """
    if isinstance(new.data, WrittenData) and new.data.marker != control.nonce:
        raise ConcurrentModificationError(
            f"table id '{new.table_id}' was dropped or purged while it was being written; write the "
            "data again"
        )


def _may_revive(context: Context, home: NameSnapshot, claim: Marked) -> bool:
    """Tell whether a create may go on after another writer was faster; it yields to a table over a tombstone.

    Raises:
        ConcurrentModificationError: the claim was taken over.
    """
    if is_purged(claim) and context.tables.has_foreign_version(home.directory):
        swap_file(context, home.name, returned(claim.control, fence=None), over=claim)
        return False
    if not is_same(read_control(context, home.name), claim):
        raise ConcurrentModificationError(f"table id '{home.name}' was changed by another client")
    return True


def _is_still_hidden(context: Context, home: NameSnapshot, claim: Marked) -> bool:
    """Tell whether what a create has claimed is as it was before its data was staged; else end the claim.

    Another implementation, which knows of no claim, may have undropped or purged the table meanwhile.
    """
    if is_purged(claim):
        return True  # a version that another client has put there refuses the commit
    now, control = inspect_name(context, home.name, versions=True), claim.control
    if now.has_versions and now.situation is Situation.VISIBLE:
        after = revived(control, fence=control.fence)
    elif home.has_versions and not now.has_versions:
        after = returned(control, fence=control.fence)
    else:
        return True
    swap_file(context, home.name, after, over=claim)
    return False


class _LookAgainError(ConcurrentModificationError):
    """Another client was faster, and what is there now has to be looked at before anything else."""


@contextmanager
def _claimed(
    context: Context,
    staged: StagedData | None,
    take: Callable[[], _T],
    give_back: Callable[[_T], object],
    end: Callable[[], object],
) -> Iterator[_T]:
    """Hold a claim for the block, and give it back if that fails, whatever stops it.

    If a version may still land, `end` does what another client would do: it fences that version, or finishes
    what its claim stood for if the version is there.

    Raises:
        SwapLostError: another client changed the arbiter first.
        _LookAgainError: the same, where data was staged, which is discarded.
    """
    taken = False
    try:
        claim = take()
        taken = True
        yield claim
    except BaseException as failure:
        if not taken and staged is not None and isinstance(failure, SwapLostError):
            context.tables.discard(staged)
            raise _LookAgainError(failure.detail) from failure
        with suppress(RelanceError):
            if not isinstance(failure, RelanceError) or isinstance(failure, ServiceUnavailableError):
                end()
            elif taken:
                give_back(claim)
        raise


def _claimed_home(
    context: Context, name: str, control: Control, *, over: Marked, staged: StagedData | None = None
) -> AbstractContextManager[Marked]:
    """Hold a create's claim on a home directory for the block."""

    def end() -> None:
        home = inspect_name(context, name, bodies=Bodies.ALL)
        if home.marked is not None and home.marked.control.nonce == control.nonce:
            end_create(context, home, patient=False)

    return _claimed(
        context,
        staged,
        lambda: swap_file(context, name, control, over=over),
        lambda claim: swap_file(context, name, returned(control, fence=control.fence), over=claim),
        end,
    )


def _overwrite_home(context: Context, place: _Place, home: NameSnapshot, new: NewTable) -> Created | None:
    """Write over a visible table; the arbiter says so from before the commit until after it.

    None means that nothing was committed: look again.
    """
    name, storage = home.name, context.storage
    marked = home.marked
    if marked is None and home.control is not None:
        marked = read_control(context, name)
        if marked is None or state_of(marked) not in {State.CLEARED, State.WRITING, State.PURGED}:
            return None
    token = new_nonce()
    staged = _stage(context, new, home.directory, token=token, version=home.version)
    guarded = capabilities(storage).replace  # else no purge works on this store, so none can interfere
    lease = begin_lease(context)
    held = _claimed(
        context,
        staged,
        lambda: swap_file(context, name, writing(marked, token, context.timing), over=marked),
        lambda claim: withdraw(context, name, claim),
        lambda: _end_overwrite(context, home, token),
    )
    with held if guarded else nullcontext() as claim:
        version = commit_next(
            context,
            home.directory,
            new,
            staged,
            after=home.version,
            lease=lease,
            may_go_on=lambda: claim is None or is_same(read_control(context, name), claim),
        )
    if version is None:
        raise ConcurrentModificationError(f"table id '{name}' was changed by another client; retry")
    properties = place.properties
    with after_effect(name, "was written"):
        _write_properties(context, new, home.directory, new.properties, lease)
        if claim is not None:
            withdraw(context, name, claim)
        if new.properties and context.manifest is None:
            properties = dict(new.properties)
        elif new.properties:
            # Its look at the name is as old as the plan: look again before the row is planned.
            snapshot = context.latest()
            state = home_state(inspect_name(context, name, bodies=Bodies.ALL))
            properties = sync(context, name, snapshot, state, properties=new.properties)
    return Created(home.directory, version, properties)


def _end_overwrite(context: Context, home: NameSnapshot, token: str) -> None:
    """End the claim of an overwrite that was stopped; a version without data is put where its own would go.

    Where that fails the claim stays: the next drop remembers it for the purges after it.
    """
    claim = read_control(context, home.name)
    if claim is None or claim.control.token != token:
        return
    tables, directory = context.tables, home.directory
    head = tables.head(directory)
    if tables.committed_version(directory, [token], after=home.version) is None and head is not None:
        timeout = context.timing.commit_timeout
        tables.restore(directory, head.version, token=new_nonce(), timeout=timeout)
    withdraw(context, home.name, claim)


def withdraw(context: Context, name: str, claim: Marked) -> None:
    """End the claim of an overwrite.

    Raises:
        SwapLostError: another client overruled it.
    """
    control = claim.control
    done = cleared(undid=control.undid, fence=control.fence, after=control.after)
    swap_file(context, name, done, over=claim)


# Outside the home directory: the row decides.


def _create_over_row(context: Context, new: NewTable, mode: CreateMode, row: Row) -> Created | None:
    """Create over the row that has the name."""
    if row.object_type != ObjectType.TABLE:
        raise taken(new.table_id, row)
    if row.is_reviving:
        with suppress(SwapLostError):
            end_row_create(context, row)
        return None
    directory = require_directory(row)
    declared = not context.storage.which_exist([f"{directory}/{VERSIONS_DIRECTORY}/"])
    if declared:
        if new.properties:
            raise _has_properties(new)
        version, properties = 1, row.properties
        _write_first(context, new, directory)
    else:
        if mode is CreateMode.CREATE:
            raise taken(new.table_id, row)
        head = context.tables.head(directory)
        latest = head.version if head is not None else 0
        if mode is CreateMode.EXIST_OK:
            return Created(directory, latest, row.properties)
        staged = _stage(context, new, directory, token=new_nonce(), version=latest)
        lease, properties = begin_lease(context), new.properties
        written = commit_next(
            context, directory, new, staged, after=latest, lease=lease, may_go_on=lambda: True
        )
        assert written is not None  # it may always go on
        version = written
    with after_effect(new.table_id.object_id, "was written"):
        _write_properties(context, new, directory, properties)
        if declared:
            end_reservation(context, directory)
        return Created(directory, version, _require_same(context, new, directory))


def _require_same(context: Context, new: NewTable, directory: str) -> dict[str, str]:
    """Check that the row still leads to what was written, and give it the new properties, if any.

    Raises:
        OutcomeUnknownError: it was dropped or renamed meanwhile; the data is written all the same.
    """
    manifest = context.require_manifest(to_do="creating a table")

    def plan(snapshot: Snapshot) -> tuple[Change, dict[str, str]]:
        row = row_at(snapshot, new.table_id.object_id)
        if row is None or not row.is_visible or row.normalized_location != directory:
            raise OutcomeUnknownError(
                f"table id '{new.table_id}' was dropped or renamed while it was being written; the data "
                "went to the table that previously had this name"
            )
        if not new.properties or row.properties == new.properties:
            return Change(), row.properties
        changed = row.with_properties(new.properties)
        return Change(removed=(row.object_id,), added=(changed,)), new.properties

    return transact(manifest, plan)


def _create_elsewhere(context: Context, new: NewTable) -> Created:
    """Write the table where nobody knows it, then add the row that shows it, which only one creator can."""
    written = new.data if isinstance(new.data, WrittenData) else None
    if written is not None and not written.is_private:
        # The table that they were written for was purged, and these files with it.
        raise ConcurrentModificationError(
            f"table id '{new.table_id}' was dropped or moved while it was being written"
        )
    directory = new_directory(new.table_id) if written is None else written.directory
    try:
        _write_first(context, new, directory)
        _write_properties(context, new, directory, new.properties)
        insert_row(context, Row(new.table_id.object_id, ObjectType.TABLE, directory, dict(new.properties)))
    except OutcomeUnknownError:
        raise  # the row may be there
    except RelanceError:
        if written is None:
            remove_unknown(context, directory)
        raise
    return Created(directory, 1, new.properties)


def _write_first(context: Context, new: NewTable, directory: str) -> None:
    timeout = context.timing.commit_timeout
    try:
        staged = _stage(context, new, directory, token=new_nonce(), version=0)
        with _discarding(context, staged):
            commit_exactly(context, directory, new, staged, version=1, timeout=timeout)
    except VersionTakenError as failure:
        raise ConcurrentModificationError(
            f"table id '{new.table_id}' was created by another client"
        ) from failure


def _revive_row(context: Context, new: NewTable, dropped: Row) -> Created | None:
    """Claim the dropped generation, write a new version in its directory, and show it under its name.

    None means that another client changed it before anything was committed: look again.
    """
    directory = require_directory(dropped)
    control = control_of(dropped)
    assert control is not None  # it was chosen as a dropped one
    _require_same_drop(new, control)
    head = context.tables.head(directory)
    version = head.version if head is not None else 0
    token = new_nonce()
    staged = _stage(context, new, directory, token=token, version=version)
    lease = begin_lease(context)
    claimed = reviving(Marked(control, NO_VERSION), token, context.timing)
    claimed = replace(claimed, version=version, since=seconds(context.store_now()))
    row = dropped.reviving(control_text(claimed))

    def plan(snapshot: Snapshot, found: Row) -> Change:
        _ = home_row_at(snapshot, new.table_id)  # refuses an id that another object has
        if context.dir_listing and not new.table_id.namespace:
            home = inspect_name(context, new.table_id.name)
            if home.is_visible:
                raise TableAlreadyExistsError(f"table id '{new.table_id}' exists at '{home.directory}'")
        return move_row(snapshot, found, row)

    def take() -> Claim:
        swap_row(context, dropped, plan)
        return Claim(context, new.table_id.object_id, lease, None, row)

    held = _claimed(
        context,
        staged,
        take,
        lambda claim: claim.give_back(fence=None),
        lambda: end_row_create(context, row, patient=False),
    )
    with held as claim:
        written = commit_next(
            context, directory, new, staged, after=version, lease=lease, may_go_on=claim.is_held
        )
        if written is None:
            raise ConcurrentModificationError(f"table id '{new.table_id}' was changed by another client")
        shown = row.restored(new.table_id.object_id)
        shown = shown.with_properties(new.properties) if new.properties else shown
        with after_effect(new.table_id.object_id, "was written"):
            _write_properties(context, new, directory, new.properties, lease)
            swap_row(context, row, lambda snapshot, found: move_row(snapshot, found, shown))
    return Created(directory, written, shown.properties)


def declare(
    context: Context,
    table_id: TableId,
    properties: dict[str, str],
    check_location: Callable[[str | None], None] = lambda _: None,
) -> str:
    """Reserve the name with its home directory, or with a fresh one, and return that.

    `check_location` is told the directory before anything is written, None for a fresh one.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    for _ in range(ATTEMPTS):
        directory = _declare_once(context, table_id, properties, check_location)
        if directory is not None:
            return directory
    raise too_busy(table_id)


def _declare_once(
    context: Context,
    table_id: TableId,
    properties: dict[str, str],
    check_location: Callable[[str | None], None],
) -> str | None:
    place = _place(context, table_id)
    if place.row is not None:
        if place.row.is_reviving:
            with suppress(SwapLostError):
                end_row_create(context, place.row)
            return None
        raise taken(table_id, place.row)
    home = place.home
    if home is not None:
        if home.situation is not Situation.PURGING and not _settle_home(context, home):
            return None
        if home.is_live:
            raise already_exists(context, home)
        if state_of(home.marked) in {None, State.CLEARED, State.WRITING}:
            check_location(home.directory)
            return _reserve_home(context, place, home, properties)
    if context.manifest is not None:
        check_location(None)
        return _declare_elsewhere(context, table_id, properties)
    assert home is not None  # without a manifest every table is in its home directory
    check_location(home.directory)
    return _declare_over_tombstone(context, home)


def _reserve_home(context: Context, place: _Place, home: NameSnapshot, properties: dict[str, str]) -> str:
    """Write the file that declares a table; first the sign, so that a crash in between hides nothing."""
    storage, name = context.storage, home.name
    refuse_occupied(context, TableId((), name))
    require_create_only(storage, to_do="declaring a table")
    context.flag_root()
    put_sign(storage, name, DECLARED_SUFFIX)
    try:
        create_once(storage, table_file(name, RESERVED_FILE), f"reserved {new_nonce()}".encode())
    except KeyExistsError as cause:
        # Perhaps our own, from a response that was lost, and changed since: so not "it existed before".
        raise ConcurrentModificationError(f"table id '{name}' was declared by another client") from cause
    with after_effect(name, "was declared"):
        now = inspect_name(context, name)
        if now.has_versions or not _is_unchanged(home, now):
            raise ConcurrentModificationError("another client changed it at the same time")
        _publish(context, place, name, properties)
    return home.directory


def _declare_elsewhere(context: Context, table_id: TableId, properties: dict[str, str]) -> str:
    """Declare a table in a fresh directory; dropped generations stay as they are."""
    directory = new_directory(table_id)
    reserved = f"{directory}/{RESERVED_FILE}"
    # First the file, then the row that decides: after a crash in between there is a directory nobody knows.
    context.storage.create(reserved, f"reserved {new_nonce()}".encode())
    try:
        insert_row(context, Row(table_id.object_id, ObjectType.TABLE, directory, dict(properties)))
    except OutcomeUnknownError:
        raise  # the row may be there
    except RelanceError:
        with suppress(RelanceError):
            context.storage.delete(reserved)
            context.storage.prune(directory)
        raise
    return directory


def _declare_over_tombstone(context: Context, home: NameSnapshot) -> str:
    """Declare a name in V1 whose table was purged; a dropped one is refused.

    A declare has no end: the client writes on its own and does not tell. Clearing a drop's marker for
    it would show the old table again if that write fails.

    Raises:
        TableAlreadyExistsError: the table was dropped, or purged a short while ago.
    """
    marked, name = home.marked, home.name
    refuse_purging(context, home)
    if marked is None or not is_purged(marked):
        raise already_exists(context, home)
    before = marked.control.before
    began = marked.time if before is None else before.since
    if began is None or context.store_now() < from_seconds(began) + context.timing.late:
        raise for_python(
            TableAlreadyExistsError(
                f"table id '{name}' was purged, but a create that started before its drop may still be in "
                "progress",
                hint="create the table with rows, or retry in an hour",
            ),
            ": use create_table, or retry in an hour",
        )
    require_replace(context.storage, to_do="redeclaring a purged table")
    if marked.state is State.REVIVING:
        Claim(context, name, Lease(context, 0.0), marked).wait()
    lease = begin_lease(context)
    control = reviving(marked, new_nonce(), context.timing)
    with _claimed_home(context, name, control, over=marked) as claim:
        if not inspect_name(context, name).is_empty:
            raise for_python(
                TableAlreadyExistsError(
                    f"table id '{name}' was purged, but new files have appeared since",
                    hint=f"delete them: relance purge {shell_id([name])}; or create the table with rows",
                ),
                f": delete them with purge_table(['{name}']), or replace them with create_table",
            )
        put_sign(context.storage, name, DECLARED_SUFFIX)
        lease.require(name)
        create_once(context.storage, table_file(name, RESERVED_FILE), f"reserved {new_nonce()}".encode())
        with after_effect(name, "was declared"):
            swap_file(context, name, revived(control, fence=control.fence), over=claim)
    return home.directory
