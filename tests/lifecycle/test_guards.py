"""Each guard of the lifecycle is switched off once, and the explorer must find what goes wrong then."""

from __future__ import annotations

import pytest
from tests.support.scenarios import tables
from tests.support.scenarios.cases import Case
from tests.support.scenarios.guards import GUARDS, Guard

from relance.testing.explorer import Scenario, explore

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]

_MOST_STATES = 150_000


def _scenario(case: Case | tables.Case) -> Scenario:
    return case.scenario() if isinstance(case, tables.Case) else case.scenario(compares=False)


def _violations(guard: Guard) -> list[str]:
    found = []
    for case in guard.cases:
        scenario = _scenario(case)  # made before: its beginning is as it should be
        with guard.switched_off():
            result = explore(scenario, case.budget, most_states=_MOST_STATES)
        if result.violation is not None:
            found.append(result.violation.what)
            break
    return found


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_a_guard_something_goes_wrong(guard: Guard) -> None:
    assert _violations(guard)
