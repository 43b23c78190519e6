"""Changes of rows that tasks prepare at a planned version, and the one commit that makes them true.

Which rows and how is in row_deletes and updates. The proof that a change still holds at a later version:
a fragment with the same data files and the same deletion file has the same rows there, so that what was
prepared for it is what would be prepared again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import lance
from lance.fragment import FragmentMetadata

from relance.catalog.context import Context
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    RelanceError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from relance.lance_io import checkout, open_at
from relance.maintenance.work import Figures
from relance.operations.data_errors import data_errors
from relance.operations.fields import fields_of_table
from relance.operations.targets import Target


@dataclass(frozen=True, slots=True)
class Pinned:
    """The version of a table that was planned for."""

    table: tuple[str, ...]
    directory: str
    uri: str
    version: int
    fields: str
    """Lance's fields of the table, with their ids."""

    @contextmanager
    def opened(self, options: StorageOptions) -> Iterator[lance.LanceDataset]:
        """Give the dataset at this version, and turn what goes wrong in the block into our errors.

        Raises:
            ConcurrentModificationError: this version was cleaned up, or its table is gone.
        """
        try:
            with data_errors(self._what, options):
                yield self._open(options)
        except RelanceError as failure:
            if not isinstance(failure, ConcurrentModificationError) and self._is_gone(options):
                raise ConcurrentModificationError(
                    f"version {self.version} of {self._what} no longer exists; retry"
                ) from failure
            raise

    @property
    def _what(self) -> str:
        return f"table id '{'$'.join(self.table)}'"

    def _open(self, options: StorageOptions) -> lance.LanceDataset:
        latest = open_at(self.uri, options, "$".join(self.table))
        return checkout(latest, self.version, f"version {self.version} of {self._what}")

    def _is_gone(self, options: StorageOptions) -> bool:
        try:
            self._open(options)
        except RelanceError as failure:
            return isinstance(failure, TableNotFoundError | TableVersionNotFoundError)
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """What was prepared for some fragments: all of it is committed, or nothing."""

    rows: int
    updated: tuple[str, ...] = ()
    """Fragments with their new deletion files, as JSON."""
    removed: tuple[int, ...] = ()
    """Fragments of which no row is left."""
    added: tuple[str, ...] = ()
    """New fragments, as JSON."""

    @property
    def touched(self) -> frozenset[int]:
        """The fragments whose rows it changes."""
        return frozenset(self.removed) | {int(json.loads(each)["id"]) for each in self.updated}


class Rewrite(Protocol):
    """One kind of change. It can be pickled."""

    @property
    def where(self) -> str | None:
        """Which rows; None is all of them."""

    def prepare(self, context: Context, at: Pinned, fragments: Sequence[int]) -> list[Part]:
        """Write what the change needs for these fragments, which nothing mentions yet."""

    def operation(
        self, parts: Sequence[Part], dataset: lance.LanceDataset
    ) -> lance.LanceOperation.BaseOperation:
        """Return what to commit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment as planning sees it."""

    number: int
    state: str
    """Its files, data and deletion: what it takes to have the same rows."""
    rows: int
    deleted: int
    bytes: int


def pin(target: Target) -> Pinned:
    """Return the version that a table was opened at."""
    return Pinned(
        table=tuple(target.found.table_id.parts),
        directory=target.found.directory,
        uri=str(target.dataset.uri),
        version=int(target.dataset.version),
        fields=fields_of_table(target.dataset),
    )


def pieces_of(dataset: lance.LanceDataset) -> list[Piece]:
    """Return all fragments of a version."""
    return [_piece(each.metadata) for each in dataset.get_fragments()]


def _piece(fragment: FragmentMetadata) -> Piece:
    names = [each.path for each in fragment.files]
    if fragment.deletion_file is not None:
        names.append(fragment.deletion_file.path(fragment.id))
    size = sum(each.file_size_bytes or 0 for each in fragment.files)
    deleted = fragment.num_deletions
    return Piece(fragment.id, " ".join(names), fragment.physical_rows - deleted, deleted, size)


def figures_of(pieces: Iterable[Piece]) -> Figures:
    """Return what fragments hold together."""
    seen = list(pieces)
    return Figures(
        rows=sum(each.rows for each in seen),
        deleted_rows=sum(each.deleted for each in seen),
        fragments=len(seen),
        bytes=sum(each.bytes for each in seen),
    )


@dataclass(frozen=True, slots=True)
class Costs:
    """About how many seconds of one core a change takes."""

    fragment: float
    row: float
    byte: float = 0.0

    def of(self, pieces: Iterable[Piece]) -> float:
        return sum(self.fragment + each.rows * self.row + each.bytes * self.byte for each in pieces)


def grouped(pieces: Iterable[Piece], costs: Costs, *, most_seconds: float) -> list[list[Piece]]:
    """Cut fragments into groups of neighbours, each of about that much work."""
    groups: list[list[Piece]] = []
    left = 0.0
    for each in pieces:
        cost = costs.of([each])
        if not groups or cost > left:
            groups.append([])
            left = most_seconds
        groups[-1].append(each)
        left -= cost
    return groups


def fragment_text(fragment: FragmentMetadata) -> str:
    """Return a fragment as JSON."""
    return json.dumps(fragment.to_json())


def fragments_of(texts: Iterable[str]) -> list[FragmentMetadata]:
    """Return fragments from their JSON."""
    return [FragmentMetadata.from_json(each) for each in texts]


def discard(context: Context, directory: str, parts: Iterable[Part]) -> None:
    """Remove the files of parts that are in no version; what cannot be removed is left to the cleanup."""
    keys: list[str] = []
    for part in parts:
        for fragment in fragments_of(part.updated):
            if fragment.deletion_file is not None:
                keys.append(f"{directory}/{fragment.deletion_file.path(fragment.id)}")
        for fragment in fragments_of(part.added):
            keys += [f"{directory}/data/{each.path}" for each in fragment.files]
    with suppress(RelanceError):
        context.storage.delete_many(keys)


def still_holds(part: Part, planned: Mapping[int, str], now: Mapping[int, str]) -> bool:
    """Tell whether the fragments that a part changes are now as they were when it was prepared."""
    return all(number in now and now[number] == planned.get(number) for number in part.touched)
