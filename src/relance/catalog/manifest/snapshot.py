"""One version of the manifest table, as it is read. Committing to it is in table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, TypeVar

import lance
import pyarrow.compute as pc

from relance.catalog.manifest.cache import (
    FileCache,
    FileNames,
    Files,
    Located,
    SmallFile,
    all_ids,
    child_names,
    split_address,
)
from relance.catalog.manifest.row import CONTROL, DROPPED_PREFIX, HEAD_ID, ObjectType, Row, decode_row
from relance.catalog.manifest.store import ManifestConflictError, RowsSnapshot, is_sharing, one_per_id
from relance.config import StorageOptions
from relance.errors import InternalError
from relance.forks import LANCE, note_use
from relance.lance_io import lance_errors

_T = TypeVar("_T")

_IDS_PER_QUERY = 500

_MOST_KNOWN = 10_000
"""How many looked-up ids are kept."""

_READERS_NAME = "relance-manifest"

_READERS = ThreadPoolExecutor(8, thread_name_prefix=_READERS_NAME)
"""Scans run here: in a callback from Lance's own threads a scan aborts the interpreter."""

_ODD_LOCATION = (
    "contains(location, '//') OR contains(location, './') "
    "OR ends_with(location, '/') OR ends_with(location, '/.')"
)
"""Locations that have to be normalized; hardly any row has one."""


def in_reader(work: Callable[[], _T]) -> _T:
    """Run work that scans a Lance table on a thread of ours."""
    if threading.current_thread().name.startswith(_READERS_NAME):
        return work()  # waiting for another one from here could wait for ever
    note_use(LANCE)  # after a fork nobody would take the work
    return _READERS.submit(work).result()


class LanceSnapshot:
    """One version of the manifest table; `dataset` is None while there is none.

    Small files are read once and kept in memory, large ones are asked through the index; what they
    answered is kept, for no file changes.
    """

    def __init__(
        self,
        dataset: lance.LanceDataset | None,
        files: FileCache,
        options: StorageOptions,
        is_superseded: Callable[[int], bool],
    ) -> None:
        self.dataset = dataset
        self.seen_at = 0.0
        """When this was last known to be the latest version, in the seconds of `since_boot`."""
        self._is_superseded = is_superseded
        self._cache = files
        self._options = options
        self._by_query: dict[str, list[Located]] = {}
        self._by_id: dict[str, Row | None] = {}

    @property
    def version(self) -> int:
        return 0 if self.dataset is None else int(self.dataset.version)

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        return {} if self.dataset is None else dict(self.dataset.metadata)

    def get(self, ids: Iterable[str]) -> dict[str, Row]:
        wanted, known = list(ids), self._by_id
        unknown = [object_id for object_id in wanted if object_id not in known]
        if unknown:
            rows = {row.object_id: row for row in _one_per_id(self.find(unknown))}
            if len(known) > _MOST_KNOWN:
                known = self._by_id = {object_id: known.get(object_id) for object_id in wanted}
            known.update((object_id, rows.get(object_id)) for object_id in unknown)
        return {object_id: row for object_id in wanted if (row := known[object_id]) is not None}

    def find(self, ids: Iterable[str]) -> list[Located]:
        """Return all rows with these ids and where they lie."""
        wanted = sorted(set(ids))
        near = {object_id: list(self._in_small_files(object_id)) for object_id in wanted}
        # The head is nearly always in a small file, and there is only one.
        far = self._in_large_files(
            [object_id for object_id in wanted if object_id != HEAD_ID or not near[object_id]]
        )
        return [located for object_id in wanted for located in (*near[object_id], *far.get(object_id, ()))]

    def _in_small_files(self, object_id: str) -> Iterator[Located]:
        for fragment, file in self._files.small.items():
            if object_id in file.all_rows.places:
                yield from (Located(row, fragment, place) for row, place in file.find(object_id))

    def _in_large_files(self, ids: Sequence[str]) -> dict[str, list[Located]]:
        """Return what is there under each id, also when that is nothing."""
        if not self._files.large:
            return {}
        known = self._files.by_id
        old = {object_id: rows for object_id in ids if (rows := known.get(object_id)) is not None}
        unknown = [object_id for object_id in ids if object_id not in old]
        new: dict[str, list[Located]] = {object_id: [] for object_id in unknown}
        for start in range(0, len(unknown), _IDS_PER_QUERY):
            listed = ", ".join(map(quoted, unknown[start : start + _IDS_PER_QUERY]))
            for located in self._scan(f"object_id IN ({listed})", self._files.large):
                new[located.row.object_id].append(located)
        if len(known) > _MOST_KNOWN:
            known.clear()
        known.update(new)
        return old | new

    def small_file(self, fragment: int) -> SmallFile | None:
        """Return a data file that is kept in memory; None for a large one."""
        return self._files.small.get(fragment)

    def below(self, prefix: str) -> list[Row]:
        return _one_per_id(self.find_below(prefix))

    def dropped(self, original_id: str | None = None) -> list[Row]:
        if original_id is None:
            return [row for row in self.below(DROPPED_PREFIX) if row.is_dropped]
        # Narrows down by text; the row itself tells for sure.
        texts = {json.dumps(original_id, ensure_ascii=False), json.dumps(original_id)}
        holds = " OR ".join(f"contains(metadata, {quoted(text)})" for text in sorted(texts))
        rows = _one_per_id(self.find_below(DROPPED_PREFIX, f"({holds})"))
        return [row for row in rows if row.is_dropped and row.original_id == original_id]

    def find_below(self, prefix: str, narrowed: str | None = None) -> list[Located]:
        """Return all rows whose id begins so; `narrowed` saves reading large files, and no more."""
        rows = [
            located
            for fragment, file in self._files.small.items()
            for located in file.located(prefix, fragment)
        ]
        if self._files.large:
            where = _starts_with("object_id", prefix) + (f" AND {narrowed}" if narrowed else "")
            known = self._files.by_query
            if where not in known:
                if len(known) > _MOST_KNOWN:
                    known.clear()
                known[where] = self._scan(where, self._files.large)
            rows += known[where]
        return rows

    def reviving(self) -> list[Row]:
        candidates = [located.row for located in self.find_where(_HAS_CONTROL) if located.row.is_reviving]
        # Of two rows with one id the other may be the one that counts.
        rows = self.get(row.object_id for row in candidates)
        return [row for row in rows.values() if row.is_reviving]

    def sharing(self, directories: Iterable[str]) -> list[Row]:
        directories = [*directories]
        return [
            located.row
            for located in self.find_where(_may_share(directories))
            if is_sharing(located.row, directories)
        ]

    def find_where(self, where: str) -> list[Located]:
        """Return all rows that a filter selects."""
        if where not in self._by_query:
            self._by_query[where] = self._scan(where, None)
        return self._by_query[where]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what pylance raises into our errors; files of a version that was removed are no damage.

        Raises:
            ManifestConflictError: upkeep removed this version, because there are later ones.
        """
        try:
            with manifest_errors(self._options):
                yield
        except InternalError as failure:
            if "not found" in failure.detail.lower() and self._is_superseded(self.version):
                raise ManifestConflictError(
                    f"version {self.version} of the manifest was cleaned up while it was being read; retry"
                ) from failure
            raise

    def _scan(self, where: str, fragments: list[lance.LanceFragment] | None) -> list[Located]:
        dataset = self.dataset
        if dataset is None:
            return []
        with self._reading():
            rows = in_reader(
                lambda: dataset.scanner(filter=where, fragments=fragments, with_row_address=True).to_table()
            )
        return [_located(columns) for columns in rows.to_pylist()]

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        dataset = self.dataset
        if dataset is None:
            return
        for fragment in dataset.get_fragments():
            with self._reading():
                rows = in_reader(fragment.to_table)
            yield from rows.to_pylist()

    def duplicates(self) -> Iterator[str]:
        dataset = self.dataset
        if dataset is None:
            return
        with self._reading():
            ids = in_reader(lambda: dataset.to_table(columns=["object_id"]))["object_id"]
        counts = ids.value_counts()
        doubled = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        yield from sorted(doubled.to_pylist())

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        return child_names(self._names, namespace, object_type, after=after)

    def home_names(self) -> frozenset[str]:
        return frozenset(name for file in self._names for name in file.live_among(file.ids.homes))

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        return all_ids(self._names, ObjectType.TABLE, after=after)

    @cached_property
    def _names(self) -> list[FileNames]:
        with self._reading():
            return in_reader(lambda: self._cache.names_in(self._files))

    @cached_property
    def _files(self) -> Files:
        dataset = self.dataset
        if dataset is None:
            return Files()
        with self._reading():
            return in_reader(lambda: self._cache.files_of(dataset))


class RevertedSnapshot:
    """A version of the manifest as it would be without one of our commits in it.

    That is what the commit is checked against if another client's commit came before it, unseen.
    """

    def __init__(self, inner: LanceSnapshot, hidden: Iterable[Located], restored: Iterable[Row]) -> None:
        self._inner = inner
        self._hidden = frozenset(located.address for located in hidden)
        self._restored = tuple(restored)

    @property
    def version(self) -> int:
        return self._inner.version

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._inner.metadata

    def get(self, ids: Iterable[str]) -> dict[str, Row]:
        wanted = set(ids)
        return self._rows(self._inner.find(wanted)).get(wanted)

    def below(self, prefix: str) -> list[Row]:
        return self._rows(self._inner.find_below(prefix)).below(prefix)

    def dropped(self, original_id: str | None = None) -> list[Row]:
        return self._rows(self._inner.find_below(DROPPED_PREFIX)).dropped(original_id)

    def reviving(self) -> list[Row]:
        return self._all.reviving()

    def sharing(self, directories: Iterable[str]) -> list[Row]:
        directories = [*directories]
        return self._rows(self._inner.find_where(_may_share(directories))).sharing(directories)

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        return self._all.all_rows()

    def duplicates(self) -> Iterator[str]:
        return self._all.duplicates()

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        return self._all.names(namespace, object_type, after=after)

    def home_names(self) -> frozenset[str]:
        return self._all.home_names()

    def table_ids(self, *, after: str | None) -> Iterator[str]:
        return self._all.table_ids(after=after)

    @cached_property
    def _all(self) -> RowsSnapshot:
        return self._rows(self._inner.find_where("true"))

    def _rows(self, located: Iterable[Located]) -> RowsSnapshot:
        rows = [one.row for one in located if one.address not in self._hidden]
        return RowsSnapshot([*rows, *self._restored], self.version, self.metadata)


_HAS_CONTROL = f"""contains(metadata, '"{CONTROL}"')"""


def _may_share(directories: Iterable[str]) -> str:
    """Return a filter for the rows that may share a directory, and few others."""
    wheres = [_ODD_LOCATION]
    for directory in directories:
        parts = directory.split("/")
        above = (quoted("/".join(parts[:count])) for count in range(1, len(parts) + 1))
        wheres.append(f"location IN ({', '.join(above)}) OR {_starts_with('location', directory + '/')}")
    return " OR ".join(f"({where})" for where in wheres)


def _located(columns: dict[str, Any]) -> Located:
    address = columns.pop("_rowaddr")
    return Located(decode_row(columns), *split_address(address))


def _one_per_id(located: Iterable[Located]) -> list[Row]:
    return one_per_id(one.row for one in located if one.row.object_id != HEAD_ID)


def manifest_errors(options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Turn what pylance raises into our errors."""
    return lance_errors("the catalog's manifest", options)


def _starts_with(column: str, prefix: str) -> str:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return f"({column} >= {quoted(prefix)} AND {column} < {quoted(end)})"


def quoted(text: str) -> str:
    """Return `text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"
