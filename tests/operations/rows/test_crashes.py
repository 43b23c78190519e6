"""A client that dies after any write of any operation: the next one finds the old state or the new one.

Then the operation can be done again to its end, nothing else has changed, and no name is stuck. An
answer that is lost is settled by looking. All kinds of them, and all that can be done to a name afterwards:

    make test-long ARGS=tests/operations/rows/test_crashes.py
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import (
    declare,
    deregister,
    describe,
    drop,
    exists,
    ident,
    make,
    namespaces,
    register,
    rename,
    rows,
    spaces,
    tables,
)
from tests.support.internals import context_of
from tests.support.modes import MANIFEST_MODES, V1, V2
from tests.support.mortal_clients import Answer, Death, commit_answered, make_failing, make_mortal
from tests.support.root_checks import check_rows, open_root, orphans

from relance import DirectoryNamespace
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidTableStateError,
    OutcomeUnknownError,
    PermissionDeniedError,
    TableNotFoundError,
)
from relance.testing.clock import ManualClock

Act = Callable[[DirectoryNamespace], Any]

LONG = os.environ.get("RELANCE_PROFILE") == "long"

ANSWERS = (Answer.LOST, Answer.ODD, Answer.CONFLICT) if LONG else (Answer.LOST,)

HOLDERS_ARE_GONE_AFTER = timedelta(hours=1)
"""Longer than lease, clock skew and request age together; shorter than any TTL."""


def _nothing(catalog: DirectoryNamespace) -> None:
    """Be no preparation, or look at nothing more."""


@dataclass(frozen=True, slots=True)
class Case:
    """An operation: the operation itself, the tables it is about, and what was done before it."""

    act: Act
    about: tuple[str, ...]
    before: Act = _nothing
    also: Act = _nothing
    """Looks at what the operation changes beside what users see."""
    half_way: Act | None = None
    """Does the first half of an operation that consists of two."""
    go_on: Act = _nothing
    """Goes on from there."""
    modes: tuple[str, ...] = tuple(MANIFEST_MODES)
    purges: bool = False
    """Deletes files one after another: an error says which are left."""


def _root(catalog: DirectoryNamespace) -> Path:
    return Path(context_of(catalog).root.uri)


def _registers(path: str) -> Act:
    """Return what registers the files of table 't' under a name."""

    def act(catalog: DirectoryNamespace) -> None:
        root = _root(catalog)
        (found,) = (*root.glob("t.lance"), *root.glob("????????_t"))
        register(catalog, path, found.name)

    return act


def _purges(path: str) -> Act:
    return lambda catalog: catalog.purge_table(ident(path), force=True)


def _renames_again(old: str, new: str) -> Act:
    """Return what renames a table whose old name an unfinished rename has dropped."""

    def act(catalog: DirectoryNamespace) -> None:
        catalog.undrop_table(ident(old))
        rename(catalog, old, new)

    return act


CASES = {
    "create a namespace": Case(lambda c: spaces(c, "n"), ()),
    "drop a namespace with all in it": Case(
        lambda c: c.drop_namespace({"id": ["s"], "behavior": "Cascade"}), ("s/u",)
    ),
    "undrop a namespace": Case(
        lambda c: c.undrop_namespace(["s"]),
        ("s/u",),
        lambda c: c.drop_namespace({"id": ["s"], "behavior": "Cascade"}),
    ),
    "declare": Case(lambda c: declare(c, "n"), ("n",)),
    "declare over a dropped table": Case(lambda c: declare(c, "g"), ("g",)),
    "create": Case(lambda c: make(c, "n", 7), ("n",)),
    "create a declared table": Case(lambda c: make(c, "n", 7), ("n",), lambda c: declare(c, "n")),
    "overwrite": Case(lambda c: make(c, "t", 7, mode="overwrite"), ("t",)),
    "create over a dropped table": Case(lambda c: make(c, "g", 7), ("g",)),
    "drop": Case(lambda c: drop(c, "t"), ("t",)),
    "create over a dropped table in a namespace": Case(
        lambda c: make(c, "s/g", 7), ("s/g",), lambda c: (make(c, "s/g", 5), drop(c, "s/g")), modes=("V2",)
    ),
    "drop and purge": Case(
        lambda c: drop(c, "t", purge="true"),
        ("t",),
        half_way=lambda c: drop(c, "t"),
        go_on=_purges("t"),
        purges=True,
    ),
    "undrop": Case(lambda c: c.undrop_table(["g"]), ("g",)),
    "undrop under another name": Case(lambda c: c.undrop_table(["g"], new_id=["h"]), ("g", "h")),
    "rename, V2": Case(lambda c: rename(c, "t", "r"), ("t", "r"), modes=("V2",)),
    "rename into a namespace, V2": Case(lambda c: rename(c, "t", "s/r"), ("t", "s/r"), modes=("V2",)),
    "rename by copying": Case(
        lambda c: rename(c, "t", "r"),
        ("t", "r"),
        half_way=lambda c: drop(c, "t"),
        go_on=_renames_again("t", "r"),
        modes=("compatibility",),
    ),
    "rename by copying into a namespace": Case(
        lambda c: rename(c, "t", "s/r"),
        ("t", "s/r"),
        half_way=lambda c: drop(c, "t"),
        go_on=_renames_again("t", "s/r"),
        modes=("compatibility",),
    ),
    "rename back": Case(lambda c: rename(c, "r", "t"), ("t", "r"), lambda c: rename(c, "t", "r")),
    "register": Case(_registers("t"), ("t",), lambda c: deregister(c, "t")),
    "register under another name": Case(_registers("k"), ("t", "k"), lambda c: deregister(c, "t")),
    "deregister": Case(lambda c: deregister(c, "t"), ("t",)),
    "purge": Case(lambda c: c.purge_table(["g"], force=True), ("g",), purges=True),
    "protect": Case(
        lambda c: c.protect(["t"]),
        ("t",),
        also=lambda c: "relance.protected" in str(check_rows(_root(c)).live["t"]["metadata"]),
    ),
    "migrate to the manifest": Case(
        lambda c: c.migrate_to_manifest(),
        ("v1", "v1dropped"),
        lambda c: _make_flat_tables(c),
        also=lambda c: view(open_root(_root(c), V2, c._clock)),
        modes=("compatibility",),
    ),
}


def _make_flat_tables(catalog: DirectoryNamespace) -> None:
    flat = open_root(_root(catalog), V1, catalog._clock)
    make(flat, "v1", 1)
    make(flat, "v1dropped", 1)
    drop(flat, "v1dropped")


def view(catalog: DirectoryNamespace) -> dict[str, Any]:
    """Return all that users see of a catalog; what differs each time, such as ids of drops, is left out."""
    seen: dict[str, Any] = {}
    for path in _namespaces(catalog, ""):
        seen[f"{path}/"] = catalog.describe_namespace({"id": ident(path)}).properties
        for name in tables(catalog, path):
            found = f"{path}/{name}" if path else name
            described = describe(catalog, found, check_declared=True)
            values = None if described.is_only_declared else rows(catalog, found)
            seen[found] = (values, described.properties, catalog.table_status(ident(found)))
    # A claim whose holder is gone shows until somebody wants the table; whether it can be had, see below.
    dropped = catalog.list_dropped_tables()
    seen["dropped"] = sorted((each.id, each.cascade_id is not None) for each in dropped)
    return seen


def _namespaces(catalog: DirectoryNamespace, path: str) -> Iterator[str]:
    yield path
    for name in namespaces(catalog, path):
        yield from _namespaces(catalog, f"{path}/{name}" if path else name)


@dataclass(frozen=True, slots=True)
class Template:
    """A root to copy, with all kinds of things in it."""

    folder: Path
    mode: dict[str, str]
    clock: ManualClock

    def copy(self, to: Path) -> DirectoryNamespace:
        shutil.copytree(self.folder, to)
        return self.open(to)

    def open(self, folder: Path, *, later: timedelta = timedelta()) -> DirectoryNamespace:
        clock = ManualClock(self.clock.moment, self.clock.seconds)
        clock.advance(later)  # files written so far keep their times
        return open_root(folder, {**self.mode, "manifest_upkeep": "false"}, clock)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a root for each mode, with a bit of everything."""
    made = {mode: tmp_path_factory.mktemp("base") / "root" for mode in MANIFEST_MODES}
    for mode, folder in made.items():
        catalog = Template(folder, MANIFEST_MODES[mode], ManualClock()).open(folder)
        spaces(catalog, "s", "s/d")
        make(catalog, "t", 1, 2, properties={"owner": "me"})
        make(catalog, "other", 3)
        make(catalog, "s/u", 4)
        declare(catalog, "s/d/v")
        make(catalog, "g", 5)
        drop(catalog, "g")
    return made


PARAMETERS = {f"{name}, {mode}": (case, mode) for name, case in CASES.items() for mode in case.modes}


@dataclass(frozen=True, slots=True)
class Start:
    """An operation and the root it starts from."""

    case: Case
    template: Template

    def looks(self, folder: Path) -> list[dict[str, Any]]:
        """Return what is seen before the operation, half-way if it has two parts, and after it."""
        seen = [_look(self.case, self.template.open(self.template.folder))]
        for act in (self.case.half_way, self.case.act):
            if act is not None:
                whole = self.template.copy(folder / f"whole {len(seen)}")
                act(whole)
                seen.append(_look(self.case, whole))
                assert seen[-1] != seen[-2]
        return seen


@pytest.fixture(params=list(PARAMETERS))
def start(request: pytest.FixtureRequest, bases: dict[str, Path], tmp_path: Path) -> Start:
    """Return each operation in each mode."""
    case, mode = PARAMETERS[request.param]
    template = Template(tmp_path / "template", MANIFEST_MODES[mode], ManualClock())
    shutil.copytree(bases[mode], template.folder)
    case.before(template.open(template.folder))
    return Start(case, template)


def test_crash_after_any_write_leaves_the_old_or_the_new_state(start: Start, tmp_path: Path) -> None:
    case, template = start.case, start.template
    allowed = start.looks(tmp_path)
    for writes in range(100):
        folder = tmp_path / f"after {writes}"
        dying = template.copy(folder)
        life = make_mortal(dying, writes)
        try:
            case.act(dying)
        except Death:
            check_recovery(template, folder, case, allowed, died_after=life.done)
            shutil.rmtree(folder)
            continue
        assert writes > 0, "nothing was written"
        return
    raise AssertionError("it never ends")


def test_refused_write_has_no_effect_or_an_unknown_outcome(start: Start, tmp_path: Path) -> None:
    case, template = start.case, start.template
    allowed = start.looks(tmp_path)
    for writes in range(100):
        folder = tmp_path / f"refused {writes}"
        catalog = template.copy(folder)
        life = make_failing(catalog, writes, PermissionDeniedError)
        refusal = _try(case.act, catalog)
        if not life.failed:
            return
        found = _look(case, template.open(folder))
        where = f"refused after {life.done}: {refusal!r}"
        if refusal is None:
            assert found == allowed[-1], where
        elif not isinstance(refusal, OutcomeUnknownError) and not case.purges:
            assert found == allowed[0], where
        check_recovery(template, folder, case, allowed, life.done)
        shutil.rmtree(folder)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_interrupt_at_any_write_keeps_nobody_waiting(start: Start, tmp_path: Path, after: bool) -> None:
    case, template = start.case, start.template
    allowed = start.looks(tmp_path)
    for writes in range(100):
        folder = tmp_path / f"interrupted {writes}"
        catalog = template.copy(folder)
        life = make_failing(catalog, writes, KeyboardInterrupt, after=after)
        try:
            _try(case.act, catalog)
        except KeyboardInterrupt:
            where = f"interrupted {'after' if after else 'before'} the last of {life.done}"
            other = template.open(folder)
            clock = context_of(other).clock
            began = clock.now()
            assert _look(case, other) in allowed, where
            refusal = _try(case.act, other)
            assert not isinstance(refusal, ConcurrentModificationError), f"{where}: {refusal}"
            if case.half_way is not None and _look(case, other) == allowed[1]:
                case.go_on(other)
            assert _look(case, other) == allowed[-1], where
            assert clock.now() == began, f"{where}: somebody waited"
            shutil.rmtree(folder)
            continue
        assert not life.failed
        return
    raise AssertionError("it never ends")


def test_lost_response_to_a_commit_is_resolved_by_reading_back(start: Start, tmp_path: Path) -> None:
    case, template = start.case, start.template
    whole = template.copy(tmp_path / "whole")
    with commit_answered(0, Answer.LOST) as commits:
        case.act(whole)
    after = {**_look(case, whole), "versions": _versions(whole)}
    assert commits, "nothing was committed"
    for number in range(1, len(commits) + 1):
        for answer in ANSWERS:
            folder = tmp_path / f"{answer} {number}"
            catalog = template.copy(folder)
            with commit_answered(number, answer):
                case.act(catalog)
            assert {**_look(case, catalog), "versions": _versions(catalog)} == after, f"{answer} {number}"
            assert len(orphans(folder)) == len(orphans(_root(whole)))
            shutil.rmtree(folder)


def test_commit_that_may_have_landed_is_reported_as_outcome_unknown(start: Start, tmp_path: Path) -> None:
    case, template = start.case, start.template
    allowed = start.looks(tmp_path)
    for number in range(1, 100):
        folder = tmp_path / f"refused {number}"
        catalog = template.copy(folder)
        with commit_answered(number, Answer.REFUSED) as made:
            refusal = _try(case.act, catalog)
        if len(made) < number:
            return
        # Without one the marker had decided: only the row was still to be brought in step.
        assert refusal is None or isinstance(refusal, OutcomeUnknownError), refusal
        if refusal is None:
            assert _look(case, catalog) == allowed[-1], made
        check_recovery(template, folder, case, allowed, made)
        shutil.rmtree(folder)
    raise AssertionError("it never ends")


def _versions(catalog: DirectoryNamespace) -> dict[str, list[int]]:
    paths = [each.replace("$", "/") for each in catalog.list_all_tables({}).tables]
    found = {path: catalog.list_table_versions({"id": ident(path)}).versions for path in paths}
    return {path: [each.version for each in versions] for path, versions in found.items()}


def _look(case: Case, catalog: DirectoryNamespace) -> dict[str, Any]:
    return {**view(catalog), "also": case.also(catalog)}


def check_recovery(
    template: Template, folder: Path, case: Case, allowed: list[dict[str, Any]], died_after: list[str]
) -> None:
    """Check what another client finds, that it can do the same again, and that all names still work."""
    where = f"died after {died_after}"
    catalog = template.open(folder, later=HOLDERS_ARE_GONE_AFTER)
    found = _look(case, catalog)
    assert found in allowed, where
    check_rows(folder)
    assert len(orphans(folder)) <= 1, where
    refusal = _try(case.act, catalog)  # when it was done already, or but for its last step
    assert not isinstance(refusal, InternalError), f"{where}: {refusal}"
    if case.half_way is not None and _look(case, catalog) == allowed[1]:
        assert isinstance(refusal, TableNotFoundError), f"{where}: {refusal}"
        case.go_on(catalog)
    assert _look(case, catalog) == allowed[-1], where
    for path in case.about:
        exercise(catalog, path, where)
    assert view(catalog)["other"] == allowed[0]["other"]


def _try(act: Act, catalog: DirectoryNamespace) -> LanceNamespaceError | None:
    try:
        act(catalog)
    except LanceNamespaceError as error:
        return error
    return None


def exercise(catalog: DirectoryNamespace, path: str, where: str) -> None:
    """Do all that can be done to a name; everything must work."""
    namespace = path.rpartition("/")[0]
    if namespace and namespace not in namespaces(catalog):
        return  # dropped by the operation
    if exists(catalog, path):
        catalog.unprotect(ident(path))
        drop(catalog, path)
    with suppress(TableNotFoundError, InvalidTableStateError):  # it ends the purge of a dead client, too
        catalog.purge_table(ident(path), force=True)
    make(catalog, path, 8)
    drop(catalog, path)
    catalog.undrop_table(ident(path))
    assert rows(catalog, path) == [8], where
    if not LONG:
        return
    drop(catalog, path)
    make(catalog, path, 9)
    assert rows(catalog, path) == [9], where
    drop(catalog, path)
    catalog.purge_table(ident(path), force=True)
    assert not exists(catalog, path), where
