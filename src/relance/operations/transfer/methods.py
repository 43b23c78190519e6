"""The methods of the namespace that move rows between tables and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from relance.operations.context import Context
from relance.operations.requests import parse_mode
from relance.operations.staging.plan import WriteMode
from relance.operations.transfer import exporting, importing
from relance.operations.transfer.exporting import Exported, Selection
from relance.operations.transfer.importing import Imported

Id = Sequence[str]
PathText = str | os.PathLike[str]


class TransferMethods:
    """The part of a catalog that is about files of rows."""

    _context: Context

    def scan_table(self, id: Id, selection: Selection | None = None) -> pa.RecordBatchReader:
        """Return rows of a table as they are read, all or those that are selected.

        Raises:
            TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
            InvalidInputError: a column or the filter cannot be used.
        """
        return exporting.scan(self._context, id, selection or Selection())

    def import_files(
        self,
        id: Id,
        paths: Sequence[PathText],
        *,
        mode: str = "create",
        file_format: str | None = None,
        create_namespaces: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Imported:
        """Write the rows of Parquet, CSV or Arrow files as one version of a table: all of them, or none.

        The mode is create, append or overwrite; the format is told by the names unless it is given.

        Raises:
            TableAlreadyExistsError: it exists and the mode is create.
            TableNotFoundError: it is dropped and the mode is append.
            NamespaceNotFoundError: its namespace does not exist.
            TableSchemaValidationError: the rows do not fit the table.
            InvalidInputError: a file cannot be read.
        """
        return importing.import_files(
            self._context,
            id,
            [os.fspath(each) for each in paths],
            mode=parse_mode(mode, WriteMode, default=WriteMode.CREATE),
            file_format=file_format,
            create_namespaces=create_namespaces,
            progress=progress,
        )

    def export_table(
        self,
        id: Id,
        path: PathText,
        selection: Selection | None = None,
        *,
        file_format: str | None = None,
        overwrite: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Exported:
        """Write rows of a table into one Parquet, CSV, Arrow or JSON-lines file, there whole or not at all.

        Raises:
            TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
            InvalidInputError: the file exists and is not to be overwritten, or cannot hold the columns.
        """
        return exporting.export_table(
            self._context,
            id,
            os.fspath(path),
            selection or Selection(),
            file_format=file_format,
            overwrite=overwrite,
            progress=progress,
        )
