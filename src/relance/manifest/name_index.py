"""The ids of a manifest in order, kept per data file so that a small change re-reads little.

Pages of a listing come from here; single rows are looked up through the table's own index.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from relance.identifiers import DELIMITER
from relance.locations import TABLE_SUFFIX
from relance.manifest.entry import BY_ROW, DROPPED_PREFIX, HIDING, MOVED_TO, ObjectType

_AFTER_DELIMITER = chr(ord(DELIMITER) + 1)


class _Sorted(Sequence[str]):
    """An Arrow array of sorted strings, searched without turning it into Python strings."""

    def __init__(self, ids: pa.Array) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return str(self._ids[index].as_py())


@dataclass(frozen=True, slots=True)
class FileIds:
    """The visible ids in one data file, sorted, by type."""

    by_type: dict[str, _Sorted]
    own_directories: frozenset[str] = field(default_factory=frozenset)
    moved: frozenset[str] = field(default_factory=frozenset)
    """Ids of tables that have another name now."""


COLUMNS = ["object_id", "object_type", "location", "metadata"]


def sort_ids(rows: pa.Table) -> FileIds:
    """Return the ids of the rows (with `COLUMNS`) that are shown."""
    moved = frozenset(rows.filter(_has_key(rows, MOVED_TO))["object_id"].to_pylist())
    shown = pc.invert(pc.starts_with(rows["object_id"], DROPPED_PREFIX))
    for key in HIDING:
        shown = pc.and_not(shown, _has_key(rows, key))
    rows = rows.filter(shown)
    by_type = {}
    for object_type in ObjectType:
        ids = rows.filter(pc.equal(rows["object_type"], object_type.value))["object_id"].combine_chunks()
        by_type[object_type.value] = _Sorted(ids.take(pc.sort_indices(ids)))
    own = pc.equal(pc.binary_join_element_wise(rows["object_id"], TABLE_SUFFIX, ""), rows["location"])
    at_home = pc.and_not(pc.fill_null(own, False), _has_key(rows, BY_ROW))
    return FileIds(by_type, frozenset(rows.filter(at_home)["object_id"].to_pylist()), moved)


def _has_key(rows: pa.Table, key: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.match_substring(rows["metadata"], f'"{key}"'), False)


def child_names(
    files: Sequence[FileIds], namespace: Sequence[str], object_type: str, *, after: str | None
) -> Iterator[str]:
    """Yield the names of a namespace's direct children after a name, in the order of their bytes."""
    prefix = "".join(part + DELIMITER for part in namespace)
    found = (_children(each.by_type[object_type], prefix, after) for each in files)
    return heapq.merge(*found)


def _children(ids: Sequence[str], prefix: str, after: str | None) -> Iterator[str]:
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
        yield name
        index += 1


def all_ids(files: Sequence[FileIds], object_type: str, *, after: str | None) -> Iterator[str]:
    """Yield all ids of one type after one, in the order of their bytes."""
    return heapq.merge(*(_from(each.by_type[object_type], after) for each in files))


def _from(ids: Sequence[str], after: str | None) -> Iterator[str]:
    start = bisect_left(ids, after + "\0") if after else 0
    return (ids[index] for index in range(start, len(ids)))
