"""Copy a table from its home directory into a fresh directory, and give the copy a name.

On a disk files are linked, on an object store the store copies them. Two names never share a directory,
so every race of a copy with a writer ends with two complete tables at worst.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from relance.catalog.arbiter import SwapLostError, home_rows, is_same
from relance.catalog.context import Context
from relance.catalog.layout import read_control, version_of
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.resolve import Generation, insert_row, new_directory, remove_unknown
from relance.errors import KeyNotFoundError, OutcomeUnknownError, RelanceError
from relance.identifiers import TableId
from relance.locations import DEREGISTERED_FILE, RESERVED_FILE, VERSION_HINT, VERSIONS_DIRECTORY
from relance.storage.at_once import map_at_once
from relance.storage.protocol import ObjectInfo

_TOGETHER = 256
"""Objects that are copied between two reports of progress."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of a copy, passed to the progress callback."""

    objects: int
    total: int


def copy_directory(
    context: Context,
    source: str,
    target: str,
    *,
    copied: set[str],
    progress: Callable[[CopyProgress], None] | None = None,
) -> int:
    """Copy what lies in a table's directory and is not in `copied`; manifests last, in ascending order.

    Returns how many objects that were.
    """
    infos = [
        info
        for info in context.storage.list_recursive(source)
        if info.key not in copied and info.key.rpartition("/")[2] != DEREGISTERED_FILE
    ]
    versions = {info.key: _version(source, info) for info in infos}
    others = [info for info in infos if versions[info.key] is None]
    manifests = [info for info in infos if versions[info.key] is not None]
    manifests.sort(key=lambda info: versions[info.key] or 0)
    total, done = len(infos), 0
    for start in range(0, len(others), _TOGETHER):
        batch = others[start : start + _TOGETHER]
        map_at_once(context.storage, lambda info: _copy(context, source, target, info), batch)
        done += len(batch)
        if progress is not None:
            progress(CopyProgress(done, total))
    for info in manifests:
        _copy(context, source, target, info)
        done += 1
    if progress is not None and manifests:
        progress(CopyProgress(done, total))
    copied.update(info.key for info in infos)
    return total


def _version(source: str, info: ObjectInfo) -> int | None:
    folder, _, file = info.key.removeprefix(f"{source}/").rpartition("/")
    return version_of(file) if folder.endswith(VERSIONS_DIRECTORY) else None


def _copy(context: Context, source: str, target: str, info: ObjectInfo) -> None:
    relative = info.key.removeprefix(f"{source}/")
    share = relative.rpartition("/")[2] not in {VERSION_HINT, RESERVED_FILE}
    with suppress(KeyNotFoundError):  # cleaned up since it was listed: no version that is left names it
        context.storage.copy(info.key, f"{target}/{relative}", share=share)


def show_copy(context: Context, generation: Generation, target: TableId) -> None:
    """Show a copy of a table that is dropped in its home directory under another id; the drop stays.

    Raises:
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: its namespace does not exist.
        SwapLostError: the drop ended while the files were copied; nothing was shown.
    """
    directory = new_directory(target)
    snapshot = context.latest(writing=True)
    rows = [] if snapshot is None else home_rows(snapshot, generation.name)
    source = rows[0] if rows else Row(generation.name, ObjectType.TABLE, generation.directory)
    row = replace(source.restored(target.object_id), location=directory)
    try:
        copied: set[str] = set()
        while copy_directory(context, generation.directory, directory, copied=copied):
            pass  # until nothing came meanwhile
        # A purge may have deleted files before they were copied, a create may have written a version.
        marked = generation.home.marked if generation.home is not None else None
        if not is_same(read_control(context, generation.name), marked):
            raise SwapLostError(f"table id '{generation.table_id}' was changed by another client")
        insert_row(context, row)
    except OutcomeUnknownError:
        raise  # the row may be there, or come late
    except RelanceError:
        remove_copy(context, directory)
        raise


def remove_copy(context: Context, directory: str) -> None:
    """Remove a copy that no row leads to; one to which a row might lead stays."""
    with suppress(RelanceError):  # it is an orphan for upkeep
        snapshot = context.latest()
        if snapshot is not None and not snapshot.sharing([directory]):
            remove_unknown(context, directory)
