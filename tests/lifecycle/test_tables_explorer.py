"""Interleavings of the real code with tables in hash directories, and with renames of root tables."""

from __future__ import annotations

import pytest
from tests.lifecycle.test_explorer import DEEP_STATES, EVERYDAY_STATES, LONG
from tests.support.scenarios.tables import Case, all_cases

from relance.testing.explorer import explore


def _check(case: Case, most_states: int | None) -> None:
    result = explore(case.scenario(), case.budget, most_states=most_states)
    assert result.violation is None, f"{case.name}\n{result.violation}"
    assert result.states > 5


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_no_interleaving_loses_or_doubles_a_table(case: Case) -> None:
    _check(case.without_faults, EVERYDAY_STATES)


@pytest.mark.deep
@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_no_interleaving_with_faults_loses_or_doubles_a_table(case: Case) -> None:
    _check(case, DEEP_STATES)
