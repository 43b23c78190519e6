"""The JSON rendering of Arrow schemas that `describe_table` returns.

The rendering is the one of the native directory namespace, seen from the Arrow schema that Lance reports for
a stored table. It is lossy by design: units, time zones and dictionary index types are not part of it, and a
decimal packs its precision and scale into `length`. An extension type is its storage type, with the name and
the parameters of the extension in the metadata of the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema


@dataclass(frozen=True, slots=True)
class ArrowType:
    """A type, as the model of the namespace spec holds it."""

    type: str
    fields: tuple[ArrowField, ...] | None = None
    length: int | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": self.type}
        if self.fields is not None:
            shown["fields"] = [each.as_json for each in self.fields]
        if self.length is not None:
            shown["length"] = self.length
        return shown


@dataclass(frozen=True, slots=True)
class ArrowField:
    """A field, likewise."""

    name: str
    nullable: bool
    type: ArrowType
    metadata: Mapping[str, str] | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "nullable": self.nullable,
            "type": self.type.as_json,
            "metadata": self.metadata,
        }


_Renderer = Callable[[pa.DataType], ArrowType]

_EXTENSION_NAME = "ARROW:extension:name"
_EXTENSION_PARAMETERS = "ARROW:extension:metadata"
_BLOB = "lance.blob.v2"
_DECIMAL_PRECISION_FACTOR = 1000


def schema_to_json(schema: pa.Schema) -> JsonArrowSchema:
    """Render the Arrow schema of a stored table."""
    # The models take longer to import than Lance, and a listing of columns needs none.
    from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

    return JsonArrowSchema.model_validate(
        {
            "fields": [each.as_json for each in fields_to_json(schema)],
            "metadata": _metadata_to_text(schema.metadata) or None,
        }
    )


def fields_to_json(schema: pa.Schema) -> list[ArrowField]:
    """Render the fields of the Arrow schema of a stored table."""
    return [_field_to_json(field) for field in schema]


def _field_to_json(field: pa.Field) -> ArrowField:
    """Render one field, with the extension it carries written out as metadata."""
    metadata = _metadata_to_text(field.metadata)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata |= _extension_metadata(field.type)
    return ArrowField(field.name, field.nullable, _type_to_json(field.type), metadata or None)


def _type_to_json(data_type: pa.DataType) -> ArrowType:
    """Render one type by the table, an extension type as what it is stored as."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _type_to_json(_EXTENSION_STORAGE.get(data_type.extension_name, data_type.storage_type))
    return _RENDERERS.get(data_type.id, _by_description)(data_type)


def _metadata_to_text(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Decode Arrow metadata."""
    return {_decode(key): _decode(value) for key, value in (metadata or {}).items()}


def _decode(raw: bytes) -> str:
    """Decode bytes that are expected to be UTF-8, without ever failing."""
    return raw.decode("utf-8", errors="replace")


def _extension_metadata(extension: pa.BaseExtensionType) -> dict[str, str]:
    """Write out the two metadata entries by which Arrow marks a field as an extension."""
    name = str(extension.extension_name)
    marks = {_EXTENSION_NAME: _EXTENSION_ALIASES.get(name, name)}
    if not _is_minimal_blob(extension):
        marks[_EXTENSION_PARAMETERS] = _extension_parameters(extension)
    return marks


def _is_minimal_blob(extension: pa.BaseExtensionType) -> bool:
    """Tell whether Lance made this blob itself from a binary column, which it does without parameters."""
    return bool(extension.extension_name == _BLOB and extension.storage_type.num_fields == 2)


def _extension_parameters(extension: pa.BaseExtensionType) -> str:
    """Serialize the parameters of an extension type as Arrow does."""
    if isinstance(extension, pa.ExtensionType):
        return _decode(extension.__arrow_ext_serialize__())
    attributes = _BUILT_IN_PARAMETERS.get(extension.extension_name)
    if attributes is None:
        return ""
    values: dict[str, Any] = {attribute: getattr(extension, attribute) for attribute in attributes}
    present = {attribute: value for attribute, value in values.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"))


def _named(name: str) -> _Renderer:
    """Make the renderer of a type that is fully told by its name."""
    return lambda data_type: ArrowType(type=name)


def _nested(name: str) -> _Renderer:
    """Make the renderer of a type that is told by its name and its child fields."""
    return lambda data_type: ArrowType(type=name, fields=_children(data_type))


def _decimal(name: str) -> _Renderer:
    """Make the renderer of a decimal, which packs precision and scale into one number."""
    return lambda data_type: ArrowType(
        type=name, length=data_type.precision * _DECIMAL_PRECISION_FACTOR + data_type.scale
    )


def _fixed_size_binary(data_type: pa.DataType) -> ArrowType:
    """Render binary values of one length."""
    return ArrowType(type="fixed_size_binary", length=data_type.byte_width)


def _fixed_size_list(data_type: pa.DataType) -> ArrowType:
    """Render lists of one length, such as vectors."""
    return ArrowType(type="fixed_size_list", length=data_type.list_size, fields=_children(data_type))


def _dictionary(data_type: pa.DataType) -> ArrowType:
    """Render a dictionary as the type of its values."""
    return _type_to_json(data_type.value_type)


def _by_description(data_type: pa.DataType) -> ArrowType:
    """Render a type that Lance cannot store by its Arrow description."""
    return ArrowType(type=str(data_type))


def _children(data_type: pa.DataType) -> tuple[ArrowField, ...]:
    """Render the child fields of a nested type."""
    return tuple(_field_to_json(data_type.field(index)) for index in range(data_type.num_fields))


_RENDERERS: dict[int, _Renderer] = {
    pa.null().id: _named("null"),
    pa.bool_().id: _named("bool"),
    pa.int8().id: _named("int8"),
    pa.int16().id: _named("int16"),
    pa.int32().id: _named("int32"),
    pa.int64().id: _named("int64"),
    pa.uint8().id: _named("uint8"),
    pa.uint16().id: _named("uint16"),
    pa.uint32().id: _named("uint32"),
    pa.uint64().id: _named("uint64"),
    pa.float16().id: _named("float16"),
    pa.float32().id: _named("float32"),
    pa.float64().id: _named("float64"),
    pa.string().id: _named("utf8"),
    pa.large_string().id: _named("large_utf8"),
    pa.string_view().id: _named("utf8"),
    pa.binary().id: _named("binary"),
    pa.large_binary().id: _named("large_binary"),
    pa.binary_view().id: _named("binary"),
    pa.date32().id: _named("date32"),
    pa.date64().id: _named("date64"),
    pa.time32("s").id: _named("time32"),
    pa.time64("us").id: _named("time64"),
    pa.timestamp("us").id: _named("timestamp"),
    pa.duration("us").id: _named("duration"),
    pa.decimal128(1).id: _decimal("decimal128"),
    pa.decimal256(1).id: _decimal("decimal256"),
    pa.binary(1).id: _fixed_size_binary,
    pa.list_(pa.null(), 1).id: _fixed_size_list,
    pa.list_(pa.null()).id: _nested("list"),
    pa.large_list(pa.null()).id: _nested("large_list"),
    pa.struct([]).id: _nested("struct"),
    pa.map_(pa.string(), pa.null()).id: _nested("map"),
    pa.dictionary(pa.int8(), pa.null()).id: _dictionary,
}

# Lance stores JSON text in a binary form, under an extension name of its own.
_EXTENSION_ALIASES: dict[str, str] = {"arrow.json": "lance.json"}
_EXTENSION_STORAGE: dict[str, pa.DataType] = {"arrow.json": pa.large_binary()}

# The extension types of Arrow itself that have parameters; the others serialize to nothing.
_BUILT_IN_PARAMETERS: dict[str, tuple[str, ...]] = {
    "arrow.fixed_shape_tensor": ("shape", "permutation", "dim_names"),
    "arrow.opaque": ("type_name", "vendor_name"),
}
