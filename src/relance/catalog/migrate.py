"""Convert a root of the first format, offline: no other client may use it meanwhile.

In the first format one file beside the home directory, `<name>.deleted`, held every state of a name, and
rows of the manifest announced what was to become of it. Every step can be repeated: the file that
says what a name was is replaced last, and the root's flag at the very end. Until then nothing but a
conversion may use the root.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from relance.catalog.arbiter import move_row
from relance.catalog.context import Context
from relance.catalog.copying import copy_directory
from relance.catalog.layout import (
    list_manifests,
    list_root,
    put_sign,
    state_format,
    stated_format,
)
from relance.catalog.manifest.row import FORMAT_1_KEYS, ObjectType, Row, decode_row
from relance.catalog.manifest.store import Change, Manifest, Snapshot, transact
from relance.catalog.repair import migrate_markers, sync_homes
from relance.catalog.resolve import hashed_directory
from relance.catalog.states import (
    FORMAT,
    Control,
    Mark,
    Marked,
    State,
    cleared,
    control_text,
    encode_control,
    encode_mark,
    is_deletion_id,
    is_format_1,
    new_nonce,
    purging,
    seconds,
)
from relance.clock import from_millis
from relance.errors import InvalidTableStateError, KeyNotFoundError, RelanceError, TableNotFoundError
from relance.foreign_json import parse_json
from relance.identifiers import TableId
from relance.lance_io import named_files
from relance.locations import (
    CONTROL_SUFFIX,
    DEREGISTERED_FILE,
    DEREGISTERED_SUFFIX,
    MARKER_SUFFIX,
    RESERVED_FILE,
    table_directory,
    table_file,
)
from relance.storage.at_once import map_at_once
from relance.storage.probe import require_create_only, require_replace
from relance.storage.protocol import ObjectStorage, Stored, Version
from relance.storage.readback import create_once, replace_once

_ROWS_PER_COMMIT = 500


class NothingToConvertError(InvalidTableStateError):
    """The root is of the current format already."""


@dataclass(frozen=True, slots=True)
class FormatMigration:
    """What the conversion of a root changed, or would change in a dry run."""

    cleared: tuple[str, ...]
    """Tables whose marker goes: they are not dropped."""
    dropped: tuple[str, ...]
    """Dropped tables, which stay dropped."""
    purging: tuple[str, ...]
    """Tables whose purge was interrupted; the next purge finishes it."""
    purged: tuple[str, ...]
    """Names that keep a tombstone."""
    deregistered: tuple[str, ...]
    """Deregistered tables, which stay deregistered."""
    copied: tuple[str, ...]
    """Former names of renamed tables: the table gets a copy of its own, and the old name becomes a drop."""
    rows: tuple[str, ...]
    """Ids of the manifest's rows that are rewritten."""
    dry_run: bool


def migrate_format(context: Context, *, dry_run: bool) -> FormatMigration:
    """Convert the root; safe to repeat, and to interrupt at any time.

    Raises:
        NothingToConvertError: the root is of the current format.
        InvalidTableStateError: a marker or a row cannot be understood, or the root is of an unknown format.
    """
    context = replace(context, manifest=context.any_manifest())
    plan = _plan(context)
    if dry_run:
        return plan.report(dry_run=True)
    require_create_only(context.storage, to_do="converting the root")
    require_replace(context.storage, to_do="converting the root")
    state_format(context.storage, converted=False)
    _redirect(context, plan)
    for step in plan.steps:
        _convert_name(context, step)
    if context.manifest is not None:
        _convert_rows(context, context.manifest)
        rows = map(decode_row, context.manifest.latest().all_rows())
        sync_homes(context, sorted({row.original_id for row in rows if row.is_home}), dry_run=False)
    migrate_markers(context, dry_run=False)
    state_format(context.storage, converted=True)
    return plan.report(dry_run=False)


# What the first format wrote.


class OldState(StrEnum):
    """The states of the first format."""

    CLEARED = "cleared"
    DELETED = "deleted"
    PURGING = "purging"
    PURGED = "purged"
    REVIVING = "reviving"
    DEREGISTERED = "deregistered"
    WRITING = "writing"
    SWEEPING = "sweeping"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class OldMarker:
    """What a marker of the first format says, as far as a conversion needs it."""

    state: OldState
    deleted_at: datetime | None = None
    ttl: timedelta | None = None
    version: int = 0
    deletion_id: str = ""
    was_deregistered: bool = False
    before: OldState | None = None
    token: str = ""
    modified: datetime | None = None
    """By the store's clock; None in a row."""


_SHORT = re.compile(rb"(?:(sweeping|writing) )?[0-9a-zA-Z-]{1,31}(?::[0-9a-zA-Z-]{1,31}| \d{1,15})?")
_MARKER = "relance.marker"
_MOVED_TO = "relance.moved_to"


def decode_old(body: bytes, what: str, modified: datetime | None = None) -> OldMarker:
    """Return what a marker of the first format says.

    Raises:
        InvalidTableStateError: it cannot be understood.
    """
    if len(body) <= 64 and (short := _SHORT.fullmatch(body)):
        return OldMarker(OldState((short[1] or b"cleared").decode()), before=OldState.CLEARED)
    try:
        fields = parse_json(body)
        deleted_at, ttl = fields["deleted_at_ms"], fields["ttl_ms"]
        marker = OldMarker(
            OldState(fields["state"]),
            None if deleted_at is None else from_millis(int(deleted_at)),
            None if ttl is None else timedelta(milliseconds=int(ttl)),
            int(fields["version"]),
            str(fields["deletion_id"]),
            fields.get("was_deregistered") is True,
            OldState(fields["before"]) if "before" in fields else None,
            str(fields.get("token", "")),
            modified,
        )
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as cause:
        raise InvalidTableStateError(
            f"corrupt marker of the first format in {what}. Nothing was changed; delete it if its table is "
            "not dropped, then convert the root"
        ) from cause
    claimed = marker.state in {OldState.PURGING, OldState.REVIVING, OldState.SWEEPING}
    return replace(marker, before=OldState.DELETED) if claimed and marker.before is None else marker


# The plan. It is made completely before anything is written.


class _Kind(StrEnum):
    CLEARED = "cleared"
    DROPPED = "dropped"
    PURGING = "purging"
    PURGED = "purged"
    DEREGISTERED = "deregistered"
    COPIED = "copied"


@dataclass(frozen=True, slots=True)
class _Step:
    """What becomes of one name."""

    name: str
    kind: _Kind
    control: Control | None = None
    mark: Mark | None = None
    deregistered: bool | None = None
    """Whether the spec's own file hides the table; None leaves it as it is."""
    copies: tuple[Row, ...] = ()
    """Rows of renamed tables that still refer to the home directory of this name."""


@dataclass(frozen=True, slots=True)
class _Plan:
    steps: list[_Step]
    rows: list[str]

    def report(self, *, dry_run: bool) -> FormatMigration:
        names: dict[str, tuple[str, ...]] = {
            kind.value: tuple(step.name for step in self.steps if step.kind is kind) for kind in _Kind
        }
        return FormatMigration(**names, rows=tuple(self.rows), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Root:
    """What the root holds before the conversion."""

    context: Context
    directories: frozenset[str]
    controls: frozenset[str]
    marked: frozenset[str]
    """Names with a marker of either format."""
    markers: dict[str, OldMarker]
    rows: list[Row]
    by_directory: dict[str, list[Row]] = field(default_factory=dict)


def _plan(context: Context) -> _Plan:
    stated, root = stated_format(context.storage), _look(context)
    old_rows = [row for row in root.rows if row.is_of_format_1]
    if stated != 1 and not root.markers and not old_rows:
        raise NothingToConvertError(
            f"the root {context.storage.name} is of format {FORMAT} already. Nothing was changed"
        )
    for row in old_rows:
        if _MARKER in row.metadata:
            _marker_of(row)  # refuses what it cannot understand
    names = root.markers.keys() | {row.original_id for row in old_rows if row.is_home}
    steps = [step for name in sorted(names) if (step := _plan_name(root, name)) is not None]
    copied = {row.object_id for step in steps for row in step.copies}
    return _Plan(steps, sorted({row.object_id for row in old_rows} | copied))


def _look(context: Context) -> _Root:
    listing = list_root(context)

    def read(name: str) -> OldMarker | None:
        stored = _read(context.storage, name + MARKER_SUFFIX)
        if stored is None or not is_format_1(stored.body):
            return None
        modified = None if stored.modified is None else context.clock.at_store(stored.modified)
        return decode_old(stored.body, f"'{name}{MARKER_SUFFIX}'", modified)

    names = sorted(listing.markers)
    markers = zip(names, map_at_once(context.storage, read, names), strict=True)
    rows = [] if context.manifest is None else [*map(decode_row, context.manifest.latest().all_rows())]
    root = _Root(
        context,
        listing.directories,
        frozenset(listing.controls),
        frozenset(listing.markers),
        {name: marker for name, marker in markers if marker is not None},
        rows,
    )
    for row in rows:
        if row.object_type == ObjectType.TABLE and row.normalized_location is not None:
            root.by_directory.setdefault(row.normalized_location, []).append(row)
    return root


def _plan_name(root: _Root, name: str) -> _Step | None:
    """Return what becomes of a name; None if a run that was interrupted has converted it already."""
    context, marker = root.context, root.markers.get(name)
    rows = root.by_directory.get(table_directory(name), [])
    home = [row for row in rows if row.is_home]
    moved_to = next((row.metadata[_MOVED_TO] for row in home if _MOVED_TO in row.metadata), None)
    state = None if marker is None else marker.before if marker.state is OldState.SWEEPING else marker.state
    if moved_to == "":
        return _Step(name, _Kind.DEREGISTERED, deregistered=True)
    if moved_to is not None:
        if marker is None and name in root.controls and name in root.marked:
            return None
        return _moved(root, name, tuple(row for row in rows if not row.is_home))
    if marker is None:
        return None
    if state is OldState.MOVED:
        return _plan_moved(root, name, rows)
    if state is OldState.PURGED:
        return _Step(name, _Kind.PURGED, _purged(marker))
    if state is OldState.DEREGISTERED:
        return _Step(name, _Kind.DEREGISTERED, deregistered=True)
    if state in {OldState.DELETED, OldState.PURGING, OldState.REVIVING}:
        return _plan_hidden(context, name, marker)
    return _Step(name, _Kind.CLEARED, cleared(undid="", after=None))


def _plan_hidden(context: Context, name: str, marker: OldMarker) -> _Step:
    marker = replace(marker, deletion_id=_id(marker))
    directory, nested = table_directory(name), True if marker.was_deregistered else None
    if marker.state is OldState.REVIVING and _is_committed(context, directory, marker):
        return _Step(name, _Kind.CLEARED, cleared(undid=marker.deletion_id, after=None))
    if marker.before is OldState.PURGED:
        return _Step(name, _Kind.PURGED, _purged(marker))
    if marker.state is OldState.PURGING and not _is_complete(context, directory, marker.version):
        files = [info.modified for info in context.storage.list_recursive(directory)]
        if not files:
            return _Step(name, _Kind.PURGED, _purged(marker))
        upto = max((seconds(context.clock.at_store(at)) for at in files if at is not None), default=0)
        return _Step(name, _Kind.PURGING, _cut_purge(context, marker, upto), _mark(marker), nested)
    if marker.before is OldState.DEREGISTERED:
        return _Step(name, _Kind.DEREGISTERED, deregistered=True)
    return _Step(name, _Kind.DROPPED, _deleted(marker), _mark(marker), nested)


def _plan_moved(root: _Root, name: str, rows: Sequence[Row]) -> _Step:
    """Plan for a directory that a row decides about, possibly the row of another name."""
    others = tuple(row for row in rows if not row.is_home)
    if others or any(row.normalized_location == _fresh(name, row) for row in root.rows):
        return _moved(root, name, others)
    for row in rows:
        if _MARKER in row.metadata:
            step = _plan_hidden(root.context, name, _marker_of(row))
            return replace(step, deregistered=bool(step.deregistered))
    if rows:
        return _Step(name, _Kind.CLEARED, cleared(undid="", after=None), deregistered=False)
    if name in root.directories:
        # It was deregistered to be registered under another name, and that did not happen.
        return _Step(name, _Kind.DEREGISTERED, deregistered=True)
    return _Step(name, _Kind.CLEARED)


def _moved(root: _Root, name: str, rows: tuple[Row, ...]) -> _Step:
    context = root.context
    manifests = list_manifests(context.storage, table_directory(name), None)
    version = manifests[-1].version if manifests else 0
    drop = OldMarker(OldState.DELETED, context.clock.now(), context.timing.drop_ttl, version, new_nonce())
    return _Step(name, _Kind.COPIED, _deleted(drop), _mark(drop), deregistered=False, copies=rows)


def _fresh(name: str, row: Row) -> str:
    """Return the directory of a renamed table's copy: the same one in every run."""
    digest = hashlib.sha256(f"{name}\0{row.original_id}".encode()).hexdigest()[:8]
    return hashed_directory(digest, TableId(row.original_parts[:-1], row.original_parts[-1]))


# Bodies.


def _deleted(marker: OldMarker) -> Control:
    return Control(
        State.DELETED,
        new_nonce(),
        id=marker.deletion_id,
        version=marker.version,
        ttl=marker.ttl,
        # The drop wrote the marker, so the time of the file is that of the drop by the store's clock.
        deleted_at=marker.modified,
    )


def _mark(marker: OldMarker) -> Mark:
    return Mark(marker.deleted_at, marker.ttl, marker.deletion_id or None)


def _cut_purge(context: Context, marker: OldMarker, upto: int | None) -> Control:
    over = Marked(_deleted(marker), Version(""))
    return replace(purging(over, context.timing, upto=upto), stopped=True)


def _purged(marker: OldMarker) -> Control:
    return Control(State.PURGED, new_nonce(), id=_id(marker))


def _id(marker: OldMarker) -> str:
    """Return the deletion id if a file can hold it; those of rows may be longer."""
    return marker.deletion_id if is_deletion_id(marker.deletion_id) else new_nonce()


def _is_committed(context: Context, directory: str, marker: OldMarker) -> bool:
    return context.tables.committed_version(directory, [marker.token], after=marker.version) is not None


def _is_complete(context: Context, directory: str, version: int) -> bool:
    """Tell whether a purge has not deleted anything yet that the latest version needs."""
    try:
        latest, files = named_files(context.location_of(directory), context.lance_options(), directory)
    except TableNotFoundError:  # declared, if there is nothing else
        there = {info.key.removeprefix(f"{directory}/") for info in context.storage.list_recursive(directory)}
        return version == 0 and RESERVED_FILE in there and there <= {RESERVED_FILE, DEREGISTERED_FILE}
    except RelanceError:
        return False
    paths = [f"{directory}/{file}" for file in files]
    return latest >= version and len(context.storage.which_exist(paths)) == len(paths)


# Carrying it out.


def _redirect(context: Context, plan: _Plan) -> None:
    """Copy renamed tables into directories of their own, then have their rows refer to the copies."""
    targets: dict[str, str] = {}
    for step in plan.steps:
        for row in step.copies:
            targets[row.object_id] = target = _fresh(step.name, row)
            source = table_directory(step.name)
            there = {info.key.removeprefix(target) for info in context.storage.list_recursive(target)}
            copy_directory(context, source, target, copied={source + key for key in there})

    if context.manifest is not None:
        _rewrite(context.manifest, sorted(targets), lambda row: replace(row, location=targets[row.object_id]))


def _convert_name(context: Context, step: _Step) -> None:
    """Convert what lies beside a home directory; the marker, which says what the name was, goes last."""
    storage, name = context.storage, step.name
    nested = table_file(name, DEREGISTERED_FILE)
    if step.deregistered:
        put_sign(storage, name, DEREGISTERED_SUFFIX)
        if not storage.which_exist([nested]):
            create_once(storage, nested, b"deregistered")
    elif step.deregistered is False:
        storage.delete_many([nested, name + DEREGISTERED_SUFFIX])
    _put(storage, name + CONTROL_SUFFIX, None if step.control is None else encode_control(step.control))
    _put(storage, name + MARKER_SUFFIX, None if step.mark is None else encode_mark(step.mark))


def _put(storage: ObjectStorage, key: str, body: bytes | None) -> None:
    """Have an object contain this, or have none."""
    if body is None:
        storage.delete(key)
        return
    stored = _read(storage, key)
    if stored is None:
        create_once(storage, key, body)
    else:
        replace_once(storage, key, body, expected=stored.version)


def _read(storage: ObjectStorage, key: str) -> Stored | None:
    try:
        return storage.read(key)
    except KeyNotFoundError:
        return None


def _convert_rows(context: Context, manifest: Manifest) -> None:
    """Take the keys of the first format out of all rows. Home rows are moved into place after that."""
    ids = sorted(row.object_id for row in map(decode_row, manifest.latest().all_rows()) if row.is_of_format_1)
    _rewrite(manifest, ids, lambda row: _converted(context, row))


def _converted(context: Context, row: Row) -> Row | None:
    """Return a row as this format has it; None for one that is no longer of the first format."""
    if not row.is_of_format_1:
        return None
    marker = _marker_of(row) if _MARKER in row.metadata else None
    metadata = {key: value for key, value in row.metadata.items() if key not in FORMAT_1_KEYS}
    plain = replace(row, metadata=metadata)
    if marker is None or row.is_home:
        return plain
    directory = row.normalized_location or ""
    if marker.state is OldState.REVIVING and _is_committed(context, directory, marker):
        return plain.restored(row.object_id)
    control = replace(
        _deleted(marker), deleted_at=marker.deleted_at
    )  # a client's time, which decides nothing
    is_table = row.object_type == ObjectType.TABLE
    if marker.state is OldState.PURGING and is_table and not _is_complete(context, directory, marker.version):
        control = replace(_cut_purge(context, marker, None), before=control)
    return plain.dropped(control.id, control_text(control), cascade=row.cascade)


def _marker_of(row: Row) -> OldMarker:
    body = str(row.metadata[_MARKER]).encode()
    return decode_old(body, f"the manifest's row '{row.object_id}'")


def _rewrite(manifest: Manifest, ids: Sequence[str], changed: Callable[[Row], Row | None]) -> None:
    """Replace rows, several hundred in one commit; None leaves one as it is."""
    for start in range(0, len(ids), _ROWS_PER_COMMIT):
        batch = ids[start : start + _ROWS_PER_COMMIT]

        def plan(snapshot: Snapshot, batch: Sequence[str] = batch) -> tuple[Change, None]:
            pairs = ((row, changed(row)) for row in snapshot.get(batch).values())
            changes = [move_row(snapshot, old, new) for old, new in pairs if new is not None]
            removed = tuple(object_id for change in changes for object_id in change.removed)
            return Change(removed, tuple(row for change in changes for row in change.added)), None

        transact(manifest, plan)
