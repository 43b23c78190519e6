"""A process that was forked can use a catalog, or is told at once that it cannot: it never hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY
from tests.support.servers import S3Server

from relance.forks import ProcessLock

PROGRAM = """
import json, multiprocessing, os, sys

import lance
import pyarrow as pa
import relance
from relance.catalog.catalog import Catalog
from tests.support.roots import create, names, rows

PROPERTIES = json.loads(sys.argv[1])

def opened(**more):
    return relance.DirectoryNamespace(**PROPERTIES, **more)

def in_child(act):
    def run():
        try:
            outcome = act()
        except relance.errors.RelanceError as error:
            outcome = f"{type(error).__name__}: {error.detail}"
        queue.put(outcome)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=run)
    child.start()
    child.join(30)
    if child.is_alive():
        child.kill()
        sys.exit("the child hangs")
    assert child.exitcode == 0, child.exitcode
    return queue.get()

def told(act):
    outcome = in_child(act)
    return isinstance(outcome, str) and outcome.startswith("UnsupportedOperationError") and "spawn" in outcome
"""

MODES: list[dict[str, str]] = [{}, {"manifest_enabled": "false"}, {"dir_listing_enabled": "false"}]


def _run(properties: dict[str, str], program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + program, json.dumps(properties)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(params=["disk", "S3"])
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """What a catalog is opened with."""
    if request.param == "disk":
        return {"root": str(tmp_path / "lake")}
    server: S3Server = request.getfixturevalue("moto_server")
    bucket = request.getfixturevalue("moto_bucket")
    options = {f"storage.{name}": value for name, value in server.storage_options().items()}
    return {"root": f"s3://{bucket}/lake", **options}


@pytest.mark.parametrize("mode", MODES, ids=["compat", "V1", "V2"])
def test_catalog_used_before_a_fork_is_refused_at_once_in_the_child(
    properties: dict[str, str], mode: dict[str, str]
) -> None:
    program = """
catalog = opened()
create(catalog, "t")
shared = Catalog.shared(PROPERTIES)
before = (names(catalog), rows(catalog, "t"))
def drop(one):
    one.drop_table({"id": ["t"]})
for act in (names, drop, lambda one: rows(one, "t"), lambda one: create(one, "u")):
    assert told(lambda: act(catalog)), act
    assert told(lambda: act(opened())), act
assert told(lambda: Catalog.shared(PROPERTIES).namespaces())
assert told(lambda: in_child(lambda: names(catalog)) and names(catalog)), "a child of the child"
assert (names(catalog), rows(catalog, "t")) == before, "the parent goes on"
"""
    _run(properties | mode, program)


@pytest.mark.parametrize("mode", MODES, ids=["compat", "V1", "V2"])
def test_catalog_opened_but_not_used_before_a_fork_works_in_the_child(
    properties: dict[str, str], mode: dict[str, str]
) -> None:
    program = """
catalog = opened()
in_child(lambda: create(catalog, "a") and None)
in_child(lambda: create(opened(), "b") and None)
assert in_child(lambda: [*names(catalog), len(rows(catalog, "a"))]) == ["a", "b", 3]
catalog.drop_table({"id": ["b"]})  # it also works in the parent, later
assert names(catalog) == ["a"]
"""
    _run(properties | mode, program)


def test_lance_used_without_a_catalog_before_a_fork_is_noticed(tmp_path: Path) -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("only Linux shows which threads a process has")
    program = """
lance.write_dataset(pa.table({"a": [1]}), PROPERTIES["root"] + "/t.lance")
assert told(lambda: names(opened()))
"""
    _run({"root": str(tmp_path)}, program)


def test_listing_a_local_root_before_a_fork_is_no_reason_to_refuse(tmp_path: Path) -> None:
    program = """
catalog = opened(manifest_enabled="false")
assert names(catalog) == []
assert in_child(lambda: create(catalog, "a") and None) is None
assert names(catalog) == ["a"]
"""
    _run({"root": str(tmp_path / "lake")}, program)


def test_refused_child_ends_as_any_other_process(tmp_path: Path) -> None:
    program = """
catalog = opened()
create(catalog, "t")
child = os.fork()
if not child:
    try:
        names(catalog)
    except relance.errors.UnsupportedOperationError:
        sys.exit(7)
    sys.exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    _run({"root": str(tmp_path / "lake")}, program)


def test_pool_of_spawned_processes_uses_a_catalog_of_its_parent(tmp_path: Path) -> None:
    program = """
catalog = opened()
create(catalog, "t")
for method in ("spawn", "forkserver"):
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(names, (catalog,)) == ["t"]
"""
    _run({"root": str(tmp_path / "lake")}, program)


def test_lock_that_a_thread_held_at_the_fork_is_free_in_the_child() -> None:
    lock = ProcessLock()
    with lock:
        child = os.fork()
        if not child:
            with lock:
                os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
