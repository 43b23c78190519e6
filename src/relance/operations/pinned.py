"""A table at one version, found once and opened anywhere: what a distributed read needs of a table.

Whoever opens it asks neither the catalog nor for the newest version, so that all tasks of a read see
the same rows, and a read that has begun goes on when the table is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import lance

from relance.catalog.context import Context
from relance.errors import InvalidInputError, TableVersionNotFoundError
from relance.lance_io import TableRef, checkout, lance_errors, made_at, open_at
from relance.operations.datasets import open_dataset
from relance.operations.targets import open_for_reading


@dataclass(frozen=True, slots=True)
class Moment:
    """Which version is meant: at most one of version, tag and timestamp; none is the newest."""

    version: int | None = None
    tag: str | None = None
    timestamp: datetime | None = None
    branch: str | None = None


def pin_table(context: Context, parts: Sequence[str], moment: Moment) -> TableRef:
    """Return the table of a catalog at the version that is meant.

    Raises:
        TableNotFoundError: there is no such table, it was dropped, or it is only declared.
        TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError: not that one.
    """
    target = open_for_reading(context, parts, version=moment.version, branch=moment.branch)
    dataset, branch = target.dataset, _other_than_main(moment.branch)
    if moment.tag is not None:
        dataset = open_dataset(context, target.found, tag=moment.tag)
        branch = _other_than_main(target.dataset.tags.list()[moment.tag]["branch"])
    version = int(dataset.version)
    name = f"{target.found.table_id}"
    if moment.timestamp is not None:
        with target.errors():
            version = version_at(dataset, moment.timestamp, name)
    uri = context.location_of(target.found.directory)
    options = tuple(sorted(target.options.items()))
    return _stamped(TableRef(name, uri, version, branch, options, directory=target.found.directory), dataset)


def pin_path(uri: str, storage_options: tuple[tuple[str, str], ...], moment: Moment) -> TableRef:
    """Return the dataset at a path, which no catalog knows, at the version that is meant.

    Raises:
        TableNotFoundError: there is none.
        TableVersionNotFoundError: not that version.
        InvalidInputError: a tag or a branch is asked for and is not there.
    """
    options = dict(storage_options)
    with lance_errors(f"dataset at '{uri}'", options):
        dataset, branch = open_at(uri, options, uri), _other_than_main(moment.branch)
        if moment.tag is not None:
            tag = dataset.tags.list().get(moment.tag)
            if tag is None:
                raise InvalidInputError(f"the dataset at '{uri}' has no tag '{moment.tag}'")
            branch = _other_than_main(tag["branch"])
            return _stamped(TableRef(uri, uri, int(tag["version"]), branch, storage_options), dataset)
        if branch is not None and branch not in dataset.branches.list():
            raise InvalidInputError(f"the dataset at '{uri}' has no branch '{branch}'")
        wanted = moment.version if branch is None else (branch, moment.version)
        if wanted is not None:
            dataset = checkout(dataset, wanted, f"version {moment.version} of '{uri}'")
        version = int(dataset.version)
        if moment.timestamp is not None:
            version = version_at(dataset, moment.timestamp, uri)
    return _stamped(TableRef(uri, uri, version, branch, storage_options), dataset)


def version_at(dataset: lance.LanceDataset, moment: datetime, name: str) -> int:
    """Return the version of a dataset's branch that was current at a time.

    Raises:
        TableVersionNotFoundError: there was none yet, or it was cleaned up since.
    """
    # pylance tells times without a zone, as the clock on the wall of this machine showed them.
    known = sorted((each["timestamp"].astimezone(UTC), int(each["version"])) for each in dataset.versions())
    current = [version for made, version in known if made <= moment]
    if not current:
        raise TableVersionNotFoundError(
            f"table id '{name}' has no version from {moment.isoformat()} or earlier: its first "
            f"version, {known[0][1]}, was created at {known[0][0].isoformat()}"
        )
    return max(current)


def _other_than_main(branch: str | None) -> str | None:
    return None if branch == "main" else branch


def _stamped(table: TableRef, dataset: lance.LanceDataset) -> TableRef:
    """Return the table with the time at which its version was made; the dataset may be at another one."""
    same = dataset.version == table.version and table.branch is None
    return replace(table, made=made_at(dataset if same else table.open()))
