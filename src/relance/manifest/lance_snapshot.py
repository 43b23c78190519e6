"""One version of the manifest table, as it is read. Committing to it is in lance_manifest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import lance
import pyarrow.compute as pc

from relance.config import StorageOptions
from relance.errors import InternalError, InvalidTableStateError
from relance.lance_errors import lance_errors
from relance.manifest.data_files import FileCache, Files, Located, SmallFile, split_address
from relance.manifest.entry import DROPPED_PREFIX, HEAD_ID, MARKER, Entry, ObjectType, decode_row
from relance.manifest.name_index import FileNames, all_ids, child_names
from relance.manifest.store import ManifestConflictError

_T = TypeVar("_T")

_IDS_PER_QUERY = 500

_MOST_KNOWN = 10_000
"""How many looked-up ids are kept."""

_READERS_NAME = "relance-manifest"

_READERS = ThreadPoolExecutor(8, thread_name_prefix=_READERS_NAME)
"""Scans run here: in a callback from Lance's own threads a scan aborts the interpreter."""


def in_reader(work: Callable[[], _T]) -> _T:
    """Run work that scans a Lance table on a thread of ours."""
    if threading.current_thread().name.startswith(_READERS_NAME):
        return work()  # waiting for another one from here could wait for ever
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
        self._answers: dict[str, list[Located]] = {}

    @property
    def version(self) -> int:
        return 0 if self.dataset is None else int(self.dataset.version)

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        return {} if self.dataset is None else dict(self.dataset.metadata)

    def get(self, ids: Iterable[str]) -> dict[str, Entry]:
        return {each.entry.object_id: each.entry for each in self.find(ids)}

    def find(self, ids: Iterable[str]) -> list[Located]:
        """Return the rows with these ids and where they lie."""
        wanted = sorted(set(ids))
        near = {each: list(self._in_small_files(each)) for each in wanted}
        # The head is nearly always in a small file, and there is only one.
        far = self._in_large_files([each for each in wanted if each != HEAD_ID or not near[each]])
        found = [located for each in wanted for located in (*near[each], *far.get(each, ()))]
        _refuse_duplicates(found)
        return found

    def _in_small_files(self, object_id: str) -> Iterator[Located]:
        for fragment, file in self._files.small.items():
            yield from (Located(decode_row(row), fragment, offset) for row, offset in file.find(object_id))

    def _in_large_files(self, ids: Sequence[str]) -> dict[str, list[Located]]:
        """Return what is there under each id, also when that is nothing."""
        if not self._files.large:
            return {}
        known = self._files.found
        rows = {each: found for each in ids if (found := known.get(each)) is not None}
        unknown = [each for each in ids if each not in rows]
        new: dict[str, list[Located]] = {each: [] for each in unknown}
        for start in range(0, len(unknown), _IDS_PER_QUERY):
            listed = ", ".join(quoted(each) for each in unknown[start : start + _IDS_PER_QUERY])
            for located in self._scan(f"object_id IN ({listed})", self._files.large):
                new[located.entry.object_id].append(located)
        if len(known) > _MOST_KNOWN:
            known.clear()
        known.update(new)
        return rows | new

    def small_file(self, fragment: int) -> SmallFile | None:
        """Return a data file that is kept in memory; None for a large one."""
        return self._files.small.get(fragment)

    def below(self, prefix: str) -> list[Entry]:
        return self._with_prefix(prefix)

    def dropped(self, original_id: str | None = None) -> list[Entry]:
        if original_id is None:
            return self._with_prefix(DROPPED_PREFIX)
        # Narrows down by text; the entry itself tells for sure.
        holds = f"contains(metadata, {quoted(json.dumps(original_id, ensure_ascii=False))})"
        found = self._with_prefix(DROPPED_PREFIX, holds)
        return [each for each in found if each.original_id == original_id]

    def _with_prefix(self, prefix: str, narrowed: str | None = None) -> list[Entry]:
        """Return the rows whose id begins so; `narrowed` saves reading large files, and no more."""
        found = [
            Located(decode_row(row), fragment, 0)
            for fragment, file in self._files.small.items()
            for row in file.rows.filter(pc.starts_with(file.rows["object_id"], prefix)).to_pylist()
        ]
        if self._files.large:
            where = _starts_with("object_id", prefix) + (f" AND {narrowed}" if narrowed else "")
            known = self._files.asked
            if where not in known:
                if len(known) > _MOST_KNOWN:
                    known.clear()
                known[where] = self._scan(where, self._files.large)
            found += known[where]
        found = [each for each in found if each.entry.object_id != HEAD_ID]
        _refuse_duplicates(found)
        return [each.entry for each in found]

    def held(self) -> list[Entry]:
        found = self._entries(f"contains(metadata, {quoted(json.dumps(MARKER))})")
        return [each for each in found if each.is_held]

    def at_location(self, locations: Iterable[str]) -> list[Entry]:
        wheres = (
            f"location = {quoted(each)} OR {_starts_with('location', each + '/')}" for each in locations
        )
        return self._entries(" OR ".join(f"({each})" for each in wheres))

    def _entries(self, where: str) -> list[Entry]:
        if where not in self._answers:
            self._answers[where] = self._scan(where, None)
        found = [each for each in self._answers[where] if each.entry.object_id != HEAD_ID]
        _refuse_duplicates(found)
        return [each.entry for each in found]

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
        return [_located(row) for row in rows.to_pylist()]

    def all_rows(self) -> Iterator[Mapping[str, Any]]:
        dataset = self.dataset
        if dataset is None:
            return
        for fragment in dataset.get_fragments():
            with self._reading():
                rows = in_reader(fragment.to_table)
            yield from rows.to_pylist()

    def names(self, namespace: Sequence[str], object_type: str, *, after: str | None) -> Iterator[str]:
        return child_names(self._names, namespace, object_type, after=after)

    def own_directories(self) -> frozenset[str]:
        return frozenset(name for each in self._names for name in each.live_among(each.ids.at_home))

    def moved(self) -> frozenset[str]:
        return frozenset(name for each in self._names for name in each.live_among(each.ids.moved))

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


def _located(row: dict[str, Any]) -> Located:
    return Located(decode_row(row), *split_address(row.pop("_rowaddr")))


def _refuse_duplicates(found: Sequence[Located]) -> None:
    seen: set[str] = set()
    for each in found:
        if each.entry.object_id in seen:
            raise InvalidTableStateError(
                f"the manifest contains '{each.entry.object_id}' twice. Nothing was changed; run "
                "scrub() for repair options"
            )
        seen.add(each.entry.object_id)


def manifest_errors(options: Mapping[str, str]) -> Any:
    """Turn what pylance raises into our errors."""
    return lance_errors("the catalog's manifest", options)


def _starts_with(column: str, prefix: str) -> str:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return f"({column} >= {quoted(prefix)} AND {column} < {quoted(end)})"


def quoted(text: str) -> str:
    """Return `text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"
