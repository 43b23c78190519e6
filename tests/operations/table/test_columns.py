"""Columns and metadata of a table, in each mode."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    COLUMN_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    UNSUPPORTED,
)
from tests.support.roots import LocalPlace, refused_unchanged
from tests.support.tables import COUNT, call, heads, opened

from relance import DirectoryNamespace
from relance.errors import InvalidInputError
from relance.operations.arrow_json import schema_to_json
from relance.operations.table.data_types import parse_data_type

ADD, ALTER, DROP = "alter_table_add_columns", "alter_table_alter_columns", "alter_table_drop_columns"
BACKFILL = "alter_table_backfill_columns"
SCHEMA_METADATA, FIELD_METADATA = "update_table_schema_metadata", "update_field_metadata"


def test_columns_can_be_added_from_expressions(catalog: DirectoryNamespace) -> None:
    new = [{"name": "next", "expression": "id + 1"}, {"name": "loud", "expression": "upper(name)"}]
    assert call(catalog, ADD, new_columns=new).version == 2
    assert opened(catalog).to_table(columns=["next", "loud"]).slice(0, 1).to_pylist() == [
        {"next": 1, "loud": "NAME 0"}
    ]


def test_columns_can_be_renamed_cast_and_made_non_nullable(catalog: DirectoryNamespace) -> None:
    alterations = [
        {"path": "id", "rename": "number", "data_type": {"type": "int32"}},
        {"path": "place.city", "rename": "town"},
    ]
    assert call(catalog, ALTER, alterations=alterations).version == 2
    # Lance wants a cast and a tightening one after the other.
    assert call(catalog, ALTER, alterations=[{"path": "name", "nullable": False}]).version == 3
    schema = opened(catalog).schema
    assert schema.field("number").type == pa.int32()
    assert not schema.field("name").nullable
    assert schema.field("place").type.field(0).name == "town"


def test_columns_can_be_dropped(catalog: DirectoryNamespace) -> None:
    dropped = call(catalog, DROP, columns=["name", "vector"])
    assert dropped.version == 2
    assert dropped.transaction_id == opened(catalog).read_transaction(2).uuid
    assert opened(catalog).schema.names == ["id", "labels", "place"]


def test_column_changes_on_a_branch_leave_main_unchanged(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_branch", name="work")
    call(catalog, ADD, new_columns=[{"name": "next", "expression": "id + 1"}], branch="work")
    call(catalog, ALTER, alterations=[{"path": "next", "rename": "after"}], branch="work")
    call(catalog, DROP, columns=["name"], branch="work")
    call(catalog, SCHEMA_METADATA, metadata={"owner": "me"}, branch="work")
    updates = [{"path": "id", "metadata": {"unit": "m"}}]
    assert call(catalog, FIELD_METADATA, updates=updates, branch="work").version == 6
    assert heads(catalog) == (1, 6)
    assert opened(catalog, "work").schema.names == ["id", "labels", "place", "vector", "after"]
    assert opened(catalog).schema.names == ["id", "name", "labels", "place", "vector"]
    assert opened(catalog).schema.metadata in ({}, None)


def test_schema_metadata_is_merged_and_returned(catalog: DirectoryNamespace) -> None:
    call(catalog, SCHEMA_METADATA, metadata={"owner": "me", "site": "here"})
    told = call(catalog, SCHEMA_METADATA, metadata={"owner": "you"})
    assert told.metadata == {"owner": "you", "site": "here"}
    assert told.transaction_id == opened(catalog).read_transaction(3).uuid


def test_empty_schema_metadata_makes_no_version(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    call(catalog, SCHEMA_METADATA, metadata={"owner": "me"})
    before = place.files()
    told = call(catalog, SCHEMA_METADATA, metadata={})
    assert (told.metadata, told.transaction_id) == ({"owner": "me"}, None)
    assert place.files() == before


def test_field_metadata_is_merged_removed_and_replaced_in_one_version(catalog: DirectoryNamespace) -> None:
    both = {"a": "1", "b": "2"}
    first = [{"path": path, "metadata": both} for path in ("id", "name", "place.city")]
    call(catalog, FIELD_METADATA, updates=first)
    second = [
        {"path": "id", "metadata": {"b": None, "c": "3"}},
        {"path": "name", "metadata": {"c": "3"}, "replace": True},
        {"path": "place.city", "metadata": {"c": "3"}},
    ]
    told = call(catalog, FIELD_METADATA, updates=second)
    assert told.version == 3
    assert told.fields == {"id": {"a": "1", "c": "3"}, "name": {"c": "3"}, "place.city": {**both, "c": "3"}}
    assert opened(catalog).schema.field("name").metadata == {b"c": b"3"}


def _add(**entry: Any) -> dict[str, Any]:
    return {"new_columns": [entry]}


def _alter(**entry: Any) -> dict[str, Any]:
    return {"alterations": [entry]}


BAD_REQUESTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "add a taken name": (INVALID_INPUT, ADD, _add(name="id", expression="id + 1")),
    "add of an unknown column": (INVALID_INPUT, ADD, _add(name="x", expression="nope + 1")),
    "add of an unknown column alone": (INVALID_INPUT, ADD, _add(name="x", expression="nope")),
    "add of a field of a number": (INVALID_INPUT, ADD, _add(name="x", expression="id.x")),
    "add of a placeholder": (INVALID_INPUT, ADD, _add(name="x", expression="$1")),
    "add of no SQL": (INVALID_INPUT, ADD, _add(name="x", expression="id +* 1")),
    "add of an aggregate": (INVALID_INPUT, ADD, _add(name="x", expression="sum(id)")),
    "add that fails on a row": (INVALID_INPUT, ADD, _add(name="x", expression="1 / id")),
    "add that cannot be cast": (INVALID_INPUT, ADD, _add(name="x", expression="cast(name as int)")),
    "add without expression": (INVALID_INPUT, ADD, _add(name="x")),
    "add with empty expression": (INVALID_INPUT, ADD, _add(name="x", expression="")),
    "add without name": (INVALID_INPUT, ADD, _add(name="", expression="id")),
    "add with a dot": (INVALID_INPUT, ADD, _add(name="place.x", expression="id")),
    "add nothing": (INVALID_INPUT, ADD, {"new_columns": []}),
    "add twice": (INVALID_INPUT, ADD, {"new_columns": [{"name": "x", "expression": "id"}] * 2}),
    "add computed": (UNSUPPORTED, ADD, _add(name="x", computed="id")),
    "alter to virtual": (UNSUPPORTED, ALTER, _alter(path="id", virtual_column={"udf": "f"})),
    "add on unknown branch": (BRANCH_NOT_FOUND, ADD, _add(name="x", expression="id") | {"branch": "nope"}),
    "add to unknown table": (TABLE_NOT_FOUND, ADD, _add(name="x", expression="id") | {"id": ["x"]}),
    "alter unknown": (COLUMN_NOT_FOUND, ALTER, _alter(path="nope", rename="x")),
    "alter to a taken name": (INVALID_INPUT, ALTER, _alter(path="id", rename="name")),
    "alter to no name": (INVALID_INPUT, ALTER, _alter(path="id", rename="")),
    "alter nothing": (INVALID_INPUT, ALTER, _alter(path="id")),
    "alter none": (INVALID_INPUT, ALTER, {"alterations": []}),
    "alter twice": (INVALID_INPUT, ALTER, {"alterations": [{"path": "id", "rename": "x"}] * 2}),
    "alter to another kind": (INVALID_INPUT, ALTER, _alter(path="name", data_type={"type": "int32"})),
    "alter to a type too small": (INVALID_INPUT, ALTER, _alter(path="id", data_type={"type": "int8"})),
    "alter to an unknown type": (INVALID_INPUT, ALTER, _alter(path="id", data_type={"type": "magic"})),
    "alter on unknown branch": (BRANCH_NOT_FOUND, ALTER, _alter(path="id", rename="x") | {"branch": "nope"}),
    "drop unknown": (COLUMN_NOT_FOUND, DROP, {"columns": ["id", "nope"]}),
    "drop nothing": (INVALID_INPUT, DROP, {"columns": []}),
    "drop twice": (INVALID_INPUT, DROP, {"columns": ["id", "id"]}),
    "drop all": (INVALID_INPUT, DROP, {"columns": ["id", "name", "labels", "place", "vector"]}),
    "drop on unknown branch": (BRANCH_NOT_FOUND, DROP, {"columns": ["id"], "branch": "nope"}),
    "backfill": (UNSUPPORTED, BACKFILL, {"column": "id"}),
    "backfill unknown": (COLUMN_NOT_FOUND, BACKFILL, {"column": "nope"}),
    "backfill of unknown table": (TABLE_NOT_FOUND, BACKFILL, {"id": ["x"], "column": "id"}),
    "schema metadata on unknown branch": (
        BRANCH_NOT_FOUND,
        SCHEMA_METADATA,
        {"metadata": {"a": "b"}, "branch": "nope"},
    ),
    "no field metadata": (INVALID_INPUT, FIELD_METADATA, {"updates": []}),
    "field metadata twice": (
        INVALID_INPUT,
        FIELD_METADATA,
        {"updates": [{"path": "id", "metadata": {}}] * 2},
    ),
    "field metadata of unknown": (
        COLUMN_NOT_FOUND,
        FIELD_METADATA,
        {"updates": [{"path": "id", "metadata": {"a": "b"}}, {"path": "nope", "metadata": {"a": "b"}}]},
    ),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_invalid_column_request_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, case: str
) -> None:
    code, operation, fields = BAD_REQUESTS[case]
    with refused_unchanged(place, code):
        call(catalog, operation, **fields)


def test_column_with_nulls_cannot_be_made_non_nullable(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    call(catalog, ADD, new_columns=[{"name": "none", "expression": "nullif(id, 0)"}])
    with refused_unchanged(place, INVALID_INPUT):
        call(catalog, ALTER, alterations=[{"path": "none", "nullable": False}])
    assert opened(catalog).count_rows() == COUNT


TYPES = [
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.string(),
    pa.large_string(),
    pa.large_binary(),
    pa.date32(),
    pa.decimal128(10, 3),
    pa.decimal256(40, 2),
    pa.binary(4),
    pa.list_(pa.float32(), 8),
    pa.list_(pa.field("item", pa.string(), nullable=False)),
    pa.large_list(pa.int64()),
    pa.struct([("a", pa.int32()), ("b", pa.list_(pa.bool_()))]),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_data_types_returned_by_describe_table_are_parsed(data_type: pa.DataType) -> None:
    (field,) = schema_to_json(pa.schema([("x", data_type)])).fields
    assert parse_data_type(field.type.model_dump(exclude_none=True)) == data_type


def test_time_types_require_a_valid_unit() -> None:
    assert parse_data_type({"type": "timestamp", "unit": "us", "timezone": "UTC"}) == pa.timestamp(
        "us", "UTC"
    )
    assert parse_data_type({"type": "time32", "unit": "s"}) == pa.time32("s")
    assert parse_data_type({"type": "duration", "unit": "ns"}) == pa.duration("ns")
    for bad in (
        {"type": "timestamp"},
        {"type": "time32", "unit": "ns"},
        {"type": "list"},
        {},
        {"type": "fixed_size_binary", "length": -1},
    ):
        with pytest.raises(InvalidInputError):
            parse_data_type(bad)


@pytest.mark.parametrize(
    "bad", [{}, {"type": "magic"}, {"type": "list"}, {"type": "fixed_size_binary", "length": -1}], ids=str
)
def test_invalid_data_type_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        parse_data_type(bad)
