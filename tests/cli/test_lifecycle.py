"""create-namespace, rename, drop, undrop, purge, register, deregister, protect."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.support.cli import ROWS, CommandLake
from tests.support.roots import ipc


def _tables(lake: CommandLake) -> set[str]:
    return {each["table"] for each in lake.json("ls", "-r")["tables"]}


def test_create_namespace_sets_properties_and_creates_parents(lake: CommandLake) -> None:
    assert lake.ok("create-namespace", "a.b.c", "-p", "--property", "k=v=w") == "created namespace a.b.c\n"
    assert lake.json("show", "a.b.c")["properties"] == {"k": "v=w"}
    again = lake.run("create-namespace", "a.b.c", "--json")
    assert again.exit_code == 4
    assert again.document["error"]["type"] == "NamespaceAlreadyExistsError"
    assert lake.json("create-namespace", "a.b.c", "--exist-ok")["namespace"] == "a.b.c"
    assert lake.ok("create-namespace", "a.b.c", "--exist-ok") == "namespace a.b.c exists\n"


def test_create_namespace_property_without_a_value_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("create-namespace", "a", "--property", "k").exit_code == 2
    assert lake.run("show", "a").exit_code == 3


def test_rename_moves_a_table_to_another_namespace_and_back(lake: CommandLake) -> None:
    assert lake.ok("rename", "readings", "prod.readings") == "renamed readings to prod.readings\n"
    assert lake.json("rename", "prod.readings", "readings") == {
        "table": "readings",
        "before": "prod.readings",
    }
    assert "readings" in _tables(lake)


def test_rename_to_a_taken_name_is_a_conflict(lake: CommandLake) -> None:
    assert lake.run("rename", "readings", "prod.users").exit_code == 4


def test_drop_hides_tables_and_undrop_restores_them_under_any_name(lake: CommandLake) -> None:
    text = lake.ok("drop", "readings", "prod.users")
    assert "relance undrop prod.users" in text
    assert _tables(lake) == {"prod.raw.`odd.name`"}
    assert lake.ok("undrop", "readings") == "restored readings\n"
    assert lake.json("undrop", "prod.users", "--as", "prod.people") == {"restored": ["prod.people"]}
    assert _tables(lake) == {"prod.raw.`odd.name`", "readings", "prod.people"}


def test_drop_of_several_tables_continues_after_a_failure(lake: CommandLake) -> None:
    ran = lake.run("drop", "nothing", "readings", "--json")
    assert ran.exit_code == 3
    failed, dropped = ran.document["result"]["done"]
    assert failed["error"]["type"] == "TableNotFoundError"
    assert dropped["error"] is None
    assert "readings" not in _tables(lake)


def test_drop_with_ttl_sets_the_retention_period(lake: CommandLake) -> None:
    (done,) = lake.json("drop", "readings", "--ttl", "30d")["done"]
    (entry,) = [each for each in lake.json("ls", "--dropped")["dropped"] if each["table"] == "readings"]
    kept = datetime.fromisoformat(entry["purge_after"]) - datetime.fromisoformat(entry["deleted_at"])
    assert kept == timedelta(days=30)
    # The drop tells the time by this machine's clock, the listing by the store's.
    apart = datetime.fromisoformat(done["purge_after"]) - datetime.fromisoformat(entry["purge_after"])
    assert abs(apart) < timedelta(seconds=5)


def test_drop_of_a_full_namespace_requires_cascade(lake: CommandLake) -> None:
    full = lake.run("drop", "--namespace", "prod")
    assert full.exit_code == 4
    assert "--cascade" in full.err
    assert "relance undrop --namespace prod" in lake.ok("drop", "--namespace", "prod", "--cascade")
    assert _tables(lake) == {"readings"}
    back = lake.json("undrop", "--namespace", "prod")["restored"]
    assert set(back) == {"prod", "prod.raw", "prod.users", "prod.raw.`odd.name`"}


def test_drop_of_a_namespace_without_the_option_suggests_the_command(lake: CommandLake) -> None:
    ran = lake.run("drop", "prod")
    assert ran.exit_code == 3
    assert ran.err.splitlines() == [
        "error: prod is a namespace, not a table",
        " hint: to drop it: relance drop --namespace prod",
    ]


def test_protect_of_a_missing_table_is_not_found(lake: CommandLake) -> None:
    assert lake.run("protect", "nothing").exit_code == 3


def test_cascade_without_namespace_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("drop", "prod", "--cascade").exit_code == 2


def test_drop_of_a_protected_table_is_refused(lake: CommandLake) -> None:
    assert lake.ok("protect", "prod.users") == "prod.users is protected\n"
    assert lake.json("show", "prod.users")["protected"] is True
    assert lake.run("drop", "prod.users").exit_code == 4
    (done,) = lake.json("unprotect", "prod.users")["done"]
    assert done["protected"] is False
    assert lake.run("drop", "prod.users").exit_code == 0


def test_drop_with_purge_requires_confirmation(lake: CommandLake) -> None:
    refused = lake.run("drop", "readings", "--purge")
    assert refused.exit_code == 5
    assert "readings" in _tables(lake)
    (done,) = lake.json("drop", "readings", "--purge", "--yes")["done"]
    assert done["purged"] is True
    assert not (lake.folder / "readings.lance").exists()


def test_purge_before_the_retention_period_ends_is_refused(lake: CommandLake) -> None:
    assert lake.ok("purge") == "nothing to purge: no dropped table has expired\n"
    early = lake.run("purge", "gone", "--yes")
    assert early.exit_code == 4
    assert early.out == ""
    assert "--force" in early.err
    assert (lake.folder / "gone.lance").exists()


def test_purge_dry_run_lists_tables_and_deletes_nothing(lake: CommandLake) -> None:
    (entry,) = lake.json("purge", "gone", "--force", "--dry-run")["tables"]
    assert entry["change"]["files"] > 0
    assert "gone" in lake.ok("purge", "gone", "--force", "--dry-run")
    assert (lake.folder / "gone.lance").exists()


def test_purge_without_a_terminal_needs_yes(lake: CommandLake) -> None:
    refused = lake.run("purge", "gone", "--force", "--json")
    assert refused.exit_code == 5
    assert refused.document["error"]["type"] == "Refused"
    assert (lake.folder / "gone.lance").exists()
    lake.ok("purge", "gone", "--force", "--yes")
    assert not (lake.folder / "gone.lance").exists()


def test_purge_without_names_purges_only_expired_tables(lake: CommandLake) -> None:
    lake.ok("drop", "prod.users", "--ttl", "0")
    found = lake.json("purge", "--yes")["tables"]
    assert [each["table"] for each in found] == []  # stores round times: it waits a minute more
    lake.ok("undrop", "prod.users")
    lake.drop_long_ago("prod", "users")
    purged = lake.json("purge", "--yes")["tables"]
    assert [each["table"] for each in purged] == ["prod.users"]
    assert lake.run("undrop", "prod.users").exit_code == 3


def test_purge_by_deletion_id_removes_exactly_that_drop(lake: CommandLake) -> None:
    lake.ok("drop", "prod.users")
    lake.catalog.create_table({"id": ["prod", "other"]}, ipc(ROWS))
    (first,) = [each for each in lake.json("ls", "--dropped")["dropped"] if each["table"] == "prod.users"]
    unknown = lake.run("purge", "prod.users", "--deletion-id", "nothing")
    assert unknown.exit_code == 3
    done = lake.json("purge", "prod.users", "--deletion-id", first["deletion_id"], "--force", "--yes")
    assert done["files"] > 0
    assert lake.run("status", "prod.users").exit_code == 3


def test_purge_with_force_but_no_names_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("purge", "--force", "--yes").exit_code == 2


def test_deregistered_tables_can_be_registered_again(lake: CommandLake) -> None:
    text = lake.ok("deregister", "readings")
    assert "relance register readings readings.lance" in text
    assert "readings" not in _tables(lake)
    assert lake.json("register", "readings", "readings.lance")["table"] == "readings"
    assert "readings" in _tables(lake)
    hidden = lake.json("deregister", "prod.users")["location"]
    assert "prod.people" in lake.ok("register", "prod.people", hidden.rpartition("/")[2])


def test_register_of_a_location_outside_the_root_is_refused(lake: CommandLake) -> None:
    assert lake.run("register", "x", "/somewhere/else.lance").exit_code == 2
