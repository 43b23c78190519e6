"""Import files into a table: written a batch at a time, and committed as one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from relance.catalog.context import Context
from relance.errors import TableSchemaValidationError
from relance.operations.staging.commit import abort_write, commit_write
from relance.operations.staging.plan import WriteMode, WriteRequest, plan_write
from relance.operations.staging.tasks import write_batches
from relance.operations.transfer.formats import RowFiles, format_of


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    id: tuple[str, ...]
    version: int
    rows: int


def import_files(
    context: Context,
    parts: Sequence[str],
    paths: Sequence[str],
    *,
    mode: WriteMode,
    file_format: str | None = None,
    create_namespaces: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Write the rows of files as one version of a table: all of them, or none.

    The columns are those of the first file; the other files have the same ones, in any order. `progress` is
    told the rows so far.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        TableNotFoundError: it is dropped and the mode is append.
        NamespaceNotFoundError: its namespace does not exist.
        TableSchemaValidationError: the files differ in their columns, or the rows do not fit the table.
        InvalidInputError: a file cannot be read.
    """
    files = RowFiles(paths, format_of(paths[0] if paths else "", file_format))
    request = WriteRequest(
        parts=parts,
        mode=mode,
        schema_for=lambda existing: fitting(files.schema, existing),
        create_namespaces=create_namespaces,
    )
    plan = plan_write(context, request)
    counted = _Counted(files.batches(plan.schema), progress)
    try:
        fragments = write_batches(plan, counted)
    except BaseException:
        abort_write(context, plan, ())
        raise
    version = commit_write(context, plan, fragments)
    return Imported(tuple(plan.table_id.parts), version, counted.rows)


def fitting(schema: pa.Schema, existing: pa.Schema | None) -> pa.Schema:
    """Return the schema in which rows are written: their own, or that of the table they are appended to.

    Raises:
        TableSchemaValidationError: a column is missing, or is not in the table.
    """
    if existing is None:
        return schema.remove_metadata()
    unknown = [name for name in schema.names if name not in existing.names]
    missing = [each.name for each in existing if each.name not in schema.names and not each.nullable]
    if unknown or missing:
        which = f"not in the table: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
        raise TableSchemaValidationError(f"the files' columns do not match the table; {which}")
    return pa.schema([each for each in existing if each.name in schema.names], existing.metadata)


class _Counted:
    """Batches, counted as they go by."""

    def __init__(self, batches: Iterator[pa.RecordBatch], progress: Callable[[int], None] | None) -> None:
        self.rows = 0
        self._batches = batches
        self._progress = progress

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            yield batch
            self.rows += batch.num_rows
            if self._progress is not None:
                self._progress(self.rows)
