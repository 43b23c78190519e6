"""The seam: all that jobs, policies, Spark, the server and the command line need of an opened catalog.

They import this class and lance_io.TableRef, and nothing below. Requests of the namespace spec are
answered in relance.namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from relance.catalog import create, drop, listing, namespaces, purge, register, rename, repair, resolve
from relance.catalog.context import Context, open_context, shared_context, table_id_of
from relance.catalog.copying import CopyProgress
from relance.catalog.layout import ManifestFile, list_manifests
from relance.catalog.purge import PurgeOptions, PurgeResult
from relance.catalog.repair import Finding
from relance.catalog.resolve import Exists, Generation, NotFound, SoftDeleted, TableStatus
from relance.clock import SystemClock
from relance.config import StorageOptions, parse_properties
from relance.identifiers import TableId, parse_namespace_id
from relance.lance_io import CreateMode, NewTable

Parts = Sequence[str]
Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Catalog:
    """One opened catalog, which threads may share."""

    context: Context

    @classmethod
    def open(cls, properties: Properties) -> Catalog:
        """Return the catalog for these properties.

        Raises:
            InvalidInputError: a property is missing, unknown or has an unusable value.
            InvalidTableStateError: the root is of another format.
        """
        context = open_context(parse_properties(dict(properties)), SystemClock())
        context.check_format()
        return cls(context)

    @classmethod
    def shared(cls, properties: Properties) -> Catalog:
        """Return the same catalog for all who ask in this process; it keeps the connections to the store."""
        return cls(shared_context(tuple(sorted(properties.items()))))

    # The root.

    @property
    def root_uri(self) -> str:
        return self.context.root.uri

    @property
    def has_manifest(self) -> bool:
        return self.context.manifest is not None

    def store_now(self) -> datetime:
        """Return the time by the store's clock."""
        return self.context.store_now()

    def lance_options(self) -> StorageOptions:
        """Return the storage options for Lance."""
        return self.context.lance_options()

    def location_of(self, directory: str) -> str:
        """Return the URI of a directory below the root."""
        return self.context.location_of(directory)

    # Tables.

    def table_id(self, parts: Parts) -> TableId:
        """Return the validated id of a table."""
        return table_id_of(self.context, parts)

    def find(self, parts: Parts) -> resolve.Found:
        """Return the visible table: its directory and properties."""
        return resolve.find_table(self.context, self.table_id(parts))

    def status(self, parts: Parts) -> TableStatus:
        """Return whether the table exists, is dropped, or is not there."""
        return resolve.table_status(self.context, self.table_id(parts))

    def tables(self, namespace: Parts = ()) -> list[str]:
        """Return the names of a namespace's tables."""
        return listing.list_names_in(self.context, parse_namespace_id(namespace, existing=True))

    def all_tables(self) -> list[tuple[str, ...]]:
        """Return the ids of all tables."""
        return listing.list_all_ids(self.context)

    def versions(self, directory: str) -> list[ManifestFile]:
        """Return the manifest files of a table's versions, oldest first."""
        return list_manifests(self.context.storage, directory, None)

    def create(self, new: NewTable, mode: CreateMode = CreateMode.CREATE) -> create.Created:
        """Create, keep, overwrite or revive a table."""
        return create.create(self.context, new, mode)

    def declare(self, parts: Parts, properties: Properties | None = None) -> str:
        """Reserve a name, and return its directory."""
        return create.declare(self.context, self.table_id(parts), dict(properties or {}))

    def drop(self, parts: Parts, ttl: timedelta | None = None) -> drop.Dropped:
        """Hide a table so that it can be undropped."""
        return drop.drop(self.context, self.table_id(parts), ttl)

    def undrop(
        self, parts: Parts, *, deletion_id: str | None = None, new_id: Parts | None = None
    ) -> Exists | NotFound:
        """Show a dropped table again."""
        target = None if new_id is None else self.table_id(new_id)
        return drop.undrop(self.context, self.table_id(parts), deletion_id=deletion_id, target=target)

    def rename(
        self, parts: Parts, new_id: Parts, progress: Callable[[CopyProgress], None] | None = None
    ) -> None:
        """Show a table under another id."""
        rename.rename(self.context, self.table_id(parts), self.table_id(new_id), progress)

    def register(
        self, parts: Parts, directory: str, properties: Properties | None = None, *, overwrite: bool = False
    ) -> None:
        """Show the table in a directory under a name."""
        own = dict(properties or {})
        register.register(self.context, self.table_id(parts), directory, own, overwrite=overwrite)

    def deregister(self, parts: Parts) -> str | None:
        """Hide a table until it is registered again, and return its directory, if it has a valid one."""
        return register.deregister(self.context, self.table_id(parts))[0]

    def protect(self, parts: Parts, *, on: bool = True) -> None:
        """Protect a table or namespace from being dropped, or stop doing so."""
        register.set_protection(self.context, parts, on=on)

    def is_protected(self, parts: Parts) -> bool:
        """Tell whether drops of a table or namespace are refused."""
        return register.is_protected(self.context, parts)

    # Dropped tables.

    def dropped(self, namespace: Parts | None = None) -> list[SoftDeleted]:
        """Return the dropped tables, of all or of one namespace, oldest drop first."""
        return resolve.list_dropped_tables(self.context, namespace)

    def generations(self) -> list[Generation]:
        """Return the dropped generations of all tables, oldest first."""
        return resolve.all_generations(self.context)

    def purge(
        self, parts: Parts, options: PurgeOptions, *, deletion_id: str | None = None
    ) -> list[PurgeResult]:
        """Purge the dropped generations of a table; failures are in the results."""
        return purge.purge_table(self.context, self.table_id(parts), options, deletion_id)

    def purge_expired(
        self, options: PurgeOptions, *, deleted_before: datetime | None = None, dry_run: bool = False
    ) -> list[PurgeResult]:
        """Purge every dropped table whose retention period ended; failures are in the results."""
        return purge.purge_tables(
            self.context, None, deleted_before=deleted_before, dry_run=dry_run, options=options
        )

    # Namespaces and the catalog's own state.

    def namespaces(self, namespace: Parts = ()) -> list[str]:
        """Return the names of a namespace's children."""
        parts = parse_namespace_id(namespace, existing=True)
        return namespaces.list_namespaces(self.context, parts, after=None, limit=None)[0]

    def namespace_properties(self, namespace: Parts) -> dict[str, str]:
        """Return the properties of a namespace, which the root has none of.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
        """
        parts = parse_namespace_id(namespace, existing=True)
        return namespaces.namespace_properties(self.context, parts)

    def scrub(self, *, repair_problems: bool = False) -> list[Finding]:
        """Return the inconsistencies of the root, and repair those that can be repaired safely."""
        return repair.scrub(self.context, repair=repair_problems)

    def sweep(self, *, dry_run: bool = False) -> list[str]:
        """Remove obsolete arbiters, and return their names."""
        return repair.sweep_markers(self.context, dry_run=dry_run)
