"""The methods of the namespace that move rows between tables and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from relance.catalog.context import Context
from relance.operations.requests import parse_mode
from relance.operations.staging.plan import WriteMode
from relance.operations.transfer import exporting, importing
from relance.operations.transfer.exporting import Exported, Selection
from relance.operations.transfer.importing import Imported

Id = Sequence[str]
PathText = str | os.PathLike[str]


class TransferMethods:
    """The import and export methods of a catalog."""

    _context: Context

    def scan_table(self, id: Id, selection: Selection | None = None) -> pa.RecordBatchReader:
        """Return a table's rows, or the selected ones, as a stream.

        Raises:
            TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
            InvalidInputError: a column or the filter is invalid.
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
        """Write the rows of Parquet, CSV or Arrow files to a table atomically, as one version.

        The mode is create, append or overwrite. The format is inferred from the file names by default.

        Raises:
            TableAlreadyExistsError: it exists and the mode is create.
            TableNotFoundError: it is dropped and the mode is append.
            NamespaceNotFoundError: its namespace does not exist.
            TableSchemaValidationError: the rows do not match the table.
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
        """Write rows of a table atomically to one Parquet, CSV, Arrow or JSON Lines file.

        Raises:
            TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
            InvalidInputError: the file exists and `overwrite` is not set, or it cannot store the columns.
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
