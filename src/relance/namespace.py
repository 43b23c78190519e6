"""DirectoryNamespace: the catalog as a Lance namespace. Each method delegates to `operations`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableRequest,
    CreateTableResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)

from relance.catalog import purge, register, repair, resolve
from relance.catalog.context import Context, open_context, table_id_of
from relance.catalog.manifest.upkeep import UpkeepReport
from relance.catalog.migrate import FormatMigration, migrate_format
from relance.catalog.purge import PurgeOptions, PurgeProgress, PurgeResult
from relance.catalog.repair import (
    Finding,
    ManifestMigration,
    MarkerMigration,
    MigrationProgress,
    scrub,
)
from relance.catalog.resolve import Exists, NotFound, SoftDeleted, TableStatus
from relance.clock import Clock, SystemClock
from relance.config import CatalogProperties, parse_properties
from relance.identifiers import parse_namespace_id
from relance.operations import batch_commit, lifecycle, tables, upkeep, versions
from relance.operations.cleaning.methods import CleaningMethods
from relance.operations.data.methods import DataMethods
from relance.operations.requests import DictResponse, Fields, as_request, in_kind
from relance.operations.table.methods import TableMethods
from relance.operations.transfer.methods import TransferMethods
from relance.storage.checkup import Check, check_store

Id = Sequence[str]
Progress = Callable[[PurgeProgress], None]


class DirectoryNamespace(TableMethods, DataMethods, CleaningMethods, TransferMethods):
    """A directory of Lance tables, on local disk or an object store.

    A drop-in replacement for `lance.namespace.DirectoryNamespace`. Requests may be models or
    dictionaries. Instances are thread-safe and can be pickled: they carry their properties.
    """

    def __init__(self, *, clock: Clock | None = None, **properties: str | bool | os.PathLike[str]) -> None:
        """Open the catalog without contacting the store. See docs/reference/settings.md.

        Raises:
            InvalidInputError: a property is missing, unknown or has an unusable value.
            UnsupportedOperationError: a property asks for something this catalog does not have.
        """
        self._properties = {name: _as_text(value) for name, value in properties.items()}
        self._clock = clock
        self._opened = open_context(parse_properties(self._properties), clock or SystemClock())
        # Absolute, so that a pickled catalog names the same root in a process that runs elsewhere.
        self._properties["root"] = self._opened.root.uri

    @property
    def _context(self) -> Context:  # type: ignore[override]  # the mixins only read it
        """The opened catalog; its first use checks the format of the root."""
        self._opened.check_format()
        return self._opened

    def __getstate__(self) -> Mapping[str, Any]:
        return {"clock": self._clock, "properties": self._properties}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(clock=state["clock"], **state["properties"])  # type: ignore[misc]  # a fresh instance

    def __repr__(self) -> str:
        return f"relance.{self.namespace_id()}"

    def namespace_id(self) -> str:
        """Return an identifier for this catalog, made from its root."""
        return f'DirectoryNamespace {{ root: "{self._opened.root.uri}" }}'

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """The properties the catalog was opened with. Their repr hides the values of storage options."""
        return CatalogProperties(sorted(self._properties.items()))

    @property
    def root_uri(self) -> str:
        """The absolute URI of the root, valid in other processes too."""
        return self._opened.root.uri

    def list_namespaces(self, request: ListNamespacesRequest | Fields) -> ListNamespacesResponse:
        return lifecycle.list_namespaces(self._context, as_request(ListNamespacesRequest, request))

    def describe_namespace(self, request: DescribeNamespaceRequest | Fields) -> DescribeNamespaceResponse:
        return lifecycle.describe_namespace(self._context, as_request(DescribeNamespaceRequest, request))

    def create_namespace(self, request: CreateNamespaceRequest | Fields) -> CreateNamespaceResponse:
        return lifecycle.create_namespace(self._context, as_request(CreateNamespaceRequest, request))

    def drop_namespace(self, request: DropNamespaceRequest | Fields) -> DropNamespaceResponse:
        return lifecycle.drop_namespace(self._context, as_request(DropNamespaceRequest, request))

    def namespace_exists(self, request: NamespaceExistsRequest | Fields) -> NamespaceExistsResponse:
        return lifecycle.namespace_exists(self._context, as_request(NamespaceExistsRequest, request))

    def list_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        return tables.list_tables(self._context, as_request(ListTablesRequest, request))

    def list_all_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        return tables.list_all_tables(self._context, as_request(ListTablesRequest, request))

    def table_exists(self, request: TableExistsRequest | Fields) -> TableExistsResponse:
        return tables.table_exists(self._context, as_request(TableExistsRequest, request))

    def describe_table(self, request: DescribeTableRequest | Fields) -> DescribeTableResponse:
        return tables.describe_table(self._context, as_request(DescribeTableRequest, request))

    def declare_table(self, request: DeclareTableRequest | Fields) -> DeclareTableResponse:
        return lifecycle.declare_table(self._context, as_request(DeclareTableRequest, request))

    def create_table(self, request: CreateTableRequest | Fields, request_data: bytes) -> CreateTableResponse:
        return lifecycle.create_table(self._context, as_request(CreateTableRequest, request), request_data)

    def drop_table(self, request: DropTableRequest | Fields) -> DropTableResponse:
        return lifecycle.drop_table(self._context, as_request(DropTableRequest, request))

    def rename_table(self, request: RenameTableRequest | Fields) -> RenameTableResponse:
        return lifecycle.rename_table(self._context, as_request(RenameTableRequest, request))

    def register_table(self, request: RegisterTableRequest | Fields) -> RegisterTableResponse:
        return lifecycle.register_table(self._context, as_request(RegisterTableRequest, request))

    def deregister_table(self, request: DeregisterTableRequest | Fields) -> DeregisterTableResponse:
        return lifecycle.deregister_table(self._context, as_request(DeregisterTableRequest, request))

    def list_table_versions(self, request: ListTableVersionsRequest | Fields) -> ListTableVersionsResponse:
        return versions.list_table_versions(self._context, as_request(ListTableVersionsRequest, request))

    @overload
    def describe_table_version(
        self, request: DescribeTableVersionRequest
    ) -> DescribeTableVersionResponse: ...
    @overload
    def describe_table_version(self, request: Fields) -> DictResponse: ...
    def describe_table_version(
        self, request: DescribeTableVersionRequest | Fields
    ) -> DescribeTableVersionResponse | DictResponse:
        checked = as_request(DescribeTableVersionRequest, request)
        return in_kind(request, versions.describe_table_version(self._context, checked))

    @overload
    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse: ...
    @overload
    def create_table_version(self, request: Fields) -> DictResponse: ...
    def create_table_version(
        self, request: CreateTableVersionRequest | Fields
    ) -> CreateTableVersionResponse | DictResponse:
        checked = as_request(CreateTableVersionRequest, request)
        return in_kind(request, versions.create_table_version(self._context, checked))

    def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest | Fields
    ) -> BatchCreateTableVersionsResponse:
        checked = as_request(BatchCreateTableVersionsRequest, request)
        return versions.batch_create_table_versions(self._context, checked)

    @overload
    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest
    ) -> BatchDeleteTableVersionsResponse: ...
    @overload
    def batch_delete_table_versions(self, request: Fields) -> DictResponse: ...
    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest | Fields
    ) -> BatchDeleteTableVersionsResponse | DictResponse:
        checked = as_request(BatchDeleteTableVersionsRequest, request)
        # Of the spec's text, but not a field of its model: in a dictionary, or in the context.
        given = request.get("ignore_missing") if isinstance(request, Mapping) else None
        ignore_missing = versions.parse_ignore_missing(given, checked.context)
        response = versions.batch_delete_table_versions(self._context, checked, ignore_missing=ignore_missing)
        return in_kind(request, response)

    def batch_commit_tables(self, request: BatchCommitTablesRequest | Fields) -> BatchCommitTablesResponse:
        return batch_commit.batch_commit_tables(self._context, as_request(BatchCommitTablesRequest, request))

    def table_status(self, id: Id) -> TableStatus:
        """Return whether the table exists, is dropped (and until when undrop works), or is not found."""
        return resolve.table_status(self._context, table_id_of(self._context, id))

    def undrop_table(
        self, id: Id, *, deletion_id: str | None = None, new_id: Id | None = None
    ) -> Exists | NotFound:
        """Restore a dropped table as it was: visible, or deregistered if it was deregistered before.

        Restores the latest drop of this name, or the one with `deletion_id`, under its old id or as
        `new_id`.

        Raises:
            TableNotFoundError: no table with this name is dropped, or its purge has started.
            TableAlreadyExistsError: the table is not dropped, or the name is taken.
        """
        return lifecycle.undrop_table(self._context, id, deletion_id, new_id)

    def undrop_namespace(self, id: Id, *, cascade_id: str | None = None) -> list[tuple[str, ...]]:
        """Restore everything one drop of the namespace removed: the latest drop, or `cascade_id`.

        Returns the ids of the restored namespaces and tables.

        Raises:
            NamespaceNotFoundError: there is no such drop, or the parent does not exist.
            NamespaceAlreadyExistsError, TableAlreadyExistsError: a name is taken. Nothing was changed.
        """
        return lifecycle.undrop_namespace(self._context, id, cascade_id)

    def protect(self, id: Id) -> None:
        """Protect this table or namespace from being dropped until `unprotect` is called."""
        register.set_protection(self._context, parse_namespace_id(id), on=True)

    def unprotect(self, id: Id) -> None:
        """Allow drops of this table or namespace again."""
        register.set_protection(self._context, parse_namespace_id(id), on=False)

    def is_protected(self, id: Id) -> bool:
        """Return whether this table or namespace is protected from being dropped."""
        return register.is_protected(self._context, parse_namespace_id(id))

    def purge_table(
        self,
        id: Id,
        *,
        deletion_id: str | None = None,
        force: bool = False,
        rate_limit: float | None = None,
        progress: Progress | None = None,
    ) -> PurgeResult:
        """Delete the files of a dropped table; within its retention period only with `force`.

        Purges every drop of this name, or only the one with `deletion_id`.

        Raises:
            InvalidTableStateError: it is not dropped, its retention period has not ended, or files remain.
            TableNotFoundError: there is nothing to purge.
            ConcurrentModificationError: it is locked by another client.
        """
        options = PurgeOptions(force=force, rate_limit=rate_limit, progress=progress)
        table_id = table_id_of(self._context, id)
        results = purge.purge_table(self._context, table_id, options, deletion_id)
        failed = next((each.error for each in results if each.error is not None), None)
        if failed is not None:
            raise failed
        return purge.sum_up(results)

    def purge_tables(
        self,
        ids: Sequence[Id] | None = None,
        *,
        deleted_before: datetime | None = None,
        dry_run: bool = False,
        force: bool = False,
        rate_limit: float | None = None,
        progress: Progress | None = None,
    ) -> list[PurgeResult]:
        """Delete the files of every expired dropped table, or of the named tables.

        A failure is reported in its table's result and does not affect the other tables. A dry run only
        reports what would be deleted.
        """
        table_ids = None if ids is None else [table_id_of(self._context, each) for each in ids]
        options = PurgeOptions(force=force, rate_limit=rate_limit, progress=progress)
        return purge.purge_tables(
            self._context, table_ids, deleted_before=deleted_before, dry_run=dry_run, options=options
        )

    def list_dropped_tables(self, namespace: Id | None = None) -> list[SoftDeleted]:
        """Return the dropped tables of one or all namespaces, oldest drop first."""
        return resolve.list_dropped_tables(self._context, namespace)

    def list_purgable_tables(self, deleted_before: datetime | None = None) -> list[SoftDeleted]:
        """Return the expired dropped tables, optionally only those dropped before `deleted_before`."""
        context = self._context
        return [each.status(context) for each in purge.list_purgable(context, deleted_before)]

    def sweep_markers(self, *, dry_run: bool = False) -> list[str]:
        """Remove obsolete markers and return their names."""
        return repair.sweep_markers(self._context, dry_run=dry_run)

    def migrate_markers(self, *, dry_run: bool = False) -> MarkerMigration:
        """Copy state that other clients keep inside tables to the root, so that listing takes one request."""
        return repair.migrate_markers(self._context, dry_run=dry_run)

    def migrate_to_manifest(
        self, *, dry_run: bool = False, progress: Callable[[MigrationProgress], None] | None = None
    ) -> ManifestMigration:
        """Add a manifest row for every table directory, after which `dir_listing_enabled=false` works."""
        return repair.migrate_to_manifest(self._context, dry_run=dry_run, progress=progress)

    def migrate_format(self, *, dry_run: bool = False) -> FormatMigration:
        """Convert a root that a pre-release of Relance wrote (format 1), while no other client uses it.

        Safe to repeat, and to interrupt at any time; until it has finished, nothing else can use the root.

        Raises:
            InvalidTableStateError: the root is of the current format, or something in it is corrupt.
        """
        return migrate_format(self._opened, dry_run=dry_run)  # unchecked: the root is of the old format

    def maintain_manifest(self) -> UpkeepReport:
        """Compact, index and clean up the manifest now. This also happens in the background."""
        return upkeep.maintain_manifest(self._context)

    def check_store(self) -> list[Check]:
        """Check that the store does what a catalog needs, using small objects that are removed afterwards."""
        context = self._context
        return check_store(context.storage, context.clock, skew=context.settings.clock_skew)

    def scrub(self, *, repair: bool = False) -> list[Finding]:
        """Return the inconsistencies in this root; with `repair`, fix those that can be fixed safely."""
        return scrub(self._context, repair=repair)


def _as_text(value: str | bool | os.PathLike[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return os.fspath(value)
