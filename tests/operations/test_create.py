"""create_table: modes, bodies, and the state left by failures, kills and lost responses."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from lance_namespace import CreateTableRequest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from tests.support.codes import (
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    PERMISSION_DENIED,
    TABLE_EXISTS,
    UNSUPPORTED,
)
from tests.support.patches import substitute
from tests.support.profiles import MOTO
from tests.support.roots import (
    MORE_ROWS,
    ROWS,
    LocalPlace,
    Place,
    assert_gone,
    assert_whole,
    create,
    data_files,
    dataset,
    declare,
    describe,
    drop,
    ipc,
    names,
    refused,
    rows,
    versions,
)

from relance import DirectoryNamespace

Commit = Callable[..., Any]


def on_table_commits(monkeypatch: pytest.MonkeyPatch, act: Callable[[Commit], Commit]) -> None:
    """Replace Lance's commit of tables by what `act` makes of it; commits of the manifest stay."""
    original: Commit = lance.LanceDataset.commit
    changed = act(original)

    def commit(target: Any, *arguments: Any, **options: Any) -> Any:
        of_table = isinstance(target, str) and not target.endswith("/__manifest")
        return (changed if of_table else original)(target, *arguments, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", commit)


def beaten_by(other: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another client create the table right before the next commit."""

    def be_beaten(original: Commit) -> Commit:
        def commit(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(lance.LanceDataset, "commit", original)
            create(other, "t", MORE_ROWS)
            return original(*arguments, **options)

        return commit

    on_table_commits(monkeypatch, be_beaten)


SPELLINGS = {
    "create": ("create", "Create", "CREATE", "cReAtE"),
    "exist_ok": ("exist_ok", "ExistOk", "EXIST_OK", "existok", "Exist_Ok"),
    "overwrite": ("overwrite", "Overwrite", "OVERWRITE"),
}


class TestModes:
    def test_create_makes_version_1(self, catalog: DirectoryNamespace) -> None:
        response = create(catalog, "t")
        assert response.version == 1
        assert response.location == describe(catalog, "t").location
        assert_whole(catalog, "t")
        assert versions(catalog, "t") == [1]

    @pytest.mark.parametrize("mode", [None, *SPELLINGS["create"]])
    def test_create_of_an_existing_table_is_refused(self, mode: str | None, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t", mode=mode)
        before = local.files()
        with refused(TABLE_EXISTS):
            create(catalog, "t", MORE_ROWS, mode=mode)
        assert local.files() == before

    @pytest.mark.parametrize("mode", SPELLINGS["exist_ok"])
    def test_exist_ok_leaves_an_existing_table_unchanged(self, mode: str, local: LocalPlace) -> None:
        catalog = local.open()
        assert create(catalog, "t", mode=mode).version == 1
        before = local.files()
        response = create(catalog, "t", MORE_ROWS, mode=mode)
        assert response.version == 1
        assert response.location == describe(catalog, "t").location
        assert local.files() == before

    @pytest.mark.parametrize("mode", SPELLINGS["overwrite"])
    def test_overwrite_adds_a_version_and_keeps_the_old_ones(self, mode: str, local: LocalPlace) -> None:
        catalog = local.open()
        assert create(catalog, "t", mode=mode).version == 1
        other = pa.table({"other": ["columns"]})
        assert create(catalog, "t", other, mode=mode).version == 2
        assert_whole(catalog, "t", other)
        assert rows(catalog, "t", version=1) == ROWS.to_pylist()

    @pytest.mark.parametrize("mode", ["", "bogus", "create ", "append", "drop"])
    def test_unknown_create_mode_is_refused_and_named(self, mode: str, local: LocalPlace) -> None:
        with refused(INVALID_INPUT) as caught:
            create(local.open(), "t", mode=mode)
        assert repr(mode) in str(caught.value)
        assert not local.folder.exists()

    def test_every_create_mode_works_on_every_store(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        with refused(TABLE_EXISTS):
            create(catalog, "t", MORE_ROWS)
        assert create(catalog, "t", MORE_ROWS, mode="exist_ok").version == 1
        assert_whole(catalog, "t")
        assert create(catalog, "t", MORE_ROWS, mode="overwrite").version == 2
        assert_whole(catalog, "t", MORE_ROWS)

    def test_exist_ok_returns_the_latest_version(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        assert create(catalog, "t", mode="exist_ok").version == 2

    @pytest.mark.parametrize("mode", SPELLINGS)
    def test_create_over_a_deregistered_table_is_refused_in_every_mode(
        self, mode: str, disk: LocalPlace
    ) -> None:
        catalog: Any = disk.open()
        create(catalog, "t")
        catalog.deregister_table({"id": ["t"]})
        before = disk.files()
        with refused(TABLE_EXISTS) as caught:
            create(catalog, "t", MORE_ROWS, mode=mode)
        assert "register_table" in str(caught.value)
        assert disk.files() == before

    def test_create_with_properties_needs_no_manifest(self, catalog: DirectoryNamespace) -> None:
        created = create(catalog, "t", properties={"owner": "me"})
        assert (created.version, created.properties) == (1, {"owner": "me"})
        assert versions(catalog, "t") == [1, 2], "the data, and the properties"
        assert describe(catalog, "t").properties == {"owner": "me"}
        assert create(catalog, "u", properties={}).version == 1
        assert versions(catalog, "u") == [1]
        assert describe(catalog, "u").properties is None

    def test_dropped_table_can_be_created_again(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        drop(catalog, "t")
        create(catalog, "t", MORE_ROWS)
        assert_whole(catalog, "t", MORE_ROWS)


class TestDeclaredTables:
    @pytest.mark.parametrize("mode", SPELLINGS)
    def test_create_fills_a_declared_table_in_every_mode(
        self, mode: str, catalog: DirectoryNamespace
    ) -> None:
        declared = declare(catalog, "t")
        created = create(catalog, "t", mode=mode)
        assert (created.location, created.version) == (declared.location, 1)
        assert_whole(catalog, "t")

    def test_create_or_declare_of_a_filled_declared_table_is_refused(
        self, catalog: DirectoryNamespace
    ) -> None:
        declare(catalog, "t")
        create(catalog, "t")
        with refused(TABLE_EXISTS):
            create(catalog, "t")
        with refused(TABLE_EXISTS):
            declare(catalog, "t")

    def test_second_declare_of_a_table_is_refused(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        with refused(TABLE_EXISTS) as caught:
            declare(catalog, "t")
        assert "declared" in str(caught.value)

    def test_declare_accepts_only_its_own_location(self, local: LocalPlace) -> None:
        catalog = local.open()
        location = f"{local.root}/t.lance"
        for bad in ("", "other.lance", "t", "/elsewhere/t.lance", "../t.lance", f"{local.root}/x/t.lance"):
            with refused(INVALID_INPUT):
                declare(catalog, "t", location=bad)
        assert not local.folder.exists()
        assert declare(catalog, "t", location=location).location == location

    def test_declare_with_properties_requires_a_manifest(self, disk: LocalPlace) -> None:
        with refused(UNSUPPORTED):
            declare(disk.open(), "t", properties={"owner": "me"})
        assert not disk.folder.exists()


class TestBodies:
    def test_body_with_only_a_schema_creates_an_empty_table(self, catalog: DirectoryNamespace) -> None:
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("vector", pa.list_(pa.float32(), 2))])
        assert create(catalog, "t", schema.empty_table()).version == 1
        assert_whole(catalog, "t", schema.empty_table())
        assert dataset(catalog, "t").schema == schema
        lance.write_dataset(
            pa.table({"id": [1], "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}),
            namespace_client=catalog,
            table_id=["t"],
            mode="append",
        )
        assert dataset(catalog, "t").count_rows() == 1

    def test_body_of_many_batches_is_written_completely_and_in_order(
        self, catalog: DirectoryNamespace
    ) -> None:
        table = pa.concat_tables([pa.table({"n": range(i * 100, i * 100 + 100)}) for i in range(20)])
        create(catalog, "t", table)
        assert dataset(catalog, "t").to_table() == table.combine_chunks()

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_body_may_be_any_bytes_like_object(self, kind: Callable[[bytes], Any], disk: LocalPlace) -> None:
        catalog = disk.open()
        catalog.create_table(CreateTableRequest(id=["t"]), kind(ipc(ROWS)))
        assert_whole(catalog, "t")

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"garbage", id="garbage"),
            pytest.param(b"\0" * 64, id="zeros"),
            pytest.param(b"\xff" * 64, id="ones"),
            pytest.param(b"ARROW1\0\0", id="magic alone"),
            pytest.param(b"PAR1" + b"\0" * 60, id="parquet"),
            pytest.param(ipc(ROWS)[:3], id="three bytes"),
            pytest.param(ipc(ROWS)[: len(ipc(ROWS)) // 2], id="half"),
            pytest.param(ipc(ROWS)[:-20], id="cut in the last batch"),
            pytest.param(b"x" + ipc(ROWS), id="shifted"),
            pytest.param(None, id="none"),
            pytest.param("text", id="text"),
            pytest.param(ROWS, id="a table"),
        ],
    )
    @pytest.mark.parametrize("mode", SPELLINGS)
    def test_invalid_body_is_refused_and_nothing_is_written(
        self, mode: str, body: Any, disk: LocalPlace
    ) -> None:
        catalog = disk.open()
        with refused(INVALID_INPUT):
            catalog.create_table(CreateTableRequest(id=["t"], mode=mode), body)
        assert not disk.folder.exists()
        create(catalog, "t")
        before = disk.files()
        with refused(INVALID_INPUT):
            catalog.create_table(CreateTableRequest(id=["t"], mode=mode), body)
        assert disk.files() == before

    def test_body_in_the_arrow_file_format_is_refused(self, catalog: DirectoryNamespace) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, ROWS.schema) as writer:
            writer.write_table(ROWS)
        with refused(INVALID_INPUT):
            catalog.create_table(CreateTableRequest(id=["t"]), bytes(sink.getvalue()))
        assert_gone(catalog, "t")

    def test_truncated_stream_is_refused_or_read_up_to_a_batch_boundary(self, disk: LocalPlace) -> None:
        catalog = disk.open()
        whole = ipc(pa.concat_tables([ROWS, MORE_ROWS]))
        taken: set[int] = set()
        for length in range(0, len(whole), 5):
            try:
                catalog.create_table(CreateTableRequest(id=[f"t{length}"]), whole[:length])
            except InvalidInputError:
                continue
            taken.add(dataset(catalog, f"t{length}").count_rows())
        # The end mark may be missing, and a cut between two batches cannot be told from a short stream.
        assert taken <= {0, ROWS.num_rows, ROWS.num_rows + MORE_ROWS.num_rows}
        assert names(catalog) == names(catalog, include_declared=False)

    @pytest.mark.parametrize("shift", range(16))
    @pytest.mark.parametrize(
        "kind", [pa.decimal128(20, 2), pa.decimal256(50, 2), pa.int64(), pa.large_string()], ids=str
    )
    def test_unaligned_buffers_are_read_correctly(
        self, kind: pa.DataType, shift: int, disk: LocalPlace
    ) -> None:
        values = [Decimal(number) for number in range(5)] if pa.types.is_decimal(kind) else list(range(5))
        column = pa.array([str(v) for v in values] if pa.types.is_large_string(kind) else values, kind)
        table = pa.table({"pad": pa.array([1] * 5, pa.int8()), "value": column})
        body = memoryview(bytes(shift) + ipc(table))[shift:]
        catalog = disk.open()
        catalog.create_table(CreateTableRequest(id=["t"]), body)  # type: ignore[arg-type]  # bytes-like
        assert_whole(catalog, "t", table)

    @pytest.mark.parametrize(
        "column",
        [
            pa.nulls(2),
            pa.array(["x", "y"]).dictionary_encode(),
            pa.array([[1], None]),
            pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            pa.array([{"a": [{"b": 1}]}, None]),
            pa.array(["x", None], pa.string_view()),
            pa.array([[1], [2]], pa.list_view(pa.int64())),
            pa.array([Decimal(1), None], pa.decimal32(5, 2)),
            pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
            pa.RunEndEncodedArray.from_arrays([2], [5]),
            pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
            pa.array([b"0" * 16, None], pa.uuid()),
        ],
        ids=lambda column: str(column.type),
    )
    def test_every_arrow_type_is_stored_or_refused_without_a_trace(
        self, column: pa.Array, disk: LocalPlace
    ) -> None:
        catalog = disk.open()
        table = pa.table({"value": column})
        try:
            create(catalog, "t", table)
        except LanceNamespaceError:
            assert_gone(catalog, "t")
            create(catalog, "t")
            assert_whole(catalog, "t")
        else:
            assert_whole(catalog, "t", table)

    def test_duplicate_column_names_are_refused_without_a_trace(self, disk: LocalPlace) -> None:
        catalog = disk.open()
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
        with pytest.raises(LanceNamespaceError, match="a"):
            create(catalog, "t", table)
        assert_gone(catalog, "t")


DAMAGED_BODIES = """
import sys
from relance import DirectoryNamespace
from lance_namespace.errors import LanceNamespaceError
from tests.operations.test_create import damaged_bodies

catalog = DirectoryNamespace(root=sys.argv[1], manifest_enabled="false")
for number, body in enumerate(damaged_bodies(int(sys.argv[2]))):
    try:
        catalog.create_table({"id": [f"t{number}"]}, body)
        print(number, "created", flush=True)
    except LanceNamespaceError as error:
        print(number, int(error.code), flush=True)
"""


def damaged_bodies(count: int) -> Iterator[bytes]:
    """Yield streams whose framing may be whole but whose content is not, the same ones at each call."""
    text, not_text = pa.py_buffer(b"abc"), pa.py_buffer(b"\xff\xfe\xfd")
    offsets, wild = (pa.array(each, pa.int32()).buffers()[1] for each in ([0, 1, 2, 3], [0, 10**6, -5, 3]))
    for column in (
        pa.Array.from_buffers(pa.string(), 3, [None, offsets, not_text]),
        pa.Array.from_buffers(pa.string(), 3, [None, wild, text]),
        pa.Array.from_buffers(
            pa.list_(pa.int8()), 3, [None, wild], children=[pa.array([1, 2, 3], pa.int8())]
        ),
        pa.DictionaryArray.from_arrays(pa.array([9], pa.int32()), pa.array(["a"]), safe=False),
    ):
        yield ipc(pa.table({"value": column}))
    whole = ipc(
        pa.table(
            {
                "i": [1, 2, 3],
                "s": ["a", "bb", None],
                "l": [[1], [2, 3], None],
                "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            }
        )
    )
    random_numbers = random.Random(2)
    for _ in range(count):
        body = bytearray(whole)
        for _ in range(random_numbers.randint(1, 3)):
            body[random_numbers.randrange(len(body))] = random_numbers.randrange(256)
        yield bytes(body)


@pytest.mark.deep
def test_corrupt_body_is_refused_or_creates_a_readable_table(disk: LocalPlace) -> None:
    # In a process of its own: Lance trusts the buffers it is given, so damage may end the interpreter.
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED_BODIES, disk.root, "400"], capture_output=True, text=True, check=False
    )
    outcomes = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == 0, f"after {len(outcomes)} bodies: {done.stderr[-1000:]}"
    assert [outcomes[str(number)] for number in range(4)] == [str(INVALID_INPUT)] * 4
    catalog = disk.open()
    created = sorted(f"t{number}" for number, outcome in outcomes.items() if outcome == "created")
    assert names(catalog) == created
    for name in created:
        dataset(catalog, name).to_table()


class TestFailedWrites:
    @pytest.fixture
    def failing_write(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
        """Return a switch that makes the writing of data fail."""

        def fail(error: Exception) -> None:
            def fail_to_write(*_: object, **__: object) -> None:
                raise error

            substitute(monkeypatch, "tables.write_fragments", fail_to_write)

        return fail

    @pytest.fixture
    def half_write(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the writing of data fail after the files were written."""

        def write_and_fail(*arguments: Any, **options: Any) -> None:
            write_fragments(*arguments, **options)
            raise OSError(errno.ENOSPC, "No space left on device")

        substitute(monkeypatch, "tables.write_fragments", write_and_fail)

    @pytest.mark.parametrize("mode", SPELLINGS)
    def test_write_that_fails_immediately_leaves_nothing_listed(
        self,
        mode: str,
        catalog: DirectoryNamespace,
        failing_write: Callable[[Exception], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        failing_write(OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(LanceNamespaceError, match="No space left"):
            create(catalog, "t", mode=mode)
        assert_gone(catalog, "t")
        monkeypatch.undo()
        create(catalog, "t", mode=mode)
        assert_whole(catalog, "t")

    @pytest.mark.usefixtures("half_write")
    def test_write_that_fails_halfway_leaves_nothing_listed(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(LanceNamespaceError, match="No space left"):
            create(catalog, "t")
        assert_gone(catalog, "t")
        monkeypatch.undo()
        create(catalog, "t")
        assert_whole(catalog, "t")

    @pytest.mark.usefixtures("half_write")
    def test_declared_table_stays_declared_after_a_failed_create(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        declare(catalog, "t")
        with pytest.raises(LanceNamespaceError):
            create(catalog, "t")
        assert names(catalog) == ["t"]
        assert names(catalog, include_declared=False) == []
        assert describe(catalog, "t", check_declared=True).is_only_declared is True
        monkeypatch.undo()
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_error_of_a_failed_write_has_its_cause(
        self, local: LocalPlace, failing_write: Callable[[Exception], None]
    ) -> None:
        cause = OSError(errno.EIO, "the disk is on fire")
        failing_write(cause)
        with pytest.raises(LanceNamespaceError, match="the disk is on fire") as caught:
            create(local.open(), "t")
        assert caught.value.__cause__ is cause

    def test_unwritable_root_raises_permission_denied(
        self, local: LocalPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = local.open()

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
        monkeypatch.setattr(os, "makedirs", refuse)
        with refused(PERMISSION_DENIED):
            create(catalog, "t")
        with refused(PERMISSION_DENIED):
            declare(catalog, "t")
        monkeypatch.undo()
        assert_gone(catalog, "t")
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_failed_commit_leaves_nothing_listed(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(original: Commit) -> Commit:
            def commit(*_: object, **__: object) -> None:
                raise OSError("the commit went wrong")

            return commit

        on_table_commits(monkeypatch, fail)
        with pytest.raises(LanceNamespaceError, match="the commit went wrong"):
            create(catalog, "t")
        assert_gone(catalog, "t")
        monkeypatch.undo()
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_failed_create_does_not_expose_a_concurrent_one_that_is_killed(
        self, local: LocalPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = local.open()
        depth = 0

        def write_between(*arguments: Any, **options: Any) -> None:
            nonlocal depth
            depth += 1
            if depth > 1:
                raise OSError("the second creator fails before it writes")
            with pytest.raises(LanceNamespaceError):
                create(catalog, "t")
            write_fragments(*arguments, **options)
            raise KeyboardInterrupt  # the first creator ends with its data written

        substitute(monkeypatch, "tables.write_fragments", write_between)
        with pytest.raises(KeyboardInterrupt):
            create(catalog, "t")
        monkeypatch.undo()
        assert data_files(local, "t")
        assert_gone(catalog, "t")

    def test_failed_overwrite_leaves_the_table_unchanged(
        self, local: LocalPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = local.open()
        create(catalog, "t")

        def fail(*_: object, **__: object) -> None:
            raise OSError("the overwrite went wrong")

        substitute(monkeypatch, "tables.write_fragments", fail)
        with pytest.raises(LanceNamespaceError, match="the overwrite went wrong"):
            create(catalog, "t", MORE_ROWS, mode="overwrite")
        monkeypatch.undo()
        assert_whole(catalog, "t")
        assert versions(catalog, "t") == [1]


class TestLostResponses:
    def test_commit_with_a_lost_response_is_a_success(
        self, place: Place, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lose_the_answer(original: Commit) -> Commit:
            def commit(*arguments: Any, **options: Any) -> None:
                original(*arguments, **options)
                raise OSError("error sending request: operation timed out")

            return commit

        on_table_commits(monkeypatch, lose_the_answer)
        assert create(catalog, "t").version == 1
        monkeypatch.undo()
        assert_whole(catalog, "t")
        assert len(data_files(place, "t")) == 1

    def test_create_that_loses_the_commit_to_another_is_a_conflict(
        self, place: Place, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beaten_by(place.open(), monkeypatch)
        with pytest.raises(LanceNamespaceError) as caught:
            create(catalog, "t")
        assert int(caught.value.code) == 14
        assert_whole(catalog, "t", MORE_ROWS)
        assert len(data_files(place, "t")) == 1, "the loser removed its data file"

    @pytest.mark.parametrize(("mode", "expected"), [("exist_ok", MORE_ROWS), ("overwrite", ROWS)])
    def test_exist_ok_and_overwrite_succeed_after_losing_the_commit(
        self,
        mode: str,
        expected: pa.Table,
        place: Place,
        catalog: DirectoryNamespace,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        beaten_by(place.open(), monkeypatch)
        response = create(catalog, "t", mode=mode)
        assert response.version == describe(catalog, "t", load_detailed_metadata=True).version
        assert_whole(catalog, "t", expected)

    def test_unreadable_control_file_is_reported_and_kept(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        place.put("t.control", b"x" * 100)
        with refused(INVALID_TABLE_STATE):
            create(catalog, "t")
        assert place.files()["t.control"] == b"x" * 100

    def test_unreadable_marker_counts_as_a_drop_by_another_client(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        place.put("t.deleted", b"x" * 100)
        assert_gone(catalog, "t")
        assert create(catalog, "t", MORE_ROWS).version == 2
        assert "t.deleted" not in place.files()
        assert_whole(catalog, "t", MORE_ROWS)


KILLED_CREATE = """
import json, sys
import lance
from relance import DirectoryNamespace
from tests.support.patches import substitute_for_good
from tests.support.roots import ROWS, create

def hang(*_, **__):
    print("there", flush=True)
    sys.stdin.read()

def commit(target, *arguments, **options):
    of_table = isinstance(target, str) and not target.endswith("/__manifest")
    if of_table and where == "between data and commit":
        hang()
    committed = original(target, *arguments, **options)
    if of_table and where == "after the commit":
        hang()
    return committed

original = lance.LanceDataset.commit
lance.LanceDataset.commit = commit
where = sys.argv[2]
if where == "before the data":
    substitute_for_good("tables.write_fragments", hang)
create(DirectoryNamespace(**json.loads(sys.argv[1])), "t")
"""


@contextmanager
def killed_create(place: Place, where: str) -> Iterator[None]:
    """Run create_table in a process that stops at a point; kill it there when the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_CREATE, json.dumps(place.properties), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "there\n"
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
class TestKilledCreate:
    @pytest.mark.parametrize("where", ["before the data", "between data and commit"])
    def test_killed_create_leaves_nothing_visible_and_does_not_block_the_next(
        self, where: str, place: Place
    ) -> None:
        catalog = place.open()
        with killed_create(place, where):
            assert_gone(catalog, "t")
        assert bool(data_files(place, "t")) is (where == "between data and commit")
        assert_gone(catalog, "t")
        create(catalog, "t", MORE_ROWS)
        assert_whole(catalog, "t", MORE_ROWS)
        assert versions(catalog, "t") == [1]

    def test_create_killed_after_the_commit_leaves_a_complete_table(self, place: Place) -> None:
        catalog = place.open()
        with killed_create(place, "after the commit"):
            pass
        assert_whole(catalog, "t")
        with refused(TABLE_EXISTS):
            create(catalog, "t")

    def test_pylance_can_write_the_table_after_a_killed_create(self, place: Place) -> None:
        catalog = place.open()
        with killed_create(place, "between data and commit"):
            pass
        lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        assert_whole(catalog, "t", MORE_ROWS)
