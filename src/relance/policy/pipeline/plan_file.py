"""Saved plans: JSON with a format number and a hash, and the plans of runs that have not ended."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from relance.catalog.context import Context
from relance.catalog.states import new_nonce
from relance.errors import (
    InvalidInputError,
    KeyExistsError,
    KeyNotFoundError,
    TransactionNotFoundError,
)
from relance.foreign_json import parse_json
from relance.jobs.base import job_from
from relance.locations import POLICY_DIRECTORY, parse_root
from relance.policy.actions import Action
from relance.policy.codec import decode, digest, dumps, encode
from relance.policy.pipeline.planning import RunPlan
from relance.storage.readback import create_once

FORMAT = 1
"""Of the file; another number is refused."""

_RUNS = f"{POLICY_DIRECTORY}/runs"
_LIST_RUNS = "list the runs: relance history"
_MAX_BYTES = 256 * 1024 * 1024
"""A plan of a million tables is shorter."""

_ABANDONED = timedelta(days=30)
"""A run that was not resumed for so long never will be."""


def encode_plan(plan: RunPlan, *, begun: str = "") -> bytes:
    """Return a plan as the bytes of a file; `begun` tells one beginning of its run from another."""
    body = dumps(encode(plan))
    head = f'"relance_plan":{FORMAT},"begun":"{begun}","hash":"{digest(body)}"'
    return f'{{{head},"plan":{body}}}\n'.encode()


def decode_plan(data: bytes, *, what: str) -> RunPlan:
    """Return the plan that a file holds; `what` names it.

    Raises:
        InvalidInputError: it is no plan, of another format, or was edited.
    """
    try:
        found = parse_json(data)
    except ValueError as cause:
        raise InvalidInputError(f"{what} is not a plan: {cause}") from cause
    if not isinstance(found, dict) or "relance_plan" not in found:
        raise InvalidInputError(f"{what} is not a plan; create one with `relance plan --save`")
    if found["relance_plan"] != FORMAT:
        raise InvalidInputError(
            f"{what} has plan format {found['relance_plan']}, but this release supports {FORMAT}; re-plan"
        )
    if digest(dumps(found.get("plan"))) != found.get("hash"):
        raise InvalidInputError(f"{what} was modified after it was saved; re-plan")
    plan = decode(RunPlan, found["plan"], "plan")
    for step in plan.steps:
        _require_known(step.action, what)
    return plan


def _require_known(action: Action, what: str) -> None:
    try:
        job_from(action.kind, action.settings)
    except InvalidInputError as cause:
        raise InvalidInputError(
            f"{what} has the action kind '{action.kind}', which this release does not support as it is "
            f"({cause.detail}); run it with the release that made it, or re-plan"
        ) from cause


def save_plan(plan: RunPlan, file: str | os.PathLike[str]) -> None:
    """Write a plan to a local file, whole or not at all; a device or a pipe is written to as it is."""
    target = Path(file)
    if target.exists() and not target.is_file():
        target.write_bytes(encode_plan(plan))
        return
    target = target.resolve()  # what a link leads to is written anew, not the link
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_bytes(encode_plan(plan))
    part.replace(target)


def load_plan(file: str | os.PathLike[str], *, root: str | None = None) -> RunPlan:
    """Return the plan in a local file; with `root`, only if it is for that lake.

    Raises:
        InvalidInputError: it is no plan, was edited, or is for another lake.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as cause:
        raise InvalidInputError(f"plan {os.fspath(file)!r} cannot be read: {cause.strerror}") from cause
    plan = decode_plan(data, what=f"plan {os.fspath(file)!r}")
    if root is not None:
        require_root(plan, parse_root(root).uri)
    return plan


def require_root(plan: RunPlan, root: str) -> None:
    """Check that a plan is for this lake.

    Raises:
        InvalidInputError: it is for another one.
    """
    if plan.root != root:
        raise InvalidInputError(f"the plan is for {plan.root}, not for {root}; re-plan")


def begin(context: Context, plan: RunPlan) -> None:
    """Keep the plan in the lake until its run has ended.

    Raises:
        InvalidInputError: a run of this plan has begun already.
    """
    try:
        # With a nonce: a second beginning must not take the first one's bytes for its own.
        create_once(context.storage, _key(plan.run), encode_plan(plan, begun=new_nonce()))
    except KeyExistsError as cause:
        raise InvalidInputError(f"run {plan.run} has already started; resume it or re-plan") from cause


def unfinished(context: Context) -> list[str]:
    """Return the runs that have begun and not ended, oldest first."""
    names = (each.key.rpartition("/")[2] for each in context.storage.list_level(_RUNS).files)
    return sorted(each.removesuffix(".json") for each in names if each.endswith(".json"))


def begun(context: Context, run: str | None) -> RunPlan:
    """Return the plan of a run that has not ended, of the newest when none is named.

    Raises:
        TransactionNotFoundError: there is none.
    """
    names = unfinished(context)
    name = run or (names[-1] if names else None)
    if name is None:
        raise TransactionNotFoundError("there is no interrupted run to resume", hint=_LIST_RUNS)
    try:
        stored = context.storage.read(_key(name), at_most=_MAX_BYTES)
    except (KeyNotFoundError, InvalidInputError) as cause:
        known = ", ".join(names) or "none"
        raise TransactionNotFoundError(
            f"run {name} cannot be resumed: it has ended or never started; interrupted runs: {known}",
            hint=_LIST_RUNS,
        ) from cause
    return decode_plan(stored.body, what=f"the plan of run {name}")


def end(context: Context, run: str, *, now: datetime) -> None:
    """Forget the plan of a run that has ended, and those that nobody resumed for a month."""
    keys = [_key(run)]
    for each in context.storage.list_level(_RUNS).files:
        if each.modified is not None and each.modified < now - _ABANDONED:
            keys.append(each.key)
    context.storage.delete_many(keys)


def _key(run: str) -> str:
    if "/" in run or run.startswith("."):
        raise InvalidInputError(f"invalid run name {run!r}")
    return f"{_RUNS}/{run}.json"
