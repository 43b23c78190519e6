"""Processes that race for one name: exactly one succeeds, and every response is true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.codes import CONCURRENT_MODIFICATION, TABLE_EXISTS, TABLE_NOT_FOUND
from tests.support.profiles import MINIO, MOTO
from tests.support.racing import Outcome, Team, create_own_rows, declare_it, deregister_it, team
from tests.support.roots import (
    MORE_ROWS,
    Place,
    assert_gone,
    assert_whole,
    create,
    data_files,
    dataset,
    describe,
    names,
    register,
    rows,
    versions,
)

pytestmark = pytest.mark.deep

PROCESSES = 6
ROUNDS = 8


@pytest.fixture(scope="module")
def racers() -> Iterator[Team]:
    """Processes that are ready to race."""
    with team(PROCESSES) as found:
        yield found


def the_winner(outcomes: list[Outcome], *, losers: set[int]) -> Outcome:
    """Return the one that won; the others must have got one of the given codes."""
    winners = [each for each in outcomes if each.won]
    assert len(outcomes) == PROCESSES
    assert len(winners) == 1, outcomes
    assert {each.code for each in outcomes if not each.won} <= losers, outcomes
    return winners[0]


@pytest.mark.parametrize("place", ["disk", MOTO, MINIO], indirect=True)
class TestRaces:
    def test_one_racing_create_wins_and_its_rows_are_kept(self, place: Place, racers: Team) -> None:
        raced = racers.race(place.properties, create_own_rows, rounds=ROUNDS)
        catalog = place.open()
        for name, outcomes in raced.items():
            winner = the_winner(outcomes, losers={TABLE_EXISTS, CONCURRENT_MODIFICATION})
            assert rows(catalog, name) == [{"process": winner.process}] * 3
            assert versions(catalog, name) == [1]
            fragments = dataset(catalog, name).get_fragments()
            used = {file.path for fragment in fragments for file in fragment.data_files()}
            assert data_files(place, name) == used, "losers leave no data files behind"
        assert names(catalog) == names(catalog, include_declared=False) == sorted(raced)
        assert not [key for key in place.files() if key.endswith(".creating")]

    def test_one_racing_declare_wins(self, place: Place, racers: Team) -> None:
        raced = racers.race(place.properties, declare_it, rounds=ROUNDS)
        catalog = place.open()
        for name, outcomes in raced.items():
            the_winner(outcomes, losers={TABLE_EXISTS, CONCURRENT_MODIFICATION})
            assert describe(catalog, name, check_declared=True).is_only_declared is True
        assert names(catalog) == sorted(raced)
        assert names(catalog, include_declared=False) == []

    def test_one_racing_deregister_wins(self, place: Place, racers: Team) -> None:
        catalog = place.open()
        for number in range(ROUNDS):
            create(catalog, f"t{number}", MORE_ROWS)
        raced = racers.race(place.properties, deregister_it, rounds=ROUNDS)
        for name, outcomes in raced.items():
            the_winner(outcomes, losers={TABLE_NOT_FOUND, CONCURRENT_MODIFICATION})
            assert_gone(catalog, name)
            register(catalog, name)
            assert_whole(catalog, name, MORE_ROWS)
