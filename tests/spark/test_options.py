"""The options of the data source: addresses, reads, writes and streams. No Spark is started."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from relance.errors import InvalidInputError
from relance.identifiers import format_id, parse_id
from relance.spark.address import CatalogAddress, PathAddress, parse_address
from relance.spark.options import (
    OPTIONS,
    Changes,
    Use,
    parse_read_options,
    parse_stream_options,
    parse_write_options,
)

HERE = {"path": "users", "root": "/lake"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("users", ("users",)),
        ("prod.analytics.users", ("prod", "analytics", "users")),
        ("prod.`my.table`", ("prod", "my.table")),
        ("`a``b`.c", ("a`b", "c")),
        ("prod$my.table", ("prod", "my.table")),
        ('["prod", "my.table"]', ("prod", "my.table")),
        ("größe.表", ("größe", "表")),
    ],
)
def test_id_text_is_parsed_into_parts(text: str, parts: tuple[str, ...]) -> None:
    assert parse_id(text) == parts


@pytest.mark.parametrize("text", ["a..b", ".a", "a.", "`a", "`a`b", "a`b`", "``", "a$$b", "[1]", "[", "[]"])
def test_malformed_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="table id"):
        parse_id(text)


@pytest.mark.parametrize("parts", [("a",), ("a.b", "c"), ("a`b", "with space"), ("[x", "ü")])
def test_formatted_id_parses_back_to_its_parts(parts: tuple[str, ...]) -> None:
    assert parse_id(format_id(parts)) == parts


def test_id_requires_a_root_and_a_path_refuses_one() -> None:
    with pytest.raises(InvalidInputError, match="'root'"):
        parse_address("users", {})
    with pytest.raises(InvalidInputError, match="leave out option 'root'"):
        parse_address("/lake/users.lance", {"root": "/lake"})
    with pytest.raises(InvalidInputError, match="no table given"):
        parse_address(None, {"root": "/lake"})


def test_path_of_a_table_directory_becomes_a_catalog_address() -> None:
    address = parse_address("s3://bucket/lake/users.lance/", {"storage.region": "eu"})
    assert address == CatalogAddress(
        ("users",),
        (("manifest_enabled", "false"), ("root", "s3://bucket/lake"), ("storage.region", "eu")),
    )


def test_other_paths_are_opened_directly() -> None:
    assert parse_address("s3://bucket/data", {"storage.region": "eu"}) == PathAddress(
        "s3://bucket/data", (("region", "eu"),)
    )
    assert parse_address("./data", {}) == PathAddress(str(Path.cwd() / "data"), ())
    with pytest.raises(InvalidInputError, match="drop_ttl"):
        parse_address("./data", {"drop_ttl": "7d"})


def test_storage_options_are_hidden_from_every_repr() -> None:
    secret = {"storage.aws_secret_access_key": "hunter2"}
    for path, root in (("users", {"root": "/lake"}), ("/a/b", {}), ("/a/b.lance", {})):
        assert "hunter2" not in repr(parse_read_options({"path": path, **root, **secret}))


def test_read_options_are_parsed() -> None:
    options = parse_read_options(
        {
            **HERE,
            "version": "3",
            "columns": '["a,b", "größe"]',
            "filter": "x > 1",
            "limit": "0",
            "with_row_id": "true",
            "batch_size": "10",
            "split_bytes": "64 MB",
        }
    )
    assert (options.version, options.columns, options.limit) == (3, ("a,b", "größe"), 0)
    assert (options.filter, options.with_row_id, options.with_row_address) == ("x > 1", True, False)
    assert (options.batch_size, options.split_bytes) == (10, 64_000_000)
    assert parse_read_options({**HERE, "columns": "a, b"}).columns == ("a", "b")
    assert parse_read_options({**HERE, "columns": "[]"}).columns == ()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01 12:00:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T12:00:00.5+02:00", datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
def test_timestamp_without_a_zone_is_utc(text: str, moment: datetime) -> None:
    assert parse_read_options({**HERE, "timestamp": text}).timestamp == moment


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", "0"),
        ("version", "-1"),
        ("version", "latest"),
        ("version", "9" * 30),
        ("tag", " "),
        ("timestamp", "yesterday"),
        ("columns", "a,,b"),
        ("columns", "a,a"),
        ("columns", "[1]"),
        ("columns", "[a"),
        ("limit", "1.5"),
        ("with_row_id", "maybe"),
        ("batch_size", "0"),
        ("split_rows", "0"),
        ("split_bytes", "64 apples"),
        ("split_bytes", "67108864"),
        ("split_bytes", "0MB"),
        ("filter", ""),
    ],
)
def test_invalid_read_option_is_refused_and_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}'"):
        parse_read_options({**HERE, name: value})


def test_version_tag_and_timestamp_exclude_each_other() -> None:
    with pytest.raises(InvalidInputError, match=r"'version' and 'tag'"):
        parse_read_options({**HERE, "version": "1", "tag": "t"})
    with pytest.raises(InvalidInputError, match=r"'tag' and 'timestamp'"):
        parse_read_options({**HERE, "tag": "t", "timestamp": "2026-01-01"})
    with pytest.raises(InvalidInputError, match="branch"):
        parse_read_options({**HERE, "tag": "t", "branch": "b"})


def test_unknown_option_is_refused_and_a_similar_one_suggested() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'columns'"):
        parse_read_options({**HERE, "colums": "a"})
    with pytest.raises(InvalidInputError, match="known options: "):
        parse_read_options({**HERE, "qqqqqq": "a"})
    with pytest.raises(InvalidInputError, match="one table at a time"):
        parse_read_options({"paths": '["a", "b"]'})


def test_option_for_another_kind_of_operation_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'job' does not apply to a batch read"):
        parse_read_options({**HERE, "job": "x"})
    with pytest.raises(InvalidInputError, match="'starting_version' does not apply to a batch read"):
        parse_read_options({**HERE, "starting_version": "1"})
    with pytest.raises(InvalidInputError, match="'version' does not apply to a write"):
        parse_write_options({**HERE, "version": "1"})
    with pytest.raises(InvalidInputError, match="'limit' does not apply to a streaming read"):
        parse_stream_options({**HERE, "limit": "1"})


def test_schema_inference_accepts_batch_and_streaming_options() -> None:
    options = parse_read_options({**HERE, "starting_version": "1", "limit": "1"}, use=Use.SCHEMA)
    assert options.limit == 1


def test_write_options_are_parsed() -> None:
    options = parse_write_options(
        {
            **HERE,
            "if_exists": "error",
            "create_namespaces": "true",
            "vector_size.embedding": "128",
            "vectors": '{"Other": 3}',
            "max_bytes_per_file": "1gb",
            "properties": '{"owner": "me"}',
            "job": "token",
        }
    )
    assert options.fail_if_exists
    assert options.create_namespaces
    assert (options.vector_size("Embedding"), options.vector_size("Other"), options.vector_size("x")) == (
        128,
        3,
        None,
    )
    assert (options.max_bytes_per_file, options.stable_row_ids) == (1_000_000_000, None)
    assert (options.properties, options.job) == ({"owner": "me"}, "token")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("if_exists", "append"),
        ("vector_size.x", "0"),
        ("vectors", '{"x": 0}'),
        ("vectors", "[3]"),
        ("properties", '{"x": 1}'),
        ("properties", "x"),
        ("max_rows_per_file", "0"),
    ],
)
def test_invalid_write_option_is_refused_and_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}'"):
        parse_write_options({**HERE, name: value})


def test_stream_options_are_parsed() -> None:
    options = parse_stream_options(
        {
            **HERE,
            "starting_version": "0",
            "changes": "rows",
            "skip_changes": "true",
            "checkpointlocation": "c",
        }
    )
    assert (options.starting_version, options.changes, options.skip_changes) == (0, Changes.ROWS, True)
    assert parse_stream_options(HERE).changes is Changes.APPENDS
    with pytest.raises(InvalidInputError, match="both set the start"):
        parse_stream_options({**HERE, "starting_version": "1", "starting_timestamp": "2026-01-01"})


def test_streaming_write_accepts_options_that_spark_adds() -> None:
    options = parse_write_options({**HERE, "checkpointlocation": "c"}, use=Use.STREAM_WRITE)
    assert options.job is None
    with pytest.raises(InvalidInputError, match="'checkpointlocation' does not apply to a write"):
        parse_write_options({**HERE, "checkpointlocation": "c"})


def test_every_option_has_a_description() -> None:
    assert all(meaning.endswith(".") for meaning in OPTIONS.values())
