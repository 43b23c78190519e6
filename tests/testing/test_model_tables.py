"""The explorer's model of Lance against pylance: the same calls, the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.patches import substituted

from relance.catalog.states import new_nonce
from relance.clock import SystemClock
from relance.config import StorageOptions
from relance.errors import ConcurrentModificationError, RelanceError
from relance.lance_io import LanceTables, PylanceTables, StagedData, VersionTakenError, WrittenData
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import ObjectStorage
from relance.testing.model_tables import (
    ModelTables,
    ModelVersion,
    encode_version,
    key_of_version,
    write_file,
)

OPTIONS = StorageOptions()
TIMEOUT = timedelta(minutes=1)
DIRECTORY = "t.lance"


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    return LocalDiskStorage(str(tmp_path))


@pytest.fixture(params=["model", "pylance"])
def lance_tables(request: pytest.FixtureRequest, storage: ObjectStorage, tmp_path: Path) -> LanceTables:
    if request.param == "model":
        return ModelTables(storage, SystemClock())
    return PylanceTables(storage, lambda directory: f"{tmp_path}/{directory}", OPTIONS)


@pytest.fixture
def data(lance_tables: LanceTables) -> Callable[[int], Any]:
    if isinstance(lance_tables, ModelTables):
        return lambda value: value
    return lambda value: pa.table({"x": [value]})


@pytest.fixture
def content(lance_tables: LanceTables, storage: ObjectStorage, tmp_path: Path) -> Callable[[int], int]:
    """Return a function that returns the value in a version."""

    def read(version: int) -> int:
        if isinstance(lance_tables, ModelTables):
            return int(
                storage.read(key_of_version(DIRECTORY, version)).body.split(b'"data": ')[1].split(b",")[0]
            )
        (value,) = lance.dataset(f"{tmp_path}/{DIRECTORY}", version=version).to_table()["x"].to_pylist()
        return int(value)

    return read


@pytest.fixture
def append_foreign(
    lance_tables: LanceTables, storage: ObjectStorage, tmp_path: Path
) -> Callable[[int], None]:
    """Return a function that adds a version as another client does."""

    def append(value: int) -> None:
        if isinstance(lance_tables, ModelTables):
            head = lance_tables.head(DIRECTORY)
            file = write_file(storage, DIRECTORY, new_nonce(), value)
            body = encode_version(ModelVersion("another client's", value, (file,), ours=False))
            storage.create(key_of_version(DIRECTORY, 1 if head is None else head.version + 1), body)
        else:
            lance.write_dataset(pa.table({"x": [value]}), f"{tmp_path}/{DIRECTORY}", mode="overwrite")

    return append


def _stage(tables: LanceTables, data: Any, *, version: int = 0) -> StagedData:
    return tables.stage(DIRECTORY, data, token=new_nonce(), version=version, options=OPTIONS)


def _commit(tables: LanceTables, staged: StagedData, version: int) -> None:
    tables.commit(DIRECTORY, staged, version=version, timeout=TIMEOUT, options=OPTIONS)


def _put(tables: LanceTables, data: Any, version: int) -> str:
    """Stage data, commit it as this version and return its token."""
    staged = _stage(tables, data, version=version - 1)
    _commit(tables, staged, version)
    return staged.token


def _head(tables: LanceTables) -> int:
    head = tables.head(DIRECTORY)
    return 0 if head is None else head.version


def test_table_without_a_version_has_no_head(lance_tables: LanceTables) -> None:
    assert lance_tables.head(DIRECTORY) is None
    assert lance_tables.committed_version(DIRECTORY, ["nobody"], after=0) is None
    assert not lance_tables.has_foreign_version(DIRECTORY)


def test_staged_data_is_no_version_until_committed(
    lance_tables: LanceTables, data: Callable[[int], Any], content: Callable[[int], int]
) -> None:
    staged = _stage(lance_tables, data(7))
    assert lance_tables.head(DIRECTORY) is None
    _commit(lance_tables, staged, 1)
    assert _head(lance_tables) == 1
    assert content(1) == 7


def test_commits_are_found_by_their_tokens_newest_first(
    lance_tables: LanceTables, data: Callable[[int], Any]
) -> None:
    first, second = _put(lance_tables, data(1), 1), _put(lance_tables, data(2), 2)
    assert lance_tables.committed_version(DIRECTORY, [first], after=0) == 1
    assert lance_tables.committed_version(DIRECTORY, [first], after=1) is None
    assert lance_tables.committed_version(DIRECTORY, [first, second], after=0) == 2
    assert lance_tables.committed_version(DIRECTORY, ["nobody", second], after=1) == 2
    assert lance_tables.committed_version(DIRECTORY, [], after=0) is None


def test_staging_a_first_version_over_an_existing_one_is_refused(
    lance_tables: LanceTables, data: Callable[[int], Any]
) -> None:
    _put(lance_tables, data(1), 1)
    with pytest.raises(RelanceError, match="already exists"):
        _stage(lance_tables, data(2))


@pytest.mark.parametrize("version", [1, 2], ids=["first", "second"])
def test_version_is_committed_exactly_or_not_at_all(
    lance_tables: LanceTables, data: Callable[[int], Any], content: Callable[[int], int], version: int
) -> None:
    for number in range(1, version):
        _put(lance_tables, data(0), number)
    one = _stage(lance_tables, data(10), version=version - 1)
    other = _stage(lance_tables, data(20), version=version - 1)
    _commit(lance_tables, other, version)
    with pytest.raises(VersionTakenError):
        _commit(lance_tables, one, version)
    assert lance_tables.committed_version(DIRECTORY, [one.token], after=0) is None
    assert _head(lance_tables) == version
    assert content(version) == 20
    _commit(lance_tables, one, version + 1)
    assert _head(lance_tables) == version + 1
    assert content(version + 1) == 10


def test_overwrite_is_refused_after_a_version_of_another_client(
    lance_tables: LanceTables, data: Callable[[int], Any], append_foreign: Callable[[int], None]
) -> None:
    _put(lance_tables, data(1), 1)
    staged = _stage(lance_tables, data(2), version=1)
    append_foreign(3)
    with pytest.raises(VersionTakenError):
        _commit(lance_tables, staged, 2)
    assert _head(lance_tables) == 2


def test_restore_repeats_a_version_as_the_next_one_and_refuses_an_overwrite(
    lance_tables: LanceTables, data: Callable[[int], Any], content: Callable[[int], int]
) -> None:
    _put(lance_tables, data(1), 1)
    late, token = _stage(lance_tables, data(2), version=1), new_nonce()
    lance_tables.restore(DIRECTORY, 1, token=token, timeout=TIMEOUT)
    assert (_head(lance_tables), content(2)) == (2, 1)
    assert lance_tables.committed_version(DIRECTORY, [token], after=1) == 2
    assert not lance_tables.has_foreign_version(DIRECTORY)
    with pytest.raises(VersionTakenError):
        _commit(lance_tables, late, 2)
    assert content(2) == 1


def test_restore_after_another_commit_is_refused(
    lance_tables: LanceTables, data: Callable[[int], Any], content: Callable[[int], int]
) -> None:
    _put(lance_tables, data(1), 1)
    _put(lance_tables, data(2), 2)
    with pytest.raises(VersionTakenError):
        lance_tables.restore(DIRECTORY, 1, token=new_nonce(), timeout=TIMEOUT)
    assert (_head(lance_tables), content(2)) == (2, 2)


def test_restore_without_a_table_is_refused(lance_tables: LanceTables) -> None:
    with pytest.raises(RelanceError):
        lance_tables.restore(DIRECTORY, 1, token=new_nonce(), timeout=TIMEOUT)
    assert lance_tables.head(DIRECTORY) is None


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_version_of_another_client_is_foreign(
    lance_tables: LanceTables, data: Callable[[int], Any], append_foreign: Callable[[int], None], first: bool
) -> None:
    if first:
        append_foreign(1)
        _put(lance_tables, data(2), 2)
    else:
        _put(lance_tables, data(1), 1)
        assert not lance_tables.has_foreign_version(DIRECTORY)
        append_foreign(2)
    assert lance_tables.has_foreign_version(DIRECTORY)


def test_discard_removes_only_the_staged_files(
    lance_tables: LanceTables, data: Callable[[int], Any], storage: ObjectStorage
) -> None:
    _put(lance_tables, data(1), 1)
    before = {info.key for info in storage.list_recursive(DIRECTORY)}
    staged = _stage(lance_tables, data(2), version=1)
    assert {info.key for info in storage.list_recursive(DIRECTORY)} - before == set(staged.files) != set()
    lance_tables.discard(staged)
    assert {info.key for info in storage.list_recursive(DIRECTORY)} == before


def test_written_data_is_required_to_be_there_and_stays_its_writers(
    lance_tables: LanceTables, data: Callable[[int], Any], storage: ObjectStorage
) -> None:
    staged = _stage(lance_tables, data(1))
    (file,) = staged.files
    schema = 1 if isinstance(lance_tables, ModelTables) else data(1).schema
    written = WrittenData(DIRECTORY, schema, (), frozenset({file.rpartition("/")[2]}))
    assert _stage(lance_tables, written).files == ()
    storage.delete(file)
    with pytest.raises(ConcurrentModificationError, match="missing"):
        _stage(lance_tables, written)


def test_one_of_several_racing_first_commits_wins(
    lance_tables: LanceTables, data: Callable[[int], Any]
) -> None:
    staged = [_stage(lance_tables, data(value)) for value in range(4)]
    barrier = threading.Barrier(4)
    won: list[str] = []
    failures: list[RelanceError] = []

    def race(one: StagedData) -> None:
        barrier.wait()
        try:
            _commit(lance_tables, one, 1)
            won.append(one.token)
        except RelanceError as error:
            failures.append(error)

    threads = [threading.Thread(target=race, args=(one,)) for one in staged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert [type(error) for error in failures] == [VersionTakenError] * 3
    assert lance_tables.committed_version(DIRECTORY, won, after=0) == 1


EMPTIED = [
    "LanceError(IO): failed to shutdown local writer for t.lance/data/1.lance: LanceError(IO): failed to "
    "persist temp file to t.lance/data/1.lance",
    'LanceError(IO): No such file or directory (os error 2) at path "t.lance/data/.tmp1VrCI0"',
]
"""What Lance raises when it writes into a directory that another client is removing."""


@pytest.mark.parametrize("text", EMPTIED)
@pytest.mark.parametrize("step", ["stage", "commit", "restore", "set_properties"])
def test_writing_into_a_directory_that_is_being_emptied_is_a_conflict(
    tmp_path: Path, storage: ObjectStorage, text: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pylance = PylanceTables(storage, lambda directory: f"{tmp_path}/{directory}", OPTIONS)
    token, minute, data = new_nonce(), timedelta(minutes=1), pa.table({"x": [1]})
    staged = pylance.stage(DIRECTORY, data, token=token, version=0, options=OPTIONS)
    pylance.commit(DIRECTORY, staged, version=1, timeout=minute, options=OPTIONS)
    over = pylance.stage(DIRECTORY, data, token=token, version=1, options=OPTIONS)

    def write(*_: object, **__: object) -> Any:
        raise OSError(text)

    monkeypatch.setattr(lance.LanceDataset, "commit", write)
    steps: dict[str, Callable[[], object]] = {
        "stage": lambda: pylance.stage(DIRECTORY, data, token=token, version=1, options=OPTIONS),
        "commit": lambda: pylance.commit(DIRECTORY, over, version=2, timeout=minute, options=OPTIONS),
        "restore": lambda: pylance.restore(DIRECTORY, 1, token=token, timeout=minute),
        "set_properties": lambda: pylance.set_properties(
            DIRECTORY, {"a": "b"}, token=token, timeout=minute, options=OPTIONS
        ),
    }
    with (
        substituted("tables.write_fragments", write),
        pytest.raises(ConcurrentModificationError, match="removed files of"),
    ):
        steps[step]()
