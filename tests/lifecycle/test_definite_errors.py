"""A definite error implies no effect: whichever write of a verb the store refuses, on real tables.

The explorer refuses single requests of its scenarios; here each verb meets a store that refuses one write,
or every write from some moment on, so that nothing can be undone either. A purge is not among them: it
deletes files one after another, and its result says how many.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import all_tables, declare, deregister, drop, make, register, rename, rows, spaces
from tests.support.lakes import QUIET
from tests.support.modes import MODES
from tests.support.mortal_clients import make_failing
from tests.support.roots import numbers

from relance import DirectoryNamespace
from relance.errors import PermissionDeniedError, ServiceUnavailableError

Act = Callable[[DirectoryNamespace, str], object]


def _nothing(catalog: DirectoryNamespace, path: str) -> object:
    return None


def _live(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 1)


def _dropped(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 1), drop(catalog, path)


def _purged(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 1), drop(catalog, path, purge="true")


def _deregistered(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 1), deregister(catalog, path)


def _create(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 2, properties={"k": "v"})


def _overwrite(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 2, mode="overwrite", properties={"k": "v"})


def _drop_and_purge(catalog: DirectoryNamespace, path: str) -> object:
    return drop(catalog, path, purge="true")


def _undrop(catalog: DirectoryNamespace, path: str) -> object:
    return catalog.undrop_table(path.split("/"))


def _undrop_as(catalog: DirectoryNamespace, path: str) -> object:
    return catalog.undrop_table(path.split("/"), new_id=["other"])


def _rename(catalog: DirectoryNamespace, path: str) -> object:
    rename(catalog, path, f"{path}2")
    return None


def _register(catalog: DirectoryNamespace, path: str) -> object:
    return register(catalog, path, f"{path}.lance")


def _register_over(catalog: DirectoryNamespace, path: str) -> object:
    return register(catalog, path, "loose", mode="overwrite")


CASES: list[tuple[Act, Act]] = [
    (_nothing, _create),
    (_nothing, declare),
    (_live, _overwrite),
    (_live, drop),
    (_live, _drop_and_purge),
    (_live, deregister),
    (_live, _rename),
    (_live, _register_over),
    (_dropped, _create),
    (_dropped, declare),
    (_dropped, _undrop),
    (_dropped, _undrop_as),
    (_purged, _create),
    (_deregistered, _register),
]
PLACES = [(mode, path) for mode in MODES for path in ("t", "a/t") if (mode, path) != ("V1", "a/t")]


def _open(root: Path, mode: str) -> DirectoryNamespace:
    return DirectoryNamespace(clock=None, root=str(root), **QUIET, **MODES[mode])


def _seen(catalog: DirectoryNamespace) -> dict[str, object]:
    seen: dict[str, object] = {path: rows(catalog, path) for path in all_tables(catalog)}
    return seen | {"dropped": [each.id for each in catalog.list_dropped_tables()]}


def _failure(act: Act, catalog: DirectoryNamespace, path: str) -> LanceNamespaceError | None:
    try:
        act(catalog, path)
    except LanceNamespaceError as error:
        return error
    return None


@pytest.mark.deep
@pytest.mark.parametrize("once", [True, False], ids=["one write", "all writes"])
@pytest.mark.parametrize(
    ("start", "act", "mode", "path"),
    [(*case, *place) for case in CASES for place in PLACES],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_verb_that_fails_definitely_has_changed_nothing(
    start: Act, act: Act, mode: str, path: str, once: bool, tmp_path: Path
) -> None:
    for writes in range(40):
        root = tmp_path / str(writes)
        catalog = _open(root, mode)
        if "/" in path:
            spaces(catalog, "a")
        start(catalog, path)
        lance.write_dataset(numbers(7), str(root / "loose"))
        before, client = _seen(catalog), _open(root, mode)
        store = make_failing(client, writes, PermissionDeniedError, once=once)
        failure = _failure(act, client, path)
        if failure is not None and not isinstance(failure, ServiceUnavailableError):
            assert _seen(_open(root, mode)) == before, f"{writes} writes, then {failure!r}"
        if not store.failed:
            return
    raise AssertionError("it never ends")
