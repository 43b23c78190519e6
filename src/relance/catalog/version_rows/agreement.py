"""How the version rows of a table and its manifest files differ, and what brings them in step again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from relance.catalog.layout import ManifestFile
from relance.catalog.manifest.store import Change, Snapshot
from relance.catalog.version_rows.rows import MANIFEST_MAX_BYTES, VersionRow, adopted_row, rows_at
from relance.errors import KeyExistsError, KeyNotFoundError, OutcomeUnknownError
from relance.storage.protocol import ObjectStorage

_AHEAD = 4
"""How many versions after the newest file are looked for: versions that wait for their file have no gaps."""


class Lag(StrEnum):
    """How rows and files of a table differ."""

    NONE = "none"
    ROWS = "rows"
    """Rows are missing or left over; what readers are told is right all the same."""
    FILES = "files"
    """A version waits for its file, or a deleted one still has it."""


def lag_of(
    snapshot: Snapshot, table: str, files: Sequence[ManifestFile], asked: Iterable[ManifestFile] = ()
) -> tuple[Lag, dict[int, VersionRow]]:
    """Return how rows and files differ, as far as a few rows tell, and the rows of what was asked for.

    `files` must have been listed after the snapshot was taken.
    """
    newest, begin = _newest_run(files)
    wanted = {file.version: file for file in (*asked, *files[-1:])}
    ahead = range(newest + 1, newest + 1 + _AHEAD)
    rows = rows_at(snapshot, table, {*wanted, *ahead, begin - 1})
    if any(row.is_deleting or row.is_staged for row in rows.values()):
        return Lag.FILES, rows
    missing = any(version not in rows or not rows[version].is_of(file) for version, file in wanted.items())
    left_over = any(version in rows for version in (*ahead, begin - 1))
    return Lag.ROWS if missing or left_over else Lag.NONE, rows


def _newest_run(files: Sequence[ManifestFile]) -> tuple[int, int]:
    """Return the newest version and the first of those without a gap before it."""
    newest = begin = files[-1].version if files else 0
    for file in reversed(files):
        if file.version < begin - 1:
            break
        begin = file.version
    return newest, begin


def put_final(storage: ObjectStorage, target: str, body: bytes) -> bool:
    """Write a manifest under its final name; tell whether it is the one that is there now.

    Raises:
        OutcomeUnknownError: nobody can tell.
    """
    try:
        storage.create(target, body)
    except (KeyExistsError, OutcomeUnknownError) as unsure:  # whose it is, its content tells
        try:
            return storage.read(target, at_most=MANIFEST_MAX_BYTES).body == body
        except KeyNotFoundError:
            raise OutcomeUnknownError(f"'{target}' was not written") from unsure
    return True


def copy_staged(
    storage: ObjectStorage, directory: str, rows: Mapping[int, VersionRow], files: Sequence[ManifestFile]
) -> frozenset[str]:
    """Copy the manifests that are staged for versions after the newest file to their final names, in order.

    Returns the paths of rows that will never have a file: it was removed, or nothing is staged for it.
    """
    there = {file.version: file for file in files}
    newest = max(there, default=0)
    gone: set[str] = set()
    for version, row in sorted(rows.items()):
        if not row.is_staged:
            continue
        body = _staged_body(storage, directory, row) if version > newest else None
        if version in there:
            if not is_copy(storage, directory, row, there[version]):
                break  # lost; and what was staged after it was made for another version before it
        elif body is not None:
            if not put_final(storage, row.final_key(directory), body):
                break
        elif not storage.which_exist([row.final_key(directory)]):
            gone.add(row.path)
            if version > newest:
                break
    return frozenset(gone)


def _staged_body(storage: ObjectStorage, directory: str, row: VersionRow) -> bytes | None:
    try:
        return storage.read(row.key(directory), at_most=MANIFEST_MAX_BYTES).body
    except KeyNotFoundError:
        return None  # its creator was faster, or is gone


def is_copy(storage: ObjectStorage, directory: str, row: VersionRow, file: ManifestFile) -> bool:
    """Tell whether a file is the copy of the manifest that was staged for a row."""
    try:
        staged = storage.read(row.key(directory), at_most=MANIFEST_MAX_BYTES).body
        return storage.read(file.info.key, at_most=MANIFEST_MAX_BYTES).body == staged
    except KeyNotFoundError:
        return row.is_of(file)  # removed once it was copied, as far as anybody can tell


def reconcile(
    table: str,
    rows: Mapping[int, VersionRow],
    files: Sequence[ManifestFile],
    *,
    copied: Callable[[VersionRow, ManifestFile], bool],
    gone: Collection[str],
) -> tuple[Change, list[VersionRow]]:
    """Return what makes the rows say what the files say, and the rows whose staged manifest is settled.

    `copied` tells whether a file is the copy of a staged manifest, `gone` names those that have none.
    """
    there = {file.version: file for file in files}
    newest = max(there, default=0)
    after: dict[int, VersionRow | None] = {
        version: adopted_row(table, file) for version, file in there.items() if version not in rows
    }
    settled: list[VersionRow] = []
    lost = False
    for version, row in sorted(rows.items()):
        file = there.get(version)
        if row.is_deleting:
            after[version] = row if file is not None else None
        elif not row.is_staged:
            after[version] = None if file is None else row if row.is_of(file) else adopted_row(table, file)
        elif file is not None:
            lost = lost or not copied(row, file)
            after[version] = adopted_row(table, file) if lost else row.final(file)
            settled.append(row)
        elif lost or row.path in gone:
            # After the newest file it was never there, so that nobody was told of it.
            lost = lost or version > newest
            after[version] = None
            settled.append(row)
    return change_of(rows, after), settled


def change_of(rows: Mapping[int, VersionRow], after: Mapping[int, VersionRow | None]) -> Change:
    """Return what replaces rows by others; None stands for no row."""
    changed = {version: row for version, row in after.items() if rows.get(version) != row}
    return Change(
        removed=tuple(rows[version].manifest_row.object_id for version in changed if version in rows),
        added=tuple(row.manifest_row for row in changed.values() if row is not None),
    )
