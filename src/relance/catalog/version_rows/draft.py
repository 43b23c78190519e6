"""What one commit does to the versions of one table, checked step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relance.catalog.layout import ManifestFile
from relance.catalog.manifest.row import ObjectType
from relance.catalog.manifest.store import Change, Snapshot
from relance.catalog.version_rows.agreement import change_of
from relance.catalog.version_rows.rows import (
    MANIFEST_MAX_BYTES,
    StagedVersion,
    VersionRow,
    adopted_row,
    rows_at,
    staged_row,
)
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyNotFoundError,
    TableVersionAlreadyExistsError,
    TableVersionNotFoundError,
)
from relance.identifiers import shown_id
from relance.storage.protocol import ObjectStorage

NO_END = 2**64
"""Where a range of versions without an end stops: no version has this number."""


@dataclass(slots=True)
class VersionDraft:
    """What one commit does to the versions of one table; each step is checked against those before it."""

    table: str
    snapshot: Snapshot
    files: Mapping[int, ManifestFile]
    latest: int = 0
    _before: dict[int, VersionRow] = field(default_factory=dict)
    _after: dict[int, VersionRow | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.latest = max(self.files, default=0)

    def create(self, new: StagedVersion, storage: ObjectStorage) -> str:
        """Add the row of a version, and return the key of its manifest.

        Raises:
            TableVersionAlreadyExistsError: the version exists with other content.
            ConcurrentModificationError: the version is not the one after the latest.
        """
        existing = self.check_taken(new, storage)
        if existing is not None:
            return existing
        check_next(new, self.latest)
        row = staged_row(new)
        other = self.snapshot.get([row.manifest_row.object_id]).get(row.manifest_row.object_id)
        if other is not None and other.object_type != ObjectType.VERSION:
            raise InvalidTableStateError(
                f"version {new.version} of table id '{shown_id(self.table)}' cannot be recorded: the id "
                f"'{shown_id(other.object_id)}' is taken by a {other.object_type}"
            )
        if other is not None:
            self._before[new.version] = VersionRow(other)  # left over: its file is gone
        self._after[new.version] = row
        self.latest = new.version
        return new.target

    def check_taken(self, new: StagedVersion, storage: ObjectStorage) -> str | None:
        """Return the key of the version's manifest if it exists already, just as it is asked for.

        Raises:
            TableVersionAlreadyExistsError: it exists with other content.
        """
        file = self.files.get(new.version)
        if file is None:
            return None
        try:
            same = storage.read(file.info.key, at_most=MANIFEST_MAX_BYTES).body == new.body
        except KeyNotFoundError:
            same = False  # deleted meanwhile
        if not same:
            raise version_taken(new)
        return file.info.key

    def delete(self, ranges: Sequence[range]) -> list[str]:
        """Mark versions as deleted, and return the keys of their manifests.

        Raises:
            InvalidTableStateError: the latest version is one of them.
        """
        doomed = [version for version in self.files if any(version in versions for versions in ranges)]
        if doomed and self.latest in doomed:
            # Its number would come again, and a deleter that stalls would take the new version for it.
            raise InvalidTableStateError(
                f"version {self.latest} is the latest of table id '{shown_id(self.table)}' and cannot be "
                "deleted: restore an older version first (this creates a new one), or use "
                "drop_table"
            )
        rows = rows_at(self.snapshot, self.table, doomed)
        for version in doomed:
            row = rows.get(version)
            if row is not None:
                self._before[version] = row
            self._after[version] = (row or adopted_row(self.table, self.files[version])).deleting()
        return [self.files[version].info.key for version in doomed]

    @property
    def change(self) -> Change:
        return change_of(self._before, self._after)


def check_next(new: StagedVersion, latest: int) -> None:
    """Check that a version follows the latest one; a branch may begin anywhere.

    Raises:
        ConcurrentModificationError: it does not.
    """
    begins_branch = latest == 0 and new.branch not in {None, "main"}
    if new.version != latest + 1 and not begins_branch:
        raise ConcurrentModificationError(
            f"version {new.version} of table id '{new.table_id}' does not follow version "
            f"{latest}: expected {latest + 1}"
        )


def require_versions(table: str, known: Iterable[int], ranges: Sequence[range]) -> None:
    """Check that every version of the ranges is there; one without an end ends with the latest version.

    Raises:
        TableVersionNotFoundError: one is missing.
    """
    there = frozenset(known)
    latest = max(there, default=0)
    for versions in ranges:
        stop = versions.stop if versions.stop < NO_END else max(latest, versions.start) + 1
        # There are only so many versions, so that a range of any length is soon told.
        missing = next((version for version in range(versions.start, stop) if version not in there), None)
        if missing is not None:
            raise TableVersionNotFoundError(f"version {missing} of table id '{table}': nothing was deleted")


def version_taken(new: StagedVersion) -> TableVersionAlreadyExistsError:
    """Return the error for a version that another writer has."""
    return TableVersionAlreadyExistsError(
        f"version {new.version} of table id '{new.table_id}' already exists with different content"
    )
