"""Files that an earlier tree wrote: a saved plan, and a lake with a history and an interrupted run.

They are kept, so that later code proves that it still reads them. `python -m tests.net.record
kept_files` records what is read from them; it makes the files themselves only if there are none.
The lakes have memory:// roots, whose names are the same on every machine.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any
from unittest import mock

from tests.net import goldens
from tests.net.commands import normalised, without_settings, without_texts
from tests.support.cli import ROWS, Ran, run
from tests.support.patches import substituted
from tests.support.policy.killed_run import Points, with_points
from tests.support.policy.lakes import PolicyLake, the_policy
from tests.support.roots import ipc, memory_place

from relance import DirectoryNamespace
from relance.policy import load_plan, plan, run_policy, save_plan
from relance.policy.report import to_json
from relance.policy.schema import policy_schema

KEPT = goldens.FOLDER / "kept"
PLAN = KEPT / "plan.json"
LAKE = KEPT / "lake"
LAKE_NAME = "net-lake"
ROOT = f"memory://{LAKE_NAME}"
ENDED, INTERRUPTED = "20260301T020000-0001", "20260302T020000-0002"
_V1: dict[str, Any] = {"manifest_enabled": "false"}
_POLICY = """
[defaults]
compact = { min_fragments = 2 }

[[rules]]
name = "old readings"
tables = "readings"
delete_rows = { delete_where = "id < 2" }
"""


class _StoppedError(BaseException):
    """Ends a run in the middle, as a killed process would."""


def record() -> dict[str, Any]:
    """Return what is read from the kept files; make them first if there are none."""
    if not KEPT.exists():
        KEPT.mkdir()
        _make_plan()
        _make_lake()
    return {part: read(part) for part in PARTS}


def read(part: str) -> Any:
    """Return one part of what is read from the kept files, with a fresh copy of the lake."""
    lay_out()
    return PARTS[part]()


def read_plan() -> Any:
    """Return the saved plan as reports show it."""
    return without_texts(to_json(load_plan(PLAN).record))


def lay_out() -> None:
    """Put a fresh copy of the kept lake behind its root, converted to the format of today."""
    folder = memory_place(LAKE_NAME).folder
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.copytree(LAKE, folder, dirs_exist_ok=True)
    _printed("migrate", "--yes")


def listed(*command: str) -> Any:
    """Return what a command prints about the kept lake."""
    return without_texts(_printed(*command))


def resumed() -> Any:
    """Resume the interrupted run, and return its record with the state of the tables after it."""
    record = normalised(_printed("run", "--resume", "--yes", "--actor", "ops"), folder=ROOT)
    tables = [_printed("show", each) for each in ("events", "readings")]
    shown = [{name: each[name] for name in ("version", "rows", "fragments")} for each in tables]
    left = _run("run", "--resume")
    return {"record": record, "tables": shown, "exit code of a second resume": left.exit_code}


def _printed(*command: str) -> Any:
    ran = _run(*command)
    assert ran.exit_code == 0, ran
    return ran.document["result"]


def _run(*command: str) -> Ran:
    settings = {**without_settings(), "RELANCE_MANIFEST_ENABLED": "false"}
    with mock.patch.dict(os.environ, settings, clear=True):
        return run("--root", ROOT, *command, "--json")


PARTS: Mapping[str, Callable[[], Any]] = {
    "saved plan": read_plan,
    "tables": partial(listed, "ls"),
    "runs": partial(listed, "history"),
    "actions": partial(listed, "history", "--actions"),
    "ended run": partial(listed, "report", ENDED),
    "resumed run": resumed,
}


def policy_schema_without_texts() -> Any:
    """Return the schema of policy files as editors check by it, without titles and descriptions."""
    return _plain(policy_schema())


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    texts = {name for name in ("title", "description") if isinstance(schema.get(name), str)}
    return {name: _plain(value) for name, value in schema.items() if name not in texts}


def _make_plan() -> None:
    """Save a plan with every kind of action."""
    name = "net-plan"
    lake = PolicyLake(f"memory://{name}")
    lake.make("readings", fragments=4)
    lake.make("gone")
    lake.drop_long_ago("gone")
    lake.catalog.create_namespace({"id": ["prod"]})
    lake.make("prod", "orders", fragments=2)
    lake.dataset("prod", "orders").create_scalar_index("v", "BTREE")
    lake.append("prod", "orders")
    orphan = PolicyLake(str(memory_place(name).folder))
    orphan.leave_orphan()
    with substituted("policy_plan.new_run", return_value=ENDED):
        save_plan(plan(lake.catalog, the_policy(), engine="local", actor="ops@lake"), PLAN)


def _make_lake() -> None:
    """Keep a lake in which one run of a policy has ended and another was interrupted."""
    catalog = DirectoryNamespace(root=ROOT, **_V1)
    policy = the_policy(_POLICY)
    for table in ("readings", "events"):
        catalog.create_table({"id": [table]}, ipc(ROWS))
    act = partial(run_policy, catalog, policy, engine="local", actor="ops@lake")
    with substituted("policy_runs.new_run", return_value=ENDED):
        act()
    for table in ("readings", "events"):
        catalog.insert_into_table({"id": [table]}, ipc(ROWS))
    with substituted("policy_runs.new_run", return_value=INTERRUPTED), suppress(_StoppedError):
        _stopped(act)
    hidden = shutil.ignore_patterns(".relance-local")
    shutil.copytree(memory_place(LAKE_NAME).folder, LAKE, ignore=hidden)
    lease = LAKE / ".relance-policy" / "lease"
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "process": "machine process"}))


class _StopAfterFirstKind(Points):
    """Ends when the actions of the first kind are in the history."""

    def __init__(self) -> None:
        super().__init__(at=0, end=lambda: None)

    def reach(self, name: str) -> None:
        super().reach(name)
        # The first time, what the plan itself has decided is written.
        if name == "after actions in history" and self.names.count(name) == 2:
            raise _StoppedError


def _stopped(act: Callable[[], Any]) -> None:
    with ExitStack() as patches:
        with_points(_StopAfterFirstKind(), lambda key, value: patches.enter_context(substituted(key, value)))
        act()
