"""Soft delete for the directory namespace, sentence by sentence.

`lake` is a root in each of the three modes; `home` one in the modes in which root tables lie in
`<name>.lance`, where `literal` is another client on the same root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace.errors import LanceNamespaceError
from lance_namespace.errors import TableNotFoundError as SpecTableNotFoundError
from tests.seeds.clients import WEEK, DirectoryClient
from tests.seeds.sentences import Page, deviates, holds
from tests.support.calls import (
    assert_gone,
    assert_whole,
    declare,
    deregister,
    drop,
    make,
    register,
    rows,
    tables,
    write,
)
from tests.support.cli import run
from tests.support.codes import INVALID_TABLE_STATE, TABLE_EXISTS, TABLE_NOT_FOUND, UNSUPPORTED
from tests.support.lakes import QUIET, Lake
from tests.support.modes import COMPATIBILITY, MODES, V1
from tests.support.mortal_clients import Death, interrupt, make_mortal
from tests.support.profiles import MINIO
from tests.support.roots import S3Place, numbers, refused, snapshot, stream_of
from tests.support.servers import RequestCounter, S3Server, careless, count_requests

from relance import DirectoryNamespace, Exists, NotFound, SoftDeleted
from relance.clock import SystemClock, to_millis
from relance.errors import ConcurrentModificationError, OutcomeUnknownError, RelanceError, TableNotFoundError
from relance.testing.clock import ManualClock

MINUTE = timedelta(minutes=1)
AFTER_LATE = timedelta(minutes=51)
"""So long after a drop ended the next one can be undone by deleting its marker."""
HOME_MODES = {"V1": V1, "compatibility": COMPATIBILITY}
"""Those in which a root table lies in `<name>.lance`."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture(params=MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    return Lake(str(tmp_path / "lake"), MODES[request.param], settings=QUIET, manual_clock=clock)


@pytest.fixture(params=HOME_MODES)
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Lake:
    return Lake(str(tmp_path / "lake"), HOME_MODES[request.param], settings=QUIET, manual_clock=clock)


@dataclass(frozen=True, slots=True)
class CountedLake:
    """A root on S3 of which every request is counted."""

    lake: Lake
    counter: RequestCounter

    def requests_of(self, act: Callable[[], Any]) -> list[str]:
        """Return the requests of a call, without what a catalog asks when it is new."""
        act()
        self.counter.reset()
        act()
        return [f"{method} {path}" for method, path in self.counter.requests]


@pytest.fixture(params=HOME_MODES)
def counted(request: pytest.FixtureRequest, moto_server: S3Server, moto_bucket: str) -> Iterator[CountedLake]:
    with count_requests(moto_server) as counter:
        options = counter.server.storage_options()
        yield CountedLake(
            Lake(f"s3://{moto_bucket}/lake", HOME_MODES[request.param], options, QUIET), counter
        )


@pytest.fixture
def literal(home: Lake) -> DirectoryClient:
    return DirectoryClient(home.folder)


def _location(lake: Lake, name: str = "t") -> Path:
    return Path(lake.location(name))


def _files_below(folder: Path) -> dict[str, bytes]:
    return {key: body for key, body in snapshot(folder).items() if not key.endswith("/")}


# Summary


@holds(
    Page.SOFT_DELETE,
    "separate a logical DROP (mark, reversible) from a physical PURGE (reclaim storage), with a TTL "
    "between them.",
)
def test_drop_only_marks_and_purge_reclaims_storage_after_a_ttl(lake: Lake, clock: ManualClock) -> None:
    make(lake.catalog, "t", 1)
    location = _location(lake)
    before = _files_below(location)
    drop(lake.catalog, "t")
    assert_gone(lake.catalog, "t")
    assert _files_below(location) == before
    assert lake.catalog.purge_tables() == []
    with refused(INVALID_TABLE_STATE):
        lake.catalog.purge_table(["t"])
    assert _files_below(location) == before
    clock.advance(WEEK + MINUTE)
    assert [result.id for result in lake.catalog.purge_tables() if result.purged] == [("t",)]
    assert not location.exists()


@holds(Page.SOFT_DELETE, "This gives a grace window so concurrent readers don't fail when a table is dropped")
def test_reader_that_opened_the_table_before_the_drop_reads_on(lake: Lake) -> None:
    make(lake.catalog, "t", 1, 2)
    reader = lance.dataset(namespace_client=lake.catalog, table_id=["t"])
    drop(lake.catalog, "t")
    assert reader.to_table()["x"].to_pylist() == [1, 2]
    assert reader.count_rows("x > 1") == 1
    assert reader.take([1])["x"].to_pylist() == [2]


@holds(Page.SOFT_DELETE, "lets a dropped table be restored before its TTL")
def test_dropped_table_is_restored_until_its_ttl_ends(lake: Lake, clock: ManualClock) -> None:
    make(lake.catalog, "t", 1)
    drop(lake.catalog, "t", ttl_ms="2h")
    clock.advance(timedelta(hours=2) - MINUTE)
    assert lake.catalog.purge_tables() == []
    assert lake.catalog.undrop_table(["t"]) == Exists(("t",))
    assert_whole(lake.catalog, "t", 1)


# Motivation


@holds(
    Page.SOFT_DELETE,
    "The TTL grace window is precisely what prevents in-flight reads from erroring",
)
def test_query_in_flight_no_longer_sees_files_vanish_mid_read(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    for value in (2, 3):
        lake.catalog.insert_into_table({"id": ["t"]}, stream_of(value))
    batches = lance.dataset(namespace_client=lake.catalog, table_id=["t"]).to_batches(batch_readahead=1)
    read = [next(batches)]
    drop(lake.catalog, "t")
    read += list(batches)
    assert sorted(value for batch in read for value in batch["x"].to_pylist()) == [1, 2, 3]


@holds(
    Page.SOFT_DELETE,
    "deregister_table writes a nested .lance-deregistered marker and check_table_status reads it",
)
def test_deregister_writes_a_nested_marker_that_alone_hides_the_table(home: Lake) -> None:
    make(home.catalog, "t", 1)
    deregister(home.catalog, "t")
    nested = home.folder / "t.lance/.lance-deregistered"
    assert nested.is_file()
    assert_gone(home.catalog, "t")
    assert home.catalog.table_status(["t"]) == NotFound(("t",))
    nested.unlink()
    assert_whole(home.catalog, "t", 1)


@deviates(
    Page.SOFT_DELETE,
    "it's a dead end — one-way (no restore; register_table is unsupported in directory mode), no purge, no "
    "TTL, and drop_table ignores it entirely.",
    because="the page names this as a defect: register_table restores a deregistered table in every mode, "
    "and drop_table drops it like any other",
)
def test_deregistered_table_can_be_registered_again_and_dropped(home: Lake) -> None:
    make(home.catalog, "t", 1)
    deregister(home.catalog, "t")
    register(home.catalog, "t", "t.lance")
    assert_whole(home.catalog, "t", 1)
    deregister(home.catalog, "t")
    drop(home.catalog, "t")
    assert isinstance(home.catalog.table_status(["t"]), SoftDeleted)
    assert home.catalog.undrop_table(["t"]) == NotFound(("t",)), "it is deregistered, as before"
    drop(home.catalog, "t")
    assert home.catalog.purge_table(["t"], force=True).purged
    make(home.catalog, "t", 2)
    assert_whole(home.catalog, "t", 2)


# 1. Move the delete marker to the namespace root


@holds(
    Page.SOFT_DELETE,
    "Replace the nested marker (<root>/<name>.lance/.lance-deregistered) with a root-level sibling, e.g. "
    "<root>/<name>.deleted",
)
def test_marker_is_a_sibling_of_the_table_directory_while_the_table_is_dropped(
    home: Lake, literal: DirectoryClient
) -> None:
    make(home.catalog, "t", 1)
    before = set(home.table_files())
    drop(home.catalog, "t")
    assert "t.deleted" in set(home.table_files()) - before
    assert {key for key in set(home.table_files()) - before if key.startswith("t.lance/")} == set()
    assert literal.tables() == []
    with pytest.raises(FileNotFoundError):
        literal.rows("t")
    home.catalog.undrop_table(["t"])
    assert not literal.is_dropped("t")
    assert literal.rows("t") == [{"x": 1}]


@holds(Page.SOFT_DELETE, 'whose body is small JSON: { "deleted_at_ms": ..., "ttl_ms": ... }.')
def test_marker_body_is_small_json_with_the_time_and_the_ttl(
    home: Lake, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(home.catalog, "t", 1)
    drop(home.catalog, "t")
    body = literal.marker("t").read_bytes()
    assert len(body) < 1000
    fields = json.loads(body)
    assert isinstance(fields["deleted_at_ms"], int)
    assert isinstance(fields["ttl_ms"], int)
    clock.advance(MINUTE)
    literal.undrop("t")
    literal.drop("t", timedelta(hours=3))
    status = home.catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted), "a body with these two fields alone is a marker"
    assert status.purge_after == status.deleted_at + timedelta(hours=3)


@holds(
    Page.SOFT_DELETE,
    'read_dir is a single non-recursive listing that returns child "directories" (common prefixes) and '
    "direct child files",
)
@holds(
    Page.SOFT_DELETE,
    "one read_dir(root) now reveals both the <name>.lance table dirs and the <name>.deleted markers.",
)
def test_one_listing_of_the_root_shows_directories_and_markers(counted: CountedLake) -> None:
    catalog = counted.lake.catalog
    for name in ("a", "b"):
        make(catalog, name, 1)
    drop(catalog, "b")
    bucket, _, prefix = counted.lake.uri.removeprefix("s3://").partition("/")
    page = counted.counter.server.client().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/", Delimiter="/")
    directories = {each["Prefix"] for each in page["CommonPrefixes"]}
    assert {f"{prefix}/a.lance/", f"{prefix}/b.lance/"} <= directories
    files = {each["Key"] for each in page["Contents"]}
    assert f"{prefix}/b.deleted" in files
    assert f"{prefix}/a.deleted" not in files
    asked = [each for each in counted.requests_of(lambda: tables(catalog)) if "__manifest" not in each]
    assert len(asked) == 1
    assert "list-type=2" in asked[0]
    assert tables(catalog) == ["a"]


@holds(
    Page.SOFT_DELETE,
    "by relocating the delete marker — keeps list_tables O(1) at scale instead of today's O(N) per-table "
    "probing.",
)
@holds(
    Page.SOFT_DELETE,
    "list_tables filters deleted names in-memory from that single listing → O(1) requests, eliminating the "
    "per-table probe.",
)
def test_list_tables_asks_as_much_for_many_tables_and_markers_as_for_few(counted: CountedLake) -> None:
    catalog = counted.lake.catalog
    make(catalog, "t0", 0)
    few = counted.requests_of(lambda: tables(catalog))
    for number in range(1, 7):
        make(catalog, f"t{number}", number)
    for number in range(3):
        drop(catalog, f"t{number}")
    many = counted.requests_of(lambda: tables(catalog))
    assert len(many) == len(few)
    # With a manifest, one request more asks whether there is a newer version of it.
    assert len(many) == (1 if counted.lake.mode == V1 else 2), many
    assert tables(catalog) == ["t3", "t4", "t5", "t6"]


# 2. DROP vs PURGE in the namespace API


@holds(Page.SOFT_DELETE, "drop_table becomes soft: atomically create the <name>.deleted marker")
def test_of_concurrent_drops_exactly_one_creates_the_marker(home: Lake, literal: DirectoryClient) -> None:
    clients = [home.open(clock=SystemClock()) for _ in range(4)]

    def attempt(client: DirectoryNamespace, name: str) -> bool:
        try:
            drop(client, name)
        except (TableNotFoundError, ConcurrentModificationError):
            return False
        return True

    with ThreadPoolExecutor(len(clients)) as threads:
        for name in ("t0", "t1", "t2"):
            make(home.catalog, name, 1)
            assert sum(threads.map(attempt, clients, [name] * len(clients))) == 1
            assert literal.is_dropped(name)
    with pytest.raises(FileExistsError):
        literal.drop("t0")
    make(home.catalog, "t3", 1)
    literal.drop("t3")
    with refused(TABLE_NOT_FOUND):
        drop(home.catalog, "t3")


@holds(Page.SOFT_DELETE, "(stamped with deleted_at/ttl)")
def test_marker_is_stamped_with_the_time_of_the_drop_and_its_ttl(
    home: Lake, literal: DirectoryClient, clock: ManualClock
) -> None:
    for name, context, ttl in (("a", {}, WEEK), ("b", {"ttl_ms": "90m"}, timedelta(minutes=90))):
        make(home.catalog, name, 1)
        clock.advance(MINUTE)
        drop(home.catalog, name, **context)
        fields = json.loads(literal.marker(name).read_text())
        assert fields["deleted_at_ms"] == to_millis(clock.now())
        assert fields["ttl_ms"] == ttl // timedelta(milliseconds=1)
    assert literal.purgable(clock.now() + timedelta(minutes=90)) == ["b"]
    assert literal.purgable(clock.now() + WEEK) == ["a", "b"]


@holds(Page.SOFT_DELETE, "leave data intact.")
def test_drop_leaves_every_file_of_the_table_as_it_was(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    lake.catalog.insert_into_table({"id": ["t"]}, stream_of(2))
    location = _location(lake)
    before = _files_below(location)
    drop(lake.catalog, "t")
    assert _files_below(location) == before


@holds(Page.SOFT_DELETE, "Reversible.")
def test_every_client_can_undo_the_drop_of_every_other(
    home: Lake, literal: DirectoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in home.mode.items():
        monkeypatch.setenv(f"RELANCE_{setting.upper()}", value)

    def command(verb: str) -> Callable[[str], Any]:
        def act(name: str) -> None:
            ran = run("--root", home.uri, verb, name)
            assert ran.exit_code == 0, ran

        return act

    droppers: list[Callable[[str], Any]] = [
        lambda name: drop(home.catalog, name),
        literal.drop,
        command("drop"),
    ]
    undroppers: list[Callable[[str], Any]] = [
        lambda name: home.catalog.undrop_table([name]),
        literal.undrop,
        command("undrop"),
    ]
    for first, dropping in enumerate(droppers):
        for second, undropping in enumerate(undroppers):
            name = f"t{first}{second}"
            make(home.catalog, name, 1)
            dropping(name)
            assert_gone(home.catalog, name)
            assert name not in literal.tables()
            undropping(name)
            assert_whole(home.catalog, name, 1)
            assert literal.rows(name) == [{"x": 1}]


@deviates(
    Page.SOFT_DELETE,
    "DROP (mark, reversible)",
    because="deleting the marker does not undo a drop made within 50 minutes after Relance undropped, "
    "re-created or purged the same name, or noticed that another client did, because the store may still "
    "execute a late delete of the previous marker. undrop_table undoes every drop",
)
def test_drop_soon_after_an_undrop_is_undone_by_undrop_table_alone(
    home: Lake, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(home.catalog, "t", 1)
    drop(home.catalog, "t")
    home.catalog.undrop_table(["t"])
    clock.advance(MINUTE)
    drop(home.catalog, "t")
    literal.undrop("t")
    assert_gone(home.catalog, "t")
    home.catalog.undrop_table(["t"])
    assert_whole(home.catalog, "t", 1)
    clock.advance(AFTER_LATE)
    drop(home.catalog, "t")
    literal.undrop("t")
    assert_whole(home.catalog, "t", 1)


@holds(
    Page.SOFT_DELETE,
    "purge_table / purge_tables(Option<Vec<Id>>) (new): the physical remove_dir_all + marker cleanup.",
)
def test_purge_removes_the_directory_and_the_marker(home: Lake, literal: DirectoryClient) -> None:
    for name in ("a", "b", "c"):
        make(home.catalog, name, 1)
    for name in ("a", "b"):
        drop(home.catalog, name)
    literal.drop("c")
    assert home.catalog.purge_table(["a"], force=True).purged
    assert [each.purged for each in home.catalog.purge_tables([["b"], ["c"]], force=True)] == [True, True]
    for name in ("a", "b", "c"):
        assert not literal.directory(name).exists()
        assert not literal.is_dropped(name)
        assert_gone(home.catalog, name)
        assert literal.tables() == []


@holds(Page.SOFT_DELETE, "None = purge all currently-purgable tables")
def test_purge_tables_without_a_list_takes_all_purgable_tables(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b", "later", "live"):
        make(lake.catalog, name, 1)
    for name in ("a", "b"):
        drop(lake.catalog, name, ttl_ms="1h")
    drop(lake.catalog, "later")
    clock.advance(timedelta(hours=1) + MINUTE)
    assert sorted(each.id for each in lake.catalog.purge_tables() if each.purged) == [("a",), ("b",)]
    assert [each.id for each in lake.catalog.list_dropped_tables()] == [("later",)]
    assert_whole(lake.catalog, "live", 1)


@holds(Page.SOFT_DELETE, "a list = exactly those.")
def test_purge_tables_with_a_list_takes_exactly_those(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        make(lake.catalog, name, 1)
        drop(lake.catalog, name, ttl_ms="1h")
    clock.advance(timedelta(hours=1) + MINUTE)
    assert [(each.id, each.purged) for each in lake.catalog.purge_tables([["a"]])] == [(("a",), True)]
    assert [each.id for each in lake.catalog.list_dropped_tables()] == [("b",)]
    assert lake.catalog.purge_tables([]) == []
    lake.catalog.undrop_table(["b"])
    assert_whole(lake.catalog, "b", 1)


@holds(Page.SOFT_DELETE, "Purge only ever acts on already-soft-deleted tables — never a live one.")
def test_purge_never_touches_a_live_table(lake: Lake, clock: ManualClock) -> None:
    for name in ("t", "undropped", "hidden"):
        make(lake.catalog, name, 1)
    declare(lake.catalog, "declared")
    drop(lake.catalog, "undropped")
    lake.catalog.undrop_table(["undropped"])
    directory = lake.location("hidden")
    deregister(lake.catalog, "hidden")
    clock.advance(timedelta(days=365))
    before = lake.table_files()
    assert lake.catalog.purge_tables() == []
    names = ["t", "undropped", "declared", "hidden"]
    for result in lake.catalog.purge_tables([[name] for name in names], force=True):
        assert isinstance(result.error, RelanceError)
        assert not result.purged
    for name in names:
        with pytest.raises(RelanceError):
            lake.catalog.purge_table([name], force=True)
    after = lake.table_files()
    after.pop(".relance-clock", None)
    assert after == before
    assert Path(directory).is_dir()
    for name in ("t", "undropped"):
        assert_whole(lake.catalog, name, 1)


@holds(
    Page.SOFT_DELETE,
    "list_purgable_tables(deleted_before: Option<Timestamp>) (new): returns soft-deleted tables and their "
    "deleted_at.",
)
def test_list_purgable_tables_returns_expired_tables_with_the_time_of_their_drop(
    lake: Lake, clock: ManualClock
) -> None:
    dropped_at = {}
    for name in ("a", "b", "live"):
        make(lake.catalog, name, 1)
    for name in ("a", "b"):
        clock.advance(MINUTE)
        drop(lake.catalog, name, ttl_ms="1h")
        dropped_at[name] = clock.now()
    clock.advance(timedelta(hours=1) + MINUTE)
    found = lake.catalog.list_purgable_tables()
    assert [each.id for each in found] == [("a",), ("b",)]
    for each in found:
        assert abs(each.deleted_at - dropped_at[each.id[0]]) < timedelta(seconds=1)
    cutoff = dropped_at["a"] + timedelta(seconds=30)
    assert [each.id for each in lake.catalog.list_purgable_tables(cutoff)] == [("a",)]


@deviates(
    Page.SOFT_DELETE,
    "The deleted_before cutoff lets a caller apply TTL policy",
    because="the TTL of a drop is a promise to whoever may undrop it: a caller's cutoff can only keep a "
    "table longer. To purge a table before its TTL, name it and pass force=True",
)
def test_cutoff_of_a_caller_prolongs_the_ttl_and_never_shortens_it(lake: Lake, clock: ManualClock) -> None:
    make(lake.catalog, "t", 1)
    drop(lake.catalog, "t", ttl_ms="1h")
    clock.advance(MINUTE)
    assert lake.catalog.list_purgable_tables(clock.now()) == []
    clock.advance(timedelta(hours=1))
    assert lake.catalog.list_purgable_tables(clock.now() - timedelta(hours=2)) == []
    assert lake.catalog.purge_tables(deleted_before=clock.now() - timedelta(hours=2)) == []
    assert [each.id for each in lake.catalog.list_purgable_tables(clock.now())] == [("t",)]


@holds(Page.SOFT_DELETE, "while the namespace owns the (now O(1)) listing/filtering mechanism.")
def test_list_purgable_tables_asks_nothing_more_for_further_live_tables(counted: CountedLake) -> None:
    catalog = counted.lake.catalog
    make(catalog, "dropped", 1)
    make(catalog, "t0", 1)
    drop(catalog, "dropped", ttl_ms="0s")
    few = counted.requests_of(catalog.list_purgable_tables)
    for number in range(1, 6):
        make(catalog, f"t{number}", number)
    many = counted.requests_of(catalog.list_purgable_tables)
    assert len(many) == len(few), (few, many)


@holds(
    Page.SOFT_DELETE,
    "table_status(id) (new): returns one of Exists / SoftDeleted{deleted_at} / NotFound.",
)
def test_table_status_is_exists_soft_deleted_or_not_found(lake: Lake, clock: ManualClock) -> None:
    assert lake.catalog.table_status(["t"]) == NotFound(("t",))
    make(lake.catalog, "t", 1)
    assert lake.catalog.table_status(["t"]) == Exists(("t",))
    clock.advance(MINUTE)
    drop(lake.catalog, "t")
    status = lake.catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert abs(status.deleted_at - clock.now()) < timedelta(seconds=1)
    assert status.purge_after == status.deleted_at + WEEK


@holds(
    Page.SOFT_DELETE,
    'Deliberately not distinguishing "purged" from "never existed"',
)
def test_purged_table_has_the_status_of_one_that_never_existed(lake: Lake) -> None:
    make(lake.catalog, "purged", 1)
    drop(lake.catalog, "purged", purge="true")
    assert lake.catalog.table_status(["purged"]) == NotFound(("purged",))
    assert lake.catalog.table_status(["never"]) == NotFound(("never",))
    assert lake.catalog.list_dropped_tables() == []
    assert_gone(lake.catalog, "purged")


@deviates(
    Page.SOFT_DELETE,
    "that would require retaining tombstones after purge, with their own GC. Purged == NotFound.",
    because="a small tombstone <name>.control remains after a purge and hides a create that started before "
    "the purge and commits late; sweep_markers() removes it, and the status is NotFound",
)
def test_purge_leaves_a_tombstone_that_a_sweep_collects(home: Lake, clock: ManualClock) -> None:
    make(home.catalog, "t", 1)
    drop(home.catalog, "t", purge="true")
    tombstone = home.folder / "t.control"
    assert json.loads(tombstone.read_text())["state"] == "purged"
    assert home.catalog.table_status(["t"]) == NotFound(("t",))
    clock.advance(WEEK + timedelta(days=1))
    assert home.catalog.sweep_markers() == ["t"]
    assert not tombstone.exists()
    assert home.catalog.table_status(["t"]) == NotFound(("t",))


@deviates(
    Page.SOFT_DELETE,
    "a TTL between them",
    because="a purge waits 60 s longer than the TTL, because some stores round times; and a write by a "
    "client that ignores markers restarts the TTL",
)
def test_purge_waits_a_minute_longer_and_from_the_last_write_on(home: Lake, clock: ManualClock) -> None:
    make(home.catalog, "t", 1)
    drop(home.catalog, "t", ttl_ms="1h")
    clock.advance(timedelta(hours=1))
    assert home.catalog.list_purgable_tables() == []
    lance.write_dataset(numbers(2), home.folder / "t.lance", mode="append")
    clock.advance(timedelta(hours=1))
    assert home.catalog.purge_tables() == []
    clock.advance(MINUTE)
    assert [each.purged for each in home.catalog.purge_tables()] == [True]


# 3. Re-create over a soft-deleted table = overwrite


@holds(Page.SOFT_DELETE, "create_table for a name that has a .deleted marker should clear the marker")
def test_create_over_a_dropped_name_clears_the_marker(
    home: Lake, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(home.catalog, "t", 1)
    for value, dropping in ((2, lambda: drop(home.catalog, "t")), (3, lambda: literal.drop("t"))):
        dropping()
        make(home.catalog, "t", value)
        assert not literal.is_dropped("t")
        assert literal.rows("t") == [{"x": value}]
        assert_whole(home.catalog, "t", value)
    clock.advance(AFTER_LATE)
    drop(home.catalog, "t")
    literal.create("t", numbers(4))
    assert_whole(home.catalog, "t", 4)


@holds(Page.SOFT_DELETE, "and write with overwrite semantics (preserving lineage as a new version).")
def test_create_over_a_dropped_name_writes_a_new_version_on_top_of_the_old_ones(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    for version, mode in ((2, "create"), (3, "exist_ok"), (4, "overwrite")):
        drop(lake.catalog, "t")
        assert make(lake.catalog, "t", version, mode=mode).version == version
        assert_whole(lake.catalog, "t", version)
        assert rows(lake.catalog, "t", version=version - 1) == [version - 1]


@deviates(
    Page.SOFT_DELETE,
    "Re-create over a soft-deleted table = overwrite",
    because="lance.write_dataset and lancedb call declare_table first and then require an empty location: "
    "they get a new directory, and the dropped table stays. Without a manifest a name has one directory, "
    "so declare_table is refused",
)
def test_declare_over_a_dropped_name_leaves_the_dropped_table_alone(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    dropped = _location(lake)
    drop(lake.catalog, "t")
    if lake.mode == V1:
        with refused(TABLE_EXISTS):
            declare(lake.catalog, "t")
        lake.catalog.undrop_table(["t"])
        assert_whole(lake.catalog, "t", 1)
    else:
        write(lake.catalog, "t", 2)
        assert_whole(lake.catalog, "t", 2)
        assert _location(lake) != dropped
        lake.catalog.undrop_table(["t"], new_id=["old"])
        assert_whole(lake.catalog, "old", 1)


# 4. Reads respect the marker


@holds(Page.SOFT_DELETE, "list_tables … treat a soft-deleted table as NotFound")
def test_list_tables_leaves_out_a_dropped_table(lake: Lake) -> None:
    for name in ("a", "b"):
        make(lake.catalog, name, 1)
    drop(lake.catalog, "a")
    assert tables(lake.catalog) == ["b"]
    assert tables(lake.catalog, include_declared=False) == ["b"]
    assert lake.catalog.list_all_tables({}).tables == ["b"]


@holds(Page.SOFT_DELETE, "describe_table … treat a soft-deleted table as NotFound")
def test_describe_table_finds_no_dropped_table(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    drop(lake.catalog, "t")
    for fields in ({}, {"version": 1}, {"load_detailed_metadata": True}, {"check_declared": True}):
        with pytest.raises(TableNotFoundError, match="can be undropped until"):
            lake.catalog.describe_table({"id": ["t"], **fields})


@holds(
    Page.SOFT_DELETE,
    "open/access paths treat a soft-deleted table as NotFound (clean, not an internal error).",
)
def test_every_way_to_open_a_dropped_table_says_not_found(lake: Lake) -> None:
    catalog = lake.catalog
    make(catalog, "t", 1)
    drop(catalog, "t")
    accesses: list[Callable[[], object]] = [
        lambda: catalog.table_exists({"id": ["t"]}),
        lambda: catalog.count_table_rows({"id": ["t"]}),
        lambda: catalog.query_table({"id": ["t"], "k": 1, "vector": {}}),
        lambda: catalog.insert_into_table({"id": ["t"]}, stream_of(2)),
        lambda: catalog.delete_from_table({"id": ["t"], "predicate": "x = 1"}),
        lambda: catalog.get_table_stats({"id": ["t"]}),
        lambda: catalog.list_table_versions({"id": ["t"]}),
        lambda: catalog.describe_table_version({"id": ["t"], "version": 1}),
        lambda: catalog.create_table_tag({"id": ["t"], "tag": "a", "version": 1}),
        lambda: catalog.drop_table({"id": ["t"]}),
        lambda: catalog.deregister_table({"id": ["t"]}),
        lambda: lance.dataset(namespace_client=catalog, table_id=["t"]),
    ]
    for number, access in enumerate(accesses):
        with pytest.raises(LanceNamespaceError) as caught:
            access()
        assert int(caught.value.code) == TABLE_NOT_FOUND, f"access {number}: {caught.value!r}"
    database = lancedb.connect_namespace("relance.DirectoryNamespace", lake.properties | lake.settings)
    with pytest.raises(SpecTableNotFoundError):
        database.open_table("t")


# 5. Purge/revive race guard


def _attempt(act: Callable[[], Any]) -> RelanceError | None:
    """Return the error of a call, None if it succeeded."""
    try:
        act()
    except RelanceError as error:
        return error
    return None


def _expired(lake: Lake, clock: ManualClock, name: str) -> None:
    make(lake.catalog, name, 1)
    drop(lake.catalog, name, ttl_ms="1h")
    clock.advance(timedelta(hours=1) + MINUTE)


def _interleaved(
    lake: Lake,
    clock: ManualClock,
    first: Callable[[DirectoryNamespace, str], Any],
    second: Callable[[DirectoryNamespace, str], Any],
) -> Iterator[tuple[str, RelanceError | None, RelanceError | None]]:
    """Let the second client act at once before each write of the first, each time on another expired table.

    Yields the name of the table and the errors of both.
    """
    for number in range(100):
        name = f"t{number}"
        _expired(lake, clock, name)
        answers: list[RelanceError | None] = []
        slow, quick = lake.open(), lake.open()

        def meanwhile(
            name: str = name,
            quick: DirectoryNamespace = quick,
            answers: list[RelanceError | None] = answers,
        ) -> None:
            answers.append(_attempt(lambda: second(quick, name)))

        life = interrupt(slow, number, meanwhile)
        error = _attempt(lambda: first(slow, name))  # noqa: B023  # called within the iteration
        if not life.happened:
            assert number > 0, "there was nothing to interrupt"
            return
        yield name, error, answers[0]
    raise AssertionError("the first client never ends")


def _purge(catalog: DirectoryNamespace, name: str) -> None:
    catalog.purge_table([name])


def _create(catalog: DirectoryNamespace, name: str) -> None:
    make(catalog, name, 2)


def _undrop(catalog: DirectoryNamespace, name: str) -> None:
    catalog.undrop_table([name])


@holds(
    Page.SOFT_DELETE,
    "A purge that fires at TTL must not delete data that a concurrent re-create just revived.",
)
def test_purge_at_ttl_deletes_nothing_that_a_concurrent_create_revived(
    lake: Lake, clock: ManualClock
) -> None:
    winners = set()
    for name, purged, created in _interleaved(lake, clock, _purge, _create):
        winners |= {"purge"} if purged is None else {"create"}
        if created is None:
            assert_whole(lake.open(), name, 2)
        else:
            assert purged is None, "one of both gets what it wants"
            assert_gone(lake.open(), name)
    assert winners == {"purge", "create"}


@holds(
    Page.SOFT_DELETE,
    "A dedicated concurrency test is a must — this is the one place a bug means data loss rather than a "
    "bounded-stale read.",
)
def test_create_that_a_purge_interrupts_ends_with_whole_data_or_none(lake: Lake, clock: ManualClock) -> None:
    for name, created, purged in _interleaved(lake, clock, _create, _purge):
        after = lake.open()
        if created is None or isinstance(created, OutcomeUnknownError):  # written, and finished by the purge
            assert_whole(after, name, 2)
        else:
            # A create that stands still is overruled. Either the purge is over, or it can be tried again.
            assert_gone(after, name)
            assert (purged is None) == (after.table_status([name]) == NotFound((name,)))
            make(after, name, 3)
            assert_whole(after, name, 3)


@holds(Page.SOFT_DELETE, "purge and revive contend on the single marker object; the loser aborts.")
def test_of_a_purge_and_a_revival_exactly_one_succeeds(lake: Lake, clock: ManualClock) -> None:
    for pair in ((_purge, _undrop), (_undrop, _purge)):
        for name, first, second in _interleaved(lake, clock, *pair):
            assert (first is None) != (second is None), (name, first, second)
            revived = (first if pair[0] is _undrop else second) is None
            if revived:
                assert_whole(lake.open(), name, 1)
            else:
                assert_gone(lake.open(), name)
        for name in tables(lake.catalog):
            drop(lake.catalog, name, purge="true")


@holds(
    Page.SOFT_DELETE,
    "Plain claim files are insufficient (no TTL on the claim → poisoned-lock risk; non-atomic "
    "check-then-delete).",
)
def test_claim_of_a_purge_that_died_ends_by_itself(lake: Lake, clock: ManualClock) -> None:
    for number in range(100):
        name = f"t{number}"
        _expired(lake, clock, name)
        dying = lake.open()
        life = make_mortal(dying, number)
        if _survives(lambda: dying.purge_table([name])):  # noqa: B023  # called within the iteration
            break
        assert life.over
        clock.advance(timedelta(minutes=30))
        lake.open().purge_tables()
        assert_gone(lake.open(), name)
        make(lake.open(), name, 2)
        assert_whole(lake.open(), name, 2)
    assert number > 2


def _survives(act: Callable[[], Any]) -> bool:
    try:
        act()
    except Death:
        return False
    return True


@deviates(
    Page.SOFT_DELETE,
    "use the marker itself as a compare-and-swap arbiter via conditional writes (PutMode::Update with etag)",
    because="object stores have no conditional delete, and other clients create and delete the marker "
    "unconditionally: the marker stays as the page defines it, and a separate file <name>.control is the "
    "arbiter",
)
def test_arbiter_is_a_file_of_its_own_and_the_marker_is_never_rewritten(
    home: Lake, clock: ManualClock
) -> None:
    marker, arbiter = home.folder / "t.deleted", home.folder / "t.control"
    make(home.catalog, "t", 1)
    drop(home.catalog, "t", ttl_ms="1h")
    body, bodies = marker.read_bytes(), [arbiter.read_bytes()]
    clock.advance(timedelta(hours=1) + MINUTE)
    dying = home.open()
    make_mortal(dying, 1)
    with pytest.raises(Death):
        dying.purge_table(["t"])
    assert marker.read_bytes() == body
    bodies.append(arbiter.read_bytes())
    assert [json.loads(each)["state"] for each in bodies] == ["deleted", "purging"]
    clock.advance(timedelta(minutes=30))
    assert home.catalog.purge_table(["t"]).purged
    assert not marker.exists()
    assert json.loads(arbiter.read_bytes())["state"] == "purged"


@holds(
    Page.SOFT_DELETE,
    "This needs (a) conditional-write support confirmed across target object stores",
)
def test_check_store_confirms_conditional_writes(lake: Lake, counted: CountedLake) -> None:
    for catalog in (lake.catalog, counted.lake.catalog):
        verdicts = {check.name: check.verdict for check in catalog.check_store()}
        assert (verdicts["create-only"], verdicts["replace"]) == ("good", "good")


# Open questions, as Relance answers them


@holds(Page.SOFT_DELETE, "Anything that keeps the single-listing property. (Marker naming/location)")
def test_every_file_that_decides_is_a_child_of_the_root(home: Lake) -> None:
    for name in ("live", "dropped", "purged", "hidden"):
        make(home.catalog, name, 1)
    declare(home.catalog, "declared")
    drop(home.catalog, "dropped")
    drop(home.catalog, "purged", purge="true")
    deregister(home.catalog, "hidden")
    names = {path.name for path in home.folder.iterdir()}
    assert {"dropped.deleted", "dropped.control", "purged.control"} <= names
    assert {"declared.declared", "hidden.deregistered"} <= names
    # Signs tell a listing where to look inside; what they stand for is inside, as the other pages want it.
    assert tables(home.open()) == ["declared", "live"]


@holds(
    Page.SOFT_DELETE,
    "Where TTL policy lives (caller passes deleted_before vs namespace owns a TTL config).",
)
def test_namespace_owns_the_ttl_and_each_drop_may_have_its_own(lake: Lake, clock: ManualClock) -> None:
    owner = lake.open(drop_ttl="3h")
    for name in ("a", "b"):
        make(owner, name, 1)
    drop(owner, "a")
    drop(owner, "b", ttl_ms="1h")
    found = {each.id[0]: each for each in lake.catalog.list_dropped_tables()}
    for name, ttl in (("a", timedelta(hours=3)), ("b", timedelta(hours=1))):
        assert found[name].purge_after == found[name].deleted_at + ttl, "whoever looks"
    clock.advance(timedelta(hours=1) + MINUTE)
    assert [each.id for each in lake.catalog.list_purgable_tables()] == [("b",)]


@holds(Page.SOFT_DELETE, "Conditional-write reliability for the race guard across object stores")
@pytest.mark.parametrize("store", ["moto", MINIO])
def test_one_of_many_clients_wins_a_race_for_a_name_on_object_stores(
    store: str, request: pytest.FixtureRequest
) -> None:
    place = S3Place(
        request.getfixturevalue(f"{store}_server"), request.getfixturevalue(f"{store}_bucket"), "lake"
    )
    clients = [place.open(**QUIET) for _ in range(4)]
    make(clients[0], "t", 1)
    for _ in range(3):
        for act in (lambda client: drop(client, "t"), lambda client: _undrop(client, "t")):
            with ThreadPoolExecutor(len(clients)) as threads:
                errors = list(threads.map(lambda client, act=act: _attempt(lambda: act(client)), clients))
            assert errors.count(None) == 1, errors
    assert_whole(place.open(), "t", 1)


@holds(Page.SOFT_DELETE, "Fallback when CAS isn't available?")
@pytest.mark.parametrize("mode", HOME_MODES)
def test_without_conditional_writes_undrop_and_purge_are_refused(
    mode: str, moto_server: S3Server, moto_bucket: str
) -> None:
    with careless(moto_server) as server:
        place = S3Place(server, moto_bucket, "lake", HOME_MODES[mode])
        lance.write_dataset(numbers(1), f"{place.root}/t.lance", storage_options=server.storage_options())
        place.put("t.deleted", json.dumps({"deleted_at_ms": 0, "ttl_ms": 0}).encode())
        before, catalog = place.files(), place.open(**QUIET)
        assert tables(catalog) == []
        for act in (_undrop, _create):
            with refused(UNSUPPORTED):
                act(catalog, "t")
        with refused(UNSUPPORTED):
            catalog.purge_table(["t"], force=True)
        verdicts = {check.name: check.verdict for check in catalog.check_store()}
        assert (verdicts["create-only"], verdicts["replace"]) == ("good", "bad")
        assert before.items() <= place.files().items()  # a drop of another client may get its arbiter
        assert tables(catalog) == []


@holds(
    Page.SOFT_DELETE,
    "How should the same lifecycle look in manifest mode (where deregister is a manifest-row delete)? Keep "
    "them separate, or unify the surface?",
)
def test_same_calls_drive_the_lifecycle_in_every_mode(lake: Lake) -> None:
    catalog = lake.catalog
    make(catalog, "t", 1)
    drop(catalog, "t")
    assert [each.id for each in catalog.list_dropped_tables()] == [("t",)]
    catalog.undrop_table(["t"])
    directory = lake.location("t").rpartition("/")[2]
    deregister(catalog, "t")
    assert_gone(catalog, "t")
    if lake.mode != V1:
        assert [row for row in lake.manifest_rows().values() if row["location"] == directory] == []
    register(catalog, "t", directory)
    assert_whole(catalog, "t", 1)
    drop(catalog, "t")
    assert catalog.purge_table(["t"], force=True).purged
    assert_gone(catalog, "t")


@holds(
    Page.SOFT_DELETE,
    "Backward compatibility with any existing nested .lance-deregistered markers — migrate, or read both "
    "during a transition?",
)
def test_nested_markers_of_other_clients_are_read_and_can_be_migrated(home: Lake) -> None:
    for name in ("hidden", "shown"):
        lance.write_dataset(numbers(1), home.folder / f"{name}.lance")
    (home.folder / "hidden.lance/.lance-deregistered").touch()
    assert tables(home.catalog) == ["shown"]
    with refused(TABLE_NOT_FOUND):
        home.catalog.describe_table({"id": ["hidden"]})
    assert home.catalog.migrate_markers().deregistered == ("hidden",)
    assert tables(home.catalog) == ["shown"]
    register(home.catalog, "hidden", "hidden.lance")
    assert_whole(home.catalog, "hidden", 1)


# Out of scope and non-goals


@holds(
    Page.SOFT_DELETE,
    "Purge scheduling (the periodic list_purgable_tables(now − ttl) → purge_tables job)",
)
def test_periodic_job_of_a_caller_purges_what_the_list_names(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        make(lake.catalog, name, 1)
    drop(lake.catalog, "a")
    clock.advance(timedelta(days=1))
    drop(lake.catalog, "b")
    purged = []
    for _ in range(9):
        listed = lake.catalog.list_purgable_tables(clock.now() - WEEK)
        purged.append([result.id for result in lake.catalog.purge_tables([each.id for each in listed])])
        clock.advance(timedelta(days=1))
    assert [each for each in purged if each] == [[("a",)], [("b",)]]
    assert lake.catalog.list_dropped_tables() == []


@holds(Page.SOFT_DELETE, "After a soft-delete, fresh opens and listings are immediately correct")
def test_drop_is_seen_at_once_by_every_other_client(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in lake.mode.items():
        monkeypatch.setenv(f"RELANCE_{setting.upper()}", value)
    warm = lake.open()
    make(lake.catalog, "t", 1)
    assert_whole(warm, "t", 1)
    drop(lake.catalog, "t")
    for client in (warm, lake.open()):
        assert_gone(client, "t")
        assert isinstance(client.table_status(["t"]), SoftDeleted)
    assert run("--root", lake.uri, "ls", "--json").result["tables"] == []


@holds(
    Page.SOFT_DELETE,
    "already-open/cached handles elsewhere may keep serving the table until they refresh",
)
def test_open_handle_serves_the_table_until_the_purge(lake: Lake) -> None:
    make(lake.catalog, "t", 1)
    handle = lance.dataset(namespace_client=lake.catalog, table_id=["t"])
    drop(lake.catalog, "t")
    assert handle.to_table()["x"].to_pylist() == [1]
    assert lake.catalog.purge_table(["t"], force=True).purged
    with refused(TABLE_NOT_FOUND):
        lance.dataset(namespace_client=lake.catalog, table_id=["t"])
