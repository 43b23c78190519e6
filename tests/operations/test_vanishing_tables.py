"""A table goes away between the moment an operation opens it and the moment it reads or writes files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.codes import CONCURRENT_MODIFICATION
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MODES
from tests.support.roots import ipc, refused

from relance import DirectoryNamespace
from relance.errors import ConcurrentModificationError, InternalError, RelanceError, StorageError

Act = Callable[[DirectoryNamespace], object]

TABLE: dict[str, Any] = {"id": ["t"]}
VECTORS = pa.array([[float(number), 0.0] for number in range(10)], pa.list_(pa.float32(), 2))
ROWS = ipc(pa.table({"x": list(range(10)), "v": VECTORS}))
NEAREST: dict[str, Any] = {"k": 3, "vector": {"single_vector": [1.0, 0.0]}}
MERGE: dict[str, Any] = {"on": ["x"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
INDEX = {"column": "x", "index_type": "BTREE", "name": "by_x"}
COLUMN = {"new_columns": [{"name": "y", "expression": "x + 1"}]}

READS: dict[str, Act] = {
    "count": lambda lake: lake.count_table_rows({**TABLE, "predicate": "x > 1"}),
    "query": lambda lake: lake.query_table({**TABLE, **NEAREST}),
    "stats": lambda lake: lake.get_table_stats(TABLE),
}
"""What needs the data files of the version that it opened."""
REWRITES: dict[str, Act] = {
    "delete": lambda lake: lake.delete_from_table({**TABLE, "predicate": "x = 1"}),
    "update": lambda lake: lake.update_table({**TABLE, "predicate": "x = 1", "updates": [["x", "5"]]}),
    "merge": lambda lake: lake.merge_insert_into_table({**TABLE, **MERGE}, ROWS),
    "index": lambda lake: lake.create_table_scalar_index({**TABLE, **INDEX}),
    "add a column": lambda lake: lake.alter_table_add_columns({**TABLE, **COLUMN}),
}
"""Likewise, and then commits."""
APPENDS: dict[str, Act] = {
    "insert": lambda lake: lake.insert_into_table(TABLE, ROWS),
    "drop a column": lambda lake: lake.alter_table_drop_columns({**TABLE, "columns": ["v"]}),
    "schema metadata": lambda lake: lake.update_table_schema_metadata({**TABLE, "metadata": {"a": "b"}}),
}
"""What commits without a look at the files that are there."""


def _fill(lake: DirectoryNamespace) -> None:
    lake.create_table(TABLE, ROWS)
    lake.insert_into_table(TABLE, ROWS)


def _purge(lake: DirectoryNamespace) -> None:
    lake.drop_table({**TABLE, "context": {"purge": "true"}})


def _purge_and_create(lake: DirectoryNamespace) -> None:
    _purge(lake)
    _fill(lake)


def _clean_up(lake: DirectoryNamespace) -> None:
    lake.insert_into_table({**TABLE, "mode": "overwrite"}, ROWS)
    lake.cleanup_old_versions(["t"], "0s")


ENDS: dict[str, Act] = {"purged": _purge, "created again": _purge_and_create, "cleaned up": _clean_up}


@pytest.fixture(params=MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"), MODES[request.param], settings=QUIET)
    _fill(made.catalog)
    return made


def _act_meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have another client act as soon as a table was opened."""
    opened = lance.dataset

    def then(uri: Any = None, *arguments: Any, **named: Any) -> lance.LanceDataset:
        dataset = opened(uri, *arguments, **named)
        if "__manifest" not in str(uri):
            monkeypatch.undo()
            act()
        return dataset

    monkeypatch.setattr(lance, "dataset", then)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", [*READS, *REWRITES])
def test_table_that_goes_away_while_its_files_are_read_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, end: str
) -> None:
    catalog, other = lake.open(), lake.open()
    _act_meanwhile(monkeypatch, partial(ENDS[end], other))
    with refused(CONCURRENT_MODIFICATION) as caught:
        (READS | REWRITES)[name](catalog)
    assert "retry" in str(caught.value)
    if end != "purged":
        (READS | REWRITES)[name](catalog)


@pytest.mark.parametrize("end", ["purged", "created again"])
@pytest.mark.parametrize("name", APPENDS)
def test_commit_on_a_table_that_was_purged_meanwhile_is_no_success(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, end: str
) -> None:
    catalog, other = lake.open(), lake.open()
    _act_meanwhile(monkeypatch, partial(ENDS[end], other))
    with refused(CONCURRENT_MODIFICATION):
        APPENDS[name](catalog)


@pytest.mark.parametrize("end", ENDS)
def test_overwrite_of_a_table_that_goes_away_is_whole_or_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    catalog, other = lake.open(), lake.open()
    _act_meanwhile(monkeypatch, partial(ENDS[end], other))
    try:
        catalog.create_table({**TABLE, "mode": "overwrite"}, ROWS)
    except ConcurrentModificationError:
        assert end == "purged" or lake.is_v2
        catalog.create_table({**TABLE, "mode": "overwrite"}, ROWS)
    assert lake.open().count_table_rows({**TABLE, "predicate": "x >= 0"}).count == 10


def test_damaged_table_is_no_conflict(lake: Lake) -> None:
    for file in (Path(lake.location("t")) / "data").iterdir():
        file.unlink()
    for name, act in READS.items():
        with pytest.raises(RelanceError) as caught:
            act(lake.catalog)
        assert type(caught.value) in {InternalError, StorageError}, name


@pytest.mark.parametrize("changed", ["dropped and undropped", "appended to"])
def test_commit_on_a_table_that_is_whole_after_all_succeeds(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    catalog, other = lake.open(), lake.open()

    def meanwhile() -> None:
        if changed == "appended to":
            other.insert_into_table(TABLE, ROWS)
        else:
            other.drop_table(TABLE)
            other.undrop_table(["t"])

    _act_meanwhile(monkeypatch, meanwhile)
    catalog.insert_into_table(TABLE, ROWS)
    assert lake.open().count_table_rows(TABLE).count == (40 if changed == "appended to" else 30)
