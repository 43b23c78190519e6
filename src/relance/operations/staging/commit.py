"""Make one version of what the tasks of a write have written, or remove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import lance

from relance.catalog.context import Context
from relance.catalog.resolve import remove_unknown, state_of_name
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableAlreadyExistsError,
    TableVersionNotFoundError,
)
from relance.lance_io import (
    CreateMode,
    NewTable,
    WrittenData,
    files_of,
    fragments_of,
    lance_errors,
    open_at,
    require_written,
    transaction_at,
)
from relance.operations.fields import fields_of, fields_of_table
from relance.operations.lifecycle import create_settled
from relance.operations.staging.plan import JOB_MARK, WriteMode, WritePlan
from relance.operations.staging.tasks import has_planned_fields
from relance.operations.targets import Target, after_write, commit_transaction, open_for_writing


def commit_write(
    context: Context, plan: WritePlan, fragments: Sequence[str], *, marks: Mapping[str, str] | None = None
) -> int:
    """Commit what the tasks wrote, and return the version; files of a failed commit are removed.

    `marks` become properties of the transaction.

    Raises:
        ConcurrentModificationError: the table was created, dropped, moved or changed by another client in
            a way that does not go with it.
        OutcomeUnknownError: the store gave no answer; the version may be there, so nothing is removed.
    """
    written = _written(plan, fragments, {**(marks or {}), JOB_MARK: plan.job})
    try:
        if plan.fields is not None:
            return _append(context, plan, written)
        return _create(context, plan, written)
    except OutcomeUnknownError:
        raise
    except RelanceError:
        with suppress(RelanceError):  # what failed first is what the caller is told
            _remove_unless_landed(context, plan, written)
        raise


def abort_write(context: Context, plan: WritePlan, fragments: Sequence[str]) -> None:
    """Remove what tasks wrote for a job that never tried to commit, and the folders of a new table.

    The sign of an unfinished create stays: another client may be creating the same table.
    """
    _remove(context, plan, _written(plan, fragments, {}))


def landed_version(context: Context, plan: WritePlan) -> int | None:
    """Return the version that the job has become, None if there is none."""
    return find_marked(context, plan.directory, {JOB_MARK: plan.job}, after=plan.seen_version)


def landed_despite(context: Context, plan: WritePlan, failure: RelanceError) -> int | None:
    """Return the version that the job has become although the commit failed.

    Raises:
        OutcomeUnknownError: nobody can tell, so nothing is removed and nothing written again.
    """
    try:
        return landed_version(context, plan)
    except RelanceError as unseen:
        raise OutcomeUnknownError(
            f"{failure.detail}; could not determine whether the commit succeeded: {unseen.detail}"
        ) from failure


def find_marked(context: Context, directory: str, marks: Mapping[str, str], *, after: int) -> int | None:
    """Return the latest version after `after` whose transaction has these properties.

    Raises:
        TableVersionNotFoundError: one of the versions was cleaned up, so that nobody can tell.
    """
    head = context.tables.head(directory)
    if head is None:
        return None
    options = context.lance_options()
    with lance_errors(f"table at '{directory}'", options):
        dataset = open_at(context.location_of(directory), options, directory)
        for version in range(head.version, after, -1):
            if marks.items() <= _marks_of(dataset, version).items():
                return version
    return None


def _marks_of(dataset: lance.LanceDataset, version: int) -> dict[str, str]:
    try:
        transaction = transaction_at(dataset, version)
    except OSError as cause:
        if "was not found" in str(cause):
            raise TableVersionNotFoundError(f"version {version} was cleaned up") from cause
        raise
    return {} if transaction is None else transaction.transaction_properties or {}


def _written(plan: WritePlan, fragments: Sequence[str], marks: Mapping[str, str]) -> WrittenData:
    return WrittenData(
        directory=plan.directory,
        schema=plan.schema,
        fragments=tuple(fragments),
        files=files_of(fragments),
        is_private=plan.is_private,
        marker=plan.marker,
        marks=dict(marks),
        stable_row_ids=plan.files.stable_row_ids,
    )


def _create(context: Context, plan: WritePlan, written: WrittenData) -> int:
    """Create, revive or overwrite the table."""
    mode = CreateMode.OVERWRITE if plan.mode is WriteMode.OVERWRITE else CreateMode.CREATE
    try:
        return create_settled(
            context, NewTable(plan.table_id, written, plan.options, plan.properties), mode
        ).version
    except (TableAlreadyExistsError, ConcurrentModificationError):
        if plan.mode is not WriteMode.APPEND or landed_version(context, plan) is not None:
            raise
        # Another job created it meanwhile: rows that were to be appended are, if they fit.
        return _append_to_new(context, plan, written)


def _append_to_new(context: Context, plan: WritePlan, written: WrittenData) -> int:
    target = open_for_writing(context, plan.table_id.parts)
    if target.found.directory != plan.directory or fields_of_table(target.dataset) != _fields(written):
        raise ConcurrentModificationError(
            f"table id '{plan.table_id}' was created by another client; to append to it, write again"
        )
    return _commit_append(context, plan, target, written, read_version=int(target.dataset.version))


def _fields(written: WrittenData) -> str:
    return fields_of(lance.schema.LanceSchema.from_pyarrow(written.schema))


def _append(context: Context, plan: WritePlan, written: WrittenData) -> int:
    """Append to the table as it is now, if it is still the planned one.

    With the same columns the latest version is as good as the planned one, which may be cleaned up by
    now; else Lance compares what happened since that one.
    """
    target = open_for_writing(context, plan.table_id.parts)
    same = has_planned_fields(plan, target.dataset)
    read_version = int(target.dataset.version) if same else plan.seen_version
    return _commit_append(context, plan, target, written, read_version=read_version)


def _commit_append(
    context: Context, plan: WritePlan, target: Target, written: WrittenData, *, read_version: int
) -> int:
    require_written(context.storage, target.found.directory, written)
    operation = lance.LanceOperation.Append(fragments_of(written))
    transaction = lance.Transaction(read_version, operation, transaction_properties=dict(written.marks))
    try:
        committed = commit_transaction(context, target, transaction)
        version = int(committed.version)
    except RelanceError as failure:
        landed = landed_despite(context, plan, failure)
        if landed is None:
            raise
        version = landed
    after_write(context, target.found, None)
    return version


def _remove_unless_landed(context: Context, plan: WritePlan, written: WrittenData) -> None:
    # A version in a directory of the job's own is no table unless a row leads there.
    landed = _is_known(context, plan) if plan.is_private else landed_version(context, plan) is not None
    if not landed:
        _remove(context, plan, written)


def _is_known(context: Context, plan: WritePlan) -> bool:
    state = state_of_name(context, plan.table_id)
    rows = (state.row, *(each.row for each in state.dropped))
    return any(row is not None and row.normalized_location == plan.directory for row in rows)


def _remove(context: Context, plan: WritePlan, written: WrittenData) -> None:
    if plan.is_private:
        remove_unknown(context, plan.directory)
    else:
        context.storage.delete_many([f"{plan.directory}/data/{each}" for each in sorted(written.files)])
        if not plan.seen_version:
            context.storage.prune(plan.directory)
