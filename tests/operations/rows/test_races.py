"""Eight processes race for namespaces and tables: one wins, and every response stays true.

A few rounds here. Many of them:

    make test-long ARGS=tests/operations/rows/test_races.py
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.support.codes import (
    CONCURRENT_MODIFICATION,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_EMPTY,
    NAMESPACE_NOT_FOUND,
    SERVICE_UNAVAILABLE,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.modes import COMPATIBILITY, V2
from tests.support.race_processes import (
    Action,
    Create,
    CreateNamespace,
    CreateOwn,
    Declare,
    Divided,
    Drop,
    DropNamespace,
    Event,
    FreeForAll,
    RenameAway,
    RenameOnto,
    Undrop,
    UndropNamespace,
    UndropOwn,
    WithUpkeep,
)
from tests.support.racing import Outcome, Team, team
from tests.support.root_checks import check_all_versions, check_rows, open_root, orphans

from relance import DirectoryNamespace

pytestmark = pytest.mark.deep

PROCESSES = 8
LONG = os.environ.get("RELANCE_PROFILE") == "long"
ROUNDS = 60 if LONG else 3
BOUTS = 20 if LONG else 1


@pytest.fixture(scope="module")
def racers() -> Iterator[Team]:
    """Processes that are ready to race."""
    with team(PROCESSES) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Field:
    """A root to race on: its mode, and the namespace the names are in."""

    root: Path
    properties: dict[str, str]
    namespace: tuple[str, ...]
    catalog: DirectoryNamespace

    def race(self, racers: Team, action: Action, *, rounds: int = ROUNDS) -> dict[str, list[Outcome]]:
        return racers.race({"root": str(self.root), **self.properties}, action, rounds=rounds)

    def id_of(self, name: str) -> list[str]:
        return [*self.namespace, name]

    @property
    def copies(self) -> bool:
        """Whether tables are in their home directories: then another name is given to a copy."""
        return self.properties == COMPATIBILITY and not self.namespace

    def names(self) -> list[str]:
        return list(self.catalog.list_tables({"id": list(self.namespace)}).tables)

    def namespaces(self) -> list[str]:
        return list(self.catalog.list_namespaces({"id": list(self.namespace)}).namespaces)

    def dropped(self) -> list[str]:
        return [each.id[-1] for each in self.catalog.list_dropped_tables(list(self.namespace))]

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        table = lance.dataset(namespace_client=self.catalog, table_id=self.id_of(name)).to_table()
        return list(table.to_pylist())

    def check(self, *, orphans_left: int = 0) -> None:
        """Check that every version of the manifest was sound, and that losers left nothing behind."""
        check_all_versions(self.root)
        assert len(orphans(self.root)) <= orphans_left


PLACES = {
    "V2": (V2, ()),
    "V2, nested": (V2, ("s",)),
    "compatibility": (COMPATIBILITY, ()),
}


@pytest.fixture(params=list(PLACES))
def field(request: pytest.FixtureRequest, tmp_path: Path) -> Field:
    """Return an empty root in each mode."""
    properties, namespace = PLACES[request.param]
    root = tmp_path / "root"
    catalog = open_root(root, properties)
    if namespace:
        catalog.create_namespace({"id": list(namespace)})
    return Field(root, properties, namespace, catalog)


def the_winner(outcomes: list[Outcome], *, losers: set[int]) -> Outcome:
    """Return the one that won; the others must have got one of the given codes."""
    winners = [each for each in outcomes if each.won]
    assert len(winners) == 1, outcomes
    assert {each.code for each in outcomes if not each.won} <= losers, outcomes
    return winners[0]


LOST_NAME = {TABLE_EXISTS, CONCURRENT_MODIFICATION, SERVICE_UNAVAILABLE}
LOST_TABLE = {TABLE_NOT_FOUND, CONCURRENT_MODIFICATION, SERVICE_UNAVAILABLE}
"""Who took effect and was overtaken cannot tell how it ended: the outcome is unknown."""


def prepare(field: Field, *actions: type[Action], rounds: int = ROUNDS) -> None:
    """Do something to the name of each round beforehand."""
    for number in range(rounds):
        for action in actions:
            action(field.namespace)(field.catalog, f"t{number}", PROCESSES)


def prepare_own(field: Field, *, rounds: int = ROUNDS) -> None:
    """Give each process a table of its own in each round."""
    for number in range(rounds):
        for process in range(PROCESSES):
            # Created, not declared: a create over a declared table is no loser.
            Create(field.namespace)(field.catalog, f"t{number}_{process}", process)


class TestOneName:
    def test_one_racing_create_wins_and_its_rows_are_kept(self, field: Field, racers: Team) -> None:
        raced = field.race(racers, Create(field.namespace))
        for name, outcomes in raced.items():
            winner = the_winner(outcomes, losers=LOST_NAME)
            assert field.rows_of(name) == [{"process": winner.process}] * 3
        assert field.names() == sorted(raced)
        field.check()

    def test_one_racing_declare_wins(self, field: Field, racers: Team) -> None:
        raced = field.race(racers, Declare(field.namespace))
        for outcomes in raced.values():
            the_winner(outcomes, losers=LOST_NAME)
        assert field.names() == sorted(raced)
        field.check()

    def test_one_racing_drop_wins(self, field: Field, racers: Team) -> None:
        prepare(field, Create)
        raced = field.race(racers, Drop(field.namespace))
        told = {the_winner(outcomes, losers=LOST_TABLE).value for outcomes in raced.values()}
        assert field.names() == []
        dropped = field.catalog.list_dropped_tables(list(field.namespace))
        assert {each.deletion_id for each in dropped} == told
        field.check()

    def test_one_racing_undrop_wins(self, field: Field, racers: Team) -> None:
        prepare(field, Create, Drop)
        raced = field.race(racers, Undrop(field.namespace))
        for outcomes in raced.values():
            the_winner(outcomes, losers=LOST_NAME | LOST_TABLE)
        assert field.names() == sorted(raced)
        assert field.dropped() == []
        field.check()

    def test_one_racing_undrop_under_a_new_name_wins_unless_each_gets_a_copy(
        self, field: Field, racers: Team
    ) -> None:
        prepare(field, Create, Drop)
        raced = field.race(racers, UndropOwn(field.namespace))
        if field.copies:
            # Each gets a copy of its own, and the drop stays.
            assert all(each.won for found in raced.values() for each in found), raced
            assert field.names() == sorted(f"{name}_{each}" for name in raced for each in range(PROCESSES))
            assert field.dropped() == sorted(raced)
        else:
            winners = {name: the_winner(found, losers=LOST_TABLE) for name, found in raced.items()}
            assert field.names() == sorted(f"{name}_{each.process}" for name, each in winners.items())
            assert field.dropped() == []
        field.check()

    def test_one_racing_create_over_a_dropped_table_wins_and_keeps_its_history(
        self, field: Field, racers: Team
    ) -> None:
        prepare(field, Create, Drop)
        raced = field.race(racers, Create(field.namespace))
        for name, outcomes in raced.items():
            winner = the_winner(outcomes, losers=LOST_NAME)
            assert field.rows_of(name) == [{"process": winner.process}] * 3
            versions = field.catalog.list_table_versions({"id": field.id_of(name)}).versions
            assert [each.version for each in versions] == [1, 2]
        assert field.dropped() == []
        field.check()

    def test_one_racing_declare_over_a_dropped_table_wins_and_leaves_it_dropped(
        self, field: Field, racers: Team
    ) -> None:
        prepare(field, Create, Drop)
        raced = field.race(racers, Declare(field.namespace))
        for outcomes in raced.values():
            the_winner(outcomes, losers=LOST_NAME)
        assert field.names() == sorted(raced)
        assert sorted(field.dropped()) == sorted(raced)
        field.check()

    def test_one_of_racing_undrops_and_declares_wins(self, field: Field, racers: Team) -> None:
        prepare(field, Create, Drop)
        raced = field.race(racers, Divided((), Undrop(field.namespace), Declare(field.namespace)))
        for name, outcomes in raced.items():
            if field.copies and not any(each.won for each in outcomes):
                # A declare adopted the undrop: the table is there, and who undropped it cannot tell.
                assert SERVICE_UNAVAILABLE in {each.code for each in outcomes}, outcomes
                assert name not in field.dropped()
                continue
            winner = the_winner(outcomes, losers=LOST_NAME | LOST_TABLE)
            assert (name in field.dropped()) == (winner.process % 2 == 1)
        assert field.names() == sorted(raced)
        field.check()

    def test_one_racing_rename_of_a_table_wins(self, field: Field, racers: Team) -> None:
        prepare(field, Create)
        raced = field.race(racers, RenameAway(field.namespace))
        winners = {name: the_winner(found, losers=LOST_TABLE) for name, found in raced.items()}
        assert field.names() == sorted(f"{name}_{each.process}" for name, each in winners.items())
        field.check()

    def test_one_racing_rename_to_a_name_wins(self, field: Field, racers: Team) -> None:
        prepare_own(field)
        raced = field.race(racers, RenameOnto(field.namespace))
        for outcomes in raced.values():
            the_winner(outcomes, losers=LOST_NAME)
        assert set(raced) <= set(field.names())
        assert len(field.names()) == ROUNDS * PROCESSES
        field.check()

    @pytest.mark.parametrize("maker", [Create, Declare])
    def test_one_of_racing_renames_and_creates_gets_the_name(
        self, field: Field, racers: Team, maker: type[Action]
    ) -> None:
        prepare_own(field)
        raced = field.race(racers, Divided((), RenameOnto(field.namespace), maker(field.namespace)))
        winners = [the_winner(outcomes, losers=LOST_NAME) for outcomes in raced.values()]
        assert set(raced) <= set(field.names())
        new = sum(each.process % 2 for each in winners)
        assert len(field.names()) == ROUNDS * PROCESSES + new
        field.check()

    @pytest.mark.parametrize("maker", [Create, Declare])
    def test_one_of_racing_namespaces_and_creates_gets_the_name(
        self, field: Field, racers: Team, maker: type[Action]
    ) -> None:
        raced = field.race(racers, Divided((), CreateNamespace(field.namespace), maker(field.namespace)))
        winners = [the_winner(outcomes, losers={NAMESPACE_EXISTS, *LOST_NAME}) for outcomes in raced.values()]
        assert len(field.names()) == sum(each.process % 2 for each in winners)
        assert sorted(field.names() + [each for each in field.namespaces() if each != "s"]) == sorted(raced)
        field.check()

    def test_one_of_racing_renames_and_drops_wins(self, field: Field, racers: Team) -> None:
        prepare(field, Create)
        raced = field.race(racers, Divided((), RenameAway(field.namespace), Drop(field.namespace)))
        winners = [the_winner(outcomes, losers=LOST_TABLE) for outcomes in raced.values()]
        drops = sum(each.process % 2 for each in winners)
        # A rename that copies leaves its old name dropped.
        assert len(field.dropped()) == (ROUNDS if field.copies else drops)
        assert len(field.names()) == ROUNDS - drops
        field.check()

    def test_one_racing_create_of_a_namespace_wins_and_its_properties_are_kept(
        self, field: Field, racers: Team
    ) -> None:
        raced = field.race(racers, CreateNamespace(field.namespace))
        for name, outcomes in raced.items():
            winner = the_winner(outcomes, losers={NAMESPACE_EXISTS})
            found = field.catalog.describe_namespace({"id": field.id_of(name)}).properties
            assert found == {"process": str(winner.process)}
        field.check()

    def test_one_racing_drop_and_undrop_of_a_namespace_win(self, field: Field, racers: Team) -> None:
        prepare(field, CreateNamespace)
        for outcomes in field.race(racers, DropNamespace(field.namespace)).values():
            the_winner(outcomes, losers={NAMESPACE_NOT_FOUND})
        raced = field.race(racers, UndropNamespace(field.namespace))
        for outcomes in raced.values():
            the_winner(outcomes, losers={NAMESPACE_NOT_FOUND})
        assert set(raced) <= set(field.namespaces())
        field.check()


class TestManyNames:
    def test_racing_creates_of_different_tables_all_win(self, field: Field, racers: Team) -> None:
        raced = field.race(racers, WithUpkeep((), CreateOwn(field.namespace)))
        assert all(each.won for outcomes in raced.values() for each in outcomes), raced
        expected = [f"{name}_{process}" for name in raced for process in range(1, PROCESSES)]
        assert field.names() == sorted(expected)
        field.check()

    @pytest.mark.parametrize("keeper", [None, 0], ids=["", "with upkeep"])
    @pytest.mark.parametrize("maker", ["create", "declare"])
    def test_acknowledged_operations_add_up_after_a_free_for_all(
        self, field: Field, racers: Team, maker: str, keeper: int | None
    ) -> None:
        action = FreeForAll(field.namespace, maker=maker, keeper=keeper)
        outcomes = [each for found in field.race(racers, action, rounds=BOUTS).values() for each in found]
        assert all(each.won for each in outcomes), outcomes
        events = [event for each in outcomes for event in each.value]
        assert {each.code for each in events if not each.done} <= LOST_NAME | LOST_TABLE, events
        known, names = visible_by(events), Counter(field.names())
        doubtful = Counter(name for each in events if each.in_doubt for name in each.about)
        assert all(abs(names[name] - known[name]) <= doubtful[name] for name in {*known, *names}), events
        found = len(names) + len(field.dropped())
        if not field.copies:
            # Each new table is somewhere, once: visible or dropped.
            made = sum(each.done and each.verb == maker and each.version <= 1 for each in events)
            assert made <= found <= made + doubtful.total()
        assert len(check_rows(field.root).locations) == found
        # A rename whose outcome is unknown keeps its copy: its row may be there.
        field.check(orphans_left=sum(each.in_doubt for each in events) if field.copies else 0)


def visible_by(events: list[Event]) -> Counter[str]:
    """Return how many tables each name has, by what was acknowledged: what came less what went."""
    count: Counter[str] = Counter()
    for each in events:
        if not each.done:
            continue
        match each.verb:
            case "create" | "declare" | "undrop":
                count[each.name] += 1
            case "drop":
                count[each.name] -= 1
            case "rename":
                count[each.name] -= 1
                count[each.target] += 1
            case "undrop as":
                count[each.target] += 1
    return Counter({name: tables for name, tables in count.items() if tables})


def test_no_table_is_declared_in_a_namespace_dropped_at_the_same_time(field: Field, racers: Team) -> None:
    prepare(field, CreateNamespace)
    raced = field.race(racers, Divided((), DropNamespace(field.namespace), _DeclareInside(field.namespace)))
    for name, outcomes in raced.items():
        dropped = [each for each in outcomes if each.won and each.process % 2 == 0]
        declared = [each for each in outcomes if each.won and each.process % 2]
        assert len(dropped) <= 1, outcomes
        if dropped:
            assert not declared, outcomes
        codes = {each.code for each in outcomes if not each.won}
        assert codes <= {NAMESPACE_NOT_FOUND, NAMESPACE_NOT_EMPTY, CONCURRENT_MODIFICATION}, outcomes
        assert (name in field.namespaces()) == (not dropped)
        if not dropped:
            inside = field.catalog.list_tables({"id": field.id_of(name)}).tables
            assert sorted(inside) == sorted(f"in_{each.process}" for each in declared)
    field.check()


class _DeclareInside(Action):
    """Declare a table of one's own in the namespace of the round."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.declare_table({"id": [*self.id_of(name), f"in_{process}"]})
