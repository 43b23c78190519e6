"""Interleavings of the lifecycle's real code, with crashes, lost and late requests, and time passing.

Each case is explored up to a number of states, breadth first: a few without faults every day, more with
faults in `make test-deep`, and all of them in `make test-long`, which takes hours.
"""

from __future__ import annotations

import os

import pytest
from tests.support.scenarios.cases import Case, all_cases

from relance.testing.explorer import explore

LONG = os.environ.get("RELANCE_PROFILE") == "long"
EVERYDAY_STATES = None if LONG else 2_000
DEEP_STATES = None if LONG else 10_000

WITH_FAULTS = [each for each in all_cases() if each != each.without_faults]


def _check(case: Case, most_states: int | None) -> None:
    result = explore(case.scenario(), case.budget, most_states=most_states)
    assert result.violation is None, f"{case.name}\n{result.violation}"
    assert result.states > 5


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_no_interleaving_breaks_an_invariant(case: Case) -> None:
    _check(case.without_faults, EVERYDAY_STATES)


@pytest.mark.deep
@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("case", WITH_FAULTS, ids=lambda case: case.name)
def test_no_interleaving_with_faults_breaks_an_invariant(case: Case) -> None:
    _check(case, DEEP_STATES)
