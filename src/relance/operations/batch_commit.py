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

from relance.catalog.arbiter import end_row_create, row_at, without
from relance.catalog.context import Context, table_id_of
from relance.catalog.layout import put_sign
from relance.catalog.manifest.row import ObjectType, Row, check_properties
from relance.catalog.manifest.store import Change, Manifest, Snapshot
from relance.catalog.resolve import (
    NameState,
    find_in,
    find_table,
    free_name,
    new_directory,
    not_found,
    refuse_protected,
    require_directory,
)
from relance.catalog.states import new_nonce
from relance.errors import (
    InvalidInputError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
    UnsupportedOperationError,
)
from relance.identifiers import TableId
from relance.locations import DEREGISTERED_FILE, DEREGISTERED_SUFFIX, RESERVED_FILE, table_file
from relance.operations.managed_versions import (
    DeleteVersions,
    Step,
    StepResult,
    commit_steps,
    version_keeper,
)
from relance.operations.requests import vending, with_options
from relance.operations.version_requests import check_staged, is_main, parse_ranges

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
    gone: dict[TableId, Row] = {}

    def also(snapshot: Snapshot) -> Change:
        return _rows_change(context, snapshot, declared, leaving, gone)

    steps: list[Step] = [each for each in operations if not isinstance(each, _Declare | _Deregister)]
    at_home = [each.name for each in leaving if find_table(context, each, properties=False).home is not None]
    with _reserved(context, manifest, declared):
        more = also if declared or leaving else None
        results = iter(commit_steps(context, manifest, steps, leaving=leaving, also=more))
    for name in at_home:
        _hide_home(context, name)
    told = [_result(context, each, results, gone) for each in operations]
    return vending(BatchCommitTablesResponse(results=told))


def _require_keeper(context: Context) -> Manifest:
    context.require_manifest(to_do="a commit to several tables")
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
            row = row_at(manifest.latest(), each.table_id.object_id)
            if row is not None and row.is_reviving:
                end_row_create(context, row)
            _declared_row(context, manifest.latest(), each)
            context.storage.create(f"{each.directory}/{RESERVED_FILE}", f"reserved {new_nonce()}".encode())
        yield
    except OutcomeUnknownError:
        raise  # the rows may be there
    except RelanceError:
        with suppress(RelanceError):
            kept = {
                each.normalized_location for each in manifest.latest().sharing(d.directory for d in declared)
            }
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
    gone: dict[TableId, Row],
) -> Change:
    """Return what the rows of tables that come and go become; `gone` is told the rows that go."""
    changes = [_declared_row(context, snapshot, new) for new in declared]
    for table_id in leaving:
        row = gone[table_id] = _leaving_row(context, snapshot, table_id)
        refuse_protected(row)
        changes.append(without(snapshot, [row]))
    return Change().plus(*changes)


def _declared_row(context: Context, snapshot: Snapshot, new: _Declare) -> Change:
    row = Row(new.table_id.object_id, ObjectType.TABLE, new.directory, dict(new.properties))
    return free_name(context, snapshot, row)


def _leaving_row(context: Context, snapshot: Snapshot, table_id: TableId) -> Row:
    found = find_in(context, snapshot, table_id)
    row = row_at(snapshot, table_id.object_id)
    if row is None:
        raise not_found(context, NameState(table_id, snapshot, None, found.home, ()))
    return row


def _hide_home(context: Context, name: str) -> None:
    """Hide the home directory of a table whose row is gone.

    Raises:
        OutcomeUnknownError: the row is gone, and the directory could not be hidden.
    """
    try:
        put_sign(context.storage, name, DEREGISTERED_SUFFIX)
        with suppress(KeyExistsError):
            context.storage.create(table_file(name, DEREGISTERED_FILE), b"deregistered")
    except RelanceError as failure:
        raise OutcomeUnknownError(
            f"the commit was made, but table id '{name}' may still be visible: {failure.detail}"
        ) from failure


def _result(
    context: Context, operation: _Operation, results: Iterator[StepResult], gone: dict[TableId, Row]
) -> CommitTableResult:
    if isinstance(operation, _Declare):
        declared = DeclareTableResponse(
            location=context.location_of(operation.directory),
            properties=operation.properties or None,
            managed_versioning=True,
        )
        declared = with_options(declared, context.vended_options(asked=operation.vend))
        return vending(CommitTableResult(declare_table=declared))
    if isinstance(operation, _Deregister):
        row = gone[operation.table_id]
        hidden = DeregisterTableResponse(
            id=operation.table_id.parts,
            location=context.location_of(require_directory(row)),
            properties=row.properties or None,
        )
        return CommitTableResult(deregister_table=hidden)
    result = next(results)
    if isinstance(operation, DeleteVersions):
        deleted = BatchDeleteTableVersionsResponse(deleted_count=result.deleted)
        return CommitTableResult(delete_table_versions=deleted)
    return CommitTableResult(create_table_version=CreateTableVersionResponse(version=result.version))
