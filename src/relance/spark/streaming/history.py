"""What the versions of a table added to it, told by their transactions. Reading the rows is in source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import lance
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from relance.errors import InvalidTableStateError, TableVersionNotFoundError
from relance.lance_io import transaction_at

_WITHOUT_ROWS = (
    LanceOperation.Rewrite,
    LanceOperation.CreateIndex,
    LanceOperation.UpdateConfig,
    LanceOperation.Project,
)
"""They move, index or describe rows, and leave the rows as they were."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one fragment that are to be read."""

    fragment: int
    rows: int


@dataclass(frozen=True, slots=True)
class Change:
    """What one version did to the rows."""

    version: int
    transaction: str
    operation: str
    inserted: tuple[Piece, ...] = ()
    """Fragments of which every row is new."""
    touched: tuple[Piece, ...] = ()
    """Fragments with updated rows and new ones, among rows that stayed as they were."""
    read_version: int = 0
    """Rows of the touched fragments belong to the change if they are of a later version than this."""
    loses_rows: bool = False
    """Rows were changed or removed in a way that nobody can tell from the new version."""

    @property
    def rows(self) -> int:
        """How many rows are read for it, at most."""
        return sum(each.rows for each in (*self.inserted, *self.touched))


def pieces_of(fragments: Iterable[FragmentMetadata]) -> tuple[Piece, ...]:
    """Return whole fragments as what is to be read."""
    return tuple(Piece(each.id, each.num_rows) for each in fragments)


class History:
    """The versions of one table, each looked at once."""

    def __init__(
        self, dataset: lance.LanceDataset, name: str, seen: dict[int, Change], *, find_removed: bool = False
    ) -> None:
        """Begin with what was seen of the versions when the table was opened before.

        `find_removed` has updates looked through for rows that are gone: an upsert may remove some.
        """
        self._dataset = dataset
        self._name = name
        self._seen = seen
        self._find_removed = find_removed

    def change(self, version: int) -> Change:
        """Return what a version did.

        Raises:
            TableVersionNotFoundError: the version was cleaned up.
            InvalidTableStateError: Lance does not tell what it did.
        """
        if version not in self._seen:
            self._seen[version] = self._look(version)
        return self._seen[version]

    def transaction_id(self, version: int) -> str | None:
        """Return what made a version; None if the version was cleaned up."""
        try:
            return str(self._transaction(version).uuid)
        except TableVersionNotFoundError:
            return None

    def _look(self, version: int) -> Change:
        transaction = self._transaction(version)
        operation = transaction.operation
        known = Change(version, transaction.uuid, type(operation).__name__)
        if isinstance(operation, _WITHOUT_ROWS):
            return known
        if isinstance(operation, LanceOperation.Append) or _creates(operation, version):
            added = self._fragments_with(version, operation.fragments)
            return _changed(known, inserted=added)
        if isinstance(operation, LanceOperation.Update):
            return self._update(known, transaction)
        if isinstance(operation, LanceOperation.Delete):
            return _changed(known, loses=bool(operation.updated_fragments or operation.deleted_fragment_ids))
        if isinstance(operation, LanceOperation.Merge):
            # Columns were added or got another type, which may replace files: the rows stay what they are.
            return _changed(known, loses=not self._has_rows_of_previous(version, same_files=False))
        if type(operation) is LanceOperation.BaseOperation:
            # What Lance notes for itself has no name here, as what is newer than this pylance.
            return _changed(known, loses=not self._has_rows_of_previous(version, same_files=True))
        return _changed(known, loses=True)

    def _update(self, known: Change, transaction: lance.Transaction) -> Change:
        operation = transaction.operation
        new = self._fragments_with(known.version, operation.new_fragments)
        if not operation.updated_fragments and not operation.removed_fragment_ids:
            return _changed(known, inserted=new)  # an upsert that met no row
        if operation.fields_modified:
            ids = {each.id for each in operation.updated_fragments}
            new = (*new, *pieces_of(each for each in self._fragments(known.version) if each.id in ids))
        return _changed(
            known,
            touched=new,
            read_version=int(transaction.read_version),
            loses=self._find_removed and self._removes_rows(known.version),
        )

    def _removes_rows(self, version: int) -> bool:
        try:
            delta = self._dataset.delta(begin_version=version - 1, end_version=version)
            return any(batch.num_rows for batch in delta.get_deleted_row_ids())
        except (OSError, ValueError) as cause:
            raise self._gone(version - 1, cause) from cause

    def _transaction(self, version: int) -> lance.Transaction:
        try:
            found = transaction_at(self._dataset, version)
        except OSError as cause:
            raise self._gone(version, cause) from cause
        if found is None:
            raise InvalidTableStateError(
                f"version {version} of {self._name} does not record what it changed; "
                "start a new query with a new checkpoint"
            )
        return found

    def _fragments(self, version: int) -> list[FragmentMetadata]:
        try:
            dataset = self._dataset.checkout_version(version)
        except (OSError, ValueError) as cause:
            raise self._gone(version, cause) from cause
        return [each.metadata for each in dataset.get_fragments()]

    def _fragments_with(self, version: int, written: Iterable[FragmentMetadata]) -> tuple[Piece, ...]:
        """Return the fragments with the files that a transaction wrote; it does not know their numbers."""
        files = {file.path for each in written for file in each.files}
        return pieces_of(
            each
            for each in (self._fragments(version) if files else [])
            if any(file.path in files for file in each.files)
        )

    def _has_rows_of_previous(self, version: int, *, same_files: bool) -> bool:
        before = {each.id: each for each in self._fragments(version - 1)}
        after = {each.id: each for each in self._fragments(version)}
        return before.keys() == after.keys() and all(
            _same_rows(before[each], after[each], same_files=same_files) for each in after
        )

    def _gone(self, version: int, cause: Exception) -> Exception:
        if "not found" not in str(cause).lower():
            return cause
        return gone(self._dataset, version, self._name)


def gone(dataset: lance.LanceDataset, version: int, name: str) -> TableVersionNotFoundError:
    """Return the error for a version that a stream still needs and that was cleaned up."""
    first = min((each["version"] for each in dataset.versions() if each["version"] > version), default=None)
    if first is None:
        return TableVersionNotFoundError(f"version {version} of {name}")
    return TableVersionNotFoundError(
        f"version {version} of {name} was cleaned up, but the stream still needs it; the next one is "
        f"version {first}: start with a new checkpoint, either with starting_version={first - 1} to "
        "continue from there (rows in between are missed) or without it to read the whole table again"
    )


def _creates(operation: LanceOperation.BaseOperation, version: int) -> bool:
    return version == 1 and isinstance(operation, LanceOperation.Overwrite)


def _changed(
    known: Change,
    *,
    inserted: tuple[Piece, ...] = (),
    touched: tuple[Piece, ...] = (),
    read_version: int = 0,
    loses: bool = False,
) -> Change:
    return Change(known.version, known.transaction, known.operation, inserted, touched, read_version, loses)


def _same_rows(before: FragmentMetadata, after: FragmentMetadata, *, same_files: bool) -> bool:
    if (before.physical_rows, before.num_rows) != (after.physical_rows, after.num_rows):
        return False
    files = {each.path for each in after.files}
    return not same_files or all(each.path in files for each in before.files)
