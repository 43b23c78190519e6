"""A table at one version, found once and opened anywhere: what a distributed read needs of a table.

Whoever opens it asks neither the catalog nor for the newest version, so that all tasks of a read see
the same rows, and a read that has begun goes on when the table is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import lance

from relance.errors import ConcurrentModificationError, InvalidInputError, TableVersionNotFoundError
from relance.lance_errors import lance_errors, open_at
from relance.operations.context import Context
from relance.operations.datasets import checkout, open_dataset
from relance.operations.targets import open_for_reading


@dataclass(frozen=True, slots=True)
class Moment:
    """Which version is meant: at most one of version, tag and timestamp; none is the newest."""

    version: int | None = None
    tag: str | None = None
    timestamp: datetime | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """One version of a table and how to reach it; picklable, and usable as a key."""

    name: str
    """For messages."""
    uri: str
    version: int
    branch: str | None = None
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    made: str | None = None
    """When the version was made, if it is known: a table that was purged and created again counts from 1."""

    def at(self, version: int) -> PinnedTable:
        """Return another version of the same table and branch."""
        return replace(self, version=version, made=None)

    def open(self, session: lance.Session | None = None) -> lance.LanceDataset:
        """Return the dataset at this version.

        Raises:
            TableVersionNotFoundError: the version was cleaned up.
            ConcurrentModificationError: the table was removed, and another one is in its place.
        """
        options = dict(self.storage_options)
        with lance_errors(f"table id '{self.name}'", options):
            dataset = open_at(self.uri, options, self.name, session=session)
            if dataset.version != self.version or self.branch is not None:
                target = self.version if self.branch is None else (self.branch, self.version)
                dataset = checkout(dataset, target, f"version {self.version} of table id '{self.name}'")
            if self.made not in (None, _made(dataset)):
                raise ConcurrentModificationError(
                    f"table id '{self.name}' was removed and re-created after it was loaded; reload it"
                )
            return dataset


def pin_table(context: Context, parts: Sequence[str], moment: Moment) -> PinnedTable:
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
    name = str(target.found.table_id)
    if moment.timestamp is not None:
        with target.errors():
            version = version_at(dataset, moment.timestamp, name)
    uri = context.location_of(target.found.directory)
    options = tuple(sorted(target.options.items()))
    return _stamped(PinnedTable(name, uri, version, branch, options), dataset)


def pin_path(uri: str, storage_options: tuple[tuple[str, str], ...], moment: Moment) -> PinnedTable:
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
            return _stamped(PinnedTable(uri, uri, int(tag["version"]), branch, storage_options), dataset)
        if branch is not None and branch not in dataset.branches.list():
            raise InvalidInputError(f"the dataset at '{uri}' has no branch '{branch}'")
        wanted = moment.version if branch is None else (branch, moment.version)
        if wanted is not None:
            dataset = checkout(dataset, wanted, f"version {moment.version} of '{uri}'")
        version = int(dataset.version)
        if moment.timestamp is not None:
            version = version_at(dataset, moment.timestamp, uri)
    return _stamped(PinnedTable(uri, uri, version, branch, storage_options), dataset)


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


def _stamped(table: PinnedTable, dataset: lance.LanceDataset) -> PinnedTable:
    """Return the table with the time at which its version was made; the dataset may be at another one."""
    same = dataset.version == table.version and table.branch is None
    return replace(table, made=_made(dataset if same else table.open()))


def _made(dataset: lance.LanceDataset) -> str:
    return str(dataset.get_version()["timestamp"].astimezone(UTC).isoformat())
