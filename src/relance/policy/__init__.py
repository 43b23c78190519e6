"""Policies: a file says how each table of a lake should live; a pipeline sees to it and keeps a record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relance.policy.parse import parse_policy
    from relance.policy.pipeline.lease import LeaseHeldError, LeaseLostError
    from relance.policy.pipeline.past_runs import history, run_record, runs
    from relance.policy.pipeline.plan_file import load_plan, save_plan
    from relance.policy.pipeline.planning import RunPlan, plan
    from relance.policy.pipeline.runs import resume, run, run_policy, who_runs

_HOMES = {
    "LeaseHeldError": "pipeline.lease",
    "LeaseLostError": "pipeline.lease",
    "RunPlan": "pipeline.planning",
    "history": "pipeline.past_runs",
    "load_plan": "pipeline.plan_file",
    "parse_policy": "parse",
    "plan": "pipeline.planning",
    "resume": "pipeline.runs",
    "run": "pipeline.runs",
    "run_policy": "pipeline.runs",
    "run_record": "pipeline.past_runs",
    "runs": "pipeline.past_runs",
    "save_plan": "pipeline.plan_file",
    "who_runs": "pipeline.runs",
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
