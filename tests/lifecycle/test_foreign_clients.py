"""Other clients on the same root: one that follows the seed to the letter, and stock Lance clients.

The literal client (tests.seeds.clients) knows the marker `n.deleted` and nothing else of Relance: a drop
creates it, an undrop deletes it, and a purge deletes the files of a table whose marker is older than its
TTL, then the marker.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import lance
import lancedb
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from tests.seeds.clients import WEEK, DirectoryClient
from tests.support.calls import assert_gone, assert_whole, drop, exists, make, rows, tables
from tests.support.internals import context_of
from tests.support.jobs.lakes import DAY, JobLake, age
from tests.support.lakes import QUIET
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.patches import substitute
from tests.support.roots import numbers, stream_of

import relance
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.clock import to_millis
from relance.errors import (
    InvalidTableStateError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.jobs import RemoveOrphans
from relance.testing.clock import ManualClock

Catalog = relance.DirectoryNamespace
MINUTE = timedelta(minutes=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
AFTER_LATE = timedelta(minutes=51)
"""So long after a drop ended the next one is not strict."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(params=["V1", "compatibility"])
def catalog(request: pytest.FixtureRequest, root: Path, clock: ManualClock) -> Catalog:
    mode = {"V1": V1, "compatibility": COMPATIBILITY}[request.param]
    return Catalog(clock=clock, root=str(root), **QUIET, **mode)


@pytest.fixture
def literal(root: Path) -> DirectoryClient:
    return DirectoryClient(root)


# A drop by the literal client.


def test_foreign_drop_hides_the_table_at_once(catalog: Catalog, literal: DirectoryClient) -> None:
    make(catalog, "t", 1, 2)
    make(catalog, "u", 3)
    literal.drop("t")
    assert_gone(catalog, "t")
    assert tables(catalog) == ["u"]
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.purge_after == status.deleted_at + WEEK
    assert [dropped.id for dropped in catalog.list_dropped_tables()] == [("t",)]
    with pytest.raises(TableNotFoundError):
        drop(catalog, "t")
    with pytest.raises(InvalidTableStateError, match="can be undropped until"):
        catalog.purge_table(["t"])


def test_foreign_drop_can_be_undropped_by_either_client(catalog: Catalog, literal: DirectoryClient) -> None:
    make(catalog, "t", 1)
    literal.drop("t")
    catalog.undrop_table(["t"])
    assert not literal.is_dropped("t")
    assert_whole(catalog, "t", 1)
    literal.drop("t")
    assert_gone(catalog, "t")
    literal.undrop("t")
    assert_whole(catalog, "t", 1)


def test_foreign_drop_is_purged_after_its_own_ttl(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock, root: Path
) -> None:
    make(catalog, "t", 1)
    literal.drop("t", timedelta(hours=2))
    clock.advance(timedelta(hours=2))
    assert catalog.list_purgable_tables() == []
    assert catalog.purge_tables() == []
    clock.advance(MINUTE)
    assert [due.id for due in catalog.list_purgable_tables()] == [("t",)]
    assert [result.id for result in catalog.purge_tables() if result.purged] == [("t",)]
    assert not (root / "t.lance").exists()
    assert not literal.is_dropped("t")
    assert catalog.table_status(["t"]) == NotFound(("t",))


def test_foreign_drop_after_a_foreign_undrop_starts_a_period_of_its_own(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", ttl_ms="1h")
    clock.advance(MINUTE)
    literal.undrop("t")
    clock.advance(timedelta(days=30))
    literal.drop("t", timedelta(days=2), at=clock.now())
    assert catalog.purge_tables() == []
    (status,) = catalog.list_dropped_tables()
    assert abs(status.deleted_at - clock.now()) < timedelta(seconds=1)
    assert status.purge_after == status.deleted_at + timedelta(days=2)
    with pytest.raises(InvalidTableStateError, match="can be undropped until"):
        catalog.purge_table(["t"])
    clock.advance(timedelta(days=2) + MINUTE)
    assert [result.id for result in catalog.purge_tables() if result.purged] == [("t",)]
    assert not literal.is_dropped("t")


@pytest.mark.parametrize("body", [b"", b"gone", b'{"deleted_at_ms": 1}'])
def test_foreign_marker_without_a_readable_ttl_gets_the_catalogs(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock, body: bytes
) -> None:
    make(catalog, "t", 1)
    literal.marker("t").write_bytes(body)
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.purge_after == status.deleted_at + WEEK
    clock.advance(WEEK)
    assert catalog.purge_tables() == []
    clock.advance(MINUTE)
    assert [result.purged for result in catalog.purge_tables()] == [True]


@pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
def test_create_revives_a_name_that_a_foreign_client_dropped(
    catalog: Catalog, literal: DirectoryClient, mode: str
) -> None:
    make(catalog, "t", 1)
    literal.drop("t")
    assert catalog.create_table({"id": ["t"], "mode": mode}, stream_of(2)).version == 2
    assert not literal.is_dropped("t")
    assert_whole(catalog, "t", 2)
    assert rows(catalog, "t", version=1) == [1]


# Our drops, seen by the literal client.


def test_marker_is_present_exactly_while_the_table_is_dropped(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    assert not literal.is_dropped("t")
    drop(catalog, "t", ttl_ms="1h")
    fields = json.loads(literal.marker("t").read_text())
    assert fields["deleted_at_ms"] == to_millis(clock.now())
    assert fields["ttl_ms"] == 3_600_000
    catalog.undrop_table(["t"])
    assert not literal.is_dropped("t")
    drop(catalog, "t")
    make(catalog, "t", 2)
    assert not literal.is_dropped("t")
    catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(3))
    assert not literal.is_dropped("t")
    drop(catalog, "t")
    assert literal.is_dropped("t")
    assert catalog.purge_table(["t"], force=True).purged
    assert not literal.is_dropped("t")
    make(catalog, "t", 4)
    assert not literal.is_dropped("t")


def test_marker_stays_while_the_table_is_being_purged_or_revived(
    catalog: Catalog, literal: DirectoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    tables_of, storage = context_of(catalog).tables, context_of(catalog).storage
    commit, remove = tables_of.commit, storage.remove_directories

    def committing(*arguments: Any, **options: Any) -> Any:
        seen.append(literal.is_dropped("t"))
        return commit(*arguments, **options)

    def removing(*arguments: Any, **options: Any) -> Any:
        seen.append(literal.is_dropped("t"))
        return remove(*arguments, **options)

    make(catalog, "t", 1)
    drop(catalog, "t")
    with monkeypatch.context() as patch:
        substitute(patch, "tables.commit", lambda _, *arguments, **options: committing(*arguments, **options))
        make(catalog, "t", 2)
    drop(catalog, "t")
    with monkeypatch.context() as patch:
        substitute(
            patch, "storage.remove_directories", lambda _, *a, **o: removing(*a, **o), on=type(storage)
        )
        assert catalog.purge_table(["t"], force=True).purged
    assert seen == [True, True]


def test_foreign_undrop_of_our_drop_shows_the_table_and_is_adopted(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    clock.advance(MINUTE)
    literal.undrop("t")
    assert_whole(catalog, "t", 1)
    assert catalog.table_status(["t"]) == Exists(("t",))
    clock.advance(timedelta(days=30))
    assert catalog.purge_tables() == []
    with pytest.raises(InvalidTableStateError, match="live"):
        catalog.purge_table(["t"], force=True)
    assert_whole(catalog, "t", 1)
    drop(catalog, "t")
    assert_gone(catalog, "t")
    catalog.undrop_table(["t"])
    assert_whole(catalog, "t", 1)


def test_foreign_undrop_soon_after_an_undrop_of_ours_has_no_effect(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    catalog.undrop_table(["t"])
    clock.advance(MINUTE)
    drop(catalog, "t")
    literal.undrop("t")
    assert_gone(catalog, "t")
    catalog.undrop_table(["t"])
    assert_whole(catalog, "t", 1)
    clock.advance(AFTER_LATE)
    drop(catalog, "t")
    literal.undrop("t")
    assert_whole(catalog, "t", 1)


def test_purge_run_adopts_a_foreign_undrop_so_that_later_drops_are_not_strict(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    clock.advance(MINUTE)
    literal.undrop("t")
    assert catalog.purge_tables() == []
    assert_whole(catalog, "t", 1)
    clock.advance(AFTER_LATE)
    drop(catalog, "t")
    literal.undrop("t")
    assert_whole(catalog, "t", 1)


def test_foreign_purge_of_our_drop_leaves_a_free_name(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    assert literal.purgable(clock.now()) == []
    clock.advance(WEEK)
    literal.purge("t", clock.now())
    assert_gone(catalog, "t")
    assert catalog.table_status(["t"]) == NotFound(("t",))
    assert catalog.list_dropped_tables() == []
    assert make(catalog, "t", 2).version == 1
    assert_whole(catalog, "t", 2)


def test_literal_client_can_drop_undrop_and_purge_for_ever(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock
) -> None:
    for value in range(4):
        assert make(catalog, "t", value).version == 1
        literal.drop("t", timedelta(0), at=clock.now())
        literal.undrop("t")
        assert_whole(catalog, "t", value)
        literal.drop("t", timedelta(0), at=clock.now())
        assert_gone(catalog, "t")
        clock.advance(MINUTE)
        literal.purge("t", clock.now())
        assert_gone(catalog, "t")
        assert catalog.list_dropped_tables() == []


@dataclass(slots=True)
class Story:
    """What both clients must see of the table `t`, by the specification; `at` is None while it is live."""

    value: int | None = None
    at: datetime | None = None
    ttl: timedelta = timedelta(0)

    @property
    def is_live(self) -> bool:
        return self.value is not None and self.at is None

    def is_due(self, now: datetime) -> bool:
        return self.at is not None and now >= self.at + self.ttl


def _succeeds(act: Callable[[], object]) -> bool:
    try:
        act()
    except (RelanceError, OSError, ValueError):  # the literal client raises the last two
        return False
    return True


def _assert_seen_as(story: Story, catalog: Catalog, literal: DirectoryClient, now: datetime) -> None:
    if story.is_live:
        assert story.value is not None
        assert_whole(catalog, "t", story.value)
        assert literal.rows("t") == [{"x": story.value}]
        return
    assert_gone(catalog, "t")
    assert literal.tables() == []
    assert literal.is_dropped("t") == (story.at is not None)
    status = catalog.table_status(["t"])
    if story.at is None:
        assert status == NotFound(("t",))
        return
    assert isinstance(status, SoftDeleted)
    assert abs(status.deleted_at - story.at) < timedelta(seconds=1)
    assert status.purge_after == status.deleted_at + story.ttl
    listed = [each.id for each in catalog.list_purgable_tables()]
    assert listed == ([("t",)] if story.is_due(now - MINUTE) else [])


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_verbs_by_both_clients_has_the_specified_effects(
    catalog: Catalog, literal: DirectoryClient, clock: ManualClock, seed: int
) -> None:
    random, story, verbs = Random(seed), Story(), []
    literal.root.mkdir()
    for value in range(30):
        clock.advance(random.choice((AFTER_LATE, timedelta(hours=1), timedelta(hours=3))))
        now, ttl = clock.now(), timedelta(hours=random.choice((1, 5)))
        is_live, is_dropped = story.is_live, story.at is not None
        live, dropped = Story(value), Story(story.value, now, ttl)
        steps: dict[str, tuple[Callable[[], object], bool, Story]] = {
            "create": (partial(make, catalog, "t", value), not is_live, live),
            "drop": (partial(drop, catalog, "t", ttl_ms=f"{ttl.seconds}s"), is_live, dropped),
            "undrop": (partial(catalog.undrop_table, ["t"]), is_dropped, Story(story.value)),
            "purge": (partial(catalog.purge_table, ["t"]), story.is_due(now - MINUTE), Story()),
            "scrub": (partial(catalog.scrub, repair=True), True, story),
            "sweep": (catalog.sweep_markers, True, story),
            "literal create": (partial(literal.create, "t", numbers(value)), not is_live, live),
            "literal undrop": (partial(literal.undrop, "t"), is_dropped, Story(story.value)),
            "literal purge": (partial(literal.purge, "t", now), story.is_due(now), Story()),
        }
        if story.value is not None:  # the literal client looks at the marker only
            steps["literal drop"] = (partial(literal.drop, "t", ttl, at=now), is_live, dropped)
        possible = [verb for verb, (_, may, _) in steps.items() if may]
        verb = random.choice(possible if random.random() < 0.8 else list(steps))
        act, may, after = steps[verb]
        verbs.append(verb)
        assert _succeeds(act) == may, verbs
        story = after if may else story
        catalog.purge_tables(deleted_before=LONG_AGO)  # a purge run, which adopts what the other client did
        _assert_seen_as(story, catalog, literal, now)


# Stock clients of Lance, which have no lifecycle.


def _stock_create(root: Path, name: str, *values: int) -> None:
    lancedb.connect(str(root)).create_table(name, numbers(*values))


def _run_all_upkeep(root: Path, catalog: Catalog, clock: ManualClock) -> None:
    clock.advance(timedelta(days=30))
    catalog.scrub(repair=True)
    catalog.purge_tables()
    catalog.sweep_markers()
    context = context_of(catalog)
    mode = V1 if context.manifest is None else COMPATIBILITY if context.dir_listing else V2
    age(root, 3 * DAY)
    JobLake(str(root), mode, settings=QUIET).run(RemoveOrphans())
    catalog.scrub(repair=True)


@pytest.mark.parametrize("quick", [True, False], ids=["at once", "after the quarantine"])
def test_table_that_lancedb_creates_over_a_purged_name_is_never_deleted(
    catalog: Catalog, root: Path, clock: ManualClock, quick: bool
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    assert catalog.purge_table(["t"], force=True).purged
    if not quick:
        clock.advance(timedelta(days=8))
    _stock_create(root, "t", 7, 8)
    assert_whole(catalog, "t", 7, 8)
    findings = catalog.scrub(repair=True)
    assert [finding for finding in findings if finding.error is not None] == []
    result = catalog.purge_tables([["t"]], force=True)
    assert isinstance(result[0].error, InvalidTableStateError)
    _run_all_upkeep(root, catalog, clock)
    assert_whole(catalog, "t", 7, 8)
    assert lancedb.connect(str(root)).open_table("t").to_arrow()["x"].to_pylist() == [7, 8]
    drop(catalog, "t")
    assert_gone(catalog, "t")
    catalog.undrop_table(["t"])
    assert_whole(catalog, "t", 7, 8)
    drop(catalog, "t", purge="true")
    assert_gone(catalog, "t")
    make(catalog, "t", 9)
    assert_whole(catalog, "t", 9)


def test_table_that_lancedb_creates_beside_a_catalog_of_the_manifest_alone_is_never_deleted(
    root: Path, clock: ManualClock
) -> None:
    catalog = Catalog(clock=clock, root=str(root), **QUIET, **V2)
    make(catalog, "t", 1)
    drop(catalog, "t")
    assert catalog.purge_table(["t"], force=True).purged
    _stock_create(root, "t", 7, 8)
    findings = catalog.scrub(repair=True)
    assert [finding for finding in findings if finding.error is not None] == []
    catalog.purge_tables([["t"]], force=True)
    _run_all_upkeep(root, catalog, clock)
    assert lancedb.connect(str(root)).open_table("t").to_arrow()["x"].to_pylist() == [7, 8]
    assert_whole(Catalog(clock=clock, root=str(root), **QUIET), "t", 7, 8)


def test_table_that_lance_namespace_creates_over_a_purged_name_is_a_full_citizen(
    catalog: Catalog, root: Path
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    native = NativeNamespace(root=str(root), manifest_enabled="false", dir_listing_enabled="true")
    lance.write_dataset(numbers(5), namespace_client=native, table_id=["t"], mode="create")
    assert_whole(catalog, "t", 5)
    with pytest.raises(TableAlreadyExistsError):
        make(catalog, "t", 6)
    catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(6))
    assert_whole(catalog, "t", 6)


def test_hard_drop_by_a_stock_client_leaves_a_free_name(catalog: Catalog, root: Path) -> None:
    for name in ("live", "dropped"):
        make(catalog, name, 1)
    drop(catalog, "dropped")
    database = lancedb.connect(str(root))
    for name in ("live", "dropped"):
        database.drop_table(name)
        assert not exists(catalog, name)
        assert make(catalog, name, 2).version == 1
        assert_whole(catalog, name, 2)
    assert catalog.list_dropped_tables() == []


def test_retention_restarts_when_an_unaware_client_writes_into_a_dropped_table(
    catalog: Catalog, root: Path, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    clock.advance(timedelta(days=6))
    lance.write_dataset(numbers(2), str(root / "t.lance"), mode="append")
    assert_gone(catalog, "t")
    clock.advance(timedelta(days=6))
    assert catalog.list_purgable_tables() == []
    assert catalog.purge_tables() == []
    with pytest.raises(InvalidTableStateError, match="restarts the period"):
        catalog.purge_table(["t"])
    catalog.undrop_table(["t"])
    assert_whole(catalog, "t", 1, 2)
    drop(catalog, "t")
    lance.write_dataset(numbers(3), str(root / "t.lance"), mode="append")
    clock.advance(WEEK + MINUTE)
    assert [result.purged for result in catalog.purge_tables()] == [True]


# Clients of Relance in other modes.


def test_catalog_of_the_manifest_alone_hides_what_a_client_without_it_dropped(
    root: Path, clock: ManualClock
) -> None:
    both = Catalog(clock=clock, root=str(root), **QUIET)
    plain = Catalog(clock=clock, root=str(root), **QUIET, **V1)
    rows_only = Catalog(clock=clock, root=str(root), **QUIET, **V2)
    make(both, "t", 1)
    make(both, "u", 2)
    assert tables(rows_only) == ["t", "u"]
    drop(plain, "t")
    assert tables(rows_only) == ["u"]
    assert_gone(rows_only, "t")
    assert isinstance(rows_only.table_status(["t"]), SoftDeleted)
    plain.undrop_table(["t"])
    assert tables(rows_only) == ["t", "u"]
    assert_whole(rows_only, "t", 1)
    drop(rows_only, "t")
    assert tables(plain) == tables(both) == ["u"]
    plain.undrop_table(["t"])
    assert_whole(rows_only, "t", 1)


# Roots of the first format.


@pytest.mark.parametrize("sign", ["root flag", "marker with a nonce", "marker of format 1"])
def test_root_of_the_first_format_is_refused_and_names_migrate(
    root: Path, clock: ManualClock, sign: str
) -> None:
    lance.write_dataset(numbers(1), str(root / "t.lance"))
    if sign == "root flag":
        (root / ".relance-root").write_text('{"format": 1, "nested_markers": "none"}\n')
    elif sign == "marker with a nonce":
        (root / "t.deleted").write_text("0123456789abcdef01234567")
    else:
        body = {"format": 1, "state": "deleted", "nonce": "0123456789abcdef01234567"}
        (root / "t.deleted").write_text(json.dumps(body))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for mode in (V1, COMPATIBILITY):

        def changes(mode: dict[str, str] = mode) -> list[Any]:
            catalog = Catalog(clock=clock, root=str(root), **QUIET, **mode)
            return [
                lambda: drop(catalog, "t"),
                lambda: catalog.undrop_table(["t"]),
                lambda: catalog.purge_table(["t"], force=True),
                lambda: catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(2)),
            ]

        for number in range(4):
            with pytest.raises(InvalidTableStateError, match="migrate"):
                changes()[number]()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert pa.table(lance.dataset(str(root / "t.lance")).to_table())["x"].to_pylist() == [1]
