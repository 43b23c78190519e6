"""Delete rows. No data file is changed: earlier versions keep all their rows."""

from __future__ import annotations

from contextlib import suppress

import lance
from lance_namespace import DeleteFromTableRequest, DeleteFromTableResponse

from relance.catalog.context import Context
from relance.errors import RelanceError
from relance.lance_io import transaction_at
from relance.operations.data.expressions import check_expressions
from relance.operations.targets import Target, after_write, open_for_writing


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
    check_expressions([request.predicate])
    target = open_for_writing(context, request.id, branch=request.branch)
    with target.commit_errors():
        counts = target.dataset.delete(request.predicate)
    told = {"rows_deleted": str(counts["num_deleted_rows"]), "version": str(target.dataset.version)}
    done = _transaction(target)
    after_write(context, target.found, target.branch)
    if done is None:
        return DeleteFromTableResponse(context=told, version=int(target.dataset.version))
    told["fragments_with_deletion_file"] = str(len(done.operation.updated_fragments))
    told["fragments_removed"] = str(len(done.operation.deleted_fragment_ids))
    return DeleteFromTableResponse(
        context=told, transaction_id=done.uuid, version=int(target.dataset.version)
    )


def _transaction(target: Target) -> lance.Transaction | None:
    """Return what the commit says it did, which stays true whatever others commit meanwhile."""
    with suppress(RelanceError), target.errors():  # the rows are gone, whether this can be read or not
        done = transaction_at(target.dataset, int(target.dataset.version))
        if done is not None and isinstance(done.operation, lance.LanceOperation.Delete):
            return done
    return None
