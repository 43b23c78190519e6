"""What is kept in memory of the manifest's data files: a file is never changed, only replaced.

Small files are kept whole: each commit writes the head anew, and a lookup after it need not read that
again. Of large ones the ids are kept once a listing asked for them. Which rows are deleted is kept apart
from both, so that a drop does not make the next lookup or listing read all of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, LanceFragment

from relance.manifest.entry import Entry
from relance.manifest.name_index import COLUMNS, FileIds, FileNames, sort_ids

SMALL_ROWS = 512
"""More than the head grows to by itself."""
SMALL_ROWS_AFAR = 4096
"""Where each request counts: as many rows are read in one as the index needs three to find one."""
_MANY_FILES = 64
"""More small files than upkeep leaves: the rest are looked into through the table's index."""
_ADDRESS_BITS = 32
_OFFSET = (1 << _ADDRESS_BITS) - 1


@dataclass(frozen=True, slots=True)
class Located:
    """A row and its place: the fragment it is in and its number there."""

    entry: Entry
    fragment: int
    offset: int


@dataclass(frozen=True)
class _Rows:
    """All rows of a small data file, deleted ones too."""

    table: pa.Table

    @cached_property
    def places(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, object_id in enumerate(self.table["object_id"].to_pylist()):
            found.setdefault(object_id, []).append(place)
        return found

    @cached_property
    def ids(self) -> FileIds:
        return sort_ids(self.table.select(COLUMNS))


@dataclass(frozen=True)
class SmallFile:
    """A small data file at one version of the manifest."""

    all_rows: _Rows
    deleted: frozenset[int] = frozenset()

    def find(self, object_id: str) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the rows with this id and their places."""
        for place in self.all_rows.places.get(object_id, ()):
            if place not in self.deleted:
                yield self.all_rows.table.slice(place, 1).to_pylist()[0], place

    @cached_property
    def rows(self) -> pa.Table:
        return self.all_rows.table if self._live is None else self.all_rows.table.filter(self._live)

    @property
    def names(self) -> FileNames:
        return FileNames(self.all_rows.ids, self._live)

    @cached_property
    def _live(self) -> pa.BooleanArray | None:
        rows = range(len(self.all_rows.table))
        return pa.array([each not in self.deleted for each in rows]) if self.deleted else None


@dataclass(frozen=True, slots=True)
class Files:
    """The data files of one version: small ones by fragment id, and the fragments of the others."""

    small: dict[int, SmallFile] = field(default_factory=dict)
    large: list[LanceFragment] = field(default_factory=list)
    found: dict[str, list[Located]] = field(default_factory=dict)
    """What was looked up in the large ones, which stay the same over many versions."""
    asked: dict[str, list[Located]] = field(default_factory=dict)
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
        files = Files(numbers, list(large.values()), last.found if same else {}, last.asked if same else {})
        self._small, self._large = small, (list(large), files)
        return files

    def _read_small(self, fragment: LanceFragment) -> SmallFile:
        data = _data_key(fragment.metadata)
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
            data, key = _data_key(meta), _key(meta)
            ids[data] = self._ids.get(data) or _read_ids(fragment)
            names[key] = self._names.get(key) or FileNames(ids[data], _live_rows(fragment))
        self._ids, self._names = ids, names
        return [*names.values(), *(each.names for each in files.small.values())]


def _data_key(meta: FragmentMetadata) -> str:
    return f"{[file.path for file in meta.files]} {meta.overlays}"


def _key(meta: FragmentMetadata) -> str:
    """Identify a data file together with which of its rows are deleted."""
    deleted = meta.deletion_file
    return f"{_data_key(meta)} {deleted.path(meta.id) if deleted is not None else None}"


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
