"""Policies: a file says how each table of a lake should live; a pipeline sees to it and keeps a record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relance.policy.lease import LeaseHeldError, LeaseLostError
    from relance.policy.parse import parse_policy
    from relance.policy.past_runs import history, run_record, runs
    from relance.policy.planning import RunPlan, load_plan, plan, save_plan
    from relance.policy.running import resume, run, run_policy, who_runs

_HOMES = {
    "LeaseHeldError": "lease",
    "LeaseLostError": "lease",
    "RunPlan": "planning",
    "history": "past_runs",
    "load_plan": "planning",
    "parse_policy": "parse",
    "plan": "planning",
    "resume": "running",
    "run": "running",
    "run_policy": "running",
    "run_record": "past_runs",
    "runs": "past_runs",
    "save_plan": "planning",
    "who_runs": "running",
}

__all__ = [
    "LeaseHeldError",
    "LeaseLostError",
    "RunPlan",
    "history",
    "load_plan",
    "parse_policy",
    "plan",
    "resume",
    "run",
    "run_policy",
    "run_record",
    "runs",
    "save_plan",
    "who_runs",
]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: to check a policy file takes neither Lance nor a store.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"relance.policy.{_HOMES[name]}"), name)
