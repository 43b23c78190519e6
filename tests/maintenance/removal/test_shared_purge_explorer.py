"""A purge in tasks, interrupted before every write by the rest of the lifecycle.

And each of its guards is switched off once: a table must be lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.internals import context_of
from tests.support.mortal_clients import interrupt
from tests.support.patches import substituted
from tests.support.roots import create

from relance import DirectoryNamespace
from relance.catalog.context import Context
from relance.errors import RelanceError
from relance.maintenance.removal.expired_drops import PurgeDropped

pytestmark = pytest.mark.deep

JOB = PurgeDropped(force=True, giant_files=0, run="run")

Act = Callable[[DirectoryNamespace], int | None]
"""Does something, and returns what the table must hold then; None if it must not be visible."""


def purge_in_tasks(context: Context) -> None:
    plan = JOB.plan(context, ("t",))
    assert plan is not None
    plan.finish(context, [task.run(context) for task in plan.tasks])


def run_lost_tasks(context: Context) -> None:
    """Do what a task does that Spark believes lost: another one does the same, and the job goes on."""
    plan = JOB.plan(context, ("t",))
    assert plan is not None
    for task in plan.tasks:
        task.run(context)


def undrop(catalog: DirectoryNamespace) -> int | None:
    catalog.undrop_table(["t"])
    return 1


def undrop_and_drop(catalog: DirectoryNamespace) -> int | None:
    catalog.undrop_table(["t"])
    catalog.drop_table({"id": ["t"]})
    return None


def create_again(catalog: DirectoryNamespace) -> int | None:
    create(catalog, "t", pa.table({"a": [2]}))
    return 2


def purge_and_create(catalog: DirectoryNamespace) -> int | None:
    with suppress(RelanceError):
        catalog.purge_table(["t"], force=True)
    return create_again(catalog)


def purge_in_tasks_and_create(catalog: DirectoryNamespace) -> int | None:
    with suppress(RelanceError):
        purge_in_tasks(context_of(catalog))
    return create_again(catalog)


def interrupted(folder: Path, purge: Callable[[Context], None], act: Act) -> Iterator[str | None]:
    """Interrupt a purge before each of its writes; yield what went wrong, if anything did."""
    for number in range(100):
        root = str(folder / str(number))
        catalog, other = DirectoryNamespace(root=root), DirectoryNamespace(root=root)
        create(catalog, "t", pa.table({"a": [1]}))
        catalog.drop_table({"id": ["t"]})
        expected: list[int | None] = []

        def meanwhile(other: DirectoryNamespace = other, expected: list[int | None] = expected) -> None:
            with suppress(RelanceError):
                expected.append(act(other))

        life = interrupt(catalog, number, meanwhile)
        with suppress(RelanceError):
            purge(context_of(catalog))
        if not life.happened:
            return
        yield _wrong(other, expected)
    raise AssertionError("a purge has no end")


def _wrong(catalog: DirectoryNamespace, expected: list[int | None]) -> str | None:
    visible = catalog.list_tables({"id": []}).tables == ["t"]
    if not expected or expected[0] is None:
        return "the table is visible" if visible else None
    if not visible:
        return "the table is gone"
    try:
        rows = lance.dataset(namespace_client=catalog, table_id=["t"]).to_table()["a"].to_pylist()
    except (OSError, ValueError, RelanceError) as error:
        return f"the table cannot be read: {error}"
    return None if rows == [expected[0]] else f"the table holds {rows}"


@pytest.mark.parametrize("purge", [purge_in_tasks, run_lost_tasks])
@pytest.mark.parametrize(
    "act", [undrop, undrop_and_drop, create_again, purge_and_create, purge_in_tasks_and_create]
)
def test_purge_in_tasks_never_loses_a_table(
    purge: Callable[[Context], None], act: Act, tmp_path: Path
) -> None:
    found = list(interrupted(tmp_path, purge, act))
    assert len(found) >= 2
    assert found == [None] * len(found)


def test_without_the_claim_tasks_delete_the_files_of_an_undropped_table(tmp_path: Path) -> None:
    with substituted("expired_drops.check_claim"):
        found = list(interrupted(tmp_path, purge_in_tasks, undrop))
    assert any(found)


def test_if_tasks_deleted_manifests_a_late_task_would_delete_those_of_a_newer_table(tmp_path: Path) -> None:
    with substituted("expired_drops.is_never_named_twice", return_value=True):
        found = list(interrupted(tmp_path, run_lost_tasks, purge_in_tasks_and_create))
    assert any(found)
