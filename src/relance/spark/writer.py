"""Write a DataFrame: tasks write fragments, the driver makes one commit through the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from relance.catalog.context import shared_context
from relance.errors import UnsupportedOperationError
from relance.operations.staging.commit import abort_write, commit_write
from relance.operations.staging.plan import FileOptions, WriteMode, WritePlan, WriteRequest, plan_write
from relance.operations.staging.tasks import write_batches
from relance.spark.address import CatalogAddress
from relance.spark.options import WriteOptions
from relance.spark.table_schema import schema_for
from relance.spark.types import ToLance


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    fragments: tuple[str, ...]


class LanceWriter(DataSourceArrowWriter):
    """A batch write. It is made on the driver, and travels to the tasks and to the commit."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Plan the write: whatever can be refused is refused here, before any work.

        Raises:
            TableAlreadyExistsError: it exists, and the options say that it must not.
            TableNotFoundError: rows are to be appended to a dropped table.
            TableSchemaValidationError: the rows do not fit the table.
            UnsupportedOperationError: a column cannot be written without loss.
        """
        mode = WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
        if options.fail_if_exists:
            mode = WriteMode.CREATE
        self._address = catalog_address(options)
        self._plan = plan_write(
            shared_context(self._address.properties), write_request(options, schema, mode)
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return Written(write_batches(self._plan, converted(iterator, self._plan)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make one version of what all tasks wrote; what a failed commit leaves, it removes itself."""
        commit_write(shared_context(self._address.properties), self._plan, fragments_in(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of a job of which a task failed."""
        if all(message is not None for message in messages):
            return  # Spark also calls this after a commit that raised, which may have landed all the same
        abort_write(shared_context(self._address.properties), self._plan, fragments_in(messages))


def catalog_address(options: WriteOptions) -> CatalogAddress:
    """Return where to write.

    Raises:
        UnsupportedOperationError: it is a path that no catalog would find again.
    """
    if not isinstance(options.address, CatalogAddress):
        raise UnsupportedOperationError(
            f"cannot write to '{options.address}': pass a table id and option 'root', "
            "or a path that ends in '<name>.lance'"
        )
    return options.address


def write_request(options: WriteOptions, schema: StructType, mode: WriteMode) -> WriteRequest:
    """Return what the options and the rows' schema ask of the catalog."""
    return WriteRequest(
        parts=catalog_address(options).parts,
        mode=mode,
        schema_for=lambda existing: schema_for(schema, existing, options),
        files=FileOptions(
            max_rows_per_file=options.max_rows_per_file,
            max_bytes_per_file=options.max_bytes_per_file,
            data_storage_version=options.data_storage_version,
            stable_row_ids=options.stable_row_ids,
        ),
        properties=options.properties,
        create_namespaces=options.create_namespaces,
        job=options.job,
    )


def converted(batches: Iterator[pa.RecordBatch], plan: WritePlan) -> Iterator[pa.RecordBatch]:
    """Yield Spark's batches as the table wants them."""
    convert: ToLance | None = None
    for batch in batches:
        if convert is None:
            convert = ToLance(batch.schema, plan.schema)
        yield convert(batch)


def fragments_in(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    """Return the fragments of the tasks that ended well."""
    return [each for message in messages if isinstance(message, Written) for each in message.fragments]
