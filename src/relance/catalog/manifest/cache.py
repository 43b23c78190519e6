"""What is kept in memory of the manifest's data files: a file is never changed, only replaced.

Small files are kept whole: each commit rewrites the head, and a lookup after it need not read that
again. Of large files the ids are kept once a listing asked for them, in order, so that a page is a
search. Which rows are deleted is kept apart from both, so that a drop does not make the next lookup or
listing read all of them again. Single rows of large files are looked up through the table's index.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, LanceFragment

from relance.catalog.manifest.row import HEAD_ID, HIDING_KEYS, ObjectType, Row, decode_row
from relance.identifiers import DELIMITER
from relance.locations import TABLE_SUFFIX

SMALL_ROWS = 512
"""More than the head grows to by itself."""
SMALL_ROWS_AFAR = 4096
"""Where each request counts: as many rows are read in one as the index needs three to find one."""
_MANY_FILES = 64
"""More small files than upkeep leaves: the rest are looked into through the table's index."""
_ADDRESS_BITS = 32
_OFFSET = (1 << _ADDRESS_BITS) - 1
_AFTER_DELIMITER = chr(ord(DELIMITER) + 1)

_ODD_LOCATION = r"//|\./|/$|/\.$|^/|:/|%|\x00"
"""Locations that do not mean what they say literally, and a few others."""

_MAY_HIDE = "|".join(f'"{re.escape(key)}"' for key in HIDING_KEYS)

COLUMNS = ["object_id", "object_type", "location", "metadata"]
"""What `sort_ids` needs."""
_TEXTS = pa.schema([(name, pa.string()) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class Located:
    """A row and its place: the fragment it is in and its number there."""

    row: Row
    fragment: int
    offset: int

    @property
    def address(self) -> tuple[int, int]:
        return self.fragment, self.offset


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
    homes: _Ids
    """Of visible home rows."""


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


@dataclass(frozen=True)
class _Rows:
    """All rows of a small data file, deleted ones too."""

    table: pa.Table

    @cached_property
    def places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, object_id in enumerate(self.table["object_id"].to_pylist()):
            places.setdefault(object_id, []).append(place)
        return places

    @cached_property
    def known(self) -> dict[int, Row]:
        """What was read so far, by place."""
        return {}

    def row(self, place: int) -> Row:
        row = self.known.get(place)
        if row is None:
            row = self.known[place] = decode_row(self.table.slice(place, 1).to_pylist()[0])
        return row

    @cached_property
    def ids(self) -> FileIds:
        return sort_ids(self.table.select(COLUMNS))


@dataclass(frozen=True)
class SmallFile:
    """A small data file at one version of the manifest."""

    all_rows: _Rows
    deleted: frozenset[int] = frozenset()

    def find(self, object_id: str) -> Iterator[tuple[Row, int]]:
        """Yield the rows with this id and their places."""
        for place in self.all_rows.places.get(object_id, ()):
            if place not in self.deleted:
                yield self.all_rows.row(place), place

    @cached_property
    def rows(self) -> pa.Table:
        return self.all_rows.table if self._live is None else self.all_rows.table.filter(self._live)

    def rows_without(self, places: Collection[int]) -> pa.Table:
        """Return what is left of the file once the rows at these places are deleted too."""
        return SmallFile(self.all_rows, self.deleted | {*places}).rows

    def located(self, prefix: str, fragment: int) -> Iterator[Located]:
        """Yield the rows whose id begins with `prefix`."""
        begins = pc.starts_with(self.all_rows.table["object_id"], prefix)
        for place in pc.indices_nonzero(begins).to_pylist():
            if place not in self.deleted:
                yield Located(self.all_rows.row(place), fragment, place)

    @property
    def names(self) -> FileNames:
        return FileNames(self.all_rows.ids, self._live)

    @cached_property
    def _live(self) -> pa.BooleanArray | None:
        if not self.deleted:
            return None
        return pa.array([place not in self.deleted for place in range(len(self.all_rows.table))])


@dataclass(frozen=True, slots=True)
class Files:
    """The data files of one version: small ones by fragment id, and the fragments of the others."""

    small: dict[int, SmallFile] = field(default_factory=dict)
    large: list[LanceFragment] = field(default_factory=list)
    by_id: dict[str, list[Located]] = field(default_factory=dict)
    """What was looked up in the large ones, which stay the same over many versions."""
    by_query: dict[str, list[Located]] = field(default_factory=dict)
    """The same for questions other than for an id."""


@dataclass(slots=True)
class FileCache:
    """What was read of data files. Threads may share it; what it forgets is read again."""

    small_rows: int = SMALL_ROWS
    """Files of at most so many rows are kept whole."""
    _small: dict[str, SmallFile] = field(default_factory=dict)
    _large: tuple[list[str], Files] = field(default_factory=lambda: ([], Files()))
    """The large files that were seen last, with what was asked of them."""
    _ids: dict[str, FileIds] = field(default_factory=dict)
    _names: dict[str, FileNames] = field(default_factory=dict)

    def files_of(self, dataset: lance.LanceDataset) -> Files:
        """Return the data files of a version, reading the small ones that are new."""
        known = self._small
        small: dict[str, SmallFile] = {}
        numbers: dict[int, SmallFile] = {}
        large: dict[str, LanceFragment] = {}
        for fragment in dataset.get_fragments():
            key = _key(fragment.metadata)
            if fragment.physical_rows > self.small_rows or len(small) >= _MANY_FILES:
                large[f"{fragment.fragment_id} {key}"] = fragment
            else:
                small[key] = numbers[fragment.fragment_id] = known.get(key) or self._read_small(fragment)
        keys, last = self._large
        same = keys == list(large)
        by_id, by_query = (last.by_id, last.by_query) if same else ({}, {})
        files = Files(numbers, list(large.values()), by_id, by_query)
        self._small, self._large = small, (list(large), files)
        return files

    def _read_small(self, fragment: LanceFragment) -> SmallFile:
        data = data_key(fragment.metadata)
        same = next((file for key, file in self._small.items() if key.startswith(data)), None)
        if same is None:
            rows = fragment.to_table(with_row_id=True, include_deleted_rows=True)
            return SmallFile(_Rows(rows.drop_columns(["_rowid"])), _deleted(rows["_rowid"].is_valid()))
        live = _live_rows(fragment)
        return SmallFile(same.all_rows, frozenset() if live is None else _deleted(live))

    def note(self, written: Iterable[FragmentMetadata], rows: pa.Table) -> None:
        """Remember the rows of a file that was just written."""
        metas = list(written)
        if len(metas) == 1 and len(rows) <= self.small_rows:
            self._small = {**self._small, _key(metas[0]): SmallFile(_Rows(rows))}

    def note_deleted(self, file: SmallFile, left: FragmentMetadata, rows: Iterable[int]) -> None:
        """Remember a file from which rows were just deleted."""
        self._small = {**self._small, _key(left): SmallFile(file.all_rows, file.deleted | {*rows})}

    def names_in(self, files: Files) -> list[FileNames]:
        """Return the ids in all data files, reading the large ones that are new."""
        ids: dict[str, FileIds] = {}
        names: dict[str, FileNames] = {}
        for fragment in files.large:
            meta = fragment.metadata
            data, key = data_key(meta), _key(meta)
            ids[data] = self._ids.get(data) or _read_ids(fragment)
            names[key] = self._names.get(key) or FileNames(ids[data], _live_rows(fragment))
        self._ids, self._names = ids, names
        return [*names.values(), *(file.names for file in files.small.values())]


def data_key(meta: FragmentMetadata) -> str:
    """Identify the data file of a fragment."""
    return f"{[file.path for file in meta.files]} {meta.overlays}"


def _key(meta: FragmentMetadata) -> str:
    """Identify a data file together with which of its rows are deleted."""
    deleted = meta.deletion_file
    return f"{data_key(meta)} {deleted.path(meta.id) if deleted is not None else None}"


def _deleted(live: pa.BooleanArray | pa.ChunkedArray) -> frozenset[int]:
    return frozenset(pc.indices_nonzero(pc.invert(live)).to_pylist())


def _read_ids(fragment: LanceFragment) -> FileIds:
    """Read the ids of all rows; deleted ones too, so that they stay true when more are deleted."""
    return sort_ids(fragment.to_table(columns=COLUMNS, with_row_id=True, include_deleted_rows=True))


def _live_rows(fragment: LanceFragment) -> pa.BooleanArray | None:
    """Return for each row of the file whether it is not deleted; None when none is."""
    if not fragment.num_deletions:
        return None
    rows = fragment.to_table(columns=[], with_row_id=True, include_deleted_rows=True)
    return rows["_rowid"].is_valid().combine_chunks()


def split_address(address: int) -> tuple[int, int]:
    """Return the fragment and the place in it that a row address stands for."""
    return address >> _ADDRESS_BITS, address & _OFFSET


def sort_ids(rows: pa.Table) -> FileIds:
    """Return the ids of all rows of a file (with `COLUMNS`)."""
    rows = rows.select(COLUMNS).cast(_TEXTS)  # other clients' columns may be large strings
    ids = rows["object_id"].combine_chunks()
    shown = pc.and_not(pc.not_equal(ids, HEAD_ID), _hidden(rows))
    by_type = {}
    for object_type in ObjectType:
        of_type = pc.equal(rows["object_type"].combine_chunks(), object_type.value)
        by_type[object_type.value] = _sorted(ids, pc.and_(shown, of_type))
    return FileIds(by_type, _homes(rows, shown))


def _hidden(rows: pa.Table) -> pa.BooleanArray:
    """Return for each row whether its metadata hides it; the text alone could also be inside a value."""
    metadata = rows["metadata"].combine_chunks()
    hidden = [False] * len(rows)
    for place in pc.indices_nonzero(pc.match_substring_regex(metadata, _MAY_HIDE)).to_pylist():
        hidden[place] = not decode_row(rows.slice(place, 1).to_pylist()[0]).is_visible
    return pa.array(hidden, pa.bool_())


def _homes(rows: pa.Table, shown: pa.BooleanArray) -> _Ids:
    """Return the ids of visible home rows; only locations that look odd are normalized."""
    ids, locations = rows["object_id"].combine_chunks(), rows["location"].combine_chunks()
    is_table = pc.equal(rows["object_type"].combine_chunks(), ObjectType.TABLE.value)
    possible = pc.and_not(pc.and_(shown, is_table), pc.match_substring(ids, DELIMITER))
    odd = pc.fill_null(pc.match_substring_regex(locations, _ODD_LOCATION), False)
    home = pc.equal(pc.binary_join_element_wise(ids, TABLE_SUFFIX, ""), locations)
    plain = pc.indices_nonzero(pc.and_(possible, pc.and_not(pc.fill_null(home, False), odd)))
    unsure = pc.indices_nonzero(pc.and_(possible, odd))
    decoded = zip(unsure.to_pylist(), rows.take(unsure).to_pylist(), strict=True)
    normalized = [place for place, columns in decoded if decode_row(columns).is_home]
    places = pa.concat_arrays([plain, pa.array(normalized, plain.type)])
    return _Ids(ids.take(places), places)


def _sorted(ids: pa.Array, included: pa.BooleanArray) -> _Ids:
    rows = pc.indices_nonzero(included)
    names = ids.take(rows)
    # Upkeep writes files in this order, and to see that is far cheaper than to sort.
    if not pc.all(pc.less_equal(names[:-1], names[1:])).as_py():
        rows = rows.take(pc.sort_indices(names))
        names = ids.take(rows)
    return _Ids(names, rows)


def child_names(
    files: Sequence[FileNames], namespace: Sequence[str], object_type: str, *, after: str | None
) -> Iterator[str]:
    """Yield the names of a namespace's direct children after a name, in the order of their bytes."""
    prefix = "".join(part + DELIMITER for part in namespace)
    return _distinct(heapq.merge(*(_children(file, object_type, prefix, after) for file in files)))


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
    return _distinct(heapq.merge(*(_from(file, object_type, after) for file in files)))


def _from(file: FileNames, object_type: str, after: str | None) -> Iterator[str]:
    ids = file.ids.by_type[object_type]
    start = bisect_left(ids, after + "\0") if after else 0
    return file.live_among(ids, start=start)


def _distinct(names: Iterator[str]) -> Iterator[str]:
    """Yield each name once: two rows of one id are one object."""
    last = None
    for name in names:
        if name != last:
            yield name
        last = name
