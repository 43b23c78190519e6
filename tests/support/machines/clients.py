"""The clients that work on one root, their clocks, and what must hold after every call of theirs.

The calls themselves are in tests.support.machines.manifest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import lance
from hypothesis.stateful import invariant
from tests.support.machines.base import TwoClients, values
from tests.support.machines.clock import TIME, OffsetClock
from tests.support.machines.lifecycle import answer
from tests.support.models.manifest import Data, Drop, Id, ManifestModel

import relance
from relance.catalog.resolve import Exists, NotFound, SoftDeleted, TableStatus
from relance.errors import NamespaceNotFoundError

NAMESPACES: tuple[Id, ...] = (("sales",), ("sales", "eu"), ("ops",))
TABLES: tuple[Id, ...] = (
    ("orders",),
    ("événements",),
    ("ops",),
    ("sales", "orders"),
    ("sales", "eu"),
    ("sales", "eu", "orders"),
)
"""Some are names of namespaces too."""

ANY = 9
"""A number below this chooses among what is there; from here on, among all names."""

TICK = timedelta(seconds=1)

_T = TypeVar("_T")


@dataclass(slots=True)
class Handle:
    """A table that somebody opened, and what it must show."""

    data: Data
    dataset: Any
    version: int
    expected: list[int]

    def check(self) -> None:
        assert values(self.dataset) == self.expected


class CatalogMachine(TwoClients):
    """Two clients on one root, and the model that says what they must see."""

    def __init__(self, properties: Mapping[str, str], model: ManifestModel) -> None:
        """Start on an empty root."""
        super().__init__(properties)
        self.model = model
        self.handles: list[Handle] = []
        self.touched: set[Id] = set()

    def open_client(self, clock: OffsetClock, **more: str) -> relance.DirectoryNamespace:
        return relance.DirectoryNamespace(clock=clock, **{**self.properties, **more})

    def advance(self, step: timedelta) -> None:
        TIME.advance(step)

    def later(self) -> datetime:
        """Let a moment pass, so that no two drops have one time, and return the time by the store's clock."""
        self.advance(TICK)
        return TIME.now()

    def seen(self, key: Id, location: str | None) -> Data:
        """Return the visible table, after a look at where it is said to be: it never moves."""
        data = self.model.table(key)
        assert data is not None
        assert location
        if not data.location:
            assert location not in {each.location for each in self.model.directories()}
            data.location = location
        assert location == data.location
        return data

    def some_table(self, which: int) -> Id:
        """Return the id of a visible table, or sometimes any."""
        visible: list[Id] = list(self.model.visible())
        return visible[which % len(visible)] if visible and which < ANY else TABLES[which % len(TABLES)]

    def some_dropped(self, which: int) -> Id:
        """Return the id of a dropped table, or sometimes any."""
        dropped = self.model.dropped_tables()
        return dropped[which % len(dropped)].id if dropped and which < ANY else TABLES[which % len(TABLES)]

    def close_handles(self) -> None:
        """Forget the handles of tables that were purged."""
        left = self.model.directories()
        self.handles = [handle for handle in self.handles if handle.data in left]

    def undrop_one(self, key: Id, who: int, deletion_id: str | None, new: Id | None) -> None:
        self.touched = {key, new or key}
        expected = self.model.undrop(key, deletion_id, new or key)
        status = answer(
            expected,
            lambda: self.clients[who].undrop_table(key, deletion_id=deletion_id, new_id=new),
        )
        if status is not None:
            shown = new or key
            assert status == (Exists(shown) if self.model.table(shown) else NotFound(shown))
            if self.model.table(shown):  # perhaps a copy
                self.seen(shown, self.clients[who].describe_table({"id": list(shown)}).location)

    def note_cascade(self, cascade: str, dropped: list[SoftDeleted]) -> None:
        """Note the ids of the drops that one call made."""
        told = {each.id: each.deletion_id for each in dropped if each.cascade_id == cascade}
        for drop in self.model.drops:
            if drop.cascade == "":
                drop.cascade = cascade
                drop.deletion_id = told.get(drop.id, cascade)

    def look_at_a_table(self, key: Id, who: int) -> None:
        client, data = self.clients[who], self.model.table(key)
        expected = None if data else self.model.missing(key)
        answer(expected, lambda: client.table_exists({"id": list(key)}))
        described = answer(expected, lambda: self.describe(key, who))
        if described is not None and data is not None:
            assert described.is_only_declared is not bool(data.versions)
            assert (described.version or 0) == len(data.versions)
            # Those of the row, and those that Lance has: a table registered without any keeps these.
            assert (described.properties or {}) == {**data.properties, **data.stored}
            assert described.location == data.location

    def describe(self, key: Id, who: int) -> Any:
        return self.clients[who].describe_table({"id": list(key), "load_detailed_metadata": True})

    def look_at_a_namespace(self, key: Id, who: int, limit: int) -> None:
        """Ask for its properties, and list its tables with data in pages."""
        client = self.clients[who]
        expected = None if self.model.exists(key) else NamespaceNotFoundError
        answer(expected, lambda: client.namespace_exists({"id": list(key)}))
        described = answer(expected, lambda: client.describe_namespace({"id": list(key)}))
        request = {"id": list(key), "limit": limit, "include_declared": False}
        page = answer(expected, lambda: client.list_tables(request))
        if page is None:
            return
        assert (described.properties or {}) == self.model.spaces[key].properties
        names = list(page.tables)
        while page.page_token:
            page = client.list_tables({**request, "page_token": page.page_token})
            names += page.tables
        assert names == self.model.tables_in(key, include_declared=False)

    def look_at_the_dropped(self, namespace: Id, who: int, days: int) -> None:
        client, at = self.clients[who], TIME.now()
        due = self.model.due(at)
        assert ids(client.list_purgable_tables()) == [each.id for each in due]
        cut_off = at - timedelta(days=days)
        old = [each.id for each in due if each.deleted_at < cut_off]
        assert ids(client.list_purgable_tables(cut_off)) == old
        dropped = [each.id for each in self.model.dropped_tables() if each.id[:-1] == namespace]
        assert ids(client.list_dropped_tables(namespace)) == dropped

    # What holds after every call. The clients take turns.

    @invariant()
    def what_is_listed_is_what_the_model_lists(self) -> None:
        self.turn += 1
        client = self.clients[self.turn % 2]
        assert list(client.list_all_tables({"id": []}).tables) == self.model.all_tables()
        for key in ((), NAMESPACES[self.turn % len(NAMESPACES)]):
            if self.model.exists(key):
                assert list(client.list_tables({"id": list(key)}).tables) == self.model.tables_in(key)
                children = client.list_namespaces({"id": list(key)}).namespaces
                assert list(children) == self.model.namespaces_in(key)

    @invariant()
    def dropped_tables_are_those_of_the_model(self) -> None:
        found = self.clients[self.turn % 2].list_dropped_tables()
        assert found == [status(each) for each in self.model.dropped_tables()]

    @invariant()
    def tables_are_what_the_model_says(self) -> None:
        """Those of the last call; a listing shows the others, and the end of the sequence reads them."""
        who = self.turn % 2
        for key in sorted(self.touched):
            data, dropped = self.model.table(key), self.model.dropped_tables(key)
            hidden: TableStatus = status(dropped[-1]) if dropped else NotFound(key)
            assert self.clients[who].table_status(key) == (Exists(key) if data else hidden)
            if data is not None and data.versions:
                assert self.read(key, who) == data.versions[-1]
        self.touched = set()

    def read(self, key: Id, who: int, version: int | None = None) -> list[int]:
        dataset = lance.dataset(namespace_client=self.clients[who], table_id=list(key), version=version)
        return values(dataset)

    def teardown(self) -> None:
        """Bring back every dropped table and read every version of all: what was written is still there."""
        if not self.clients or sys.exc_info()[0] is not None:  # an error must not hide behind the next one
            return
        self.check_directories()
        for number, drop in enumerate(self.model.dropped_tables()):
            self.undrop_one(drop.id, 0, drop.deletion_id, (f"found{number}",))
        for key, data in self.model.visible().items():
            for version, expected in enumerate(data.versions, start=1):
                assert self.read(key, 0, version) == expected
        for handle in self.handles:
            handle.check()

    def check_directories(self) -> None:
        """On a disk: no directory is left that no table has, and none is gone."""
        root = Path(self.properties["root"])
        if not root.is_dir():
            return
        found = {each.name for each in root.iterdir() if each.is_dir()} - {"__manifest", ".relance-local"}
        known = {each.directory for each in self.model.directories()}
        assert found == known, (found - known, known - found)


def choose(which: int, among: Sequence[_T]) -> _T:
    """Return one of several."""
    return among[which % len(among)]


def status(drop: Drop) -> SoftDeleted:
    return SoftDeleted(
        id=drop.id,
        deleted_at=drop.deleted_at,
        purge_after=drop.purge_after,
        deletion_id=drop.deletion_id,
        version=drop.version,
        state="deleted",
        cascade_id=drop.cascade,
    )


def ids(found: list[SoftDeleted]) -> list[Id]:
    return [each.id for each in found]
