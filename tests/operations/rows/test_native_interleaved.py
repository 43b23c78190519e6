"""The native namespace and ours on one root: both go on reading and writing, and nothing is lost.

More seeds, and longer races:

    make test-long ARGS=tests/operations/rows/test_native_interleaved.py
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lance_namespace import ListNamespacesRequest, ListTablesRequest
from tests.support.calls import namespaces, spaces, tables
from tests.support.codes import INTERNAL
from tests.support.interleaving import Interleaving, open_native, steps, values
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, V2
from tests.support.native_processes import CONTESTED, SideBySide
from tests.support.race_processes import Event
from tests.support.racing import Team, team
from tests.support.root_checks import check_all_versions, check_rows, open_root

pytestmark = pytest.mark.deep

LONG = os.environ.get("RELANCE_PROFILE") == "long"
SEEDS = range(40 if LONG else 1)
STEPS = 500
BOUTS = 20 if LONG else 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mode", "at_root"), [(V2, True), (COMPATIBILITY, False)], ids=["V2", "nested"])
def test_interleaved_operations_of_both_clients_match_a_model(
    mode: dict[str, str], at_root: bool, seed: int, tmp_path: Path
) -> None:
    both = Interleaving(tmp_path / "root", mode, seed, at_root)
    for _ in steps(both, STEPS, check_every=10):
        pass
    both.check()
    both.check_values()
    check_rows(both.root)
    check_all_versions(both.root)
    done = [each for each in both.history if each.endswith("None")]
    assert sum(each.startswith("native") for each in done) > STEPS / 20
    assert sum(not each.startswith("native") for each in done) > STEPS / 20


@pytest.fixture(scope="module")
def pair() -> Iterator[Team]:
    """Two processes."""
    with team(2) as found:
        yield found


@pytest.mark.parametrize("mode", MANIFEST_MODES)
def test_concurrent_native_and_relance_clients_lose_no_operation(
    mode: str, pair: Team, tmp_path: Path
) -> None:
    root, properties = tmp_path / "root", MANIFEST_MODES[mode]
    catalog = open_root(root, properties)
    spaces(catalog, "s")
    raced = pair.race(
        {"root": str(root), **properties}, SideBySide((), tuple(properties.items())), rounds=BOUTS
    )
    outcomes = [each for found in raced.values() for each in found]
    assert all(each.won for each in outcomes), outcomes
    events: list[Event] = [event for each in outcomes for event in each.value]
    assert not [each for each in events if each.code == INTERNAL], events
    check_all_versions(root)
    native = open_native(root, properties)
    listed = [f"s/{name}" for name in tables(catalog, "s")]
    left, found = left_by([Event("create namespace", "s"), *events]), Counter([*listed, *namespaces(catalog)])
    assert without_contested(left) == without_contested(found)
    at_most = left_by([each for each in events if each.verb != "deregister"])
    assert all(left[name] <= found[name] <= at_most[name] for name in CONTESTED)
    assert native.list_tables(ListTablesRequest(id=["s"])).tables == tables(catalog, "s")
    assert native.list_namespaces(ListNamespacesRequest(id=[])).namespaces == namespaces(catalog)
    for path in listed:
        assert values(catalog, path) == values(native, path) == [1]
    dropped = Counter("/".join(each.id) for each in catalog.list_dropped_tables())
    assert without_contested(dropped) == without_contested(dropped_by(events))


def without_contested(count: Counter[str]) -> Counter[str]:
    """Return the counts of names that only one side takes away, those that are not zero."""
    return Counter({name: number for name, number in count.items() if number and name not in CONTESTED})


def dropped_by(events: list[Event]) -> Counter[str]:
    """Return how many dropped tables each name must have by what was acknowledged."""
    count: Counter[str] = Counter()
    for each in events:
        if each.done and each.verb == "drop":
            count[each.name] += 1
        elif each.done and (each.verb == "undrop" or (each.verb == "create" and each.version > 1)):
            count[each.name] -= 1
    return count


def left_by(events: list[Event]) -> Counter[str]:
    """Return what must be there by what was acknowledged: what came less what went."""
    count: Counter[str] = Counter()
    for each in events:
        if not each.done:
            continue
        match each.verb:
            case "create" | "undrop" | "create namespace":
                count[each.name] += 1
            case "rename":
                count[each.name] -= 1
                count[each.target] += 1
            case _:
                count[each.name] -= 1
    return count
