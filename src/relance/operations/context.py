"""What every operation is given: the root it works on and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from relance.clock import Clock, SystemClock
from relance.config import Settings, StorageOptions, parse_properties
from relance.lifecycle.marker_store import SeenMarkers
from relance.lifecycle.retention import Timing
from relance.locations import Root, parse_root, table_directory
from relance.manifest.lance_manifest import LanceManifest
from relance.manifest.opening import ManifestTable
from relance.manifest.schema import MANIFEST_DIRECTORY
from relance.manifest.store import Manifest
from relance.manifest.upkeep import BackgroundUpkeep
from relance.operations.lance_tables import LanceTables, PylanceTables
from relance.storage.connect import Connection, connect
from relance.storage.options import split_options
from relance.storage.protocol import ObjectStorage


@dataclass(frozen=True, slots=True)
class Context:
    """One opened catalog, which threads may share: what it remembers saves requests and decides nothing."""

    settings: Settings
    root: Root
    connection: Connection
    clock: Clock
    tables: LanceTables
    timing: Timing
    manifest: Manifest | None = None
    """None when only directories count (V1)."""
    seen: SeenMarkers = field(default_factory=SeenMarkers)

    @property
    def storage(self) -> ObjectStorage:
        return self.connection.storage

    def location(self, name: str) -> str:
        """Return the URI of a V1 table, as given to clients."""
        return self.location_of(table_directory(name))

    def location_of(self, directory: str) -> str:
        """Return the URI of the table in a directory, as given to clients."""
        return self.connection.lance_uri(directory)

    def lance_options(self, overrides: Mapping[str, str] | None = None) -> StorageOptions:
        """Return the storage options for pylance, with a request's own on top.

        Raises:
            InvalidInputError: an override is unknown for this kind of store.
        """
        if not overrides:
            return StorageOptions(self.connection.lance_options)
        extra = split_options(self.root.scheme, overrides).lance
        return StorageOptions({**self.connection.lance_options, **extra})

    def vended_options(self, *, asked: bool | None = None) -> StorageOptions | None:
        """Return the options a client needs to open a table, unless it or the settings decline them."""
        if asked is False or not (asked or self.settings.vend_storage_options):
            return None
        return self.connection.lance_options or None


def open_context(settings: Settings, clock: Clock) -> Context:
    """Return the context for the settings' root; nothing is requested from the store yet.

    Raises:
        InvalidInputError: the root or a storage option is unusable.
    """
    root = parse_root(settings.root)
    connection = connect(root, settings.storage_options)
    return Context(
        settings=settings,
        manifest=_open_manifest(settings, connection) if settings.manifest else None,
        root=root,
        connection=connection,
        clock=clock,
        tables=PylanceTables(
            connection.storage,
            connection.lance_uri,
            connection.lance_options,
        ),
        timing=Timing(
            drop_ttl=settings.drop_ttl,
            clock_skew=settings.clock_skew,
            lease=settings.claim_lease,
            request_age=settings.request_age_bound,
            quarantine=settings.marker_quarantine,
        ),
    )


@lru_cache(maxsize=8)
def shared_context(properties: tuple[tuple[str, str], ...]) -> Context:
    """Return the context for a catalog's properties, the same one for all who ask in this process.

    It keeps the connections to the store; what it remembers decides nothing.
    """
    return open_context(parse_properties(dict(properties)), SystemClock())


def _open_manifest(settings: Settings, connection: Connection) -> Manifest:
    uri = connection.lance_uri(MANIFEST_DIRECTORY)
    table = ManifestTable(connection.storage, uri, connection.lance_options)
    return LanceManifest(table, BackgroundUpkeep() if settings.manifest_upkeep else None)
