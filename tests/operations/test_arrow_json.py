"""Tests that schemas are rendered to JSON as the native directory namespace renders them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import lance
import lance.namespace
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace import DescribeTableRequest
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

from relance.operations.arrow_json import schema_to_json

# Stores an empty table; returns the schema Lance reads back and the native rendering.
Store = Callable[..., tuple[pa.Schema, JsonArrowSchema]]

STORAGE_VERSIONS = ("2.0", "2.1", "2.2", "2.3")
UNITS = ("s", "ms", "us", "ns")
ZONES = ("UTC", "+05:30", "Europe/Paris")
INDEX_TYPES = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
)  # fmt: skip
DICTIONARY_VALUE_TYPES = (
    pa.null(), pa.bool_(), pa.int64(), pa.float16(), pa.float32(), pa.string(), pa.large_string(),
    pa.binary(), pa.large_binary(),
)  # fmt: skip
PLAIN_TYPES = (
    pa.null(), pa.bool_(), *INDEX_TYPES, pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(0),
    pa.binary(7), pa.binary(2**31 - 1), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"),
    pa.time64("us"), pa.time64("ns"),
)  # fmt: skip
TIME_TYPES = (
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in ZONES),
    *(pa.duration(unit) for unit in UNITS),
)
DECIMAL_TYPES = (
    *(
        pa.decimal128(*digits)
        for digits in ((1, 0), (5, 2), (5, -2), (10, 10), (38, 10), (3, -128), (3, 100))
    ),
    *(pa.decimal256(*digits) for digits in ((1, 0), (5, -2), (38, 10), (76, 20))),
)
STRUCT = pa.struct(
    [
        pa.field("required", pa.int32(), nullable=False, metadata={"unit": "metre"}),
        pa.field("inner", pa.struct([("text", pa.string())])),
    ]
)
LIST_TYPES = (
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.null()),
    pa.list_(pa.decimal128(5, 2)),
    pa.list_(pa.field("member", pa.binary(3), nullable=False)),
    pa.list_(pa.field("member", pa.int32(), metadata={"key": "value"})),
    pa.large_list(pa.list_(pa.string())),
    pa.list_(STRUCT),
    pa.list_(pa.list_(pa.float32(), 4)),
)
VECTOR_TYPES = (
    *(pa.list_(item, 4) for item in (pa.float16(), pa.float32(), pa.float64(), pa.uint8(), pa.bool_())),
    pa.list_(pa.field("member", pa.float32(), nullable=False, metadata={"key": "value"}), 4),
    pa.list_(pa.list_(pa.float32(), 4), 3),
    pa.list_(STRUCT, 3),
    pa.list_(pa.string(), 3),
    pa.list_(pa.timestamp("us"), 3),
    pa.list_(pa.float32(), 2**31 - 1),
)
STRUCT_AND_MAP_TYPES = (
    STRUCT,
    pa.struct([]),
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    pa.map_(pa.string(), pa.field("value", pa.int32(), metadata={"key": "value"})),
    pa.map_(pa.int64(), pa.struct([("numbers", pa.list_(pa.int8()))])),
    pa.list_(pa.map_(pa.string(), pa.int32())),
    pa.struct([("mapping", pa.map_(pa.string(), pa.int32()))]),
)
DICTIONARY_TYPES = (
    *(pa.dictionary(index, pa.string()) for index in INDEX_TYPES),
    *(pa.dictionary(pa.int32(), value) for value in DICTIONARY_VALUE_TYPES),
    pa.dictionary(pa.int32(), pa.string(), ordered=True),
    pa.list_(pa.dictionary(pa.int32(), pa.string())),
    pa.struct([("category", pa.dictionary(pa.int8(), pa.string()))]),
)
ARROW_EXTENSION_TYPES = (
    pa.uuid(),
    pa.bool8(),
    pa.json_(),
    pa.json_(pa.large_string()),
    pa.opaque(pa.int32(), "thing", "maker"),
    pa.opaque(STRUCT, 'é"\\/\n', ""),
    pa.fixed_shape_tensor(pa.float32(), [2, 3]),
    pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0]),
    pa.fixed_shape_tensor(pa.float32(), [2, 3], dim_names=["x", "é"], permutation=[1, 0]),
    pa.fixed_shape_tensor(pa.uint8(), []),
)
EXTENSION_TYPES = (
    *ARROW_EXTENSION_TYPES,
    *(pa.list_(extension) for extension in ARROW_EXTENSION_TYPES),
    *(pa.struct([("member", extension)]) for extension in ARROW_EXTENSION_TYPES),
    pa.map_(pa.string(), pa.json_()),
    pa.map_(pa.uuid(), pa.uuid()),
    pa.list_(pa.json_(), 2),
    pa.list_(pa.uuid(), 2),
)
STORABLE_TYPES = (
    *PLAIN_TYPES, *TIME_TYPES, *DECIMAL_TYPES, *LIST_TYPES, *VECTOR_TYPES, *STRUCT_AND_MAP_TYPES,
    *DICTIONARY_TYPES, *EXTENSION_TYPES,
)  # fmt: skip

BFLOAT16 = {"ARROW:extension:name": "lance.bfloat16", "ARROW:extension:metadata": ""}
BLOB = {"lance-encoding:blob": "true"}
FIELDS = {
    "non-nullable": pa.field("c", pa.int32(), nullable=False),
    "metadata": pa.field("c", pa.int32(), metadata={"key": "value", "é": "ü", "": ""}),
    "metadata of Lance": pa.field("c", pa.int32(), metadata={"lance-encoding:compression": "zstd"}),
    "primary key": pa.field(
        "c", pa.int32(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
    ),
    "name beyond ASCII": pa.field("été et hiver", pa.int32()),
    "extension with metadata": pa.field("c", pa.uuid(), nullable=False, metadata={"key": "value"}),
    "JSON with metadata": pa.field("c", pa.json_(), nullable=False, metadata={"key": "value"}),
    "unknown extension": pa.field(
        "c", pa.int32(), metadata={"ARROW:extension:name": "my.own", "ARROW:extension:metadata": "x"}
    ),
    "bfloat16": pa.field("c", pa.binary(2), metadata=BFLOAT16),
    "bfloat16 list": pa.field("c", pa.list_(pa.field("item", pa.binary(2), metadata=BFLOAT16))),
    "bfloat16 vector": pa.field("c", pa.list_(pa.field("item", pa.binary(2), metadata=BFLOAT16), 4)),
    "blob": lance.blob_field("c"),
    "blob with metadata": lance.blob_field("c", nullable=False).with_metadata({"key": "value"}),
    "blob with a threshold": lance.blob_field("c", inline_size_threshold=10),
    "blob in a struct": pa.field("c", pa.struct([lance.blob_field("member")])),
    "binary marked as blob": pa.field("c", pa.large_binary(), metadata=BLOB),
    "binary marked as blob with metadata": pa.field("c", pa.binary(), metadata={**BLOB, "key": "value"}),
    "binary marked as blob in a list": pa.field(
        "c", pa.list_(pa.field("item", pa.large_binary(), metadata=BLOB))
    ),
}


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    """An extension type with parameters, defined in Python."""

    def __init__(self) -> None:
        super().__init__(pa.float32(), "relance.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return "degré".encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


@pytest.fixture
def registered_celsius() -> Iterator[Celsius]:
    """Register the Python extension type for the length of a test."""
    extension = Celsius()
    pa.register_extension_type(extension)
    yield extension
    pa.unregister_extension_type(extension.extension_name)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Give a function that stores an empty table and has native describe it."""
    root = tmp_path_factory.mktemp("catalog")
    namespace = lance.namespace.DirectoryNamespace(root=str(root), manifest_enabled="false")
    numbers = count()

    def store_table(schema: pa.Schema, version: str | None = None) -> tuple[pa.Schema, JsonArrowSchema]:
        name = f"table{next(numbers)}"
        empty = pa.Table.from_batches([], schema=schema)
        dataset = lance.write_dataset(empty, str(root / f"{name}.lance"), data_storage_version=version)
        request = DescribeTableRequest(id=[name], load_detailed_metadata=True)
        rendered = namespace.describe_table(request).var_schema
        assert rendered is not None
        return dataset.schema, rendered

    return store_table


def assert_same(ours: JsonArrowSchema, native: JsonArrowSchema) -> None:
    """Compare two renderings as models and as what goes over the wire."""
    assert ours.to_dict() == native.to_dict()
    assert ours == native


@pytest.mark.parametrize("data_type", STORABLE_TYPES, ids=str)
def test_column_type_is_rendered_as_by_the_native_client(store: Store, data_type: pa.DataType) -> None:
    stored, native = store(pa.schema([pa.field("c", data_type)]))
    assert_same(schema_to_json(stored), native)


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS.keys())
def test_field_properties_are_rendered_as_by_the_native_client(store: Store, field: pa.Field) -> None:
    stored, native = store(pa.schema([field]))
    assert_same(schema_to_json(stored), native)


@pytest.mark.parametrize("version", STORAGE_VERSIONS)
def test_blob_is_rendered_as_by_the_native_client_in_every_storage_version(
    store: Store, version: str
) -> None:
    stored, native = store(pa.schema([pa.field("c", pa.large_binary(), metadata=BLOB)]), version)
    assert_same(schema_to_json(stored), native)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([pa.field("c", pa.int32())], metadata={"key": "value", "é": "ü", "": ""}),
        pa.schema([pa.field("c", pa.int32()), pa.field("C", pa.string()), pa.field("d", STRUCT)]),
    ],
    ids=["no columns", "metadata", "several columns"],
)
def test_whole_schema_is_rendered_as_by_the_native_client(store: Store, schema: pa.Schema) -> None:
    stored, native = store(schema)
    assert_same(schema_to_json(stored), native)


def test_registered_extension_type_is_rendered_as_by_the_native_client(
    store: Store, registered_celsius: Celsius
) -> None:
    stored, native = store(pa.schema([pa.field("c", registered_celsius, metadata={"key": "value"})]))
    assert stored.field("c").type == registered_celsius
    assert_same(schema_to_json(stored), native)


def test_unregistered_extension_type_is_rendered_as_by_the_native_client(store: Store) -> None:
    stored, native = store(pa.schema([pa.field("c", Celsius())]))
    assert stored.field("c").type == pa.float32()
    assert_same(schema_to_json(stored), native)


def nest(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Wrap types into lists, structs and maps."""
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda value: pa.map_(pa.string(), value)),
        st.lists(inner, max_size=3).map(name_members),
    )


def name_members(members: list[pa.DataType]) -> pa.DataType:
    """Make a struct of the given types."""
    return pa.struct([pa.field(f"member{number}", member) for number, member in enumerate(members)])


LEAVES = st.sampled_from((*PLAIN_TYPES, *TIME_TYPES, *DECIMAL_TYPES, *ARROW_EXTENSION_TYPES))


@settings(max_examples=60, database=None)
@given(data_type=st.recursive(LEAVES, nest, max_leaves=6))
def test_nested_types_are_rendered_as_by_the_native_client(store: Store, data_type: pa.DataType) -> None:
    stored, native = store(pa.schema([pa.field("c", data_type)]))
    assert_same(schema_to_json(stored), native)


def test_map_with_renamed_entries_is_rendered_with_the_names_arrow_reports(store: Store) -> None:
    renamed = pa.map_(pa.field("from", pa.string(), nullable=False), pa.field("to", pa.int32()))
    stored, native = store(pa.schema([pa.field("c", renamed)]))
    assert schema_to_json(pa.schema([pa.field("c", renamed)])) == native
    assert_same(schema_to_json(stored), schema_to_json(pa.schema([("c", pa.map_(pa.string(), pa.int32()))])))


@pytest.mark.parametrize("data_type", [pa.uuid(), pa.bool8()], ids=str)
def test_extension_stored_without_parameters_is_rendered_with_empty_ones(
    store: Store, data_type: pa.DataType
) -> None:
    marked = pa.field(
        "c", data_type.storage_type, metadata={"ARROW:extension:name": data_type.extension_name}
    )
    stored, native = store(pa.schema([marked]))
    expected = native.to_dict()
    expected["fields"][0]["metadata"]["ARROW:extension:metadata"] = ""
    assert schema_to_json(stored).to_dict() == expected


@pytest.mark.parametrize("parameters", [{}, {"ARROW:extension:metadata": ""}], ids=["absent", "empty"])
def test_minimal_blob_is_rendered_without_parameters(store: Store, parameters: dict[str, str]) -> None:
    storage = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    marked = pa.field("c", storage, metadata={"ARROW:extension:name": "lance.blob.v2", **parameters})
    stored, native = store(pa.schema([marked]))
    expected = native.to_dict()
    expected["fields"][0]["metadata"].pop("ARROW:extension:metadata", None)
    assert schema_to_json(stored).to_dict() == expected


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (pa.decimal32(5, 2), "decimal32(5, 2)"),
        (pa.decimal64(12, 2), "decimal64(12, 2)"),
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.list_view(pa.int32()), "list_view<item: int32>"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_encoded<run_ends: int32, values: string>"),
        (pa.dense_union([pa.field("a", pa.int32())]), "dense_union<a: int32=0>"),
    ],
    ids=str,
)
def test_type_that_lance_cannot_store_is_rendered_by_its_arrow_name(
    store: Store, data_type: pa.DataType, expected: str
) -> None:
    schema = pa.schema([pa.field("c", data_type)])
    with pytest.raises(OSError, match="Unsupported data type"):
        store(schema)
    assert schema_to_json(schema).fields[0].type.to_dict() == {"type": expected}


def test_metadata_that_is_not_text_is_rendered_with_replacement_characters() -> None:
    field = pa.field("c", pa.int32(), metadata={b"key": b"\xff"})
    assert schema_to_json(pa.schema([field])).fields[0].metadata == {"key": "\ufffd"}
