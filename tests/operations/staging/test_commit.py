"""Distributed writes: files first, by tasks, then one version through the catalog."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import lance
import pyarrow as pa
import pytest
from lance.schema import LanceSchema
from tests.support.patches import substitute

from relance import DirectoryNamespace
from relance.catalog.context import Context, open_context
from relance.catalog.resolve import Exists
from relance.clock import SystemClock
from relance.config import parse_properties
from relance.errors import (
    ConcurrentModificationError,
    NamespaceNotFoundError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSchemaValidationError,
)
from relance.operations.fields import fields_of
from relance.operations.staging.commit import abort_write, commit_write, landed_version
from relance.operations.staging.plan import FileOptions, WriteMode, WritePlan, WriteRequest, plan_write
from relance.operations.staging.tasks import write_batches

ROWS = pa.table({"a": [1, 2, 3]})
MODES = {
    "directories": {"manifest_enabled": "false"},
    "both": {},
    "manifest": {"dir_listing_enabled": "false"},
}


class StagedWrites:
    """A catalog and the table that a test writes, with two tasks for each job."""

    def __init__(self, properties: dict[str, str], table: list[str]) -> None:
        self.table = table
        self.catalog = DirectoryNamespace(clock=None, **properties)
        self.context: Context = open_context(parse_properties(properties), SystemClock())
        if len(table) > 1:
            self.catalog.create_namespace({"id": table[:-1]})

    def write(
        self, mode: WriteMode, rows: pa.Table = ROWS, files: FileOptions | None = None
    ) -> tuple[WritePlan, list[str]]:
        plan = plan_write(
            self.context, WriteRequest(self.table, mode, lambda _: rows.schema, files or FileOptions())
        )
        plan = pickle.loads(pickle.dumps(plan))
        return plan, [each for _ in range(2) for each in write_batches(plan, rows.to_batches())]

    def commit(self, mode: WriteMode, rows: pa.Table = ROWS) -> int:
        return commit_write(self.context, *self.write(mode, rows))

    def count(self) -> int:
        return self.catalog.count_table_rows({"id": self.table}).count or 0

    def files(self) -> set[str]:
        root = Path(self.context.root.uri)
        found = {str(each) for each in root.rglob("*.lance") if each.is_file()}
        return {each for each in found if "__manifest" not in each}


@pytest.fixture(
    params=[
        *(pytest.param((mode, ["t"]), id=mode) for mode in MODES),
        pytest.param(("both", ["ns", "t"]), id="namespace"),
    ]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> StagedWrites:
    mode, table = request.param
    return StagedWrites({"root": str(tmp_path / "lake"), **MODES[mode]}, table)


def test_created_table_is_visible_only_after_the_commit(lake: StagedWrites) -> None:
    plan, fragments = lake.write(WriteMode.CREATE)
    assert lake.catalog.list_tables({"id": lake.table[:-1]}).tables == []
    with pytest.raises(TableNotFoundError):
        lake.count()
    assert landed_version(lake.context, plan) is None
    assert commit_write(lake.context, plan, fragments) == 1
    assert (lake.count(), landed_version(lake.context, plan)) == (6, 1)
    assert lake.catalog.list_tables({"id": lake.table[:-1]}).tables == ["t"]
    with pytest.raises(TableAlreadyExistsError):
        lake.write(WriteMode.CREATE)


def test_two_appends_planned_together_are_both_committed(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    first, second = lake.write(WriteMode.APPEND), lake.write(WriteMode.APPEND)
    assert [commit_write(lake.context, *each) for each in (first, second)] == [2, 3]
    assert lake.count() == 18


def test_append_committed_after_an_overwrite_adds_to_it(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    append = lake.write(WriteMode.APPEND)
    lake.commit(WriteMode.OVERWRITE, ROWS.slice(0, 1))
    commit_write(lake.context, *append)
    assert lake.count() == 2 + 6


def test_append_to_removed_columns_is_refused_and_leaves_no_files(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    append = lake.write(WriteMode.APPEND)
    lake.commit(WriteMode.OVERWRITE, pa.table({"b": ["x"]}))
    before = lake.files()
    with pytest.raises(ConcurrentModificationError):
        commit_write(lake.context, *append)
    assert lake.files() < before
    assert lake.count() == 2


def test_append_is_committed_although_its_planned_version_was_cleaned_up(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    plan, fragments = lake.write(WriteMode.APPEND)
    lake.commit(WriteMode.APPEND)
    lance.dataset(plan.uri).cleanup_old_versions(retain_versions=1)
    assert commit_write(lake.context, plan, fragments) == 3
    assert lake.count() == 18


def test_append_to_a_table_with_a_new_column_is_committed(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    plan, fragments = lake.write(WriteMode.APPEND)
    lance.dataset(plan.uri).add_columns({"more": "a * 2"})
    late = write_batches(plan, ROWS.to_batches())
    commit_write(lake.context, plan, [*fragments, *late])
    assert lake.count() == 15
    assert lance.dataset(plan.uri).to_table().column("more").null_count == 9


def test_overwrite_of_a_dropped_table_revives_it_with_its_history(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    lake.catalog.drop_table({"id": lake.table})
    with pytest.raises(TableNotFoundError, match="undrop"):
        lake.write(WriteMode.APPEND)
    plan, fragments = lake.write(WriteMode.OVERWRITE, ROWS.slice(0, 1))
    assert commit_write(lake.context, plan, fragments) == 2
    assert lake.catalog.table_status(lake.table) == Exists(tuple(lake.table))
    assert (lake.count(), lance.dataset(plan.uri, version=1).count_rows()) == (2, 6)


def test_append_to_a_table_dropped_before_the_commit_removes_its_files(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    before = lake.files()
    append = lake.write(WriteMode.APPEND)
    lake.catalog.drop_table({"id": lake.table})
    with pytest.raises(TableNotFoundError):
        commit_write(lake.context, *append)
    assert lake.files() == before


def test_files_removed_by_a_purge_are_never_committed(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    lake.catalog.drop_table({"id": lake.table})
    overwrite = lake.write(WriteMode.OVERWRITE)
    lake.catalog.purge_table(lake.table, force=True)
    with pytest.raises(ConcurrentModificationError):
        commit_write(lake.context, *overwrite)
    assert not isinstance(lake.catalog.table_status(lake.table), Exists)
    assert lake.commit(WriteMode.APPEND) == 1
    assert lake.count() == 6


def test_second_append_that_creates_the_table_is_added_or_refused(lake: StagedWrites) -> None:
    first, second = lake.write(WriteMode.APPEND), lake.write(WriteMode.APPEND)
    assert commit_write(lake.context, *first) == 1
    if first[0].directory == second[0].directory:
        assert commit_write(lake.context, *second) == 2
        assert lake.count() == 12
    else:
        with pytest.raises(ConcurrentModificationError, match="write again"):
            commit_write(lake.context, *second)
        assert lake.count() == 6
        assert not any(second[0].directory in each for each in lake.files())


def test_aborted_write_leaves_no_files_and_no_table(lake: StagedWrites) -> None:
    abort_write(lake.context, *lake.write(WriteMode.CREATE))
    assert lake.files() == set()
    assert lake.catalog.list_tables({"id": lake.table[:-1]}).tables == []
    assert lake.commit(WriteMode.CREATE) == 1


def test_write_killed_before_its_commit_does_not_block_the_next(lake: StagedWrites) -> None:
    lake.write(WriteMode.CREATE)
    assert lake.catalog.list_tables({"id": lake.table[:-1]}).tables == []
    assert lake.commit(WriteMode.CREATE) == 1
    assert lake.count() == 6


def test_write_of_no_rows_creates_an_empty_table(lake: StagedWrites) -> None:
    plan = plan_write(lake.context, WriteRequest(lake.table, WriteMode.CREATE, lambda _: ROWS.schema))
    assert write_batches(plan, []) == ()
    assert commit_write(lake.context, plan, ()) == 1
    assert lake.count() == 0


def test_append_to_a_declared_table_creates_it(lake: StagedWrites) -> None:
    lake.catalog.declare_table({"id": lake.table})
    assert lake.commit(WriteMode.APPEND) == 1
    assert lake.count() == 6


def test_stable_row_ids_and_file_size_options_are_applied(lake: StagedWrites) -> None:
    plan, fragments = lake.write(
        WriteMode.CREATE, files=FileOptions(max_rows_per_file=2, stable_row_ids=True)
    )
    commit_write(lake.context, plan, fragments)
    dataset = lance.dataset(plan.uri)
    assert dataset.has_stable_row_ids
    assert [each.physical_rows for each in dataset.get_fragments()] == [2, 1, 2, 1]


def _lose_answer(*_: object, **__: object) -> NoReturn:
    raise OutcomeUnknownError("no answer")


def test_commit_with_a_lost_response_removes_no_files(
    lake: StagedWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.commit(WriteMode.CREATE)
    plan, fragments = lake.write(WriteMode.APPEND)
    before = lake.files()

    substitute(monkeypatch, "staging.append", _lose_answer)
    with pytest.raises(OutcomeUnknownError):
        commit_write(lake.context, plan, fragments)
    assert lake.files() == before


def test_append_with_an_unknown_outcome_keeps_its_files(
    lake: StagedWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.commit(WriteMode.CREATE)
    plan, fragments = lake.write(WriteMode.APPEND)
    before = lake.files()
    looks: Iterator[int | Exception | None] = iter([ServiceUnavailableError("busy"), None])

    def look(*_: object) -> object:
        seen = next(looks)
        if isinstance(seen, Exception):
            raise seen
        return seen

    substitute(monkeypatch, "staging.commit_transaction", _lose_answer)
    substitute(monkeypatch, "staging.landed_version", look)
    with pytest.raises(OutcomeUnknownError, match=r"no answer.*busy"):
        commit_write(lake.context, plan, fragments)
    assert lake.files() == before


def test_error_raised_by_the_row_source_is_passed_on(lake: StagedWrites) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise TableSchemaValidationError("column 'a' is broken")

    plan = plan_write(lake.context, WriteRequest(lake.table, WriteMode.CREATE, lambda _: ROWS.schema))
    with pytest.raises(TableSchemaValidationError, match="column 'a' is broken"):
        write_batches(plan, broken())
    assert lake.files() == set()


def test_missing_namespace_is_an_error_unless_create_namespaces_is_set(tmp_path: Path) -> None:
    context = open_context(parse_properties({"root": os.fspath(tmp_path)}), SystemClock())
    request = WriteRequest(["a", "b", "t"], WriteMode.CREATE, lambda _: ROWS.schema)
    with pytest.raises(NamespaceNotFoundError):
        plan_write(context, request)
    with_namespaces = WriteRequest(
        ["a", "b", "t"], WriteMode.CREATE, lambda _: ROWS.schema, create_namespaces=True
    )
    plan = plan_write(context, with_namespaces)
    assert commit_write(context, plan, write_batches(plan, ROWS.to_batches())) == 1


def test_landed_version_is_found_below_a_compaction_of_an_indexed_table(lake: StagedWrites) -> None:
    lake.commit(WriteMode.CREATE)
    plan, fragments = lake.write(WriteMode.APPEND)
    commit_write(lake.context, plan, fragments)
    dataset = lance.dataset(plan.uri)
    dataset.create_scalar_index("a", "BTREE")
    lance.dataset(plan.uri).optimize.compact_files()
    assert landed_version(lake.context, plan) == 2
    told = lake.catalog.describe_transaction({"id": [*lake.table, str(lance.dataset(plan.uri).version)]})
    assert (told.properties or {})["operation"] == "Rewrite"
    assert lake.commit(WriteMode.APPEND) > 4


def test_files_listed_by_a_purge_are_not_committed_even_if_they_still_exist(
    lake: StagedWrites,
) -> None:
    lake.commit(WriteMode.CREATE)
    lake.catalog.drop_table({"id": lake.table})
    plan, fragments = lake.write(WriteMode.OVERWRITE)
    kept = {each: Path(each).read_bytes() for each in lake.files()}
    lake.catalog.purge_table(lake.table, force=True)
    for name, body in kept.items():  # as if those who delete for the purge were late
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(body)
    with pytest.raises(ConcurrentModificationError):
        commit_write(lake.context, plan, fragments)
    assert not isinstance(lake.catalog.table_status(lake.table), Exists)


def test_schema_fields_compare_equal_whatever_the_order_of_their_metadata() -> None:
    marks = {str(number): "x" for number in range(20)}
    fields = [pa.field("a", pa.struct([pa.field("b", pa.int64(), metadata=marks)]), metadata=marks)]
    seen = {fields_of(LanceSchema.from_pyarrow(pa.schema(fields))) for _ in range(20)}
    assert len(seen) == 1
    others = [
        pa.field("a", pa.struct([pa.field("b", pa.int32(), metadata=marks)]), metadata=marks),
        pa.field("a", pa.struct([pa.field("b", pa.int64(), metadata=marks)]), metadata=marks, nullable=False),
        pa.field("a", pa.struct([pa.field("c", pa.int64(), metadata=marks)]), metadata=marks),
    ]
    assert all(fields_of(LanceSchema.from_pyarrow(pa.schema([each]))) not in seen for each in others)
