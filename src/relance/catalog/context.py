"""What every operation is given: the root it works on and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from relance.catalog.layout import Memory, check_format, flag_new_root, old_format
from relance.catalog.manifest.schema import check_flags
from relance.catalog.manifest.store import Manifest, Snapshot
from relance.catalog.manifest.table import LanceManifest, ManifestTable
from relance.catalog.manifest.upkeep import BackgroundUpkeep
from relance.catalog.states import Timing
from relance.clock import Clock, SystemClock
from relance.config import Settings, StorageOptions, parse_properties
from relance.errors import (
    PermissionDeniedError,
    RelanceError,
    StorageFullError,
    UnsupportedOperationError,
)
from relance.forks import LANCE, OBJECT_STORE, check_fork
from relance.identifiers import TableId, parse_table_id
from relance.lance_io import LanceTables, PylanceTables
from relance.locations import MANIFEST_DIRECTORY, Root, Scheme, parse_root, table_directory
from relance.storage.ballast import emptying
from relance.storage.connect import Connection, connect
from relance.storage.disk_files import check_table_writable
from relance.storage.options import split_options
from relance.storage.protocol import ObjectStorage

_STORE_CLOCK_FOR = 3600.0
"""Seconds for which one look at the store's clock serves: clocks that count seconds drift slowly."""


@dataclass(frozen=True, slots=True)
class Context:
    """One opened catalog, which threads may share."""

    settings: Settings
    root: Root
    connection: Connection
    clock: Clock
    tables: LanceTables
    timing: Timing
    manifest: Manifest | None = None
    """None when only directories count (V1)."""
    memory: Memory = field(default_factory=Memory)
    only_looks: bool = False
    """Nothing will be deleted by what is found: where the store tells no time, this machine's will do."""

    @property
    def storage(self) -> ObjectStorage:
        return self.connection.storage

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return self.root.scheme in {Scheme.FILE, Scheme.MEMORY}

    @property
    def dir_listing(self) -> bool:
        """Whether root tables are found by their directories, too."""
        return self.settings.dir_listing

    def location(self, name: str) -> str:
        """Return the URI of a root table's home directory, as given to clients."""
        return self.location_of(table_directory(name))

    def location_of(self, directory: str) -> str:
        """Return the URI of the table in a directory, as given to clients."""
        return self.connection.lance_uri(directory)

    def lance_options(self, overrides: Mapping[str, str] | None = None) -> StorageOptions:
        """Return the storage options for pylance, with a request's own on top.

        Raises:
            InvalidInputError: an override is given twice, or its value is not usable.
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

    def has_foreign_version(self, directory: str) -> bool:
        """Tell whether a table has a version that Relance's lifecycle did not write."""
        return self.tables.has_foreign_version(directory)

    def require_manifest(self, *, to_do: str) -> Manifest:
        """Return the manifest.

        Raises:
            UnsupportedOperationError: the catalog is opened without one.
        """
        if self.manifest is None:
            raise UnsupportedOperationError(
                f"{to_do} requires the manifest: open the catalog with manifest_enabled=true"
            )
        return self.manifest

    def latest(self, *, writing: bool = False) -> Snapshot | None:
        """Return the manifest as it is now, None when the catalog has none.

        Raises:
            UnsupportedOperationError: a newer client's features forbid to read it, or, `writing`, to change
                it: then nothing else may be changed either.
            PermissionDeniedError: `writing`, and another user did not share it.
        """
        if self.manifest is None:
            return None
        snapshot = self.manifest.latest()
        if writing:
            self.require_writable(snapshot)
        return snapshot

    def require_writable(self, snapshot: Snapshot | None) -> None:
        """Check that the manifest may be changed, before anything else is.

        Raises:
            UnsupportedOperationError: a newer client's features forbid it to this release.
            PermissionDeniedError: another user has made the manifest, and did not share it.
        """
        if snapshot is None:
            return
        check_flags(snapshot.metadata, writing=True)
        if self.is_local and not self.only_looks:
            check_table_writable(f"{self.connection.lance_root}/{MANIFEST_DIRECTORY}")

    def any_manifest(self) -> Manifest | None:
        """Return the root's manifest, also where the catalog is opened without it; None if there is none."""
        if self.manifest is None and self.storage.which_exist([f"{MANIFEST_DIRECTORY}/"]):
            return open_manifest(self.settings, self.connection)
        return self.manifest

    def any_snapshot(self) -> Snapshot | None:
        """Return the root's manifest as it is now, also where the catalog is opened without it."""
        manifest = self.any_manifest()
        return None if manifest is None else manifest.latest()

    def check_format(self) -> None:
        """Check that this process can use the catalog, and once that this release can use the root.

        Raises:
            UnsupportedOperationError: the process was forked after Lance or the store had been used.
            InvalidTableStateError: the root is of another format.
        """
        check_fork(*((LANCE,) if self.is_local else (LANCE, OBJECT_STORE)))
        if not self.memory.format_checked:
            self.memory.flagged = check_format(self.storage)
            if not self.memory.flagged and self._has_row_of_format_1():
                raise old_format(self.storage)
            self.memory.format_checked = True

    def _has_row_of_format_1(self) -> bool:
        if self.manifest is None:
            return False
        try:
            snapshot = self.manifest.latest()
            return any(row.is_of_format_1 for row in snapshot.dropped())
        except RelanceError:
            return False  # whatever uses the manifest reports it

    def flag_root(self) -> None:
        """Set the flag of a root that has no tables yet; looked at once."""
        if not self.memory.flagged:
            flag_new_root(self.storage)
            self.memory.flagged = True

    def store_now(self) -> datetime:
        """Return the time by the store's clock, which alone decides when something may be purged."""
        known, seconds = self.memory.store_time, self.clock.monotonic()
        if known is None or seconds - known[1] > _STORE_CLOCK_FOR:
            try:
                with emptying(really=False) if self.only_looks else nullcontext():
                    now = self.storage.now()
            except (PermissionDeniedError, StorageFullError):
                if not self.only_looks:
                    raise
                return self.clock.now()  # to ask for the time is to write
            # The seconds count from before the request: its response may come late.
            known = self.clock.at_store(now), seconds
            self.memory.store_time = known
        return known[0] + timedelta(seconds=self.clock.monotonic() - known[1])

    def for_looking(self) -> Context:
        """Return the same catalog for what only reads, which works where nothing can be written."""
        return replace(self, only_looks=True)


def table_id_of(context: Context, parts: object, *, existing: bool = False) -> TableId:
    """Return the validated id of a table of this catalog; `existing` is as for parse_table_id.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it lies in a child namespace, which a catalog without manifest has not.
    """
    table_id = parse_table_id(parts, existing=existing)  # type: ignore[arg-type]  # checked there
    if context.manifest is None and table_id.namespace:
        raise UnsupportedOperationError(f"table id '{table_id}' has several parts: {FLAT}")
    return table_id


FLAT = "a catalog without a manifest (V1) is flat; child namespaces require manifest_enabled=true"


def open_context(settings: Settings, clock: Clock) -> Context:
    """Return the context for the settings' root; nothing is requested from the store yet.

    Raises:
        InvalidInputError: the root or a storage option is unusable.
    """
    root = parse_root(settings.root)
    connection = connect(root, settings.storage_options)
    return Context(
        settings=settings,
        manifest=open_manifest(settings, connection) if settings.manifest else None,
        root=root,
        connection=connection,
        clock=clock,
        tables=PylanceTables(connection.storage, connection.lance_uri, connection.lance_options),
        timing=Timing(
            drop_ttl=settings.drop_ttl,
            clock_skew=settings.clock_skew,
            lease=settings.claim_lease,
            request_age=settings.request_age_bound,
            quarantine=settings.marker_quarantine,
        ),
    )


def shared_context(properties: tuple[tuple[str, str], ...]) -> Context:
    """Return the context for a catalog's properties, the same one for all who ask in this process.

    It keeps the connections to the store; what it remembers decides nothing.
    """
    context = _shared_context(properties)
    context.check_format()
    return context


@lru_cache(maxsize=8)
def _shared_context(properties: tuple[tuple[str, str], ...]) -> Context:
    return open_context(parse_properties(dict(properties)), SystemClock())


def open_manifest(settings: Settings, connection: Connection) -> Manifest:
    """Return the manifest of a root, which may not exist yet."""
    uri = connection.lance_uri(MANIFEST_DIRECTORY)
    table = ManifestTable(connection.storage, uri, connection.lance_options)
    return LanceManifest(table, BackgroundUpkeep() if settings.manifest_upkeep else None)
