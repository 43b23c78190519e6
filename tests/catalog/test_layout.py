"""One look at a name: what names, sizes and times decide, and when bodies have to be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from relance.catalog.layout import (
    LOOK_INSIDE_EVERY,
    Bodies,
    Memory,
    NameSnapshot,
    NamingScheme,
    end_reservation_at_home,
    flag_root,
    inspect_name,
    list_names,
    list_root,
    manifest_key,
)
from relance.catalog.states import (
    Control,
    Mark,
    Situation,
    State,
    Timing,
    cleared,
    encode_control,
    encode_mark,
)
from relance.errors import ConcurrentModificationError, InvalidTableStateError, PermissionDeniedError
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import ObjectStorage
from relance.testing.clock import ManualClock
from relance.testing.faults import Fault, FaultyStorage, Request

ID = "7700112233445566"
WEEK = timedelta(days=7)
MINUTE = timedelta(minutes=1)


class StoreClock(ManualClock):
    """The clock by which the store in memory stamps objects, too."""

    def at_store(self, moment: datetime) -> datetime:
        return moment


@dataclass(frozen=True, slots=True)
class Root:
    """A root in memory, and what a look at it needs."""

    store: MemoryStorage
    clock: StoreClock
    watched: FaultyStorage
    foreign: bool = False
    """A version is there that Relance did not write."""
    memory: Memory = field(default_factory=Memory)

    @property
    def storage(self) -> ObjectStorage:
        return self.watched

    @property
    def timing(self) -> Timing:
        return Timing()

    def has_foreign_version(self, directory: str) -> bool:
        return self.foreign

    def put_table(self, name: str = "n", versions: Sequence[int] = (1,)) -> None:
        for version in versions:
            self.store.create(manifest_key(f"{name}.lance", None, version, NamingScheme.V2), b"{}")

    def put_control(self, control: Control) -> None:
        self.store.create("n.control", encode_control(control))

    def put_mark(self, deletion_id: str = ID, after: str = "") -> None:
        self.store.create("n.deleted", encode_mark(Mark(self.clock.now(), WEEK, deletion_id, after)))

    def look(self, bodies: Bodies = Bodies.NEEDED) -> tuple[NameSnapshot, list[str]]:
        """Look at `n`; return what shows and the keys of the bodies that were read."""
        self.watched.requests.clear()
        snapshot = inspect_name(self, "n", bodies=bodies)
        return snapshot, [request.key for request in self.watched.requests if request.verb == "read"]


class NearStorage(MemoryStorage):
    """A store where looking is cheap, as on a disk."""

    @property
    def cheap_lookups(self) -> bool:
        return True


def _make_root(name: str, kind: type[MemoryStorage] = MemoryStorage) -> Root:
    clock = StoreClock()
    store = kind(name, clock)
    return Root(store, clock, FaultyStorage(store, lambda _: None))


@pytest.fixture
def root() -> Root:
    return _make_root("layout")


DELETED = Control(State.DELETED, "nonce", id=ID, ttl=WEEK)
PURGED = Control(State.PURGED, "nonce", id=ID)
SHORT = cleared(undid="old", after=None)


# The decision table, row by row.


def test_name_without_a_home_does_not_exist_whatever_lies_beside_it(root: Root) -> None:
    root.put_control(DELETED)
    root.put_mark()
    snapshot, read = root.look()
    assert (snapshot.is_visible, snapshot.is_dropped, snapshot.is_empty) == (False, False, True)
    assert read == []


def test_table_with_a_short_arbiter_or_none_is_visible(root: Root) -> None:
    root.put_table()
    assert root.look()[0].is_visible
    root.put_control(SHORT)
    snapshot, read = root.look()
    assert snapshot.is_visible
    assert read == []
    assert len(root.watched.requests) == 1


def test_table_with_a_marker_alone_is_dropped(root: Root) -> None:
    root.put_table()
    root.put_mark()
    snapshot, read = root.look()
    assert snapshot.is_dropped
    assert read == []


def test_long_arbiter_that_is_not_older_than_its_marker_hides_the_table(root: Root) -> None:
    root.put_table()
    root.put_mark()
    root.put_control(DELETED)
    snapshot, read = root.look()
    assert snapshot.is_dropped
    assert read == []
    assert len(root.watched.requests) == 1


@pytest.mark.parametrize(
    ("control", "after", "foreign_table", "expected"),
    [
        pytest.param(DELETED, "", False, Situation.DROPPED, id="put again by us"),
        pytest.param(PURGED, "another", True, Situation.VISIBLE, id="late beside a table under a tombstone"),
        pytest.param(PURGED, ID, True, Situation.DROPPED, id="drop of a table under a tombstone"),
    ],
)
def test_marker_younger_than_a_long_arbiter_is_read(
    root: Root, control: Control, after: str, foreign_table: bool, expected: Situation
) -> None:
    root = replace(root, foreign=foreign_table)
    root.put_table()
    root.put_control(control)
    root.clock.advance(MINUTE)
    root.put_mark(after=after)
    snapshot, read = root.look()
    assert snapshot.situation is expected
    assert snapshot.is_visible is (expected is Situation.VISIBLE)
    assert sorted(read) == ["n.control", "n.deleted"]


@pytest.mark.parametrize(
    ("control", "foreign_table", "expected", "is_visible"),
    [
        pytest.param(DELETED, False, Situation.VISIBLE, True, id="undropped by another client"),
        pytest.param(replace(DELETED, after=2**31), False, Situation.DROPPED, False, id="strict drop"),
        pytest.param(
            Control(State.PURGING, "n", id=ID, token="n", before=DELETED),
            False,
            Situation.PURGING,
            False,
            id="claim of a purge",
        ),
        pytest.param(
            Control(State.REVIVING, "n", token="n", before=DELETED),
            False,
            Situation.VISIBLE,
            True,
            id="claim of a create over a table that was undropped",
        ),
        pytest.param(PURGED, False, Situation.VISIBLE, False, id="tombstone over what Relance wrote"),
        pytest.param(PURGED, True, Situation.VISIBLE, True, id="tombstone beside another client's table"),
    ],
)
def test_long_arbiter_without_a_marker_is_read(
    root: Root, control: Control, foreign_table: bool, expected: Situation, is_visible: bool
) -> None:
    root = replace(root, foreign=foreign_table)
    root.put_table()
    root.put_control(control)
    snapshot, read = root.look()
    assert (snapshot.situation, snapshot.is_visible) == (expected, is_visible)
    assert read == ["n.control"]


@pytest.mark.parametrize(
    ("after", "expected"), [("old", Situation.DROPPED), ("older", Situation.VISIBLE)], ids=["drop", "late"]
)
def test_short_arbiter_beside_a_marker_is_read_with_it(root: Root, after: str, expected: Situation) -> None:
    root.put_table()
    root.put_control(SHORT)
    root.put_mark(after=after)
    snapshot, read = root.look()
    assert snapshot.situation is expected
    assert sorted(read) == ["n.control", "n.deleted"]


def test_declared_table_is_there_and_a_nested_file_hides_it(root: Root) -> None:
    root.store.create("n.lance/.lance-reserved", b"")
    snapshot, _ = root.look()
    assert (snapshot.is_visible, snapshot.only_declared) == (True, True)
    root.store.create("n.lance/.lance-deregistered", b"")
    snapshot, _ = root.look()
    assert (snapshot.is_live, snapshot.is_visible) == (True, False)


def test_leftovers_of_a_create_are_no_table(root: Root) -> None:
    root.store.create("n.creating", b"")
    root.store.create("n.lance/data/x.lance", b"x")
    snapshot, _ = root.look()
    assert (snapshot.holds_table, snapshot.is_empty) == (False, False)
    assert snapshot.signs == {".creating"}


@pytest.mark.parametrize(
    ("inside", "ends"),
    [
        ("_versions/18446744073709551614.manifest", True),
        ("_versions/1.manifest-5d0e", False),
        ("data/x.lance", False),
    ],
    ids=["version", "staged", "data"],
)
@pytest.mark.parametrize("kind", [NearStorage, MemoryStorage], ids=["disk", "object store"])
def test_reservation_ends_only_once_a_version_is_seen(
    kind: type[MemoryStorage], inside: str, *, ends: bool
) -> None:
    root = _make_root("reserved", kind)
    root.store.create("n.lance/.lance-reserved", b"")
    root.store.create(f"n.lance/{inside}", b"{}")
    end_reservation_at_home(root, root.look()[0])
    assert root.store.which_exist(["n.lance/.lance-reserved"]) == (
        frozenset() if ends else {"n.lance/.lance-reserved"}
    )


def test_reservation_of_a_hidden_table_is_left_alone(root: Root) -> None:
    root.put_table()
    root.put_control(DELETED)
    root.put_mark()
    root.store.create("n.lance/.lance-reserved", b"")
    end_reservation_at_home(root, root.look()[0])
    assert root.store.which_exist(["n.lance/.lance-reserved"])


def test_store_that_refuses_a_delete_is_asked_once() -> None:
    asked: list[str] = []

    def refuse(request: Request) -> Fault | None:
        if request.verb == "delete":
            asked.append(request.key)
            raise PermissionDeniedError("read only")
        return None

    root = _make_root("read only")
    root = replace(root, watched=FaultyStorage(root.store, refuse))
    root.put_table()
    root.store.create("n.lance/.lance-reserved", b"")
    for _ in range(2):
        end_reservation_at_home(root, root.look()[0])
    assert asked == ["n.lance/.lance-reserved"]
    assert root.store.which_exist(["n.lance/.lance-reserved"])


# Damage, and changes between two requests.


def test_damaged_arbiter_is_read_by_its_length_alone_until_its_body_is_needed(root: Root) -> None:
    root.put_table()
    root.store.create("n.control", b"damaged")
    assert root.look()[0].is_visible
    with pytest.raises(InvalidTableStateError, match="corrupt arbiter"):
        root.look(Bodies.ALL)
    root.store.delete("n.control")
    root.put_mark()
    root.store.create("n.control", b"damaged" * 20)
    assert root.look()[0].is_dropped
    with pytest.raises(InvalidTableStateError, match="corrupt arbiter"):
        root.look(Bodies.HIDDEN)


def test_arbiter_that_changes_after_the_listing_is_looked_at_again(root: Root) -> None:
    root.put_table()
    root.put_control(DELETED)
    changed: list[str] = []

    def plan(request: Request) -> Fault | None:
        if request.verb == "read" and not changed:
            changed.append(request.key)
            stored = root.store.read("n.control")
            root.store.replace("n.control", encode_control(SHORT), expected=stored.version)
        return None

    root = replace(root, watched=FaultyStorage(root.store, plan))
    snapshot, _ = root.look()
    assert changed == ["n.control"]
    assert snapshot.is_visible
    assert snapshot.marked is None, "the second listing decided by size"


def test_arbiter_that_keeps_changing_raises_a_conflict(root: Root) -> None:
    root.put_table()
    root.put_control(DELETED)
    attempts = 0

    def plan(request: Request) -> Fault | None:
        nonlocal attempts
        if request.verb == "read":
            attempts += 1
            stored = root.store.read("n.control")
            body = encode_control(replace(DELETED, nonce=str(attempts)))
            root.store.replace("n.control", body, expected=stored.version)
        return None

    root = replace(root, watched=FaultyStorage(root.store, plan))
    with pytest.raises(ConcurrentModificationError, match="retry"):
        root.look()


@pytest.mark.parametrize(
    "body", [b"0123456789abcdef01234567", json.dumps({"format": 1, "nonce": "x"}).encode()]
)
def test_marker_of_format_1_is_refused_where_its_body_is_read(root: Root, body: bytes) -> None:
    root.put_table()
    root.store.create("n.deleted", body)
    with pytest.raises(InvalidTableStateError, match="migrate"):
        root.look(Bodies.HIDDEN)


# One page in order, or several parts.


class _Unordered(MemoryStorage):
    """A store that does not list in order, as a disk."""

    @property
    def lists_in_order(self) -> bool:
        return False


def _both(name: str) -> list[Root]:
    ordered = _make_root(f"{name} in order")
    store = _Unordered(f"{name} in parts", ordered.clock)
    return [ordered, Root(store, ordered.clock, FaultyStorage(store, lambda _: None))]


@pytest.mark.parametrize("scheme", NamingScheme)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_page_in_order_and_in_parts_show_the_same(scheme: NamingScheme, count: int) -> None:
    seen = []
    for root in _both(f"{scheme} {count}"):
        for version in range(1, count + 1):
            root.store.create(manifest_key("n.lance", None, version, scheme), b"{}")
        for other in ("n.lance/_versions/x.manifest", "n.lance/data/x.lance", "n.lance.bak/y", "m.lance/z"):
            root.store.create(other, b"x")
        root.put_control(SHORT)
        root.store.create("n.declared", b"")
        snapshot = inspect_name(root, "n", bodies=Bodies.ALL, versions=True)
        assert snapshot.newest is not None
        assert snapshot.version == count
        assert ".declared" in snapshot.signs
        seen.append(replace(snapshot, control=None, newest=None, marked=None, signs=frozenset()))
    assert seen[0] == seen[1]
    assert seen[0].is_visible


def test_in_a_large_root_small_requests_replace_the_pages_after_the_first(root: Root) -> None:
    root.put_table()
    for number in range(1100):
        root.store.create(f"o{number}.lance/_versions/1.manifest", b"{}")
    verbs = []
    for _ in range(3):
        assert root.look()[0].is_visible
        verbs.append([request.verb for request in root.watched.requests])
    assert verbs == [["list_after"], *[["head", "head", "list_level"]] * 2]


@pytest.mark.parametrize("scheme", NamingScheme)
def test_many_files_before_the_versions_are_skipped(scheme: NamingScheme) -> None:
    for root in _both(f"many files {scheme}"):
        for number in range(1100):
            root.store.create(f"n.lance/_indices/{number:05}", b"x")
        assert not inspect_name(root, "n").holds_table
        for version in (1, 2):
            root.store.create(manifest_key("n.lance", None, version, scheme), b"{}")
        snapshot = inspect_name(root, "n", versions=True)
        assert (snapshot.is_visible, snapshot.version) == (True, 2)
        assert not snapshot.is_empty


@pytest.mark.parametrize("scheme", NamingScheme)
def test_newest_of_more_than_a_thousand_versions_is_the_newest(scheme: NamingScheme) -> None:
    for root in _both(f"many versions {scheme}"):
        for version in range(1, 1103):
            root.store.create(manifest_key("n.lance", None, version, scheme), b"{}")
        assert inspect_name(root, "n", versions=True).version == 1102
        assert inspect_name(root, "n").is_visible


@pytest.mark.parametrize("other", ["n.car", "n.c", "n.control.x", "n.controls", "n.d", "n.deletedx", "n.k"])
@pytest.mark.parametrize("files", [1, 1500])
def test_names_with_dots_that_sort_in_between_do_not_disturb(other: str, files: int) -> None:
    for root in _both(f"{other} {files}"):
        root.put_table()
        root.put_table(other)
        for number in range(files):
            root.store.create(f"{other}.lance/data/{number:05}", b"x")
        assert root.look()[0].is_visible
        root.put_mark()
        root.put_control(DELETED)
        snapshot, _ = root.look()
        assert snapshot.is_dropped
        assert inspect_name(root, other).is_visible
        assert list_names(root, include_declared=True) == [other]


# All names.


def test_listing_decides_by_size_and_names_what_is_in_doubt() -> None:
    root = _make_root("listing")
    for name in ("visible", "dropped", "foreign", "doubtful", "late"):
        root.put_table(name)
    mark = encode_mark(Mark(root.clock.now(), WEEK, ID, ""))
    for name in ("dropped", "doubtful"):
        root.store.create(f"{name}.control", encode_control(DELETED))
    root.store.create("dropped.deleted", mark)
    root.store.create("foreign.deleted", b"{}")
    root.store.create("late.control", encode_control(SHORT))
    root.store.create("late.deleted", mark)
    root.store.create("gone.control", encode_control(PURGED))
    listing = list_root(root)
    assert listing.directories == {"visible", "dropped", "foreign", "doubtful", "late"}
    assert listing.shown_by_size() == {"visible"}
    assert listing.doubtful() == {"doubtful", "late"}
    assert listing.hidden() == {"dropped", "doubtful", "foreign", "late", "gone"}
    assert list_names(root, include_declared=True) == ["doubtful", "late", "visible"]


def test_times_of_the_store_pass_through_the_clock_of_the_catalog() -> None:
    root = _make_root("times")
    root.put_table()
    root.put_mark()
    earlier = root.clock.now() - WEEK

    class Shifted(StoreClock):
        def at_store(self, moment: datetime) -> datetime:
            return moment - WEEK

    snapshot, _ = replace(root, clock=Shifted()).look(Bodies.ALL)
    assert snapshot.mark is not None
    assert snapshot.marker is not None
    assert snapshot.mark.modified == snapshot.marker.modified == earlier


# What other clients leave inside directories.


def _make_large(root: Root) -> None:
    """Fill the root of one table with more keys than a page holds, and flag it."""
    flag_root(root.store)
    root.put_table("t")
    for number in range(1001):
        root.store.create(f"other/{number}", b"")


def _listed(root: Root, **fields: bool) -> tuple[list[str], list[str]]:
    """Return the listed names and the verbs of the requests."""
    root.watched.requests.clear()
    found = list_names(root, **{"include_declared": True, **fields})
    asked = [each for each in root.watched.requests if each.verb != "which_exist" or each.key]
    return found, [request.verb for request in asked]


def test_small_root_is_listed_with_all_that_lies_inside_in_one_request(root: Root) -> None:
    flag_root(root.store)
    for name in ("hidden", "t"):
        root.put_table(name)
    root.store.create("hidden.lance/.lance-deregistered", b"reserved")
    root.store.create("declared.lance/.lance-reserved", b"reserved")
    root.store.create("leftovers.lance/data/x.lance", b"x")
    assert _listed(root) == (["declared", "t"], ["list_after"])
    assert _listed(root, include_declared=False) == (["t"], ["list_after"])


def test_large_root_is_looked_into_again_once_its_flag_has_expired(root: Root) -> None:
    _make_large(root)
    root.put_table("u")
    assert _listed(root) == (["t", "u"], ["list_after", "list_level"])
    root.store.create("t.lance/.lance-deregistered", b"reserved")
    root.store.create("d.lance/.lance-reserved", b"reserved")
    assert _listed(root) == (["d", "t", "u"], ["list_level"]), "the flag still vouches that nothing is inside"
    root.clock.advance(LOOK_INSIDE_EVERY)
    found, requests = _listed(root)
    assert found == ["d", "u"]
    assert requests.count("which_exist") == 1
    assert root.store.which_exist(["t.deregistered", "d.declared", "u.declared"]) == {
        "t.deregistered",
        "d.declared",
    }
    # The signs tell it to everybody from now on, and the flag is as good as new.
    assert _listed(root)[0] == ["d", "u"]
    assert _listed(root, include_declared=False)[0] == ["u"]
    fresh = replace(root, memory=Memory())
    assert _listed(fresh) == (["d", "u"], ["list_after", "list_level", "which_exist"])


def test_client_that_may_only_read_remembers_what_it_saw_inside() -> None:
    def refuse(request: Request) -> Fault | None:
        if request.verb in {"create", "replace"}:
            raise PermissionDeniedError("read only")
        return None

    root = _make_root("reader")
    _make_large(root)
    root.put_table("u")
    root.store.create("t.lance/.lance-deregistered", b"reserved")
    root = replace(root, watched=FaultyStorage(root.store, refuse))
    root.clock.advance(LOOK_INSIDE_EVERY)
    assert _listed(root)[0] == ["u"]
    assert _listed(root) == (["u"], ["list_level"])
    root.put_table("new")
    assert _listed(root)[0] == ["new", "u"], "an unknown directory is looked into"
    root.store.create("u.lance/.lance-deregistered", b"reserved")
    assert _listed(root)[0] == ["new", "u"]
    root.clock.advance(LOOK_INSIDE_EVERY)
    assert _listed(root)[0] == ["new"]


def test_root_without_a_flag_is_looked_into_every_time(root: Root) -> None:
    _make_large(root)
    root.store.delete(".relance-root")
    root.store.create("t.lance/.lance-deregistered", b"reserved")
    for _ in range(2):
        assert _listed(root)[0] == []
    assert not root.store.which_exist(["t.deregistered", ".relance-root"])
