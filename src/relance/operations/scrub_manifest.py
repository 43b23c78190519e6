"""Find what does not fit together in the manifest, and between it and the directories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from relance.errors import InvalidInputError, RelanceError
from relance.identifiers import DELIMITER, TableId
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.locations import TABLE_SUFFIX
from relance.manifest.entry import HEAD_ID, Entry, ObjectType, decode_row
from relance.manifest.store import Manifest, Snapshot
from relance.operations.announcing import finish
from relance.operations.context import Context
from relance.operations.deletion import PurgeOptions
from relance.operations.findings import Finding, Problem
from relance.operations.in_step import follow_marker, is_held, wanted_change
from relance.operations.pending import announced_row
from relance.operations.rows.claims import settle_revival
from relance.operations.rows.purge import purge_row
from relance.operations.rows.registration import check_directory

Mend = Callable[[Context, str], None]
Look = Iterator[tuple[Finding, Mend | None]]

HASHED_DIRECTORY = re.compile(r"[0-9a-f]{8}_.+")
"""What the catalog calls the directories it makes."""


def look_at_manifest(context: Context, manifest: Manifest) -> Look:
    """Yield every problem of the manifest with what would mend it."""
    try:
        snapshot = manifest.latest()
    except RelanceError as error:
        yield Finding("__manifest", Problem.UNREADABLE_MANIFEST, error.detail, error=error), None
        return
    entries: list[Entry] = []
    counts = Counter(row["object_id"] for row in snapshot.all_rows())
    for object_id in sorted(each for each, count in counts.items() if count > 1):
        remedy = "keep the row whose location contains the table and delete the others with Lance"
        yield Finding(object_id, Problem.DUPLICATE_ROW, remedy), None
    for row in snapshot.all_rows():
        try:
            entry = decode_row(row)
            _ = entry.marker  # damaged ones raise
        except RelanceError as error:
            remedy = "fix the row's metadata with Lance"
            yield Finding(row["object_id"], Problem.DAMAGED_ROW, remedy, error=error), None
        else:
            if counts[entry.object_id] == 1 and entry.object_id != HEAD_ID:
                entries.append(entry)
    yield from _look_at_entries(context, snapshot, entries)


def _look_at_entries(context: Context, snapshot: Snapshot, entries: list[Entry]) -> Look:
    tables = [each for each in entries if each.object_type == ObjectType.TABLE]
    placed = []
    for entry in tables:
        try:
            check_directory(entry.location or "")
        except InvalidInputError as error:
            remedy = "deregister it: its location is not valid for a table, and its files are never deleted"
            yield Finding(entry.object_id, Problem.BAD_LOCATION, remedy, error=error), None
        else:
            placed.append(entry)
    there = context.storage.which_exist([f"{each.location}/" for each in placed])
    for entry in placed:
        if entry.has_own_directory:
            continue
        if f"{entry.location}/" not in there:
            yield from _without_files(entry)
        elif (found := _look_at_claim(context, entry)) is not None:
            yield found
    yield from _look_at_parents(entries)
    yield from _look_at_steps(context, snapshot, placed)
    yield from _look_at_directories(context, {str(each.location) for each in tables})


def _without_files(entry: Entry) -> Look:
    if entry.is_dropped:
        remedy = "delete the row: there is nothing left to undrop"
        yield Finding(entry.object_id, Problem.ROW_WITHOUT_FILES, remedy), _purge_row
    else:
        remedy = f"drop it, or restore its files to '{entry.location}'"
        yield Finding(entry.object_id, Problem.ROW_WITHOUT_FILES, remedy), None


def _look_at_claim(context: Context, entry: Entry) -> tuple[Finding, Mend | None] | None:
    marker = entry.marker
    if marker is None or not holder_is_gone(marker, now=context.clock.now(), timing=context.timing):
        return None
    if marker.state is State.PURGING:
        remedy = "take over the purge and finish it"
        return Finding(entry.object_id, Problem.STALE_PURGE, remedy), _purge_row
    if marker.state is State.REVIVING:
        remedy = "finish it if its data was committed, otherwise return to 'deleted'"
        return Finding(entry.object_id, Problem.STALE_REVIVAL, remedy), _settle_row
    return None


def _look_at_parents(entries: list[Entry]) -> Look:
    spaces = {each.object_id for each in entries if each.object_type == ObjectType.NAMESPACE}
    for entry in entries:
        parent = DELIMITER.join(entry.parts[:-1])
        if entry.is_dropped or entry.object_type == ObjectType.VERSION or not parent:
            continue
        if parent not in spaces:
            remedy = f"create the namespace '{parent}', or rename the object into an existing one"
            yield Finding(entry.object_id, Problem.NO_NAMESPACE, remedy), None


def _look_at_steps(context: Context, snapshot: Snapshot, tables: list[Entry]) -> Look:
    """Look for rows that do not say what the marker beside the directory says."""
    for name in sorted({each.original_id for each in tables if each.has_own_directory}):
        try:
            facts = look_up(context.storage, name)
        except RelanceError:
            continue  # a damaged marker is reported as such
        if announced_row(snapshot, name) is not None:
            remedy = "finish the marker change that the row has recorded"
            yield Finding(name, Problem.OUT_OF_STEP, remedy), _finish
        elif not is_held(context, snapshot, facts) and not wanted_change(snapshot, facts).is_empty:
            remedy = "sync the row with the marker and the directory"
            yield Finding(name, Problem.OUT_OF_STEP, remedy), _follow


def _look_at_directories(context: Context, known: set[str]) -> Look:
    tops = {each.split("/")[0] for each in known}
    for directory in sorted(context.storage.list_level("").directories):
        if directory in tops or directory.endswith(TABLE_SUFFIX) or not HASHED_DIRECTORY.fullmatch(directory):
            continue
        remedy = "delete it unless a create is in progress, or register it"
        yield Finding(directory, Problem.ORPHAN_DIRECTORY, remedy), None


def _entry(context: Context, object_id: str) -> tuple[Manifest, Entry | None]:
    assert context.manifest is not None  # a problem of the manifest is being mended
    return context.manifest, context.manifest.latest().get([object_id]).get(object_id)


def _purge_row(context: Context, object_id: str) -> None:
    manifest, entry = _entry(context, object_id)
    if entry is not None:
        result = purge_row(context, manifest, entry, PurgeOptions(force=True))
        if result.error is not None:
            raise result.error


def _settle_row(context: Context, object_id: str) -> None:
    manifest, entry = _entry(context, object_id)
    if entry is not None:
        settle_revival(context, manifest, entry)


def _finish(context: Context, name: str) -> None:
    finish(context, TableId((), name))


def _follow(context: Context, name: str) -> None:
    follow_marker(context, TableId((), name))
