"""The explorer's model of Lance against pylance: the same calls, the same answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from relance.clock import SystemClock
from relance.config import StorageOptions
from relance.errors import RelanceError
from relance.lifecycle.marker_store import new_nonce
from relance.operations.lance_tables import LanceTables, PylanceTables, is_settled
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import ObjectStorage
from relance.testing.model_tables import ModelTables

OPTIONS = StorageOptions()
TIMEOUT = timedelta(minutes=1)


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    return LocalDiskStorage(str(tmp_path))


@pytest.fixture(params=["model", "pylance"])
def lance_tables(request: pytest.FixtureRequest, storage: ObjectStorage, tmp_path: Path) -> LanceTables:
    if request.param == "model":
        return ModelTables(storage, SystemClock())
    return PylanceTables(storage, lambda directory: f"{tmp_path}/{directory}", OPTIONS)


@pytest.fixture
def data(lance_tables: LanceTables) -> Callable[[int], object]:
    if isinstance(lance_tables, ModelTables):
        return lambda value: value
    return lambda value: pa.table({"x": [value]})


def _stage(tables: LanceTables, data: object, *, overwrite: bool = False) -> tuple[str, Callable[[], int]]:
    token = new_nonce()
    staged = tables.stage("t.lance", data, token=token, overwrite=overwrite, options=OPTIONS)
    return token, lambda: tables.commit(
        "t.lance", staged, first=not overwrite, timeout=TIMEOUT, options=OPTIONS
    )


def test_table_without_a_version_has_no_head(lance_tables: LanceTables) -> None:
    assert lance_tables.head("t.lance") is None
    assert lance_tables.committed_version("t.lance", "nobody", after=0) is None


def test_staged_data_is_no_version_until_committed(
    lance_tables: LanceTables, data: Callable[[int], object], storage: ObjectStorage
) -> None:
    token, commit = _stage(lance_tables, data(1))
    assert lance_tables.head("t.lance") is None
    assert commit() == 1
    head = lance_tables.head("t.lance")
    assert head is not None
    assert head.version == 1
    assert lance_tables.committed_version("t.lance", token, after=0) == 1
    assert lance_tables.committed_version("t.lance", token, after=1) is None


def test_one_of_two_first_versions_is_committed(
    lance_tables: LanceTables, data: Callable[[int], object]
) -> None:
    first, commit_first = _stage(lance_tables, data(1))
    second, commit_second = _stage(lance_tables, data(2))
    assert commit_first() == 1
    with pytest.raises(RelanceError) as caught:
        commit_second()
    assert is_settled(caught.value)
    assert lance_tables.committed_version("t.lance", first, after=0) == 1
    assert lance_tables.committed_version("t.lance", second, after=0) is None


def test_staging_a_first_version_over_an_existing_one_is_refused(
    lance_tables: LanceTables, data: Callable[[int], object]
) -> None:
    _stage(lance_tables, data(1))[1]()
    with pytest.raises(RelanceError, match="already exists"):
        _stage(lance_tables, data(2))


def test_overwrite_after_another_one_lands_or_certainly_fails(
    lance_tables: LanceTables, data: Callable[[int], object]
) -> None:
    _stage(lance_tables, data(1))[1]()
    token, commit = _stage(lance_tables, data(2), overwrite=True)
    other, commit_other = _stage(lance_tables, data(3), overwrite=True)
    assert commit_other() == 2
    # pylance lets an overwrite lose against another one; the model goes on top. Both are certain.
    failures: list[RelanceError] = []
    try:
        commit()
    except RelanceError as error:
        failures.append(error)
    assert all(is_settled(error) for error in failures)
    assert lance_tables.committed_version("t.lance", token, after=0) == (None if failures else 3)
    assert lance_tables.committed_version("t.lance", other, after=0) == 2


def test_discard_removes_only_the_staged_files(
    lance_tables: LanceTables, data: Callable[[int], object], storage: ObjectStorage
) -> None:
    _stage(lance_tables, data(1))[1]()
    before = {info.key for info in storage.list_recursive("t.lance")}
    staged = lance_tables.stage("t.lance", data(2), token=new_nonce(), overwrite=True, options=OPTIONS)
    assert {info.key for info in storage.list_recursive("t.lance")} - before == set(staged.files)
    lance_tables.discard(staged)
    assert {info.key for info in storage.list_recursive("t.lance")} == before


def test_one_of_several_racing_first_commits_wins(
    lance_tables: LanceTables, data: Callable[[int], object]
) -> None:
    staged = [_stage(lance_tables, data(value)) for value in range(4)]
    barrier = threading.Barrier(4)
    won: list[str] = []
    failures: list[RelanceError] = []

    def race(token: str, commit: Callable[[], int]) -> None:
        barrier.wait()
        try:
            commit()
            won.append(token)
        except RelanceError as error:
            failures.append(error)

    threads = [threading.Thread(target=race, args=each) for each in staged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert [is_settled(error) for error in failures] == [True] * 3
    assert lance_tables.committed_version("t.lance", won[0], after=0) == 1
