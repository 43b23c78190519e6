"""Declare tables, create and delete versions, deregister tables: all in one commit, or nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchDeleteTableVersionsResponse,
    CommitTableOperation,
    CommitTableResult,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableResponse,
)

from relance.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
    UnsupportedOperationError,
)
from relance.identifiers import TableId
from relance.lifecycle.marker_store import new_nonce
from relance.locations import RESERVED_FILE
from relance.manifest.entry import Entry, ObjectType, check_properties
from relance.manifest.store import Change, Manifest, Snapshot
from relance.operations.announcing import finish, finishing
from relance.operations.context import Context
from relance.operations.in_step import follow_marker
from relance.operations.managed_versions import (
    DeleteVersions,
    Step,
    StepResult,
    commit_steps,
    version_keeper,
)
from relance.operations.pending import refuse_pending
from relance.operations.places import place_of, table_id_of
from relance.operations.requests import with_options
from relance.operations.rows.declare import settle_name
from relance.operations.rows.lookups import (
    live_table,
    move_versions,
    new_directory,
    refuse_protected,
    require_free,
    require_manifest,
)
from relance.operations.version_requests import check_staged, is_main, parse_ranges
from relance.resolution import locate

_KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


@dataclass(frozen=True, slots=True)
class _Declare:
    """A table that is to be declared, in a directory that nobody else has."""

    table_id: TableId
    directory: str
    properties: dict[str, str]
    vend: bool | None


@dataclass(frozen=True, slots=True)
class _Deregister:
    table_id: TableId


_Operation = Step | _Declare | _Deregister


@finishing
def batch_commit_tables(context: Context, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
    """Commit all operations at once; readers see all of them or none.

    Raises:
        UnsupportedOperationError: the manifest does not keep versions, or a branch is named.
        InvalidInputError: an operation is none or several, or two do not go together.
        As declare_table, create_table_version, batch_delete_table_versions and deregister_table.
    """
    manifest = _require_keeper(context)
    operations = [_parse(context, number, each) for number, each in enumerate(request.operations)]
    _refuse_entangled(operations)
    if not operations:
        return BatchCommitTablesResponse(results=[])
    declared = [each for each in operations if isinstance(each, _Declare)]
    leaving = [each.table_id for each in operations if isinstance(each, _Deregister)]
    for table_id in (*(each.table_id for each in declared), *leaving):
        finish(context, table_id)
    gone: dict[TableId, Entry] = {}

    def also(snapshot: Snapshot) -> Change:
        return _rows_change(context, snapshot, declared, leaving, gone)

    steps: list[Step] = [each for each in operations if not isinstance(each, _Declare | _Deregister)]
    with _reserved(context, manifest, declared):
        results = iter(commit_steps(context, manifest, steps, leaving=leaving, also=also))
    for table_id in leaving:
        with suppress(RelanceError):  # the row hides it already; the next who meets it goes on
            finish(context, table_id)
    return BatchCommitTablesResponse(results=[_result(context, each, results, gone) for each in operations])


def _require_keeper(context: Context) -> Manifest:
    require_manifest(context, to_do="a commit to several tables")
    keeper = version_keeper(context)
    if keeper is None:
        raise UnsupportedOperationError(
            "a commit to several tables requires table versions in the manifest: open the "
            "catalog with table_version_management=true"
        )
    return keeper


def _parse(context: Context, number: int, operation: CommitTableOperation) -> _Operation:
    given = [kind for kind in _KINDS if getattr(operation, kind) is not None]
    if len(given) != 1:
        raise InvalidInputError(f"operation {number} must be exactly one of {', '.join(_KINDS)}, got {given}")
    if operation.declare_table is not None:
        return _parse_declare(context, operation.declare_table)
    if operation.deregister_table is not None:
        return _Deregister(table_id_of(context, operation.deregister_table.id))
    version, deletion = operation.create_table_version, operation.delete_table_versions
    branch = version.branch if version is not None else deletion.branch if deletion is not None else None
    if not is_main(branch):
        raise UnsupportedOperationError(
            f"operation {number} is for branch {branch!r}: a commit to several tables supports "
            "only the main branch"
        )
    if version is not None:
        return check_staged(context, version)
    assert deletion is not None  # one of four was given
    return DeleteVersions(table_id_of(context, deletion.id), parse_ranges(deletion.ranges))


def _parse_declare(context: Context, request: DeclareTableRequest) -> _Declare:
    table_id = table_id_of(context, request.id)
    if request.location is not None:
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {request.location}: the catalog chooses "
            "the directory of a table declared in a batch; omit the location"
        )
    properties = check_properties(request.properties)
    return _Declare(table_id, new_directory(table_id), properties, request.vend_credentials)


def _refuse_entangled(operations: Sequence[_Operation]) -> None:
    """Check that what declares or deregisters a table is all that is done to it."""
    seen: dict[TableId, bool] = {}
    for each in operations:
        alone = isinstance(each, _Declare | _Deregister)
        if each.table_id in seen and (alone or seen[each.table_id]):
            raise InvalidInputError(
                f"table id '{each.table_id}' is declared or deregistered and also used by another "
                "operation of this batch; commit these operations one after another"
            )
        seen[each.table_id] = alone


@contextmanager
def _reserved(context: Context, manifest: Manifest, declared: Sequence[_Declare]) -> Iterator[None]:
    """Write the files of declared tables first; they go again unless the rows that lead to them are there."""
    try:
        for each in declared:
            settle_name(context, manifest, each.table_id)
            if place_of(context, each.table_id).in_directory:
                follow_marker(context, each.table_id)  # the row of a dropped generation makes way
            require_free(context, manifest.latest(), each.table_id)
            context.storage.create(f"{each.directory}/{RESERVED_FILE}", f"reserved {new_nonce()}".encode())
        yield
    except OutcomeUnknownError:
        raise  # the rows may be there
    except RelanceError:
        with suppress(RelanceError):
            kept = {each.location for each in manifest.latest().at_location(d.directory for d in declared)}
            for each in declared:
                if each.directory not in kept:
                    context.storage.delete(f"{each.directory}/{RESERVED_FILE}")
                    context.storage.prune(each.directory)
        raise


def _rows_change(
    context: Context,
    snapshot: Snapshot,
    declared: Sequence[_Declare],
    leaving: Sequence[TableId],
    gone: dict[TableId, Entry],
) -> Change:
    """Return what the rows of tables that come and go become; `gone` is told the rows that go."""
    removed: list[str] = []
    added: list[Entry] = []
    for new in declared:
        require_free(context, snapshot, new.table_id)
        added.append(Entry(str(new.table_id), ObjectType.TABLE, new.directory, new.properties))
    for table_id in leaving:
        if not table_id.namespace:
            refuse_pending(snapshot, table_id.name)
        entry = gone[table_id] = live_table(snapshot, table_id)
        refuse_protected(entry)
        removed += (entry.object_id, *move_versions(snapshot, entry.object_id, None).removed)
        if locate(snapshot, table_id, dir_listing=context.settings.dir_listing).in_directory:
            # The row goes on to hide the directory of its name until the marker does.
            added.append(entry.moved(""))
    return Change(tuple(removed), tuple(added))


def _result(
    context: Context, operation: _Operation, results: Iterator[StepResult], gone: dict[TableId, Entry]
) -> CommitTableResult:
    if isinstance(operation, _Declare):
        declared = DeclareTableResponse(
            location=context.location_of(operation.directory),
            properties=operation.properties or None,
            managed_versioning=True,
        )
        with_options(declared, context.vended_options(asked=operation.vend))
        return CommitTableResult(declare_table=declared)
    if isinstance(operation, _Deregister):
        entry = gone[operation.table_id]
        hidden = DeregisterTableResponse(
            id=operation.table_id.parts,
            location=context.location_of(entry.location or ""),
            properties=entry.properties or None,
        )
        return CommitTableResult(deregister_table=hidden)
    result = next(results)
    if isinstance(operation, DeleteVersions):
        deleted = BatchDeleteTableVersionsResponse(deleted_count=result.deleted)
        return CommitTableResult(delete_table_versions=deleted)
    return CommitTableResult(create_table_version=CreateTableVersionResponse(version=result.version))
