"""The data source that Spark knows by the name `lance`; each method hands over to its module."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from relance.lance_io import TableRef
from relance.spark.options import (
    Use,
    parse_read_options,
    parse_stream_options,
    parse_write_options,
    streams_changes,
)
from relance.spark.reader import LanceReader, pin, schema_of
from relance.spark.requirements import check_pyspark
from relance.spark.streaming.columns import with_change_columns
from relance.spark.streaming.sink import LanceStreamWriter
from relance.spark.writer import LanceWriter


class LanceSource(DataSource):
    """Tables of a catalog, and Lance datasets, as Spark tables."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._pinned: TableRef | None = None

    @classmethod
    def name(cls) -> str:
        return "lance"

    def __repr__(self) -> str:
        return f"LanceSource({self.options.get('path')!r})"  # other options may be secrets

    def schema(self) -> StructType:
        """Return the schema of the table, and keep to the version that has it."""
        options = parse_read_options(self.options, use=Use.SCHEMA)
        # Spark pickles this instance after the call: the version that was shown is the one that is read.
        self._pinned = pin(options)
        found = schema_of(self._pinned, options)
        return with_change_columns(found) if streams_changes(self.options) else found

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        return LanceReader(self._pinned or pin(options), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return LanceWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark gives the name
        check_pyspark(least=(4, 2), to_do="reading a table as a stream")
        from relance.spark.streaming.source import LanceStreamReader

        return LanceStreamReader(parse_stream_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        options = parse_write_options(self.options, use=Use.STREAM_WRITE)
        return LanceStreamWriter(options, schema, overwrite=overwrite)
