"""A client that is killed at any write of any operation: reads see before or after, the next one repairs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.manifest.crashing import crashes
from tests.manifest.helpers import (
    Lake,
    all_tables,
    declare,
    deregister,
    drop,
    ident,
    make,
    namespaces,
    numbers,
    register,
    rename,
    rows,
    spaces,
    tables,
)
from tests.manifest.root_checks import check_rows

from relance import DirectoryNamespace

Act = Callable[[DirectoryNamespace], object]

MOST_WRITES = 40


@dataclass(frozen=True, slots=True)
class Case:
    """An operation, what it starts from, and what may be refused when it is repeated after it was done."""

    prepare: Act
    act: Act
    done: frozenset[int] = frozenset()
    hides_first: bool = False
    """The old table of the name is deregistered before another has it."""


def _nothing(catalog: DirectoryNamespace) -> None:
    spaces(catalog, "a")


def _with_loose_data(catalog: DirectoryNamespace) -> None:
    spaces(catalog, "a")
    _put_loose_data(catalog)


def _put_loose_data(catalog: DirectoryNamespace) -> None:
    lance.write_dataset(numbers(7), f"{catalog._context.root.uri}/loose")


def _only_directory(catalog: DirectoryNamespace) -> str:
    folders = (each for each in Path(catalog._context.root.uri).iterdir() if (each / "data").is_dir())
    (found,) = (each.name for each in folders if each.name != "__manifest")
    return found


def _with_v1_tables(catalog: DirectoryNamespace) -> None:
    v1 = DirectoryNamespace(root=catalog._context.root.uri, manifest_enabled=False)
    make(v1, "one", 1)
    make(v1, "two", 2)
    drop(v1, "two")
    deregister(v1, "one")
    make(v1, "three", 3)


def _with(path: str, *also: Act) -> Act:
    def prepare(catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a")
        make(catalog, path, 1, properties={"n": "1"})
        for each in also:
            each(catalog)

    return prepare


def _dropped(path: str) -> Act:
    return _with(path, lambda catalog: drop(catalog, path))


def _case(prepare: Act, act: Act, *done: int) -> Case:
    return Case(prepare, act, frozenset(done))


NOT_FOUND, EXISTS = 4, 5

CASES = {
    "create": lambda path: _case(_nothing, lambda c: make(c, path, 1, properties={"n": "1"}), EXISTS),
    "declare": lambda path: _case(_nothing, lambda c: declare(c, path, properties={"n": "1"}), EXISTS),
    "overwrite": lambda path: _case(
        _with(path), lambda c: make(c, path, 2, mode="overwrite", properties={"n": "2"})
    ),
    "create over a dropped table": lambda path: _case(_dropped(path), lambda c: make(c, path, 2), EXISTS),
    "declare over a dropped table": lambda path: _case(_dropped(path), lambda c: declare(c, path), EXISTS),
    "drop": lambda path: _case(_with(path), lambda c: drop(c, path), NOT_FOUND),
    "undrop": lambda path: _case(_dropped(path), lambda c: c.undrop_table(ident(path)), EXISTS),
    "undrop under another name": lambda path: _case(
        _dropped(path), lambda c: c.undrop_table(ident(path), new_id=["a", "new"]), NOT_FOUND
    ),
    "purge": lambda path: _case(_dropped(path), lambda c: c.purge_table(ident(path), force=True), NOT_FOUND),
    "rename": lambda path: _case(_with(path), lambda c: rename(c, path, "a/new"), NOT_FOUND),
    "rename to the root": lambda path: _case(_with(path), lambda c: rename(c, path, "new"), NOT_FOUND),
    "deregister": lambda path: _case(_with(path), lambda c: deregister(c, path), NOT_FOUND),
    "register": lambda path: _case(
        _with_loose_data, lambda c: register(c, path, "loose", properties={"n": "1"}), EXISTS
    ),
    "register over a table": lambda path: replace(
        _case(_with(path, _put_loose_data), lambda c: register(c, path, "loose", mode="overwrite")),
        hides_first=True,
    ),
    "register again": lambda path: _case(
        _with(path, lambda c: deregister(c, path)), lambda c: register(c, path, _only_directory(c)), EXISTS
    ),
    "rename back": lambda path: _case(
        _with(path, lambda c: rename(c, path, "a/new")), lambda c: rename(c, "a/new", path), NOT_FOUND
    ),
    "migration": lambda path: _case(_with_v1_tables, lambda c: c.migrate_to_manifest()),
    "protect": lambda path: _case(_with(path), lambda c: c.protect(ident(path))),
    "drop of a branch": lambda path: _case(
        _with(path, lambda c: make(c, "a/other", 5)),
        lambda c: c.drop_namespace({"id": ["a"], "behavior": "cascade", "mode": "skip"}),
    ),
    "undrop of a branch": lambda path: _case(
        _with(
            path,
            lambda c: make(c, "a/other", 5),
            lambda c: c.drop_namespace({"id": ["a"], "behavior": "cascade"}),
        ),
        lambda c: None if namespaces(c) else c.undrop_namespace(["a"]),
    ),
}


def seen(lake: Lake) -> dict[str, Any]:
    """Return all that a fresh client sees: tables with their rows, namespaces, and what is dropped."""
    catalog = lake.open()
    written = all_tables(catalog, include_declared=False)
    found: dict[str, Any] = {
        path: rows(catalog, path) if path in written else "declared" for path in all_tables(catalog)
    }
    listed = {path for path in found if "/" not in path}
    assert listed == set(tables(catalog)), "both listings tell the same"
    found["namespaces"] = namespaces(catalog)
    found["dropped"] = sorted("/".join(each.id) for each in catalog.list_dropped_tables())
    return found


@pytest.fixture
def path(lake: Lake) -> str:
    """A table that its row decides about, or, in compatibility mode, the marker beside its directory."""
    return "a/t" if lake.is_v2 else "t"


@pytest.mark.parametrize("name", CASES)
def test_a_client_that_is_killed_leaves_what_was_before_or_what_comes_after(
    name: str, path: str, lake: Lake, tmp_path: Path
) -> None:
    case = CASES[name](path)
    case.prepare(lake.open())
    before = seen(lake)
    after_lake = _copy(lake, tmp_path / "after")
    case.act(after_lake.open())
    after = seen(after_lake)
    for write in range(MOST_WRITES):
        copy = _copy(lake, tmp_path / str(write))
        crashed = crashes(copy.open(), case.act, write)
        found = seen(copy)
        if not crashed:
            assert found == after
            assert write > 0 or (name == "migration" and lake.is_v2), "without a write nothing is shown"
            return
        if not case.hides_first:
            _check_between(found, before, after, f"killed before write {write}")
        # Whoever comes later waits for the lease of the one that is gone, not for ever.
        copy.clock.advance(timedelta(hours=1))
        _repeat(copy, case)
        again = seen(copy)
        assert again == after, f"killed before write {write}, then repeated"
        check_rows(copy.folder)
        shutil.rmtree(copy.folder)
    raise AssertionError("this operation does not come to an end")


def _check_between(found: dict[str, Any], before: dict[str, Any], after: dict[str, Any], when: str) -> None:
    """Check that a fresh client sees the one or the other; a dropped table may be on its way."""
    shown, earlier, later = (
        {key: value for key, value in each.items() if key != "dropped"} for each in (found, before, after)
    )
    assert shown in (earlier, later), when
    assert set(found["dropped"]) <= set(before["dropped"]) | set(after["dropped"]), when


def _repeat(lake: Lake, case: Case) -> None:
    try:
        case.act(lake.open())
    except LanceNamespaceError as error:
        if int(error.code) not in case.done:
            raise


def _copy(lake: Lake, folder: Path) -> Lake:
    if lake.folder.exists():
        shutil.copytree(lake.folder, folder)
    clock = replace(lake.clock)
    return Lake({"root": str(folder)}, lake.mode, clock, folder)


@pytest.mark.parametrize("name", ["rename", "drop", "undrop under another name", "deregister", "create"])
def test_the_next_operation_may_be_another_one(name: str, path: str, lake: Lake, tmp_path: Path) -> None:
    case = CASES[name](path)
    case.prepare(lake.open())
    for write in range(MOST_WRITES):
        copy = _copy(lake, tmp_path / str(write))
        if not crashes(copy.open(), case.act, write):
            return
        copy.clock.advance(timedelta(hours=1))
        before = seen(copy)
        catalog = copy.open()
        if path in before:
            drop(catalog, path)
        make(catalog, path, 9)
        expected = {**before, path: [9], "dropped": []}
        found = {**seen(copy), "dropped": []}
        assert found == expected, f"{name} was killed before write {write}"
        check_rows(copy.folder)
        drop(catalog, path)
        catalog.purge_table(ident(path), force=True)
        left = {key: value for key, value in before.items() if key not in {path, "dropped"}}
        assert {**left, "dropped": []} == {**seen(copy), "dropped": []}, "nothing else was purged"
    raise AssertionError("this operation does not come to an end")
