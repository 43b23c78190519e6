"""A process that runs or resumes a policy and dies on the way: `... WHAT ROOT AT`.

WHAT is `run` or `resume`. Everything that can be between two others is a point; the process kills itself at
the point with the number AT, at none when AT is 0, and then says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.support.patches import original, substitute_for_good
from tests.support.policy.lakes import PolicyLake, the_policy

from relance.policy import running

POINTS = {
    "history.add_actions": "actions in history",
    "history.add_run": "run in history",
    "policy_run.begin_plan": "plan kept",
    "policy_run.end_plan": "plan forgotten",
    "purge.finish_group": "tombstone",
    "purge.purge_claimed": "files deleted",
    "row_purge.delete_directory": "files deleted",
}
"""The calls that have a point before and after them, and what those points are called."""


class Points:
    """Counts points, and ends at one of them."""

    def __init__(self, at: int, end: Callable[[], None]) -> None:
        self.at = at
        self.seen = 0
        self.names: list[str] = []
        self._end = end

    def reach(self, name: str) -> None:
        self.seen += 1
        self.names.append(name)
        if self.seen == self.at:
            self._end()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with a point before and after it."""

        def called(*arguments: Any, **options: Any) -> Any:
            self.reach(f"before {name}")
            result = call(*arguments, **options)
            self.reach(f"after {name}")
            return result

        return called


class _Plan:
    """A plan of a table with points around its commit."""

    def __init__(self, plan: Any, points: Points) -> None:
        self._plan = plan
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def finish(self, *arguments: Any) -> Any:
        return self._points.around(f"finish {type(self._plan).__name__}", self._plan.finish)(*arguments)


def with_points(points: Points, substitute: Callable[[str, Any], None]) -> None:
    """Put points where a run can be stopped."""
    planned = original("step.plan")

    def plan(step: Any, *arguments: Any) -> Any:
        found = planned(step, *arguments)
        is_dry = step.expect is None
        return found if found is None or is_dry else _Plan(found, points)

    substitute("step.plan", plan)
    for key, name in POINTS.items():
        substitute(key, points.around(name, original(key)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(what: str, root: str, at: int) -> None:
    points = Points(at, _die)
    with_points(points, substitute_for_good)
    catalog = PolicyLake(root).catalog
    record = (
        running.resume(catalog, engine="local")
        if what == "resume"
        else running.run_policy(catalog, the_policy(), engine="local")
    )
    sys.stdout.write(f"{points.seen} {record.state}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
