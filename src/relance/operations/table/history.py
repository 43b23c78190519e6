"""The history of a table: go back to a version, and look at the transactions that made versions."""

from __future__ import annotations

from enum import StrEnum

import lance
from lance_namespace import (
    AlterTransactionRequest,
    AlterTransactionResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    RestoreTableRequest,
    RestoreTableResponse,
)

from relance.catalog.context import Context, table_id_of
from relance.catalog.layout import list_manifests
from relance.catalog.resolve import Found, find_table
from relance.errors import InvalidInputError, TransactionNotFoundError, UnsupportedOperationError
from relance.lance_io import lance_errors, transaction_at
from relance.operations.datasets import open_dataset
from relance.operations.requests import parse_mode
from relance.operations.table.opening import changing, transaction_id
from relance.operations.table.ref_files import read_refs


def restore_table(context: Context, request: RestoreTableRequest) -> RestoreTableResponse:
    """Make a new version with the content of an old one, on the branch that is named.

    Raises:
        TableVersionNotFoundError, TableBranchNotFoundError: there is no such version or branch.
    """
    with changing(context, request.id, version=request.version, branch=request.branch) as dataset:
        dataset.restore()
        return RestoreTableResponse(transaction_id=transaction_id(dataset))


class TransactionStatus(StrEnum):
    """What may become of a transaction; those that can be found here have all succeeded."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


def describe_transaction(
    context: Context, request: DescribeTransactionRequest
) -> DescribeTransactionResponse:
    """Return the transaction of `id`: the table's id, and a version of main or the transaction's uuid.

    Raises:
        TransactionNotFoundError: no version that is still there was made by it.
        InvalidInputError: the id is too short.
    """
    return DescribeTransactionResponse(
        status=TransactionStatus.SUCCEEDED.upper(), properties=_find(context, request.id)
    )


def alter_transaction(context: Context, request: AlterTransactionRequest) -> AlterTransactionResponse:
    """Accept that a transaction has succeeded; nothing else can be changed about one that is committed.

    Raises:
        UnsupportedOperationError: another status, or a property, is to be set.
        TransactionNotFoundError: there is no such transaction.
        InvalidInputError: no action is given, the status is unknown, or the id is too short.
    """
    properties = _find(context, request.id)
    if not request.actions:
        raise InvalidInputError("actions must not be empty")
    for action in request.actions:
        if action.set_property_action is not None or action.unset_property_action is not None:
            raise UnsupportedOperationError("properties of a committed transaction cannot be changed")
        if action.set_status_action is None or action.set_status_action.status is None:
            raise InvalidInputError("the action must specify the status to set")
        wanted = action.set_status_action.status
        if parse_mode(wanted, TransactionStatus, default=TransactionStatus.SUCCEEDED) != "succeeded":
            raise UnsupportedOperationError(
                f"a committed transaction has succeeded; its status cannot be changed to {wanted}"
            )
    return AlterTransactionResponse(status=TransactionStatus.SUCCEEDED.upper(), properties=properties)


def _find(context: Context, parts: list[str] | None) -> dict[str, str]:
    if parts is None or len(parts) < 2:
        raise InvalidInputError("a transaction id consists of the table's id and a version or UUID")
    wanted = parts[-1]
    found = find_table(context, table_id_of(context, parts[:-1]))
    dataset = open_dataset(context, found)
    with lance_errors(f"table id '{found.table_id}'", context.lance_options()):
        for branch in (None, *sorted(read_refs(dataset.branches.list))):
            at = dataset if branch is None else dataset.checkout_version((branch, None))
            for version in _candidates(context, found, branch, wanted):
                transaction = transaction_at(at, version)
                if transaction is not None and wanted in {str(version), str(transaction.uuid)}:
                    return _tell(transaction, version, branch)
    raise TransactionNotFoundError(f"'{wanted}'")


def _candidates(context: Context, found: Found, branch: str | None, wanted: str) -> list[int]:
    """Return the versions to look at, newest first: by its number one of main, for a uuid all."""
    versions = [each.version for each in list_manifests(context.storage, found.directory, branch)]
    if wanted.isdecimal():
        return [each for each in versions if branch is None and str(each) == wanted]
    return sorted(versions, reverse=True)


def _tell(transaction: lance.Transaction, version: int, branch: str | None) -> dict[str, str]:
    told = {
        "uuid": str(transaction.uuid),
        "version": str(version),
        "read_version": str(transaction.read_version),
        "operation": type(transaction.operation).__name__,
    }
    return told if branch is None else {**told, "branch": branch}
