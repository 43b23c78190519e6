"""The row of one version: what it says and how it is written. Pure, as manifest.row is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from relance.catalog.layout import (
    ManifestFile,
    NamingScheme,
    file_name,
    manifest_key,
    version_of,
)
from relance.catalog.manifest.row import ObjectType, Row, check_properties
from relance.catalog.manifest.store import Snapshot
from relance.errors import InvalidInputError
from relance.identifiers import DELIMITER, TableId
from relance.locations import RESERVED_FILE, VERSIONS_DIRECTORY

MANIFEST_MAX_BYTES = 256 * 2**20
"""Of a table's manifest that the catalog copies or compares: enough for two million fragments."""

_PATH = "manifest_path"
_SIZE = "manifest_size"
_E_TAG = "e_tag"
_SCHEME = "naming_scheme"
_DELETING = "relance.deleting"

_MOST_DIGITS = 20
"""Of a version number."""

_OURS = frozenset({_PATH, _SIZE, _E_TAG, _SCHEME, _DELETING})


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version that somebody asks for: its manifest, where that is staged and where it belongs."""

    table_id: TableId
    directory: str
    version: int
    branch: str | None
    staging: str
    """Its key, as `target` is."""
    body: bytes
    target: str
    scheme: NamingScheme
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def settled_keys(self) -> list[str]:
        """What is removed once the version is there: what was staged; with the first one, the reservation."""
        staged = [self.staging] if self.staging != self.target else []
        return [*staged, *([f"{self.directory}/{RESERVED_FILE}"] if self.version == 1 else [])]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """The row of one version; the path in it is relative to the root, as the location of its table is.

    Of a path only the name counts here: a table can be renamed, and other clients write other paths.
    """

    manifest_row: Row

    @property
    def version(self) -> int:
        return int(self.manifest_row.parts[-1])

    @property
    def path(self) -> str:
        path = self.manifest_row.metadata.get(_PATH)
        return path if isinstance(path, str) else ""

    @property
    def is_staged(self) -> bool:
        """Whether the row leads to a staged manifest; final ones have a number for a name."""
        return bool(self.path) and version_of(_name(self.path)) is None

    @property
    def is_deleting(self) -> bool:
        return _DELETING in self.manifest_row.metadata

    @property
    def metadata(self) -> dict[str, str]:
        """What the creator of the version gave along."""
        return {key: value for key, value in self.manifest_row.properties.items() if key not in _OURS}

    def key(self, directory: str) -> str:
        """Return the key of the manifest that the row leads to."""
        return f"{directory}/{VERSIONS_DIRECTORY}/{_name(self.path)}"

    def final_key(self, directory: str) -> str:
        """Return the key that the manifest has in the end."""
        return manifest_key(directory, None, self.version, self._scheme)

    def is_of(self, file: ManifestFile) -> bool:
        """Tell whether a final row can be that of the file, and not of one that had its name before."""
        size = self.manifest_row.metadata.get(_SIZE)
        return size is None or str(size) == str(file.info.size)  # other clients write a number

    def final(self, file: ManifestFile) -> VersionRow:
        """Return the row that leads to the final file."""
        return self._with(**_facts(file))

    def copied_to(self, directory: str) -> VersionRow:
        """Return the row of the same version of a copy of the table."""
        metadata = {key: value for key, value in self.manifest_row.metadata.items() if key != _E_TAG}
        return VersionRow(replace(self.manifest_row, metadata={**metadata, _PATH: self.key(directory)}))

    def deleting(self) -> VersionRow:
        """Return the row of a version that is no more, and whose file is still to go."""
        return self._with(**{_DELETING: "true"})

    @property
    def _scheme(self) -> NamingScheme:
        scheme = self.manifest_row.metadata.get(_SCHEME)
        return NamingScheme.V1 if scheme in ("V1", "v1") else NamingScheme.V2

    def _with(self, **values: Any) -> VersionRow:
        return VersionRow(replace(self.manifest_row, metadata={**self.manifest_row.metadata, **values}))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _facts(file: ManifestFile) -> dict[str, Any]:
    name = _name(file.info.key)
    scheme = NamingScheme.V2 if name == file_name(file.version, NamingScheme.V2) else NamingScheme.V1
    facts = {_PATH: file.info.key, _SIZE: file.info.size, _SCHEME: scheme.value}
    return {**facts, _E_TAG: file.info.e_tag} if file.info.e_tag else facts


def row_id(table: str, version: int) -> str:
    """Return the id of a version's row."""
    return f"{table}{DELIMITER}{version}"


def staged_row(new: StagedVersion) -> VersionRow:
    """Return the row of a version whose manifest is staged."""
    metadata = {
        **new.metadata,
        _PATH: new.staging,
        _SIZE: len(new.body),
        _SCHEME: new.scheme.value,
    }
    return VersionRow(Row(row_id(new.table_id.object_id, new.version), ObjectType.VERSION, None, metadata))


def adopted_row(table: str, file: ManifestFile) -> VersionRow:
    """Return the row of a version that came to its place without the catalog."""
    return VersionRow(Row(row_id(table, file.version), ObjectType.VERSION, None, _facts(file)))


def check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the metadata that somebody gives a version.

    Raises:
        InvalidInputError: a key is one of the catalog's own.
    """
    for key in metadata or {}:
        if key in _OURS:
            raise InvalidInputError(
                f"version metadata {key!r} cannot be set: the key is reserved for the catalog"
            )
    return check_properties(metadata)


def rows_of(snapshot: Snapshot, table: str) -> dict[int, VersionRow]:
    """Return all version rows of a table."""
    return _by_version(table, snapshot.below(table + DELIMITER))


def rows_at(snapshot: Snapshot, table: str, versions: Iterable[int]) -> dict[int, VersionRow]:
    """Return the rows of some versions of a table."""
    return _by_version(table, snapshot.get(row_id(table, version) for version in versions).values())


def _by_version(table: str, rows: Iterable[Row]) -> dict[int, VersionRow]:
    versions = (VersionRow(row) for row in rows if is_version_of(table, row))
    # `t$01` is no row of ours, and there may be a `t$1` too.
    return {one.version: one for one in versions if one.manifest_row.object_id == row_id(table, one.version)}


def is_version_of(table: str, row: Row) -> bool:
    """Tell whether a row below a table's id is of one of its versions, and not of a table below it."""
    number = row.object_id[len(table) + 1 :]
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
    return row.object_type == ObjectType.VERSION and is_number
