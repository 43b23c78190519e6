"""Random sequences of calls by two clients of a catalog with a manifest, compared with the model.

Calls come one after the other, so the answer to every one of them is known beforehand. The clients'
clocks differ, and one rule moves the time on. What directories add is in compatibility_machine.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import lance
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.support.machines.base import WHO, millis
from tests.support.machines.clients import ANY, NAMESPACES, TABLES, CatalogMachine, Handle, choose
from tests.support.machines.clock import TIME, OffsetClock
from tests.support.machines.lifecycle import STEPS, TTLS, answer
from tests.support.models.manifest import CLOCK_SKEW, Error, Id
from tests.support.roots import numbers, stream_of

from relance.catalog.repair import Problem
from relance.errors import NamespaceNotFoundError

BEGINNINGS = ("nothing", "live", "declared", "dropped while open", "dropped twice")

HALF = timedelta(milliseconds=500)
"""Time passes in whole seconds and the clocks differ by a fraction of one, so no two drops have one time."""

TABLE = st.sampled_from(TABLES)
NAMESPACE = st.sampled_from(NAMESPACES)
FLAG = st.booleans()
SELDOM = st.sampled_from([False, False, False, True])
WHICH = st.integers(0, ANY + 2)
ANY_NAME = st.integers(0, ANY + 14)
TTL = st.sampled_from(TTLS)
MODE = st.sampled_from(["create", "exist_ok", "overwrite"])
PROPERTIES = st.sampled_from([{}, {"owner": "a"}, {"owner": "b", "drop_ttl": "1d"}])


class ManifestMachine(CatalogMachine):
    """Every call that such a catalog takes."""

    @initialize(
        ahead=st.sampled_from([-CLOCK_SKEW + HALF, HALF, timedelta(seconds=90) + HALF, CLOCK_SKEW - HALF]),
        spaces=st.sampled_from([NAMESPACES[:2], NAMESPACES, ()]),
        lost=SELDOM,
        properties=PROPERTIES,
        begin=st.tuples(*(st.sampled_from(BEGINNINGS) for _ in TABLES)),
    )
    def open_clients(
        self,
        ahead: timedelta,
        spaces: tuple[Id, ...],
        lost: bool,
        properties: dict[str, str],
        begin: tuple[str, ...],
    ) -> None:
        """Open both, and bring each name to where it begins: most sequences need some table."""
        self.offsets = [timedelta(0), ahead]
        self.clients = [self.open_client(OffsetClock(offset)) for offset in self.offsets]
        for each in spaces:
            self.create_namespace(each, 0, "create", properties)
        for key, beginning in zip(TABLES, begin, strict=True):
            self.begin(key, beginning, properties)
        if lost:
            self.drop_namespace(NAMESPACES[0], 0, None, restrict=False, skip=True)

    def begin(self, key: Id, beginning: str, properties: dict[str, str]) -> None:
        """Bring a name to where it begins, if it can be."""
        if beginning == "declared":
            self.declare(key, 0, properties)
        elif beginning != "nothing":
            self.create(key, 0, "create", properties)
        if beginning.startswith("dropped"):
            self.open_handle(key, 0)
            self.drop(key, 0, None)
        if beginning == "dropped twice":
            self.create_with_pylance(key, 0)
            self.drop(key, 1, None)

    @rule(step=st.sampled_from(STEPS))
    def time_passes(self, step: timedelta) -> None:
        self.advance(step)

    # Tables come.

    @rule(which=ANY_NAME, who=WHO, mode=MODE, properties=PROPERTIES)
    def create_some(self, which: int, who: int, mode: str, properties: dict[str, str]) -> None:
        self.create(self.some_dropped(which), who, mode, properties)

    def create(self, key: Id, who: int, mode: str, properties: dict[str, str]) -> None:
        self.touched, data = {key}, self.new_rows()
        there = self.model.table(key)
        kept = mode == "exist_ok" and there is not None and bool(there.versions)
        expected = self.model.create(key, mode, data, properties)
        request = {"id": list(key), "mode": mode, "properties": properties}
        response = answer(expected, lambda: self.clients[who].create_table(request, stream_of(*data)))
        if response is not None:
            table = self.seen(key, response.location)
            assert response.version == (len(table.versions) if kept else table.written)
            assert (response.properties or {}) == table.properties

    @rule(which=ANY_NAME, who=WHO, properties=PROPERTIES)
    def declare_some(self, which: int, who: int, properties: dict[str, str]) -> None:
        self.declare(self.some_dropped(which), who, properties)

    def declare(self, key: Id, who: int, properties: dict[str, str]) -> None:
        self.touched = {key}
        expected = self.model.declare(key, properties)
        request = {"id": list(key), "properties": properties}
        response = answer(expected, lambda: self.clients[who].declare_table(request))
        if response is not None:
            self.seen(key, response.location)

    @rule(key=TABLE, who=WHO)
    def create_with_pylance(self, key: Id, who: int) -> None:
        """Pylance declares the table, and writes on its own."""
        self.touched, data = {key}, self.new_rows()
        expected = self.model.declare(key, {})
        dataset = answer(expected, lambda: self.write(key, who, data, mode="create"))
        if dataset is not None:
            place = self.clients[who].describe_table({"id": list(key)})
            self.seen(key, place.location).write(data, {})

    def write(self, key: Id, who: int, rows: list[int], *, mode: str) -> Any:
        client = self.clients[who]
        return lance.write_dataset(numbers(*rows), namespace_client=client, table_id=list(key), mode=mode)

    @precondition(lambda self: any(not data.versions for data in self.model.visible().values()))
    @rule(which=WHICH, who=WHO)
    def write_to_a_declared_table(self, which: int, who: int) -> None:
        """Do what pylance does after a declare: write to the place, and tell nobody."""
        key = choose(which, [each for each, data in self.model.visible().items() if not data.versions])
        self.touched, data = {key}, self.new_rows()
        place = self.clients[who].describe_table({"id": list(key)})
        lance.write_dataset(
            numbers(*data), place.location, mode="create", storage_options=place.storage_options
        )
        self.seen(key, place.location).write(data, {})

    @rule(which=WHICH, who=WHO, mode=st.sampled_from(["append", "overwrite"]))
    def write_with_pylance(self, which: int, who: int, mode: str) -> None:
        key, data = self.some_table(which), self.new_rows()
        self.touched, table = {key}, self.model.table(key)
        if table is None or not table.versions:
            expected = self.model.missing(key) if table is None else None
            answer(expected, lambda: self.describe(key, who))
            return
        self.write(key, who, data, mode=mode)
        if mode == "append":
            table.append(data)
        else:
            table.write(data, {})

    # Tables go, and come back.

    @rule(which=WHICH, who=WHO, ttl=TTL, purge=SELDOM)
    def drop_some(self, which: int, who: int, ttl: timedelta | None, purge: bool) -> None:
        self.drop(self.some_table(which), who, ttl, purge=purge)

    def drop(self, key: Id, who: int, ttl: timedelta | None, *, purge: bool = False) -> None:
        self.touched, at = {key}, self.later()
        context = {} if ttl is None else {"ttl_ms": str(ttl // timedelta(milliseconds=1))}
        if purge:
            context["purge"] = "true"
        before = self.model.table(key)
        expected = self.model.drop(key, at, ttl)
        request = {"id": list(key), "context": context}
        response = answer(expected, lambda: self.clients[who].drop_table(request))
        if response is not None:
            drop = self.model.drops[-1]
            drop.deletion_id = response.properties["deletion_id"]
            # A drop in its home directory does not ask the store for its time; one by a row does.
            shown = self.now(who) if key == (drop.data.home,) else at
            assert response.properties["deleted_at_ms"] == str(millis(shown))
            assert response.properties["purge_after_ms"] == str(millis(shown + drop.ttl))
            assert before is None or before.properties.items() <= response.properties.items()
            assert response.location == drop.data.location
            if purge:
                assert response.properties["purged"] == "true"
                self.model.forget(drop)
                self.close_handles()

    @rule(which=WHICH, who=WHO, new=st.none() | TABLE)
    def undrop(self, which: int, who: int, new: Id | None) -> None:
        self.undrop_one(self.some_dropped(which), who, None, new)

    @precondition(lambda self: self.model.dropped_tables())
    @rule(which=WHICH, of=WHICH, who=WHO, new=st.none() | TABLE)
    def undrop_by_deletion_id(self, which: int, of: int, who: int, new: Id | None) -> None:
        """Undrop one generation by its id, sometimes with a name that is not its."""
        drop = choose(which, self.model.dropped_tables())
        self.undrop_one(drop.id if of < ANY else self.some_dropped(of), who, drop.deletion_id, new)

    @rule(which=WHICH, who=WHO, force=FLAG)
    def purge(self, which: int, who: int, force: bool) -> None:
        key = self.some_dropped(which)
        self.touched = {key}
        expected = self.model.purge(key, TIME.now(), force=force)
        result = answer(expected, lambda: self.clients[who].purge_table(key, force=force))
        if result is not None:
            assert result.purged
            assert result.id == key
            assert result.left == ()
        self.close_handles()

    @rule(who=WHO, dry_run=FLAG)
    def purge_all_that_are_due(self, who: int, dry_run: bool) -> None:
        due = self.model.due(TIME.now())
        results = self.clients[who].purge_tables(dry_run=dry_run)
        assert [result.id for result in results] == [each.id for each in due]
        assert all(result.error is None and result.files for result in results)
        if not dry_run:
            self.model.purge_due(TIME.now())
            self.close_handles()

    # Names.

    @rule(which=WHICH, who=WHO, new=TABLE)
    def rename(self, which: int, who: int, new: Id) -> None:
        key = self.some_table(which)
        self.touched = {key, new}
        self.later()
        drops = list(self.model.drops)
        expected = self.model.rename(key, new)
        request: dict[str, Any] = {"id": list(key), "new_table_name": new[-1]}
        if key[:-1] != new[:-1]:
            request["new_namespace_id"] = list(new[:-1])
        answer(expected, lambda: self.clients[who].rename_table(request))
        for drop in self.model.drops:
            if drop not in drops:  # a root table was copied
                drop.deletion_id = self.clients[who].list_dropped_tables()[-1].deletion_id
                self.seen(new, self.clients[who].describe_table({"id": list(new)}).location)

    @rule(which=WHICH, who=WHO)
    def deregister(self, which: int, who: int) -> None:
        key = self.some_table(which)
        self.touched = {key}
        before = self.model.table(key)
        properties = dict(before.properties) if before else {}
        expected = self.model.deregister(key)
        response = answer(expected, lambda: self.clients[who].deregister_table({"id": list(key)}))
        if response is not None:
            assert before is not None
            assert response.location == before.location
            assert (response.properties or {}) == properties

    @precondition(lambda self: self.model.directories())
    @rule(
        key=TABLE, which=WHICH, who=WHO, mode=st.sampled_from(["create", "overwrite"]), properties=PROPERTIES
    )
    def register(self, key: Id, which: int, who: int, mode: str, properties: dict[str, str]) -> None:
        """Register a directory, most often one without a name; a home directory under its own name.

        What a home shares with another name that is registered at it is tested in test_aliases.
        """
        directories = self.model.directories()
        loose = [each for each in directories if self.model.is_loose(each)]
        data = choose(which, loose if loose and which < ANY else directories)
        key = (data.home,) if data.home else key
        self.touched = {key}
        expected = self.model.register(key, data, mode, properties)
        request = {"id": list(key), "location": data.location, "mode": mode, "properties": properties}
        response = self.call_register(request, who, expected)
        if response is not None:
            self.seen(key, response.location)

    def call_register(self, request: dict[str, Any], who: int, expected: Error) -> Any:
        return answer(expected, lambda: self.clients[who].register_table(request))

    @rule(which=WHICH, key=st.none() | NAMESPACE, who=WHO, on=FLAG)
    def protect(self, which: int, key: Id | None, who: int, on: bool) -> None:
        key = key or self.some_table(which)
        self.touched = {key}
        client = self.clients[who]
        expected = self.model.protect(key, on=on)
        answer(expected, lambda: client.protect(key) if on else client.unprotect(key))

    # Namespaces.

    @rule(key=NAMESPACE, who=WHO, mode=MODE, properties=PROPERTIES)
    def create_namespace(self, key: Id, who: int, mode: str, properties: dict[str, str]) -> None:
        expected = self.model.create_namespace(key, mode, properties)
        request = {"id": list(key), "mode": mode, "properties": properties}
        response = answer(expected, lambda: self.clients[who].create_namespace(request))
        if response is not None:
            assert (response.properties or {}) == self.model.spaces[key].properties

    @rule(key=NAMESPACE, who=WHO, ttl=TTL, restrict=SELDOM, skip=FLAG)
    def drop_namespace(self, key: Id, who: int, ttl: timedelta | None, restrict: bool, skip: bool) -> None:
        self.touched, at = set(self.model.inside(key)), self.later()
        expected = self.model.drop_namespace(key, at, ttl, cascade=not restrict)
        missing = skip and expected is NamespaceNotFoundError
        request: dict[str, Any] = {
            "id": list(key),
            "behavior": "Restrict" if restrict else "Cascade",
            "mode": "Skip" if skip else "Fail",
        }
        if ttl is not None:
            request["context"] = {"ttl_ms": str(ttl // timedelta(milliseconds=1))}
        client = self.clients[who]
        response = answer(None if missing else expected, lambda: client.drop_namespace(request))
        if response is not None and not missing:
            self.note_cascade(response.properties["cascade_id"], client.list_dropped_tables())

    @precondition(lambda self: self.model.dropped_namespaces())
    @rule(which=WHICH, who=WHO, newest=FLAG)
    def undrop_namespace(self, which: int, who: int, newest: bool) -> None:
        """Undrop the newest drop of a namespace, or any one by its id."""
        drop = choose(which, self.model.dropped_namespaces())
        cascade = None if newest else drop.cascade
        expected, back = self.model.undrop_namespace(drop.id, cascade)
        self.touched = {*back} - {*self.model.spaces}
        found = answer(expected, lambda: self.clients[who].undrop_namespace(drop.id, cascade_id=cascade))
        if found is not None:
            assert found == back

    # Looking.

    @rule(which=WHICH, namespace=NAMESPACE, who=WHO, days=st.integers(0, 9), limit=st.integers(1, 3))
    def look(self, which: int, namespace: Id, who: int, days: int, limit: int) -> None:
        """Ask for everything there is to know."""
        self.look_at_a_table(self.some_table(which), who)
        self.look_at_a_namespace(namespace, who, limit)
        self.look_at_the_dropped(namespace if which % 2 else (), who, days)

    # Handles.

    @rule(which=WHICH, who=WHO)
    def open_some(self, which: int, who: int) -> None:
        self.open_handle(self.some_table(which), who)

    def open_handle(self, key: Id, who: int) -> None:
        data = self.model.table(key)
        if data is not None and data.versions:
            dataset = lance.dataset(namespace_client=self.clients[who], table_id=list(key))
            self.handles.append(Handle(data, dataset, len(data.versions), data.versions[-1]))

    @precondition(lambda self: self.handles)
    @rule(which=WHICH)
    def use_open_handles(self, which: int) -> None:
        """Whatever became of the tables: only a purge ends the handles, and what they append is kept."""
        for handle in self.handles:
            handle.check()
        handle = choose(which, self.handles)
        if handle.version == len(handle.data.versions):
            rows = self.new_rows()
            handle.dataset.insert(numbers(*rows), mode="append")
            handle.data.append(rows)
            handle.version, handle.expected = handle.version + 1, handle.data.versions[-1]

    # Upkeep.

    @rule(who=WHO)
    def maintain_manifest(self, who: int) -> None:
        self.clients[who].maintain_manifest()

    @rule(who=WHO, dry_run=FLAG)
    def migrate_to_manifest(self, who: int, dry_run: bool) -> None:
        plan = self.clients[who].migrate_to_manifest(dry_run=dry_run)
        assert plan.registered == plan.dropped == plan.mended == plan.shadowed == ()

    @rule(who=WHO, repair=FLAG)
    def scrub(self, who: int, repair: bool) -> None:
        """Nothing is ever wrong but what was deregistered, and what clients without manifest leave."""
        found = self.clients[who].scrub(repair=repair)
        orphans = {each.name for each in found if each.problem is Problem.ORPHAN_DIRECTORY}
        assert orphans == {each.directory for each in self.model.loose if not each.home}
        assert {each.problem for each in found} <= {Problem.ORPHAN_DIRECTORY, *self.harmless()}
        assert all(each.error is None for each in found)

    def harmless(self) -> set[Problem]:
        """Return what a scrub may find and mend."""
        return set()
