"""Nobody waits for the dead: the next create, undrop and declare get through within a minute.

Only a purge that died blocks a name for longer, and then the error says until when.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import assert_whole, declare, drop, make, rename, spaces
from tests.support.modes import COMPATIBILITY, MODES
from tests.support.mortal_clients import Death, make_failing, make_mortal

from relance import DirectoryNamespace
from relance.errors import ConcurrentModificationError, OutcomeUnknownError
from relance.testing.clock import ManualClock

Act = Callable[[DirectoryNamespace, str], object]

SOON = timedelta(seconds=60)


def _undrop(catalog: DirectoryNamespace, path: str) -> object:
    return catalog.undrop_table(path.split("/"))


def _overwrite(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 2, mode="overwrite")


def _create(catalog: DirectoryNamespace, path: str) -> object:
    return make(catalog, path, 3)


def _purge(catalog: DirectoryNamespace, path: str) -> object:
    return catalog.purge_table(path.split("/"), force=True)


def _rename(catalog: DirectoryNamespace, path: str) -> object:
    rename(catalog, path, f"{path}2")
    return None


NOTHING, LIVE, DROPPED = "nothing", "live", "dropped"
DYING: list[tuple[str, Act]] = [
    (NOTHING, _create),
    (NOTHING, declare),
    (LIVE, drop),
    (LIVE, _overwrite),
    (LIVE, _rename),
    (DROPPED, _undrop),
    (DROPPED, _create),
    (DROPPED, _overwrite),
]
NEXT: list[Act] = [_create, _undrop, declare]
PLACES = [(mode, path) for mode in MODES for path in ("t", "a/t") if (mode, path) != ("V1", "a/t")]


def _open(root: Path, mode: str, clock: ManualClock) -> DirectoryNamespace:
    properties = {"manifest_upkeep": "false", **MODES[mode]}
    return DirectoryNamespace(clock=clock, root=str(root), **properties)


def _begin(root: Path, mode: str, path: str, start: str, clock: ManualClock) -> DirectoryNamespace:
    catalog = _open(root, mode, clock)
    if "/" in path:
        spaces(catalog, "a")
    if start != NOTHING:
        make(catalog, path, 1)
    if start == DROPPED:
        drop(catalog, path)
    return catalog


def _dies(catalog: DirectoryNamespace, path: str, act: Act, writes: int) -> bool:
    make_mortal(catalog, writes)
    try:
        act(catalog, path)
    except Death:
        return True
    return False


@pytest.mark.deep
@pytest.mark.parametrize(
    ("start", "act", "mode", "path"),
    [(*dying, *place) for dying in DYING for place in PLACES if dying[1] is not _rename or place[0] != "V1"],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_next_client_gets_through_within_a_minute_of_a_death(
    start: str, act: Act, mode: str, path: str, tmp_path: Path
) -> None:
    for writes in range(40):
        for after in NEXT:
            clock = ManualClock()
            root = tmp_path / f"{writes} {after.__name__}"
            if not _dies(_begin(root, mode, path, start, clock), path, act, writes):
                assert writes > 0
                return
            died = clock.now()
            outcome = _outcome(after, _open(root, mode, clock), path)
            where = f"{after.__name__} after {writes} writes: {outcome!r}"
            assert not isinstance(outcome, ConcurrentModificationError | OutcomeUnknownError), where
            assert clock.now() - died <= SOON, where
    raise AssertionError("it never ends")


def _outcome(act: Act, catalog: DirectoryNamespace, path: str) -> Any:
    try:
        return act(catalog, path)
    except LanceNamespaceError as error:
        return error


@pytest.mark.parametrize("mode", ["V1", "compatibility"])
def test_name_that_a_dead_purge_blocks_is_free_from_the_time_that_the_error_says(
    mode: str, tmp_path: Path
) -> None:
    blocked = 0
    for writes in range(40):
        clock, root = ManualClock(), tmp_path / str(writes)
        if not _dies(_begin(root, mode, "t", DROPPED, clock), "t", _purge, writes):
            break
        catalog = _open(root, mode, clock)
        error = _outcome(_create, catalog, "t")
        if isinstance(error, ConcurrentModificationError):
            blocked += 1
            said = re.search(r"retry after (\S+) at the latest", str(error))
            assert said is not None, error
            free_from = datetime.fromisoformat(said[1])
            assert free_from - clock.now() <= timedelta(minutes=26)
            clock.advance(free_from - clock.now() + timedelta(seconds=2))
            assert catalog.purge_table(["t"], force=True).purged
            _create(catalog, "t")
        assert_whole(_open(root, mode, clock), "t", 3)
    assert blocked > 1


@pytest.mark.parametrize("dies", [True, False], ids=["died long ago", "interrupted"])
@pytest.mark.parametrize("mode", ["V1", "compatibility"])
def test_error_about_a_purge_that_stopped_says_to_run_purge_again(
    mode: str, dies: bool, tmp_path: Path
) -> None:
    clock = ManualClock()
    stopping = _begin(tmp_path, mode, "t", DROPPED, clock)
    if dies:
        assert _dies(stopping, "t", _purge, 2)
        clock.advance(timedelta(minutes=27))
    else:
        make_failing(stopping, 2, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            _purge(stopping, "t")
    catalog = _open(tmp_path, mode, clock)
    for act in (_create, _overwrite):
        with pytest.raises(ConcurrentModificationError, match="run purge on it again"):
            act(catalog, "t")
    assert catalog.purge_table(["t"]).purged
    _create(catalog, "t")
    assert_whole(catalog, "t", 3)


def test_dead_purge_of_a_table_in_a_namespace_blocks_no_create(tmp_path: Path) -> None:
    for writes in range(40):
        clock, root = ManualClock(), tmp_path / str(writes)
        if not _dies(_begin(root, "V2", "a/t", DROPPED, clock), "a/t", _purge, writes):
            assert writes > 1
            return
        catalog = DirectoryNamespace(clock=clock, root=str(root), manifest_upkeep="false", **COMPATIBILITY)
        died = clock.now()
        _create(catalog, "a/t")
        assert clock.now() - died <= SOON
        assert_whole(catalog, "a/t", 3)
