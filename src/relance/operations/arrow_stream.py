"""Arrow streams as clients send them: read whole and checked before anything is written."""

from __future__ import annotations

import pyarrow as pa

from relance.errors import InvalidInputError


def read_stream(data: bytes) -> pa.Table:
    """Return the whole Arrow stream, so that a damaged one is refused before anything is written.

    Raises:
        InvalidInputError: it is empty, damaged, cut short or in the file format.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInputError(f"the body must be the bytes of an Arrow stream, got {type(data).__name__}")
    if not data:
        raise InvalidInputError("the body is empty: it must be an Arrow stream with at least a schema")
    try:
        # Lance panics on buffers that are not aligned to their type, which a foreign writer may send.
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
        table = pa.ipc.open_stream(pa.py_buffer(data), options=aligned).read_all()
        # Lance trusts what it is given: wild offsets or indices would end the process or write a table
        # that nobody can read, and a name that is no text is a panic.
        table.validate(full=True)
        _read_names(table.schema)
        if len(set(table.schema.names)) < len(table.schema.names):
            raise InvalidInputError("the schema has two columns with the same name")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as cause:
        raise InvalidInputError(f"the body is not a complete Arrow stream: {cause}") from cause
    return table


def _read_names(fields: pa.Schema | pa.DataType) -> None:
    """Decode every field name, at any depth: it raises where one is no text."""
    for field in fields if isinstance(fields, pa.Schema) else map(fields.field, range(fields.num_fields)):
        str(field.name)
        _read_names(field.type)
