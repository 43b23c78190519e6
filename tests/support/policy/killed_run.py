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

from tests.support.policy.lakes import Lake, the_policy

from relance.operations.directory import purge_group as purge_by_marker
from relance.operations.rows import purge as purge_by_row
from relance.policy.pipeline import execution, plan_file, runs, steps
from relance.policy.pipeline.past_runs import History


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


def with_points(points: Points, patch: Callable[[Any, str, Any], None]) -> None:
    """Put points where a run can be stopped."""
    planned = steps.StepsJob.plan

    def plan(job: steps.StepsJob, *arguments: Any) -> Any:
        found = planned(job, *arguments)
        return found if found is None or job.name == "dry run" else _Plan(found, points)

    patch(steps.StepsJob, "plan", plan)
    patch(History, "add_actions", points.around("actions in history", History.add_actions))
    patch(History, "add_run", points.around("run in history", History.add_run))
    patch(runs, "begin", points.around("plan kept", plan_file.begin))
    patch(execution, "end", points.around("plan forgotten", plan_file.end))
    patch(purge_by_marker, "_end", points.around("tombstone", purge_by_marker._end))
    for module, name in ((purge_by_marker, "_purge_held"), (purge_by_row, "delete_directory")):
        patch(module, name, points.around("files deleted", getattr(module, name)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(what: str, root: str, at: int) -> None:
    points = Points(at, _die)
    with_points(points, setattr)
    catalog = Lake(root).catalog
    record = (
        runs.resume(catalog, engine="local")
        if what == "resume"
        else runs.run_policy(catalog, the_policy(), engine="local")
    )
    sys.stdout.write(f"{points.seen} {record.state}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
