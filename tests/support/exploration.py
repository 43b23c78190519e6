"""Compares the size of each exploration with its record, so that a lost or a new state is noticed.

`python -m tests.net.record explorer_states` explores every case again and records it.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.net import goldens

from relance.testing.explorer import Exploration

GOLDEN = "explorer_states"
RECORD_TO = "RELANCE_RECORD_STATES"
"""Names the environment variable with the file that sizes are appended to instead of being compared."""


def case_of(item: Any) -> str:
    """Return the name of the case that a parametrized test explores."""
    return f"{item.path.stem}: {item.callspec.id}"


@cache
def _recorded() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = goldens.read(GOLDEN)
    return found


def recorded_runs(item: Any) -> int:
    """Return how many runs the exploration of a test took when it was recorded; 0 if it explores nothing."""
    if not hasattr(item, "callspec"):
        return 0
    return _recorded().get(case_of(item), {}).get("runs", 0)


def assert_states_as_recorded(request: pytest.FixtureRequest, result: Exploration) -> None:
    """Check that an exploration visited as many states, in as many runs, as when it was recorded.

    The cases of the long profile are compared only if they were recorded.
    """
    case = case_of(request.node)
    found = {"runs": result.runs, "states": result.states}
    if target := os.environ.get(RECORD_TO):
        with Path(target).open("a") as lines:
            lines.write(json.dumps({case: found}) + "\n")
        return
    recorded = _recorded()
    if case in recorded or os.environ.get("RELANCE_PROFILE") != "long":
        goldens.assert_as_recorded(GOLDEN, {case: found}, {case: recorded.get(case)})
