"""Opening a table to look inside or to change it, and Lance's complaints about a request as our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import lance

from relance.errors import InvalidInputError, RelanceError, TableColumnNotFoundError
from relance.identifiers import TableId
from relance.lance_errors import lance_errors
from relance.operations.context import Context
from relance.operations.datasets import open_dataset
from relance.operations.managed_versions import settle, synchronise, version_keeper
from relance.operations.places import table_id_of, visible_table
from relance.operations.version_requests import is_main
from relance.storage.failures import first_line

_ABOUT_THE_REQUEST = re.compile(
    r"Invalid user input|LanceError\((Schema|Arrow)\)|Not supported|Query Execution error"
    r"|Field '.*' not found|tokenizer|WKT error|are required for|must be divisible"
    r"|LanceError\(Index\).*(not supported|supports only|not conforming)"
    r"|does not exist in the dataset|Task was aborted"  # Lance panics over SQL that it has no plan for
)


@contextmanager
def reading(
    context: Context, parts: Sequence[str] | None, *, version: int | None = None, branch: str | None = None
) -> Iterator[lance.LanceDataset]:
    """Give the dataset of a table, at a version or the head of a branch.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError
    """
    found = visible_table(context, table_id_of(context, parts))
    dataset = open_dataset(context, found, version=version, branch=branch)
    with lance_errors(f"table id '{found.table_id}'", context.lance_options()):
        yield dataset


@contextmanager
def changing(
    context: Context, parts: Sequence[str] | None, *, version: int | None = None, branch: str | None = None
) -> Iterator[lance.LanceDataset]:
    """Give the dataset for a block that commits a version; what the catalog keeps of versions follows.

    A commit goes to the branch that the dataset is opened at.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError
    """
    table_id = table_id_of(context, parts)
    settle(context, table_id)  # a version that waits for its file comes before ours
    with reading(context, parts, version=version, branch=branch) as dataset:
        yield dataset
    if is_main(branch):
        _adopt(context, table_id)


def _adopt(context: Context, table_id: TableId) -> None:
    """Give the new version its row, if the manifest keeps versions."""
    with suppress(RelanceError):  # the version is there; what is left undone, the next look at it does
        manifest = version_keeper(context)
        if manifest is not None:
            synchronise(context, manifest, table_id)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what Lance says about a request that it cannot fulfil into InvalidInputError."""
    try:
        yield
    except RelanceError:
        raise
    except (KeyError, TypeError, OverflowError) as cause:
        raise InvalidInputError(f"{what}: {first_line(_text(cause))}") from cause
    except (OSError, ValueError, RuntimeError) as cause:
        if _ABOUT_THE_REQUEST.search(str(cause)):
            raise InvalidInputError(f"{what}: {first_line(str(cause))}") from cause
        raise


def _text(cause: Exception) -> str:
    return "".join(str(each) for each in cause.args)


def transaction_id(dataset: lance.LanceDataset) -> str | None:
    """Return the id of the transaction that made the version a dataset is at."""
    transaction = dataset.read_transaction(dataset.version)
    return None if transaction is None else str(transaction.uuid)


def require_column(dataset: lance.LanceDataset, path: str) -> None:
    """Check that there is a column, or a field inside one, of this path.

    Raises:
        TableColumnNotFoundError: there is none.
    """
    if not path or dataset.lance_schema.field(path) is None:
        raise TableColumnNotFoundError(f"column '{path}': there are {', '.join(dataset.schema.names)}")
