"""Random sequences of lifecycle calls by two clients on real tables, compared with the reference model.

Calls come one after the other (races are the explorer's and the soak's), so the answer to every one of
them is known beforehand. The clients' clocks differ, and one rule moves the time on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.support.calls import rows
from tests.support.machines.base import WHO, TwoClients, millis, values
from tests.support.machines.clock import TIME, OffsetClock
from tests.support.models.reference import CLOCK_SKEW, Error, Hidden, ReferenceModel
from tests.support.roots import numbers, stream_of

import relance
from relance.catalog.repair import Problem
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.errors import RelanceError

NAMES = ("orders", "users", "événements")
TTLS = (None, timedelta(0), timedelta(minutes=10), timedelta(days=2))
STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 4, 6, 23, 60, 24 * 60, 3 * 24 * 60, 8 * 24 * 60))


@dataclass(slots=True)
class Handle:
    """A table that somebody opened, and what it must show."""

    name: str
    dataset: Any
    version: int
    expected: list[int]

    def check(self) -> None:
        assert values(self.dataset) == self.expected


NAME = st.sampled_from(NAMES)
FLAG = st.booleans()


BEGINNINGS = ("nothing", "live", "declared", "dropped while open")


class LifecycleMachine(TwoClients):
    """Two clients on one root, and the model that says what they must see."""

    def __init__(self, properties: Mapping[str, str], *, read_all: bool = True) -> None:
        """Start on an empty root; without `read_all` only the table of the last call is read each time."""
        super().__init__(properties)
        self.read_all = read_all
        self.model = ReferenceModel(NAMES)
        self.handles: list[Handle] = []
        self.touched = NAMES[0]

    @initialize(
        ahead=st.sampled_from([-CLOCK_SKEW, timedelta(0), timedelta(seconds=90), CLOCK_SKEW]),
        begin=st.tuples(*(st.sampled_from(BEGINNINGS) for _ in NAMES)),
    )
    def open_clients(self, ahead: timedelta, begin: tuple[str, ...]) -> None:
        """Open both, and bring each name to where it begins: most sequences need some table."""
        self.offsets = [timedelta(0), ahead]
        self.clients = [
            relance.DirectoryNamespace(clock=OffsetClock(offset), manifest_enabled="false", **self.properties)
            for offset in self.offsets
        ]

        for name, beginning in zip(NAMES, begin, strict=True):
            self.begin(name, beginning)

    def begin(self, name: str, beginning: str) -> None:
        """Bring a name to where it begins; rules are plain methods too."""
        if beginning == "declared":
            self.declare(name, 0)
        elif beginning != "nothing":
            self.create(name, 0, "create")
        if beginning == "dropped while open":
            self.open_handle(name, 0)
            self.drop(name, 0, None)

    def head(self, name: str) -> list[int]:
        return self.model.entries[name].versions[-1]

    @rule(step=st.sampled_from(STEPS))
    def time_passes(self, step: timedelta) -> None:
        TIME.advance(step)

    @rule(name=NAME, who=WHO, mode=st.sampled_from(["create", "exist_ok", "overwrite"]))
    def create(self, name: str, who: int, mode: str) -> None:
        self.touched, data = name, self.new_rows()
        expected = self.model.create(name, mode, data, TIME.now())
        request = {"id": [name], "mode": mode}
        response = answer(expected, lambda: self.clients[who].create_table(request, stream_of(*data)))
        if response is not None:
            assert response.version == len(self.model.entries[name].versions)

    @precondition(lambda self: len(self.model.visible()) < len(NAMES))
    @rule(who=WHO, mode=st.sampled_from(["create", "exist_ok", "overwrite"]))
    def create_what_is_not_there(self, who: int, mode: str) -> None:
        """Keep the root from running empty."""
        missing = next(name for name in NAMES if name not in self.model.visible())
        self.create(missing, who, mode)

    @rule(name=NAME, who=WHO)
    def declare(self, name: str, who: int) -> None:
        self.touched = name
        expected = self.model.declare(name, TIME.now())
        answer(expected, lambda: self.clients[who].declare_table({"id": [name]}))

    @precondition(lambda self: any(entry.only_declared for entry in self.model.entries.values()))
    @rule(name=NAME, who=WHO)
    def write_to_a_declared_table(self, name: str, who: int) -> None:
        """Do what pylance does after a declare: write to the place, and tell nobody."""
        if not self.model.entries[name].only_declared:
            return
        self.touched, data = name, self.new_rows()
        place = self.clients[who].describe_table({"id": [name]})
        lance.write_dataset(
            numbers(*data), place.location, mode="create", storage_options=place.storage_options
        )
        self.model.write_declared(name, data, TIME.now())

    @rule(name=NAME, who=WHO, ttl=st.sampled_from(TTLS))
    def drop(self, name: str, who: int, ttl: timedelta | None) -> None:
        self.touched, at = name, self.now(who)
        context = {} if ttl is None else {"ttl_ms": str(ttl // timedelta(milliseconds=1))}
        expected = self.model.drop(name, TIME.now(), ttl)
        response = answer(expected, lambda: self.clients[who].drop_table({"id": [name], "context": context}))
        if response is not None:
            # By the client's own clock: the store's is not asked.
            assert response.properties["deleted_at_ms"] == str(millis(at))
            due = at + self.model.entries[name].ttl
            assert response.properties["purge_after_ms"] == str(millis(due))

    @rule(name=NAME, who=WHO)
    def drop_and_purge(self, name: str, who: int) -> None:
        self.touched = name
        expected = self.model.drop(name, TIME.now(), None)
        request = {"id": [name], "context": {"purge": "true"}}
        response = answer(expected, lambda: self.clients[who].drop_table(request))
        if response is not None:
            assert response.properties["purged"] == "true"
            self.purged(name)

    @rule(name=NAME, who=WHO)
    def undrop(self, name: str, who: int) -> None:
        self.touched = name
        expected = self.model.undrop(name, TIME.now())
        status = answer(expected, lambda: self.clients[who].undrop_table([name]))
        if status is not None:
            assert status == (Exists((name,)) if self.model.entries[name].visible else NotFound((name,)))

    @rule(name=NAME, who=WHO, force=FLAG)
    def purge(self, name: str, who: int, force: bool) -> None:
        self.touched = name
        expected = self.model.purge(name, TIME.now(), force=force)
        result = answer(expected, lambda: self.clients[who].purge_table([name], force=force))
        if result is not None:
            assert result.purged
            assert result.left == ()
            self.close_handles(name)

    @rule(who=WHO, dry_run=FLAG)
    def purge_all_that_are_due(self, who: int, dry_run: bool) -> None:
        due = self.model.purgeable(TIME.now())
        results = self.clients[who].purge_tables(dry_run=dry_run)
        assert [result.id for result in results] == [(name,) for name in due]
        assert all(result.error is None for result in results)
        for name in () if dry_run else due:
            self.purged(name)

    def purged(self, name: str) -> None:
        """Note a purge that must have worked."""
        assert self.model.purge(name, TIME.now(), force=True) is None
        self.close_handles(name)

    def close_handles(self, name: str) -> None:
        self.handles = [handle for handle in self.handles if handle.name != name]

    @rule(name=NAME, who=WHO)
    def deregister(self, name: str, who: int) -> None:
        self.touched = name
        expected = self.model.deregister(name)
        answer(expected, lambda: self.clients[who].deregister_table({"id": [name]}))

    @rule(name=NAME, who=WHO, mode=st.sampled_from(["create", "overwrite"]))
    def register(self, name: str, who: int, mode: str) -> None:
        self.touched = name
        request = {"id": [name], "location": f"{name}.lance", "mode": mode}
        expected = self.model.register(name, mode)
        answer(expected, lambda: self.clients[who].register_table(request))

    @rule(name=NAME, who=WHO)
    def look(self, name: str, who: int) -> None:
        """Ask for everything there is to know of one name."""
        client, entry = self.clients[who], self.model.entries[name]
        expected = self.model.must_be_visible(name)
        answer(expected, lambda: client.table_exists({"id": [name]}))
        request = {"id": [name], "load_detailed_metadata": True}
        described = answer(expected, lambda: client.describe_table(request))
        if described is not None:
            assert described.is_only_declared is entry.only_declared
            assert (described.version or 0) == len(entry.versions)
        status = client.table_status([name])
        if entry.hidden is Hidden.DROPPED:
            assert isinstance(status, SoftDeleted)
            assert status.purge_after == entry.purge_after
        else:
            assert status == (Exists((name,)) if entry.visible else NotFound((name,)))

    @rule(who=WHO, days=st.integers(0, 9))
    def list_the_rest(self, who: int, days: int) -> None:
        client, at = self.clients[who], self.now(who)
        with_data = client.list_tables({"id": [], "include_declared": False}).tables
        assert list(with_data) == self.model.visible(include_declared=False)
        due = self.model.purgeable(TIME.now())
        assert _ids(client.list_purgable_tables()) == due
        cut_off = at - timedelta(days=days)
        dropped_at = {name: self.model.entries[name].dropped_at or at for name in due}
        assert _ids(client.list_purgable_tables(cut_off)) == [
            name for name in due if dropped_at[name] < cut_off
        ]

    @precondition(lambda self: any(entry.live for entry in self.model.entries.values()))
    @rule(name=NAME, who=WHO)
    def open_handle(self, name: str, who: int) -> None:
        if self.model.entries[name].live:
            dataset = self.open(name, who)
            self.handles.append(
                Handle(name, dataset, len(self.model.entries[name].versions), self.head(name))
            )

    @precondition(lambda self: self.handles)
    @rule()
    def read_open_handles(self) -> None:
        """Whatever became of the tables: only a purge ends the handles."""
        for handle in self.handles:
            handle.check()

    @precondition(lambda self: any(entry.live for entry in self.model.entries.values()))
    @rule(name=NAME, who=WHO)
    def append(self, name: str, who: int) -> None:
        if self.model.entries[name].live:
            self.touched, data = name, self.new_rows()
            self.open(name, who).insert(numbers(*data), mode="append")
            self.model.append(name, data, TIME.now())

    @precondition(lambda self: self.handles)
    @rule(name=NAME)
    def append_through_an_open_handle(self, name: str) -> None:
        """Whoever opened the table before a drop does not know of it, and its rows are kept."""
        latest = len(self.model.entries[name].versions)
        for handle in self.handles:
            if handle.name == name and handle.version == latest:
                data = self.new_rows()
                handle.dataset.insert(numbers(*data), mode="append")
                self.model.append(name, data, TIME.now())
                handle.version, handle.expected = latest + 1, self.head(name)
                return

    def open(self, name: str, who: int) -> Any:
        return lance.dataset(namespace_client=self.clients[who], table_id=[name])

    @rule(who=WHO, dry_run=FLAG)
    def sweep(self, who: int, dry_run: bool) -> None:
        at = TIME.now()
        expected = self.model.sweepable(at) if dry_run else self.model.sweep(at)
        assert self.clients[who].sweep_markers(dry_run=dry_run) == expected

    @rule(who=WHO, repair=FLAG)
    def scrub(self, who: int, repair: bool) -> None:
        """Nothing is ever wrong here but signs of declared tables that were written to since."""
        findings = self.clients[who].scrub(repair=repair)
        expected = [(f"{name}.declared", Problem.STALE_SIGN) for name in self.model.stale_signs()]
        assert [(finding.name, finding.problem) for finding in findings] == expected
        assert all(finding.repaired is repair for finding in findings)
        if repair:
            self.model.remove_stale_signs()

    @rule(who=WHO, dry_run=FLAG)
    def migrate_markers(self, who: int, dry_run: bool) -> None:
        plan = self.clients[who].migrate_markers(dry_run=dry_run)
        assert plan.deregistered == plan.declared == ()
        assert list(plan.settled) == self.model.stale_signs()
        assert plan.already_migrated is self.model.flagged
        if not dry_run:
            self.model.remove_stale_signs()
            self.model.flagged = True

    @invariant()
    def both_clients_list_what_the_model_lists(self) -> None:
        for client in self.clients:
            assert list(client.list_tables({"id": []}).tables) == self.model.visible()

    @invariant()
    def both_clients_list_the_dropped_tables(self) -> None:
        entries = self.model.entries
        expected = [
            (
                name,
                entries[name].dropped_at,
                entries[name].purge_after,
                entries[name].dropped_version,
                "deleted",
            )
            for name in self.model.dropped()
        ]
        for client in self.clients:
            found = [
                (each.id[-1], each.deleted_at, each.purge_after, each.version, each.state)
                for each in client.list_dropped_tables()
            ]
            assert found == expected

    @invariant()
    def markers_lie_beside_dropped_tables_only(self) -> None:
        if self.read_all:
            assert _lifecycle_files(Path(self.properties["root"])) == self.model.files()

    @invariant()
    def visible_tables_have_their_rows(self) -> None:
        self.turn += 1
        for name in NAMES if self.read_all else (self.touched,):
            if self.model.entries[name].live:
                assert rows(self.clients[self.turn % 2], name) == self.head(name)

    def teardown(self) -> None:
        """Read every version of every table: what was written over is still there."""
        if not self.clients:
            return
        for name, entry in self.model.entries.items():
            for version, expected in enumerate(entry.versions if entry.live else [], start=1):
                assert rows(self.clients[0], name, version) == expected


def answer(expected: Error, call: Callable[[], Any]) -> Any:
    """Return the call's result, or None when it failed with exactly the error that was expected."""
    try:
        result = call()
    except RelanceError as error:
        if type(error) is not expected:
            raise
        return None
    assert expected is None, f"expected {expected}, got {result}"
    return result


def _lifecycle_files(root: Path) -> set[str]:
    names = os.listdir(root) if root.exists() else []
    return {name for name in names if name.endswith((".deleted", ".control"))}


def _ids(found: list[SoftDeleted]) -> list[str]:
    return [each.id[-1] for each in found]
