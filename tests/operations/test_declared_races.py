"""Creates that race for a declared name: one wins, and the others learn that the name is taken or busy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import declare, make, rows, spaces, tables, write
from tests.support.codes import CONCURRENT_MODIFICATION, TABLE_EXISTS
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MODES

CREATORS = 4
ROUNDS = 4
PLACES = [
    *((mode, "t", {}) for mode in MODES),
    *((mode, "s/t", {}) for mode in MODES if mode != "V1"),
    *((mode, "t", {"table_version_management": "true"}) for mode in MODES if mode != "V1"),
]


@pytest.mark.parametrize("by_lance", [False, True], ids=["catalog", "lance"])
@pytest.mark.parametrize(("mode", "path", "settings"), PLACES)
def test_one_of_the_creates_that_race_for_a_declared_name_wins(
    tmp_path: Path, mode: str, path: str, settings: dict[str, str], by_lance: bool
) -> None:
    lake = Lake(str(tmp_path / "lake"), MODES[mode], settings=QUIET | settings)
    start = Barrier(CREATORS, timeout=60)
    clients = [lake.open() for _ in range(CREATORS)]

    def create(number: int, name: str) -> int | None:
        start.wait()
        try:
            if by_lance and number % 2:  # as one of Lance's writers, which asks where the table is
                write(clients[number], name, number, mode="create")
            else:
                make(clients[number], name, number)
        except LanceNamespaceError as error:
            return int(error.code)
        return None

    if "/" in path:
        spaces(lake.open(), "s")
    names = [f"{path}{number}" for number in range(ROUNDS)]
    for name in names:
        declare(lake.open(), name)
        with ThreadPoolExecutor(CREATORS) as pool:
            codes = list(pool.map(create, range(CREATORS), [name] * CREATORS))
        assert codes.count(None) == 1, codes
        assert {code for code in codes if code is not None} <= {TABLE_EXISTS, CONCURRENT_MODIFICATION}
        assert rows(lake.open(), name) == [codes.index(None)]
    parent = path.rpartition("/")[0]
    assert tables(lake.open(), parent, include_declared=False) == [each.rpartition("/")[2] for each in names]
