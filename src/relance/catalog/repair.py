"""Find what does not fit together in a root and repair what can be repaired safely; sweep; convert roots.

Nothing is deleted here that another client wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from relance.catalog.arbiter import (
    HomeState,
    Lease,
    adopt,
    begin_lease,
    control_of,
    delete_mark,
    end_create,
    end_row_create,
    home_rows,
    home_state,
    is_dead,
    is_same,
    needs_adoption,
    other_owner,
    put_mark,
    row_at,
    row_claim,
    sync,
    sync_many,
    tidy,
)
from relance.catalog.context import Context
from relance.catalog.create import withdraw
from relance.catalog.drop import swap_deleted
from relance.catalog.layout import (
    ONE_TABLE_FAILS,
    Bodies,
    NameSnapshot,
    RootListing,
    flag_root,
    inspect_name,
    list_names,
    list_root,
    nested_files,
    put_sign,
    read_control,
    sign_nested_files,
)
from relance.catalog.manifest.row import HEAD_ID, ObjectType, Row, decode_row
from relance.catalog.manifest.store import Manifest, Snapshot
from relance.catalog.purge import (
    PurgeOptions,
    PurgeResult,
    Ready,
    claimed_without_files,
    look_inside,
    make_ready,
    purge_ready,
    recover_trash,
)
from relance.catalog.rename import decide, take_back
from relance.catalog.resolve import Generation, fence_is_up, generation_of_row, require_directory
from relance.catalog.states import (
    Mark,
    Marked,
    Situation,
    State,
    new_nonce,
    purged,
    seconds,
    state_of,
    undid,
)
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
    TableNotFoundError,
)
from relance.identifiers import DELIMITER, TableId
from relance.locations import (
    CONTROL_SUFFIX,
    CREATING_SUFFIX,
    DECLARED_SUFFIX,
    DEREGISTERED_SUFFIX,
    MARKER_SUFFIX,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_file,
)
from relance.storage.ballast import emptying
from relance.storage.probe import require_create_only, require_replace

HASHED_DIRECTORY = re.compile(r"[0-9a-f]{8}_.+")
"""What the catalog calls the directories it makes."""

_BATCH = 500
"""Tables per commit: an interrupted conversion resumes where it stopped."""


class Problem(StrEnum):
    """The kinds of inconsistency in a root."""

    DAMAGED_MARKER = "corrupt marker"
    UNREADABLE = "unreadable table"
    NO_FILE = "not a file"
    MARKER_WITHOUT_DATA = "marker without data"
    LATE_MARKER = "late marker"
    DATA_WITHOUT_TABLE = "data without a table"
    STALE_PURGE = "abandoned purge"
    STALE_REVIVAL = "abandoned create"
    STALE_WRITE = "abandoned overwrite"
    STALE_RENAME = "abandoned rename"
    DATA_BELOW_TOMBSTONE = "data under a tombstone"
    STALE_SIGN = "stale sign file"
    TRASH = "directory in the trash"
    UNREADABLE_MANIFEST = "unusable manifest"
    DUPLICATE_ROW = "duplicate id in the manifest"
    DAMAGED_ROW = "corrupt row"
    BAD_LOCATION = "row with an invalid location"
    ROW_WITHOUT_FILES = "row without files"
    NO_NAMESPACE = "object in a missing namespace"
    OUT_OF_STEP = "row out of sync with its marker"
    ORPHAN_DIRECTORY = "directory without a row"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, its remedy, and whether it was repaired."""

    name: str
    problem: Problem
    remedy: str
    repaired: bool = False
    error: RelanceError | None = None


Repair = Callable[[Context, str], None]
Findings = Iterator[tuple[Finding, Repair | None]]


@emptying()
def scrub(context: Context, *, repair: bool) -> list[Finding]:
    """Return every problem in the root; with `repair`, repair those that can be repaired safely."""
    problems: list[tuple[Finding, Repair | None]] = []
    context = context if repair else context.for_looking()
    if repair:
        for directory in recover_trash(context):
            remedy = "restored: the purge that took it away was not entitled to"
            problems.append((Finding(directory, Problem.TRASH, remedy, repaired=True), None))
    problems += _look_at_root(context, list_root(context))
    if context.manifest is not None:
        problems += _look_at_manifest(context, context.manifest)
    ordered = sorted(problems, key=lambda problem: (problem[0].name, problem[0].problem))
    if not repair:
        return [finding for finding, _ in ordered]
    return [_repair(context, finding, act) for finding, act in ordered]


def _repair(context: Context, finding: Finding, act: Repair | None) -> Finding:
    if act is None:
        return finding
    try:
        act(context, finding.name)
    except RelanceError as error:
        return replace(finding, error=error)
    return replace(finding, repaired=True)


# The root and its home directories.


def _look_at_root(context: Context, listing: RootListing) -> Findings:
    creating, declared = listing.signs[CREATING_SUFFIX], listing.signs[DECLARED_SUFFIX]
    doubtful = listing.directories | creating | declared
    versions = {name: table_file(name, f"{VERSIONS_DIRECTORY}/") for name in doubtful}
    reserved = {name: table_file(name, RESERVED_FILE) for name in doubtful}
    present, unreadable = _present(context, {name: (versions[name], reserved[name]) for name in doubtful})
    for name, error in sorted(unreadable.items()):
        yield _unreadable(name, error), None
    with_versions = {name for name, path in versions.items() if path in present}
    with_table = with_versions | {name for name, path in reserved.items() if path in present}
    for key in sorted(listing.odd) if context.storage.cheap_lookups else ():
        remedy = f"remove {key!r}: a link, a pipe or a folder has the place of a file, and is never followed"
        yield Finding(key, Problem.NO_FILE, remedy), None
    names = sorted(listing.controls.keys() | listing.markers.keys())
    for name in names:
        if name not in unreadable:
            yield from _look_at_name(context, name)
    for name in sorted(listing.directories - with_table - creating - listing.hidden() - unreadable.keys()):
        remedy = "mark it as an unfinished create so that it is not listed"
        yield Finding(name, Problem.DATA_WITHOUT_TABLE, remedy), _cover
    stale = {name + CREATING_SUFFIX for name in creating if name in with_versions}
    stale |= {name + DECLARED_SUFFIX for name in declared if name in with_versions or name not in with_table}
    stale -= {name + DECLARED_SUFFIX for name in unreadable}
    for sign in sorted(stale):
        yield Finding(sign, Problem.STALE_SIGN, f"delete {sign!r}"), _delete


def _present(
    context: Context, paths: Mapping[str, Sequence[str]]
) -> tuple[frozenset[str], dict[str, RelanceError]]:
    """Return the paths that exist, and of the names whose paths cannot be looked at the error."""
    which_exist = context.storage.which_exist
    try:
        return which_exist([path for each in paths.values() for path in each]), {}
    except ONE_TABLE_FAILS:
        if not context.storage.cheap_lookups:
            raise
    present: set[str] = set()
    unreadable: dict[str, RelanceError] = {}
    for name, each in paths.items():
        try:
            present |= which_exist(each)
        except ONE_TABLE_FAILS as error:
            unreadable[name] = error
    return frozenset(present), unreadable


def _unreadable(name: str, error: RelanceError) -> Finding:
    remedy = "make its files readable again; until then it is left alone"
    return Finding(name, Problem.UNREADABLE, remedy, error=error)


def _look_at_name(context: Context, name: str) -> Findings:
    try:
        home = inspect_name(context, name, bodies=Bodies.ALL)
    except ONE_TABLE_FAILS as error:
        yield _unreadable(name, error), None
        return
    except InvalidTableStateError as error:
        remedy = (
            f"inspect '{name}{CONTROL_SUFFIX}': delete it to let '{name}{MARKER_SUFFIX}' decide alone "
            "whether the table is dropped"
        )
        yield Finding(name, Problem.DAMAGED_MARKER, remedy, error=error), None
        return
    except RelanceError:
        return
    marked, holds = home.marked, home.has_versions or home.reserved
    state = state_of(marked)
    if problem := _dead_claim(context, name, marked, _finish_purge, _end_create):
        yield problem
    elif state is State.WRITING and _is_stale(context, marked):
        yield Finding(name, Problem.STALE_WRITE, "release its claim"), _release_write
    elif marked is not None and state is State.DELETED and marked.control.to:
        remedy = "keep the renamed table if the manifest has it, otherwise undo the rename"
        yield Finding(name, Problem.STALE_RENAME, remedy), _decide
    elif home.situation is Situation.DROPPED and not holds:
        yield Finding(name, Problem.MARKER_WITHOUT_DATA, "turn the marker into a tombstone"), _bury
    elif home.situation is Situation.VISIBLE and home.marker is not None and state is not State.WRITING:
        yield Finding(name, Problem.LATE_MARKER, "delete the marker: it belongs to an earlier drop"), _tidy
    elif home.shows_nothing:
        remedy = "replace the table or purge it: a create that started before the purge left it"
        yield Finding(name, Problem.DATA_BELOW_TOMBSTONE, remedy), None


def _dead_claim(
    context: Context, name: str, claim: Marked | None, finish_purge: Repair, end_create: Repair
) -> tuple[Finding, Repair] | None:
    """Return the problem of a claimed table whose purge or create does not go on."""
    if claim is None:
        return None
    if claim.state is State.PURGING and is_dead(context, claim.control, claim.modified):
        return Finding(name, Problem.STALE_PURGE, "take over the purge and finish it"), finish_purge
    if claim.state is State.REVIVING and _is_stale(context, claim):
        remedy = "finish it if its data was committed, otherwise return to the state before"
        return Finding(name, Problem.STALE_REVIVAL, remedy), end_create
    return None


def _is_stale(context: Context, marked: Marked | None) -> bool:
    if marked is None or marked.modified is None:
        return False
    return context.store_now() > marked.modified + context.timing.reach


def _look(context: Context, name: str) -> NameSnapshot:
    return inspect_name(context, name, bodies=Bodies.ALL, versions=True)


def _finish_purge(context: Context, name: str) -> None:
    home = _look(context, name)
    if home.marked is None or home.marked.state is not State.PURGING:
        return
    _purge(context, Generation(TableId((), name), home.marked.control, None, home=home), PurgeOptions())


def _purge(context: Context, generation: Generation, options: PurgeOptions) -> None:
    (result,) = purge_ready(context, [make_ready(context, generation, force=options.force)], options)
    if result.error is not None:
        raise result.error


def _end_create(context: Context, name: str) -> None:
    home = _look(context, name)
    if state_of(home.marked) is State.REVIVING:
        end_create(context, home)


def _release_write(context: Context, name: str) -> None:
    marked = read_control(context, name)
    if marked is not None and marked.state is State.WRITING and _is_stale(context, marked):
        withdraw(context, name, marked)


def _decide(context: Context, name: str) -> None:
    marked = read_control(context, name)
    if marked is not None and marked.state is State.DELETED and marked.control.to:
        decide(context, name, marked)


def _tidy(context: Context, name: str) -> None:
    home = _look(context, name)
    if home.situation is Situation.VISIBLE and home.marker is not None:
        tidy(context, home)


def _bury(context: Context, name: str) -> None:
    """Write the tombstone of a dropped table whose files are gone."""
    require_replace(context.storage, to_do="repairing")
    snapshot, lease = context.latest(), begin_lease(context)
    home = _look(context, name)
    if home.situation is not Situation.DROPPED or home.has_versions or home.reserved:
        return
    marked = adopt(context, home) if needs_adoption(home) else home.marked
    assert marked is not None  # it is adopted, or says so itself
    with claimed_without_files(context, replace(home, marked=marked), lease) as table:
        delete_mark(context, name, lease)
        table.claim.swap(purged(table.claim.control))
    sync(context, name, snapshot, home_state(inspect_name(context, name, bodies=Bodies.ALL)))


def _cover(context: Context, name: str) -> None:
    put_sign(context.storage, name, CREATING_SUFFIX)


def _delete(context: Context, key: str) -> None:
    context.storage.delete(key)


# The manifest.


def _look_at_manifest(context: Context, manifest: Manifest) -> Findings:
    try:
        snapshot = manifest.latest()
    except RelanceError as error:
        yield Finding("__manifest", Problem.UNREADABLE_MANIFEST, error.detail, error=error), None
        return
    rows: list[Row] = []
    doubled = {*snapshot.duplicates()}
    for object_id in sorted(doubled):
        remedy = "keep the row that another client added and remove the other"
        yield Finding(object_id, Problem.DUPLICATE_ROW, remedy), _remove_duplicate
    for columns in snapshot.all_rows():
        row = decode_row(columns)
        try:
            _ = control_of(row)  # damaged ones raise
        except RelanceError as error:
            remedy = "fix the row's metadata with Lance"
            yield Finding(row.object_id, Problem.DAMAGED_ROW, remedy, error=error), None
        else:
            if row.object_id not in doubled and row.object_id != HEAD_ID:
                rows.append(row)
    yield from _look_at_rows(context, snapshot, rows)


def _look_at_rows(context: Context, snapshot: Snapshot, rows: list[Row]) -> Findings:
    tables = [row for row in rows if row.object_type == ObjectType.TABLE]
    placed: list[Row] = []
    for row in tables:
        try:
            require_directory(row)
        except TableNotFoundError as error:
            remedy = (
                f"{'remove its row with Lance' if row.is_dropped else 'deregister it'}: its location is not "
                "valid for a table, and is never followed"
            )
            yield Finding(row.object_id, Problem.BAD_LOCATION, remedy, error=error), None
        else:
            placed.append(row)
    away = [row for row in placed if not row.is_home]
    there, unreadable = _present(context, {row.object_id: (f"{row.normalized_location}/",) for row in away})
    for row in away:
        if row.object_id in unreadable:
            yield _unreadable(row.object_id, unreadable[row.object_id]), None
        elif f"{row.normalized_location}/" not in there:
            yield from _without_files(row)
        elif (control := control_of(row)) is not None and control.since is not None:
            claim = row_claim(control)
            if problem := _dead_claim(context, row.object_id, claim, _purge_row, _end_row_create):
                yield problem
    yield from _look_at_parents(rows)
    yield from _look_at_home_rows(context, snapshot, placed)
    yield from _look_at_directories(context, {str(row.normalized_location) for row in placed})


def _without_files(row: Row) -> Findings:
    if row.is_dropped:
        remedy = "delete the row: there is nothing left to undrop"
        yield Finding(row.object_id, Problem.ROW_WITHOUT_FILES, remedy), _purge_row
    else:
        remedy = f"drop it, or restore its files to '{row.location}'"
        yield Finding(row.object_id, Problem.ROW_WITHOUT_FILES, remedy), None


def _look_at_parents(rows: list[Row]) -> Findings:
    spaces = {row.object_id for row in rows if row.object_type == ObjectType.NAMESPACE}
    for row in rows:
        parent = DELIMITER.join(row.parts[:-1])
        if row.is_dropped or row.object_type == ObjectType.VERSION or not parent or parent in spaces:
            continue
        remedy = f"create the namespace '{parent}', or rename the object into an existing one"
        yield Finding(row.object_id, Problem.NO_NAMESPACE, remedy), None


def _look_at_home_rows(context: Context, snapshot: Snapshot, tables: list[Row]) -> Findings:
    """Look for home rows that are not where arbiter and marker want them."""
    for name in sorted({row.original_id for row in tables if row.is_home}):
        try:
            home = inspect_name(context, name, bodies=Bodies.ALL)
        except RelanceError:
            continue  # a damaged arbiter is reported as such
        state = home_state(home)
        if state.visible and len(home_rows(snapshot, name)) == 1 and other_owner(snapshot, name) is not None:
            continue  # it keeps the properties until the name is free again
        if not _is_in_place(snapshot, name, state):
            remedy = "sync the row with the marker and the directory"
            yield Finding(name, Problem.OUT_OF_STEP, remedy), _sync


def _is_in_place(snapshot: Snapshot, name: str, state: HomeState) -> bool:
    """Tell whether the row of a home directory is where arbiter and marker want it, or is not there."""
    wanted = [state.hidden] if state.visible or state.hidden else []
    return [row.is_dropped for row in home_rows(snapshot, name)] == wanted


def _look_at_directories(context: Context, known: set[str]) -> Findings:
    tops = {directory.split("/")[0] for directory in known}
    for directory in sorted(list_root(context).others):
        if directory not in tops and HASHED_DIRECTORY.fullmatch(directory):
            remedy = "delete it unless a create is in progress, or register it"
            yield Finding(directory, Problem.ORPHAN_DIRECTORY, remedy), None


def _row(context: Context, object_id: str) -> Row | None:
    return row_at(context.latest(), object_id)


def _remove_duplicate(context: Context, object_id: str) -> None:
    context.require_manifest(to_do="repairing").remove_duplicates(object_id)


def _purge_row(context: Context, object_id: str) -> None:
    row = _row(context, object_id)
    control = None if row is None else control_of(row)
    if row is not None and control is not None:
        _purge(context, generation_of_row(row, control), PurgeOptions(force=True))


def _end_row_create(context: Context, object_id: str) -> None:
    row = _row(context, object_id)
    if row is not None and row.is_reviving:
        end_row_create(context, row)


def _sync(context: Context, name: str) -> None:
    snapshot = context.latest()
    sync(context, name, snapshot, home_state(inspect_name(context, name, bodies=Bodies.ALL)))


# Sweeping.


@emptying()
def sweep_markers(context: Context, *, dry_run: bool) -> list[str]:
    """Remove arbiters that nobody needs any more, and return the names that they belonged to.

    They lie beside no table, and have not changed for so long that nothing that was sent before can still
    take effect. To remove one it is claimed like a purge: whoever finds the claim waits until it is dead.
    """
    require_replace(context.storage, to_do="sweeping markers")
    context = context.for_looking() if dry_run else context
    listing, now = list_root(context), context.store_now()
    swept: list[str] = []
    for name in sorted(listing.controls.keys() - listing.markers.keys() - listing.directories):
        modified = listing.controls[name].modified
        if modified is None or modified + context.timing.quarantine > now:
            continue
        with suppress(ConcurrentModificationError, InvalidTableStateError):
            if _sweep(context, name, dry_run=dry_run):
                swept.append(name)
    return swept


def _sweep(context: Context, name: str, *, dry_run: bool) -> bool:
    lease = begin_lease(context)
    home = inspect_name(context, name, bodies=Bodies.ALL)
    marked = home.marked
    if marked is None or marked.state not in {State.CLEARED, State.PURGED}:
        return False
    if home.marker is not None or not home.is_empty or fence_is_up(context, marked.control):
        return False
    if dry_run:
        return True
    with claimed_without_files(context, home, lease):
        _remove_arbiter(context, name, lease)
    return True


def _remove_arbiter(context: Context, name: str, lease: Lease) -> None:
    lease.require(name)
    try:
        context.storage.delete(name + CONTROL_SUFFIX)
    except OutcomeUnknownError:
        lease.require(name)
        context.storage.delete(name + CONTROL_SUFFIX)


# Leftovers of creates that died.


@emptying()
def remove_leftovers(context: Context, name: str, before: datetime, options: PurgeOptions) -> PurgeResult:
    """Remove the files of a create that died, which no version names and which are older than a moment.

    The name is dropped first: a create that merely slept sees that before it reports success, and what it
    still commits lies under the tombstone.

    Raises:
        ConcurrentModificationError: the create was finished after all, or another client was faster.
    """
    require_replace(context.storage, to_do="removing leftovers of a create")
    lease, home = begin_lease(context), _look(context, name)
    marked = home.marked
    if marked is None or marked.state is not State.DELETED:  # else an earlier run was stopped here
        if home.has_versions or home.reserved or home.situation is not Situation.VISIBLE:
            raise ConcurrentModificationError(f"'{name}' became a table in the meantime")
        deletion_id = new_nonce()
        mark = Mark(context.clock.now(), timedelta(0), deletion_id, undid(marked))
        try:
            put_mark(context, name, mark, over=None)
        except KeyExistsError as cause:
            raise ConcurrentModificationError(f"'{name}' was dropped by another client") from cause
        marked = swap_deleted(context, name, marked, mark, 0, lease)
        home = _look(context, name)
        if marked is None or not is_same(home.marked, marked):
            raise ConcurrentModificationError(f"'{name}' was changed by another client")
        if home.has_versions or home.reserved:
            take_back(context, name, marked)
            raise ConcurrentModificationError(f"'{name}' became a table in the meantime")
    files = look_inside(context.storage, home.directory)
    generation = Generation(TableId((), name), marked.control, None, home=home)
    (result,) = purge_ready(context, [Ready(generation, files, seconds(before))], options)
    return result


# Conversion.


@dataclass(frozen=True, slots=True)
class MarkerMigration:
    """Tables whose state inside was given a sign at the root, or would be in a dry run."""

    deregistered: tuple[str, ...]
    """Deregistered tables."""
    declared: tuple[str, ...]
    """Declared tables without data."""
    settled: tuple[str, ...]
    """Tables that lost the sign of a declared table because they contain data now."""
    already_migrated: bool
    dry_run: bool


def migrate_markers(context: Context, *, dry_run: bool) -> MarkerMigration:
    """Write signs for what lies inside tables, then the root's flag; safe to repeat at any time."""
    storage, listing = context.storage, list_root(context)
    nested = nested_files(storage, listing.directories)
    plan = MarkerMigration(
        deregistered=tuple(sorted(nested.deregistered - listing.signs[DEREGISTERED_SUFFIX])),
        declared=tuple(sorted(nested.declared - listing.signs[DECLARED_SUFFIX])),
        settled=tuple(sorted(nested.with_versions & listing.signs[DECLARED_SUFFIX])),
        already_migrated=listing.is_flagged,
        dry_run=dry_run,
    )
    if not dry_run:
        require_create_only(storage, to_do="migrating markers")
        sign_nested_files(storage, nested, listing)
        flag_root(storage)
    return plan


@dataclass(frozen=True, slots=True)
class ManifestMigration:
    """Tables that were added to the manifest, or would be in a dry run."""

    registered: tuple[str, ...]
    """Visible tables that were added."""
    dropped: tuple[str, ...]
    """Dropped tables that were added."""
    mended: tuple[str, ...]
    """Tables whose row was synced with their directory."""
    shadowed: tuple[str, ...]
    """Directories left unchanged because another object in the manifest has their name."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Progress of a migration, passed to the progress callback after each batch."""

    done: int
    total: int


def migrate_to_manifest(
    context: Context, *, dry_run: bool, progress: Callable[[MigrationProgress], None] | None
) -> ManifestMigration:
    """Give every home directory its row. Safe to repeat, and to interrupt at any time.

    Raises:
        UnsupportedOperationError: the catalog is opened without a manifest.
    """
    context.require_manifest(to_do="migrating to the manifest")
    snapshot = context.latest(writing=not dry_run)
    assert snapshot is not None  # there is a manifest
    listing = list_root(context)
    visible = set(list_names(context, include_declared=True))
    hidden = listing.hidden() & listing.directories
    names = sorted(visible | hidden | snapshot.home_names())
    kinds = sync_homes(context, names, dry_run=dry_run, progress=progress)
    return ManifestMigration(**{kind: tuple(names) for kind, names in kinds.items()}, dry_run=dry_run)


def sync_homes(
    context: Context,
    names: Sequence[str],
    *,
    dry_run: bool,
    progress: Callable[[MigrationProgress], None] | None = None,
) -> dict[str, list[str]]:
    """Put the rows of home directories in place, several hundred in one commit; return what changed how."""
    manifest = context.require_manifest(to_do="migrating to the manifest")
    kinds: dict[str, list[str]] = {"registered": [], "dropped": [], "mended": [], "shadowed": []}
    for start in range(0, len(names), _BATCH):
        batch, snapshot, states = names[start : start + _BATCH], manifest.latest(), {}
        snapshot.get(batch)  # in one query: a snapshot keeps what it found
        for name in batch:
            state = home_state(inspect_name(context, name, bodies=Bodies.HIDDEN))
            if state.visible and other_owner(snapshot, name) is not None:
                kinds["shadowed"].append(name)
                continue  # the name is not free; a drop, whose row has another id, is added all the same
            if not _is_in_place(snapshot, name, state):
                states[name] = state
                new = "dropped" if state.hidden else "registered"
                kinds["mended" if home_rows(snapshot, name) else new].append(name)
        if states and not dry_run:
            sync_many(context, snapshot, states)
        if progress is not None:
            progress(MigrationProgress(start + len(batch), len(names)))
    return kinds
