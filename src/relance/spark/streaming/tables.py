"""The table that a stream reads, looked up anew each time: it may be dropped or replaced meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import lance

from relance.catalog.context import shared_context
from relance.config import StorageOptions
from relance.lance_io import open_at
from relance.operations.targets import open_for_reading
from relance.spark.address import Address, CatalogAddress


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table at its latest version."""

    name: str
    """How messages call it."""
    location: str
    """Its directory below the root, or the path of a dataset that is in no catalog."""
    uri: str
    options: StorageOptions
    dataset: lance.LanceDataset

    @property
    def version(self) -> int:
        return int(self.dataset.version)


def open_table(address: Address) -> OpenTable:
    """Return the table at its latest version.

    Raises:
        TableNotFoundError: there is none, or it was dropped and can be undropped.
    """
    if not isinstance(address, CatalogAddress):
        options = StorageOptions(dict(address.storage_options))
        dataset = open_at(address.uri, options, address.uri)
        return OpenTable(f"table at '{address.uri}'", address.uri, address.uri, options, dataset)
    context = shared_context(address.properties)
    target = open_for_reading(context, address.parts)
    directory = target.found.directory
    return OpenTable(
        name=f"table id '{target.found.table_id}'",
        location=directory,
        uri=context.location_of(directory),
        options=target.options,
        dataset=target.dataset,
    )
