"""The arbiter of a table: read it, swap it, claim it, take a claim over, and keep the manifest in sync.

Two kinds: a file beside a root table's home directory, with the seed's marker next to it, and the row of
a table in any other directory. Whoever changes a table's state swaps its arbiter over exactly the body
that was read. The verbs are in create, drop, purge and register.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from relance.catalog.context import Context
from relance.catalog.layout import Bodies, NameSnapshot, inspect_name, read_control
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.schema import manages_versions
from relance.catalog.manifest.store import Change, ManifestConflictError, Snapshot, transact
from relance.catalog.states import (
    MARGIN,
    TRANSITIONS,
    Control,
    Mark,
    Marked,
    Situation,
    State,
    cleared,
    control_text,
    decode_control,
    deleted,
    encode_control,
    encode_mark,
    from_seconds,
    is_purged,
    new_nonce,
    plain,
    returned,
    revived,
    seconds,
    state_of,
    taken_over,
    undid,
)
from relance.catalog.version_rows.rows import VersionRow, is_version_of
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    KeyChangedError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.identifiers import DELIMITER, shown_id
from relance.lance_io import VersionTakenError
from relance.locations import CONTROL_SUFFIX, MARKER_SUFFIX, table_directory
from relance.storage.protocol import Replacement, Version
from relance.storage.readback import create_once, replace_many_once, replace_once

ATTEMPTS = 6
"""How often a verb starts again because another client was faster."""

NO_VERSION = Version("")
"""Of an arbiter in a row, which is swapped by its nonce."""


def too_busy(table_id: object) -> ConcurrentModificationError:
    """Return the error for a table that other clients keep changing."""
    return ConcurrentModificationError(f"too many concurrent changes to table id '{table_id}'; retry")


class SwapLostError(ConcurrentModificationError):
    """Another client changed the arbiter first; nothing was written."""


@contextmanager
def after_effect(name: str, effect: str) -> Iterator[None]:
    """Let nothing in the block fail definitely: other clients may have seen the effect that came before it.

    `effect` says what happened to the table, as in "was dropped".

    Raises:
        OutcomeUnknownError: a step failed; repeating the call finds out how it ended.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except RelanceError as failure:
        raise OutcomeUnknownError(
            f"table id '{shown_id(name)}' {effect}, but then: {failure.detail}; check its status, then retry"
        ) from failure


# The file of a root table.


def swap_file(context: Context, name: str, control: Control, *, over: Marked | None) -> Marked:
    """Swap the arbiter of a root table over exactly the body that was read.

    Raises:
        SwapLostError: another client changed it first.
        OutcomeUnknownError: no response, and reading back did not tell.
    """
    _require_transition(state_of(over), control.state)
    key, body = name + CONTROL_SUFFIX, encode_control(control)
    try:
        if over is None:
            version = create_once(context.storage, key, body)
        else:
            version = replace_once(context.storage, key, body, expected=over.version)
    except (KeyExistsError, KeyChangedError) as cause:
        raise _lost(name) from cause
    return Marked(control, version)


def swap_files(context: Context, swaps: Sequence[tuple[str, Control, Marked]]) -> list[Marked | RelanceError]:
    """Swap the arbiters of several tables; each has its own outcome, with the errors of `swap_file`."""
    changes: list[Replacement] = []
    for name, control, over in swaps:
        _require_transition(over.state, control.state)
        changes.append(Replacement(name + CONTROL_SUFFIX, encode_control(control), over.version))
    outcomes: list[Marked | RelanceError] = []
    for (name, control, _), outcome in zip(swaps, replace_many_once(context.storage, changes), strict=True):
        if isinstance(outcome, KeyChangedError):
            outcomes.append(_lost(name))
        elif isinstance(outcome, RelanceError):
            outcomes.append(outcome)
        else:
            outcomes.append(Marked(control, outcome))
    return outcomes


def _require_transition(over: State | None, state: State) -> None:
    if state not in TRANSITIONS[over]:
        raise InternalError(f"an arbiter cannot go from {over} to {state}")


def _lost(name: str) -> SwapLostError:
    return SwapLostError(f"table id '{shown_id(name)}' was changed by another client")


def is_same(one: Marked | None, other: Marked | None) -> bool:
    """Tell whether two reads showed the same body."""
    if one is None or other is None:
        return one is other
    return one.control.nonce == other.control.nonce


# The marker of a root table.


def put_mark(context: Context, name: str, mark: Mark, *, over: Version | None) -> None:
    """Write the marker, create-only or over a late one.

    Raises:
        KeyExistsError, KeyChangedError: another one is there.
        OutcomeUnknownError: no response, and reading back did not tell.
    """
    key, body = name + MARKER_SUFFIX, encode_mark(mark)
    if over is None:
        # Create-only: if two clients drop a table at once, exactly one writes the marker.
        create_once(context.storage, key, body)
    else:
        replace_once(context.storage, key, body, expected=over)


def delete_mark(context: Context, name: str, lease: Lease, *, also: Sequence[str] = ()) -> None:
    """Delete the marker and other files beside it, within the lease that began before the last look at both.

    Raises:
        ConcurrentModificationError: the lease ended before anything was sent.
        OutcomeUnknownError: the store did not say whether it did it.
        RelanceError: the store refused.
    """
    delete_marks(context, {name: lease}, also=also)


def delete_marks(context: Context, leases: Mapping[str, Lease], *, also: Sequence[str] = ()) -> None:
    """Delete the markers of several tables in one call, each within its lease."""
    keys = [*(name + MARKER_SUFFIX for name in leases), *also]
    for name, lease in leases.items():
        lease.require(name)
    try:
        context.storage.delete_many(keys)
    except OutcomeUnknownError:
        if any(lease.has_ended for lease in leases.values()):
            raise
        try:
            context.storage.delete_many(keys)
        except RelanceError as failure:
            raise OutcomeUnknownError(failure.detail) from failure  # the first may have been carried out


@dataclass(frozen=True, slots=True)
class Lease:
    """A period that began before a look at the arbiter, on a clock that only this process sees."""

    context: Context
    end: float

    @property
    def has_ended(self) -> bool:
        return self.context.clock.monotonic() >= self.end

    @property
    def left(self) -> timedelta:
        return timedelta(seconds=max(self.end - self.context.clock.monotonic(), 0.0))

    def require(self, name: str) -> None:
        """Check that the lease has not ended.

        Raises:
            ConcurrentModificationError: it has.
        """
        if self.has_ended:
            raise ConcurrentModificationError(
                f"table id '{shown_id(name)}': the store responded too slowly, so the operation was "
                "stopped; retry"
            )


def begin_lease(context: Context) -> Lease:
    """Return a lease that begins now."""
    return Lease(context, context.clock.monotonic() + context.timing.lease.total_seconds())


# Adopting what another client did, and ending what it left.


def adopt(context: Context, snapshot: NameSnapshot) -> Marked:
    """Bring the arbiter in line with the marker: another client's drop or undrop, or a stopped one of ours.

    Raises:
        SwapLostError: another client changed it first.
    """
    marked, mark = snapshot.marked, snapshot.mark
    if marked is not None and marked.state is State.DELETED:
        control = cleared(undid=marked.control.id, fence=marked.control.fence)
    else:
        assert mark is not None  # otherwise there is nothing to adopt
        control = deleted(
            marked,
            deletion_id=mark.id or new_nonce(),
            version=snapshot.version,
            ttl=mark.ttl,
            timing=context.timing,
            deleted_at=mark.modified,
        )
        control = replace(control, to=mark.to, at=mark.at)  # of a rename that died: `decide` ends it
    return swap_file(context, snapshot.name, control, over=marked)


def tidy(context: Context, home: NameSnapshot) -> None:
    """Remove a late marker beside a visible table.

    The arbiter is written anew first, so that a drop soon after is strict: the removal may come late.
    """
    marked, lease = home.marked, begin_lease(context)
    if marked is not None and marked.state not in {State.CLEARED, State.PURGED, State.DELETED}:
        return
    if is_purged(marked):
        assert marked is not None  # it is a tombstone
        control = replace(marked.control, nonce=new_nonce(), since=None)
    else:
        # A drop beside a visible table was undone by another client.
        ended = marked.control.id if marked is not None and marked.state is State.DELETED else undid(marked)
        control = cleared(undid=ended, fence=marked.control.fence if marked is not None else None)
    with suppress(RelanceError):  # the next purge run or drop does it
        swap_file(context, home.name, control, over=marked)
        delete_mark(context, home.name, lease)


def needs_adoption(snapshot: NameSnapshot) -> bool:
    """Tell whether arbiter and marker disagree, so that the arbiter has to follow."""
    state = state_of(snapshot.marked)
    if state is State.DELETED:
        return snapshot.situation is Situation.VISIBLE
    return state not in {State.REVIVING, State.PURGING} and snapshot.situation is Situation.DROPPED


def end_create(context: Context, snapshot: NameSnapshot, *, patient: bool = True) -> None:
    """End the claim of a create that does not go on: finish it if its version is there, else undo it.

    Nobody has to wait for its holder: another version is put where the holder's would go.

    Raises:
        ConcurrentModificationError: another client was faster, or the store too slow.
    """
    assert snapshot.marked is not None  # the caller looked
    claim = Claim(context, snapshot.name, Lease(context, 0.0), snapshot.marked)

    def finish(fence: int | None) -> None:
        if snapshot.marker is not None:
            delete_mark(context, snapshot.name, claim.lease)
        claim.swap(revived(claim.control, fence=fence))

    _end_claim(claim, snapshot.directory, finish, patient=patient)


def end_row_create(context: Context, row: Row, *, patient: bool = True) -> None:
    """Do the same for a create that has claimed a row.

    Raises:
        SwapLostError: another client was faster.
        ConcurrentModificationError: other writers are faster every time.
    """
    control = control_of(row)
    if control is None or control.state is not State.REVIVING:
        return
    claim = Claim(context, row.object_id, Lease(context, 0.0), None, row)

    def finish(_: int | None) -> None:
        assert claim.row is not None  # it was claimed again
        shown = claim.row.restored(row.object_id)
        swap_row(context, claim.row, lambda snapshot, found: move_row(snapshot, found, shown))

    _end_claim(claim, row.normalized_location or "", finish, patient=patient)


def _end_claim(claim: Claim, directory: str, finish: Callable[[int | None], None], *, patient: bool) -> None:
    """Take a create's claim over and give it back, or finish it if its version is there.

    Raises:
        ConcurrentModificationError: another client was faster, or the store too slow.
    """
    context, tables = claim.context, claim.context.tables
    if patient:
        claim.wait()
    claim.lease = begin_lease(context)
    claim.swap(taken_over(claim.marked or Marked(claim.control, NO_VERSION), context.timing))
    control = claim.control
    before, fence = control.origin, control.fence
    for _ in range(ATTEMPTS):
        # First the number that the fence takes: a version of the create that lands later has that number too.
        head = tables.head(directory)
        after = before.version if claim.row is None else control.version
        if tables.committed_version(directory, control.writers, after=after) is not None:
            finish(fence)
            return
        if head is None or before.state is State.PURGED:
            break  # what comes late lies under a tombstone, or creates what was only declared
        claim.require_held()
        claim.lease.require(claim.name)
        timeout = min(context.timing.commit_timeout, claim.lease.left)
        try:
            tables.restore(directory, head.version, token=new_nonce(), timeout=timeout)
            break
        except VersionTakenError:
            continue
        except OutcomeUnknownError:
            if claim.row is not None:
                raise  # no purge waits for the fence of a row
            fence = seconds(context.store_now() + context.timing.reach) + 1
    else:
        what = f"table id '{claim.name}'" if claim.row is None else f"'{claim.name}'"
        raise ConcurrentModificationError(f"too many concurrent changes to {what}; retry")
    claim.give_back(fence=fence)


def settle(context: Context, snapshot: NameSnapshot) -> bool:
    """End the create or adopt the drop or undrop that another client left at a name; False: look again.

    Raises:
        ConcurrentModificationError: other clients are faster every time.
    """
    try:
        if state_of(snapshot.marked) is State.REVIVING:
            end_create(context, snapshot)
        elif needs_adoption(snapshot):
            adopt(context, snapshot)
        else:
            return True
    except SwapLostError:
        pass
    return False


def refuse_purging(context: Context, home: NameSnapshot) -> None:
    """Check that no purge has claimed a name; one that did may still give it back.

    Raises:
        ConcurrentModificationError: one did.
    """
    if home.situation is Situation.PURGING and home.marked is not None:
        raise busy(context, home.name, home.marked)


def row_claim(control: Control) -> Marked:
    """Return a claim in a row as an arbiter, with the time of the claim."""
    return Marked(control, NO_VERSION, from_seconds(control.since) if control.since is not None else None)


def busy(context: Context, name: str, marked: Marked) -> ConcurrentModificationError:
    """Return the error for a name that a purge has claimed."""
    control = marked.control
    if is_dead(context, control, marked.modified):
        return ConcurrentModificationError(
            f"table id '{shown_id(name)}' is locked by a purge that was interrupted; run purge on it "
            "again, which works at once, then retry"
        )
    if marked.modified is None:
        when = "later"
    else:
        until = takeover_time(context, control, marked.modified)
        when = f"after {until.isoformat(timespec='seconds')} at the latest"
    return ConcurrentModificationError(
        f"table id '{shown_id(name)}' is locked by another client (purging it); retry {when}, when "
        "another purge can take over"
    )


# The rows of a root table in its home directory.


def row_at(snapshot: Snapshot | None, object_id: str) -> Row | None:
    """Return the row at an id, None also where there is no manifest."""
    return None if snapshot is None else snapshot.get([object_id]).get(object_id)


def home_rows(snapshot: Snapshot, name: str) -> list[Row]:
    """Return the rows that lead to the home directory of a name: at its id, or at a dropped one."""
    row = row_at(snapshot, name)
    own = [row] if row is not None and row.is_home else []
    return own + [dropped for dropped in snapshot.dropped(name) if dropped.is_home]


def home_row(snapshot: Snapshot | None, name: str) -> Row | None:
    """Return the first of them, None also where there is no manifest."""
    return None if snapshot is None else next(iter(home_rows(snapshot, name)), None)


def other_owner(snapshot: Snapshot | None, name: str) -> Row | None:
    """Return the row of another object that has the name, so that the home directory does not count."""
    row = row_at(snapshot, name)
    return None if row is None or row.is_home else row


class NameTakenError(ConcurrentModificationError):
    """Another object got the name while this table was being made visible."""


@dataclass(frozen=True, slots=True)
class HomeState:
    """Where the row of a home directory belongs."""

    visible: bool
    hidden: bool
    deletion_id: str = ""


def home_state(snapshot: NameSnapshot) -> HomeState:
    """Return where the row belongs according to a look at the name."""
    hidden = snapshot.situation is not Situation.VISIBLE and (snapshot.has_versions or snapshot.reserved)
    read_as, mark = plain(snapshot.marked), snapshot.mark
    known = (read_as.control.id if read_as is not None else "") or (mark.id if mark is not None else None)
    return HomeState(snapshot.is_visible, hidden, (known if hidden else None) or new_nonce())


def sync(
    context: Context,
    name: str,
    snapshot: Snapshot | None,
    state: HomeState,
    *,
    properties: dict[str, str] | None = None,
) -> dict[str, str]:
    """Put the home row where arbiter and marker want it, in one commit, and return its properties.

    `snapshot` is older than the last look at arbiter and marker, which showed `state`. The commit is made
    even when the row is right, so that no other client's older plan can follow it.

    Raises:
        NameTakenError: the table is visible, and another object has its name.
        ConcurrentModificationError: other clients are faster every time.
    """
    if context.manifest is None:
        return {}
    return sync_many(context, snapshot, {name: state}, properties=properties or None)[name]


def sync_many(
    context: Context,
    snapshot: Snapshot | None,
    states: dict[str, HomeState],
    *,
    properties: dict[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """Do the same for several names in one commit."""
    manifest = context.manifest
    assert manifest is not None  # the caller looked
    for attempt in range(_SYNCS):
        if snapshot is None:
            snapshot = manifest.latest()
            states = {name: home_state(inspect_name(context, name, bodies=Bodies.ALL)) for name in states}
        plans = {name: _plan_sync(snapshot, name, state, properties) for name, state in states.items()}
        try:
            manifest.commit(snapshot, Change(always=True).plus(*(change for change, _ in plans.values())))
            return {name: shown for name, (_, shown) in plans.items()}
        except ManifestConflictError:
            manifest.back_off(attempt)
            snapshot = None
    raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")


_SYNCS = 500


def _plan_sync(
    snapshot: Snapshot, name: str, state: HomeState, properties: dict[str, str] | None
) -> tuple[Change, dict[str, str]]:
    rows = home_rows(snapshot, name)
    if state.visible and other_owner(snapshot, name) is not None:
        raise NameTakenError(f"table id '{shown_id(name)}': another object has taken this name")
    if not state.visible and not state.hidden:
        return without(snapshot, rows), {}
    source = rows[0] if rows else Row(name, ObjectType.TABLE, table_directory(name))
    plain = source.restored(name)
    if properties is not None and (state.visible or not rows):
        plain = plain.with_properties(properties)
    if state.visible:
        wanted = plain
    elif source.is_dropped:
        wanted = source  # in this position already, under whatever id
    else:
        wanted = plain.dropped(state.deletion_id, None)
    if len(rows) == 1 and wanted == source:
        return Change(), wanted.properties
    moved = move_row(snapshot, source, wanted) if rows else Change(added=(wanted,))
    return moved.plus(without(snapshot, rows[1:])), wanted.properties


def without(snapshot: Snapshot, rows: Sequence[Row]) -> Change:
    """Return what removes tables' rows, with their version rows."""
    versions = (version_rows(snapshot, row.object_id, None) for row in rows)
    return Change(tuple(row.object_id for row in rows)).plus(*versions)


def version_rows(snapshot: Snapshot, old_id: str, new_id: str | None) -> Change:
    """Return what takes a table's version rows to its new id, or removes them with it."""
    if not manages_versions(snapshot.metadata):
        return Change()
    rows = [row for row in snapshot.below(old_id + DELIMITER) if is_version_of(old_id, row)]
    moved = (
        () if new_id is None else tuple(row.renamed(new_id + row.object_id[len(old_id) :]) for row in rows)
    )
    return Change(removed=tuple(row.object_id for row in rows), added=moved)


def move_row(snapshot: Snapshot, old: Row, new: Row) -> Change:
    """Return what replaces a table's row by another one, with its version rows."""
    if old.object_id == new.object_id:
        return Change(removed=(old.object_id,), added=(new,))
    versions = version_rows(snapshot, old.object_id, new.object_id)
    rows = versions.added
    if new.normalized_location is not None and new.normalized_location != old.normalized_location:
        rows = tuple(VersionRow(row).copied_to(new.normalized_location).manifest_row for row in rows)
    return Change(removed=(old.object_id, *versions.removed), added=(new, *rows))


# The row of a table in any other directory.


def control_of(row: Row) -> Control | None:
    """Return what the row of a dropped generation says; None for one that nothing hides.

    Raises:
        InvalidTableStateError: it cannot be understood.
    """
    text = row.control_text
    if text is None:
        return None
    return decode_control(text.encode(errors="replace"), name=row.original_id, in_row=True)


def same_row(snapshot: Snapshot, seen: Row) -> Row:
    """Return a dropped row as it is now, if its state is still the one that was seen.

    Raises:
        SwapLostError: another client changed it.
    """
    row = row_at(snapshot, seen.object_id)
    now, then = (None if row is None else control_of(row)), control_of(seen)
    if row is None or now is None or then is None or now.nonce != then.nonce:
        raise SwapLostError(f"'{seen.original_id}' was changed by another client")
    return row


def swap_row(context: Context, seen: Row, plan: Callable[[Snapshot, Row], Change]) -> None:
    """Change the row of a dropped generation, if its state is still the one that was seen.

    Raises:
        SwapLostError: another client changed it first.
    """
    manifest = context.require_manifest(to_do="changing a row")
    transact(manifest, lambda snapshot: (plan(snapshot, same_row(snapshot, seen)), None))


# Claims on either.


@dataclass(slots=True)
class Claim:
    """The right to go on with a table, checked against a clock that only this process sees."""

    context: Context
    name: str
    lease: Lease
    """Of another client's claim: one that has ended."""
    marked: Marked | None
    """The claim in the arbiter's file; None when a row is claimed."""
    row: Row | None = None

    @property
    def control(self) -> Control:
        if self.marked is not None:
            return self.marked.control
        control = control_of(self.row) if self.row is not None else None
        assert control is not None  # a row is claimed by its control
        return control

    @property
    def token(self) -> str:
        return self.control.token

    def ensure(self) -> None:
        """Renew the lease once half of it is over.

        Raises:
            ConcurrentModificationError: the lease ended, or another client took the claim over: stop at once.
        """
        self.lease.require(self.name)
        if self.lease.left < self.context.timing.lease / 2:
            lease = begin_lease(self.context)
            self.swap(replace(self.control, nonce=new_nonce()))
            self.lease = lease

    def swap(self, control: Control) -> None:
        """Replace the claim's body.

        Raises:
            SwapLostError: another client took it over.
        """
        if self.marked is not None:
            self.marked = swap_file(self.context, self.name, control, over=self.marked)
            return
        assert self.row is not None  # one of both is claimed
        changed = self.row.with_control(control_text(control))
        swap_row(self.context, self.row, lambda snapshot, row: move_row(snapshot, row, changed))
        self.row = changed

    def reread(self) -> bool:
        """Read the claim as it is now, also when the last change of it got no response; False: it is lost."""
        if self.row is None:
            marked = read_control(self.context, self.name)
            if marked is None or marked.control.token != self.token:
                return False
            self.marked = marked
            return True
        manifest = self.context.require_manifest(to_do="changing a row")
        row = row_at(manifest.latest(), self.row.object_id)
        control = None if row is None else control_of(row)
        if control is None or control.token != self.token:
            return False
        self.row = row
        return True

    def give_back(self, *, fence: int | None) -> None:
        """Put back what a create's claim was taken from.

        Raises:
            SwapLostError: another client took the claim over.
        """
        back = returned(self.control, fence=fence)
        if self.row is None:
            self.swap(back)
        else:
            dropped = self.row.dropped(back.id, control_text(back), cascade=self.row.cascade)
            swap_row(self.context, self.row, lambda snapshot, row: move_row(snapshot, row, dropped))

    def require_held(self) -> None:
        """Look whether the claim is still in the arbiter.

        Raises:
            SwapLostError: another client took it over.
        """
        if self.row is not None:
            same_row(self.context.require_manifest(to_do="changing a row").latest(), self.row)
        elif not is_same(read_control(self.context, self.name), self.marked):
            raise _lost(self.name)

    def is_held(self) -> bool:
        """Tell whether the claim is still in the arbiter."""
        try:
            self.require_held()
        except SwapLostError:
            return False
        return True

    def wait(self) -> None:
        """Give the holder time to finish. Safety does not depend on it.

        Raises:
            SwapLostError: it did, or another client took over.
        """
        for _ in range(round(self.context.timing.patience.total_seconds())):
            self.context.clock.sleep(1.0)
            self.require_held()


def is_dead(context: Context, control: Control, modified: datetime | None) -> bool:
    """Tell whether nothing that a purge sent under its claim can still take effect."""
    if control.stopped or modified is None:
        return control.stopped
    return context.store_now() > takeover_time(context, control, modified)


def takeover_time(context: Context, control: Control, claimed: datetime) -> datetime:
    """Return when another purge can take over a claim whose holder has died."""
    lease = control.lease if control.lease is not None else context.timing.lease
    return claimed + lease + context.timing.request_age + MARGIN
