"""What is in a table: where it is, its version, columns, figures, tags, branches and indexes.

As plain values, for what shows them; `describe_table` turns them into the response of the namespace spec,
whose classes take longer to import than Lance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relance.catalog.context import Context
from relance.catalog.layout import end_reservation, end_reservation_at_home
from relance.catalog.manifest.row import user_properties
from relance.catalog.resolve import Found, find_table, lance_properties, parent_first
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.operations.datasets import open_dataset
from relance.operations.table.ref_files import read_refs

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Pin:
    """Which version of a table is meant: the latest unless one of these says otherwise."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    @property
    def is_latest(self) -> bool:
        return self.version is None and self.tag is None and self.branch is None


@dataclass(frozen=True, slots=True)
class Inspected:
    """A visible table and, if it was opened, what Lance says of it."""

    found: Found
    location: str
    declared: bool | None
    """Whether it has no version yet; None if nobody asked."""
    properties: Mapping[str, str]
    dataset: lance.LanceDataset | None = None
    summary: Mapping[str, str] | None = None
    """Lance's figures of the version, if they were asked for."""

    @property
    def version(self) -> int | None:
        return None if self.dataset is None else int(self.dataset.version)

    @property
    def schema(self) -> pa.Schema | None:
        return None if self.dataset is None else self.dataset.schema


@dataclass(frozen=True, slots=True)
class Refs:
    """What else a table has; a table without a version has none of it."""

    tags: Mapping[str, Any] = field(default_factory=dict)
    branches: tuple[str, ...] = ()
    indexes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names, each with its columns."""


def inspect_table(
    context: Context,
    table_id: TableId,
    pin: Pin | None = None,
    *,
    detailed: bool = True,
    check_declared: bool = False,
) -> Inspected:
    """Return where the table is and, in detail or for a pinned version, what is in it.

    Raises:
        NamespaceNotFoundError: its namespace does not exist.
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
    """
    pin = pin or Pin()
    with parent_first(context, table_id):
        found = find_table(context, table_id)
    if found.home is not None:
        end_reservation_at_home(context, found.home)
    inside = found.inside(context.storage) if check_declared or detailed else None
    declared = None if inside is None else not inside.has_versions
    dataset, summary, own = None, None, {}
    if not pin.is_latest or (detailed and not declared):
        dataset = open_dataset(context, found, version=pin.version, tag=pin.tag, branch=pin.branch)
        if detailed:
            with lance_errors(f"table id '{table_id}'", context.lance_options()):
                summary = dataset.get_version()["metadata"]
            own = user_properties(dataset.metadata)
        if inside is not None and inside.reserved and found.home is None:
            end_reservation(context, found.directory)
    properties = {**found.properties, **own}
    if not found.has_row and found.home is not None and not detailed:
        properties = lance_properties(context, found.home)
    return Inspected(
        found, context.location_of(found.directory), declared, properties, dataset=dataset, summary=summary
    )


def refs_of(context: Context, table: Inspected) -> Refs:
    """Return the tags, branches and indexes of a table, each sorted by name.

    Raises:
        InvalidTableStateError: the files of its tags or branches cannot be read.
    """
    dataset = table.dataset
    if dataset is None:
        return Refs()
    with lance_errors(f"table id '{table.found.table_id}'", context.lance_options()):
        tags, branches = read_refs(dataset.tags.list), read_refs(dataset.branches.list)
        indexes = {each.name: tuple(each.field_names) for each in dataset.describe_indices()}
    return Refs(
        {name: tags[name] for name in sorted(tags, key=str.encode)},
        tuple(sorted(branches, key=str.encode)),
        tuple((name, indexes[name]) for name in sorted(indexes, key=str.encode)),
    )
