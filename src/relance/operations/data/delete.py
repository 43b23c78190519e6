"""Delete rows. No data file is changed: earlier versions keep all their rows."""

from __future__ import annotations

from lance_namespace import DeleteFromTableRequest, DeleteFromTableResponse

from relance.operations.context import Context
from relance.operations.data.targets import Target, after_write, open_for_writing


def delete_from_table(context: Context, request: DeleteFromTableRequest) -> DeleteFromTableResponse:
    """Delete the rows that the predicate selects; a fragment of which none is left goes as a whole.

    The context of the answer tells what was done: `rows_deleted`, `fragments_with_deletion_file`,
    `fragments_removed` and `version`.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: the predicate cannot be used.
        ConcurrentModificationError: others kept changing the same rows.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    target = open_for_writing(context, request.id, branch=request.branch)
    with target.commit_errors():
        counts = target.dataset.delete(request.predicate)
        told, transaction_id = _what_happened(target, counts["num_deleted_rows"])
    after_write(context, target.found, target.branch)
    return DeleteFromTableResponse(
        context=told, transaction_id=transaction_id, version=int(target.dataset.version)
    )


def _what_happened(target: Target, rows: int) -> tuple[dict[str, str], str | None]:
    """Return what the commit says it did, which stays true whatever others commit meanwhile."""
    version = int(target.dataset.version)
    told = {"rows_deleted": str(rows), "version": str(version)}
    transaction = target.dataset.read_transaction(version)
    if transaction is None:
        return told, None
    told["fragments_with_deletion_file"] = str(len(transaction.operation.updated_fragments))
    told["fragments_removed"] = str(len(transaction.operation.deleted_fragment_ids))
    return told, transaction.uuid
