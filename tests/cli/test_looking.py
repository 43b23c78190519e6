"""ls, show, status, versions."""

from __future__ import annotations

import pyarrow as pa
from tests.support.cli import ROWS, CommandLake
from tests.support.roots import ipc


def test_ls_lists_the_namespaces_and_tables_of_the_root(lake: CommandLake) -> None:
    lines = [line.split() for line in lake.ok("ls").splitlines()]
    assert lines == [["NAME", "KIND"], ["prod", "namespace"], ["readings", "table"]]


def test_ls_json_lists_the_same_entries_as_the_text(lake: CommandLake) -> None:
    found = lake.json("ls")
    assert found["namespaces"] == [{"namespace": "prod"}]
    assert found["tables"] == [{"table": "readings"}]
    assert found["root"] == str(lake.folder)


def test_ls_of_a_namespace_prints_full_ids_that_commands_accept(lake: CommandLake) -> None:
    assert lake.json("ls", "prod")["tables"] == [{"table": "prod.users"}]
    (odd,) = lake.json("ls", "prod.raw")["tables"]
    assert odd["table"] == "prod.raw.`odd.name`"
    assert lake.json("show", odd["table"])["rows"] == 3


def test_ls_recursive_can_be_limited_to_tables_or_namespaces(lake: CommandLake) -> None:
    found = lake.json("ls", "-r", "--tables")
    assert [each["table"] for each in found["tables"]] == ["prod.raw.`odd.name`", "prod.users", "readings"]
    assert found["namespaces"] == []
    assert [each["namespace"] for each in lake.json("ls", "-r", "--namespaces")["namespaces"]] == [
        "prod",
        "prod.raw",
    ]


def test_ls_tree_prints_tables_below_their_namespaces(lake: CommandLake) -> None:
    text = lake.ok("ls", "--tree", "--sizes")
    assert text.index("prod/") < text.index("raw/") < text.index("odd.name  (3 rows") < text.index("users")
    assert text.splitlines()[-1].startswith("└── readings  (3 rows")


def test_ls_sizes_counts_rows_bytes_and_fragments(lake: CommandLake) -> None:
    (users,) = lake.json("ls", "prod", "--sizes", "--tables")["tables"]
    assert users["rows"] == 6
    assert users["fragments"] == 2
    assert users["version"] == 3  # properties make a version of their own
    assert users["bytes"] > 100
    assert users["error"] is None


def test_ls_sizes_reports_an_unreadable_table(lake: CommandLake) -> None:
    for each in (lake.folder / "readings.lance" / "_versions").iterdir():
        each.write_bytes(b"damaged")
    found = lake.json("ls", "--sizes")
    assert found["tables"][0]["error"]
    assert "unreadable" in lake.ok("ls", "--sizes")


def test_ls_dropped_prints_when_a_table_becomes_purgeable(lake: CommandLake) -> None:
    (gone,) = lake.json("ls", "--dropped")["dropped"]
    assert gone["table"] == "gone"
    assert gone["deleted_at"] < gone["purge_after"]
    assert gone["deletion_id"] in lake.ok("ls", "--dropped")
    assert lake.json("ls", "prod", "--dropped")["dropped"] == []


def test_ls_of_an_empty_root_says_so(lake: CommandLake) -> None:
    (lake.folder / "empty").mkdir()
    empty = CommandLake(str(lake.folder / "empty"))
    assert "nothing found in" in empty.ok("ls")
    assert empty.ok("ls", "--dropped") == "no dropped tables\n"


def test_ls_of_an_unknown_namespace_is_not_found(lake: CommandLake) -> None:
    ran = lake.run("ls", "prod.nothing")
    assert ran.exit_code == 3
    assert "prod.nothing" in ran.err


def test_show_prints_columns_versions_tags_and_properties(lake: CommandLake) -> None:
    found = lake.json("show", "prod.users")
    assert found["columns"] == [
        {"name": "id", "type": "int64", "nullable": True},
        {"name": "name", "type": "utf8", "nullable": True},
    ]
    assert found["tags"] == {"first": 1}
    assert found["properties"] == {"team": "a"}
    assert (found["version"], found["rows"], found["protected"]) == (3, 6, False)
    text = lake.ok("show", "prod.users")
    assert "tag first" in text
    assert "int64" in text


def test_show_of_a_namespace_prints_properties_and_counts(lake: CommandLake) -> None:
    assert lake.json("show", "prod") == {
        "namespace": "prod",
        "properties": {"owner": "ops"},
        "protected": False,
        "namespaces": 1,
        "tables": 1,
    }
    assert "1 namespace, 1 table" in lake.ok("show", "prod")


def test_show_of_a_declared_table_says_it_has_no_rows(lake: CommandLake) -> None:
    lake.catalog.declare_table({"id": ["later"]})
    assert lake.json("show", "later")["declared"] is True
    assert "declared, no data yet" in lake.ok("show", "later")


def test_show_of_a_dropped_table_says_how_to_undrop_it(lake: CommandLake) -> None:
    ran = lake.run("show", "gone")
    assert ran.exit_code == 3
    assert ran.err.splitlines()[1] == " hint: to restore it: relance undrop gone"


def test_status_distinguishes_existing_dropped_and_missing_tables(lake: CommandLake) -> None:
    assert lake.json("status", "readings") == {"table": "readings", "status": "exists"}
    assert lake.json("status", "gone")["status"] == "dropped"
    assert "relance undrop gone" in lake.ok("status", "gone")
    missing = lake.run("status", "nothing", "--json")
    assert missing.exit_code == 3
    assert missing.document["result"] == {"table": "nothing", "status": "not found"}
    assert missing.document["error"]["code"] == 4


def test_versions_are_listed_newest_first_with_their_tags(lake: CommandLake) -> None:
    found = lake.json("versions", "prod.users")["versions"]
    assert [(each["version"], each["tags"]) for each in found] == [(3, []), (2, []), (1, ["first"])]
    assert [each["version"] for each in lake.json("versions", "prod.users", "--limit", "1")["versions"]] == [
        3
    ]
    assert "first" in lake.ok("versions", "prod.users")


def test_control_characters_in_data_do_not_reach_the_terminal(lake: CommandLake) -> None:
    lake.catalog.create_table({"id": ["bad"], "properties": {"x": "\x1b[31mred\x1b[0m"}}, ipc(ROWS))
    text = lake.ok("show", "bad")
    assert "\x1b" not in text
    assert "\\u{1B}[31mred" in text


def test_show_prints_column_types_in_readable_form(lake: CommandLake) -> None:
    prices = pa.table({"price": pa.array([1]).cast(pa.decimal128(30, 2))})
    lake.catalog.create_table({"id": ["prices"]}, ipc(prices))
    (column,) = lake.json("show", "prices")["columns"]
    assert column["type"] == "decimal128(30, 2)"
