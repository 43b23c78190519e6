"""Check that every file a table needs exists and can be read."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import lance
from lance.file import LanceFileReader

from relance.catalog.context import Context
from relance.errors import RelanceError
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.operations.targets import open_for_reading

_THREADS = 8
_DATA_FILE = "data file"


@dataclass(frozen=True, slots=True)
class TableValidation:
    """The result of validating a table's files."""

    id: tuple[str, ...]
    version: int
    versions: int
    """Number of versions checked."""
    files: int = 0
    bytes: int = 0
    missing: tuple[str, ...] = ()
    """Files that a version refers to but that do not exist."""
    unreadable: tuple[str, ...] = ()
    """Data files of the latest version that cannot be opened, with the reason."""
    problem: str | None = None
    """The problem that Lance's own validation reports, if no file is missing or unreadable."""

    @property
    def ok(self) -> bool:
        return not self.missing and not self.unreadable and self.problem is None


@dataclass(frozen=True, slots=True)
class _File:
    base: str
    path: str
    kind: str = ""


def validate_table(context: Context, table_id: TableId, *, every_version: bool) -> TableValidation:
    """Check that every file of the latest version, or of all, exists; open the latest one's data files.

    Only their last bytes are read: damage in the middle of a file is found by reading the table.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
    """
    target = open_for_reading(context, table_id.parts)
    dataset, where, options = target.dataset, f"table id '{table_id}'", target.options
    latest = int(dataset.version)
    with lance_errors(where, options):
        versions = [int(each["version"]) for each in dataset.versions()] if every_version else [latest]
        needed = _needed(dataset, latest if not every_version else None)
        there = {
            (row["base_uri"], row["path"]): row["size_bytes"]
            for batch in dataset.all_files()
            for row in batch.to_pylist()
        }
    missing = sorted(each.path for each in needed if (each.base, each.path) not in there)
    data = {each for each in _needed(dataset, latest) if each.kind == _DATA_FILE}
    # Lance's reader panics at an empty file.
    empty = {each for each in data if there.get((each.base, each.path)) == 0}
    cut = [f"{each.path}: the file is empty" for each in empty]
    cut += _unreadable(context, (each for each in data - empty if (each.base, each.path) in there))
    return TableValidation(
        id=tuple(table_id.parts),
        version=latest,
        versions=len(versions),
        files=len(needed) - len(missing),
        bytes=sum(there.get((each.base, each.path), 0) for each in needed),
        missing=tuple(missing),
        unreadable=tuple(sorted(cut)),
        problem=None if missing or cut else _problem(dataset, where, context),
    )


def _needed(dataset: lance.LanceDataset, version: int | None) -> set[_File]:
    """Return the files that a version names, or all versions do."""
    return {
        _File(row["base_uri"], row["path"], row["type"])
        for batch in dataset.tracked_files(min_version=version)
        for row in batch.to_pylist()
        if version is None or row["version"] == version
    }


def _unreadable(context: Context, files: Iterable[_File]) -> list[str]:
    options = context.lance_options()

    def check(file: _File) -> str | None:
        try:
            LanceFileReader(f"{file.base}/{file.path}", storage_options=dict(options) or None).metadata()
        except (OSError, ValueError, RuntimeError) as cause:
            return f"{file.path}: {options.redact(str(cause)).split(', /')[0]}"
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        return [found for found in pool.map(check, files) if found is not None]


def _problem(dataset: lance.LanceDataset, where: str, context: Context) -> str | None:
    try:
        with lance_errors(where, context.lance_options()):
            dataset.validate()
    except RelanceError as failure:
        return failure.detail
    return None
