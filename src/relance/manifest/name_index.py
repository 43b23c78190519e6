"""The ids of a manifest in order, per data file, so that a small change re-reads little. Pure.

Pages of a listing come from here; single rows are looked up through the table's own index. What is
kept of which file is in data_files.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from relance.identifiers import DELIMITER
from relance.locations import TABLE_SUFFIX
from relance.manifest.entry import BY_ROW, DROPPED_PREFIX, HIDING, MOVED_TO, ObjectType

_AFTER_DELIMITER = chr(ord(DELIMITER) + 1)


class _Ids(Sequence[str]):
    """An Arrow array of strings, searched without turning it into Python strings, and their rows."""

    def __init__(self, ids: pa.Array, rows: pa.Array) -> None:
        self._ids = ids
        self._rows = rows

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return str(self._ids[index].as_py())

    def row(self, index: int) -> int:
        return int(self._rows[index].as_py())


@dataclass(frozen=True, slots=True)
class FileIds:
    """The ids in one data file, whether their rows are deleted or not."""

    by_type: dict[str, _Ids]
    """Of visible objects, sorted."""
    at_home: _Ids
    """Of visible root tables in the directory of their name, which decides about them."""
    moved: _Ids
    """Of tables that have another name now."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """The ids of one data file at one version."""

    ids: FileIds
    live: pa.BooleanArray | None = None
    """For each row whether it is not deleted; None when none is."""

    def has(self, ids: _Ids, index: int) -> bool:
        """Tell whether the row of one of the ids is not deleted."""
        return self.live is None or bool(self.live[ids.row(index)].as_py())

    def live_among(self, ids: _Ids, *, start: int = 0) -> Iterator[str]:
        """Yield those ids whose rows are not deleted."""
        return (ids[index] for index in range(start, len(ids)) if self.has(ids, index))


COLUMNS = ["object_id", "object_type", "location", "metadata"]


def sort_ids(rows: pa.Table) -> FileIds:
    """Return the ids of all rows of a file (with `COLUMNS`)."""
    ids = rows["object_id"].combine_chunks()
    here = pc.invert(pc.starts_with(ids, DROPPED_PREFIX))
    hides = pc.or_(*(_has_key(rows, key) for key in HIDING))
    shown = pc.and_not(here, hides)
    by_type = {}
    for object_type in ObjectType:
        of_type = pc.equal(rows["object_type"].combine_chunks(), object_type.value)
        by_type[object_type.value] = _sorted(ids, pc.and_(shown, of_type))
    root = pc.indices_nonzero(pc.and_not(shown, pc.match_substring(ids, DELIMITER)))
    at_home = root.filter(_is_at_home(rows.take(root)))
    moved = pc.indices_nonzero(_has_key(rows, MOVED_TO))
    return FileIds(by_type, _Ids(ids.take(at_home), at_home), _Ids(ids.take(moved), moved))


def _has_key(rows: pa.Table, key: str) -> pa.BooleanArray:
    # With the colon: as a value it means nothing.
    return pc.fill_null(pc.match_substring(rows["metadata"].combine_chunks(), f'"{key}":'), False)


def _is_at_home(rows: pa.Table) -> pa.BooleanArray:
    own = pc.binary_join_element_wise(rows["object_id"].combine_chunks(), TABLE_SUFFIX, "")
    leads_home = pc.fill_null(pc.equal(own, rows["location"].combine_chunks()), False)
    return pc.and_not(leads_home, _has_key(rows, BY_ROW))


def _sorted(ids: pa.Array, chosen: pa.BooleanArray) -> _Ids:
    rows = pc.indices_nonzero(chosen)
    found = ids.take(rows)
    # Upkeep writes files in this order, and to see that is far cheaper than to sort.
    if not pc.all(pc.less_equal(found[:-1], found[1:])).as_py():
        rows = rows.take(pc.sort_indices(found))
        found = ids.take(rows)
    return _Ids(found, rows)


def child_names(
    files: Sequence[FileNames], namespace: Sequence[str], object_type: str, *, after: str | None
) -> Iterator[str]:
    """Yield the names of a namespace's direct children after a name, in the order of their bytes."""
    prefix = "".join(part + DELIMITER for part in namespace)
    return heapq.merge(*(_children(each, object_type, prefix, after) for each in files))


def _children(file: FileNames, object_type: str, prefix: str, after: str | None) -> Iterator[str]:
    ids = file.ids.by_type[object_type]
    index = bisect_left(ids, prefix + after + "\0" if after else prefix)
    while index < len(ids):
        object_id = ids[index]
        if not object_id.startswith(prefix):
            return
        name, delimiter, _ = object_id[len(prefix) :].partition(DELIMITER)
        if delimiter:
            # A grandchild: past the whole branch in one jump.
            index = bisect_left(ids, prefix + name + _AFTER_DELIMITER, index + 1)
            continue
        if file.has(ids, index):
            yield name
        index += 1


def all_ids(files: Sequence[FileNames], object_type: str, *, after: str | None) -> Iterator[str]:
    """Yield all ids of one type after one, in the order of their bytes."""
    return heapq.merge(*(_from(each, object_type, after) for each in files))


def _from(file: FileNames, object_type: str, after: str | None) -> Iterator[str]:
    ids = file.ids.by_type[object_type]
    start = bisect_left(ids, after + "\0") if after else 0
    return file.live_among(ids, start=start)
