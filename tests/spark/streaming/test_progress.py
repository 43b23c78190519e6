"""Each micro-batch is written exactly once, wherever the query dies. No Spark is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.patches import original, substitute

from relance import DirectoryNamespace
from relance.catalog.context import Context, open_context
from relance.clock import SystemClock
from relance.config import parse_properties
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    OutcomeUnknownError,
)
from relance.operations.staging.plan import WriteMode, WriteRequest, plan_write
from relance.operations.staging.tasks import write_batches
from relance.spark.streaming.progress import (
    Progress,
    State,
    Verdict,
    abort_once,
    commit_once,
    judge,
    progress_key,
    put_progress,
    read_progress,
)

SCHEMA = pa.schema([("id", pa.int64())])
QUERY = "11111111-2222-3333-4444-555555555555"


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Sink:
    """A query that writes to a table; batch n has the rows 10n to 10n+9."""

    root: Path
    parts: tuple[str, ...]
    mode: WriteMode = WriteMode.APPEND
    query: str = QUERY
    properties: dict[str, Any] = field(default_factory=dict)

    def context(self) -> Context:
        return open_context(parse_properties({"root": str(self.root), **self.properties}), SystemClock())

    def run(self, batch: int, *, count: int = 10, abort: bool = False) -> int | None:
        context = self.context()
        request = WriteRequest(self.parts, self.mode, lambda _: SCHEMA, create_namespaces=True)
        plan = plan_write(context, request)
        rows = pa.record_batch({"id": pa.array(range(10 * batch, 10 * batch + count), pa.int64())})
        fragments = write_batches(plan, [rows]) if count else ()
        if abort:
            abort_once(context, plan, fragments, query=self.query, batch=batch)
            return None
        try:
            return commit_once(context, plan, fragments, query=self.query, batch=batch)
        except Exception:
            # Spark calls this after a commit that raised; a killed process does not.
            abort_once(context, plan, fragments, query=self.query, batch=batch)
            raise

    def dataset(self) -> lance.LanceDataset:
        catalog = DirectoryNamespace(root=str(self.root), **self.properties)
        return lance.dataset(str(catalog.describe_table({"id": list(self.parts)}).location))

    def ids(self) -> list[int]:
        return sorted(self.dataset().to_table()["id"].to_pylist())

    def key(self) -> str:
        directory = Path(str(self.dataset().uri)).relative_to(self.root)
        return progress_key(str(directory), self.query)


V1 = {"manifest_enabled": "false"}
V2 = {"manifest_upkeep": "false"}


@pytest.fixture(params=["directory", "manifest"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    if request.param == "directory":
        return Sink(tmp_path, ("out",), properties=V1)
    return Sink(tmp_path, ("prod", "out"), properties=V2)


def _dies_before(function: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*_args: Any, **_named: Any) -> Any:
        raise Killed

    return dying


def _dies_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*args: Any, **named: Any) -> Any:
        function(*args, **named)
        raise Killed

    return dying


POINTS: dict[str, tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "before the pending file": ("stream.put_progress", _dies_before),
    "after the pending file": ("stream.commit_write", _dies_before),
    "after the commit": ("stream.commit_write", _dies_after),
}


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
@pytest.mark.parametrize("first", [True, False], ids=["creates", "exists"])
@pytest.mark.parametrize("point", [*POINTS, "after the done file"])
def test_batch_is_written_once_wherever_the_query_dies(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, point: str, first: bool, mode: WriteMode
) -> None:
    sink.mode = mode
    batch = 0
    if not first:
        sink.run(0)
        batch = 1
    if point in POINTS:
        name, dying = POINTS[point]
        with monkeypatch.context() as patch:
            substitute(patch, name, dying(original(name)))
            with pytest.raises(Killed):
                sink.run(batch)
    else:
        sink.run(batch)
    landed = point.startswith(("after the commit", "after the done"))
    assert (sink.run(batch) is None) is landed
    assert sink.run(batch) is None
    begin = 10 * batch if mode is WriteMode.OVERWRITE else 0
    assert sink.ids() == list(range(begin, 10 * batch + 10))
    sink.run(batch + 1)
    assert sink.ids()[-10:] == list(range(10 * batch + 10, 10 * batch + 20))
    assert len(list((Path(str(sink.dataset().uri)) / "_relance" / "streams").iterdir())) == 1


def test_replayed_batch_leaves_no_files(sink: Sink) -> None:
    sink.run(0)
    sink.run(1)
    data = Path(str(sink.dataset().uri)) / "data"
    before = sorted(data.iterdir())
    assert sink.run(1) is None
    assert sink.run(0) is None
    assert sorted(data.iterdir()) == before


def test_files_of_a_failed_batch_are_removed_unless_its_commit_was_tried(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.run(0)
    data = Path(str(sink.dataset().uri)) / "data"
    before = len(list(data.iterdir()))
    sink.run(1, abort=True)
    assert len(list(data.iterdir())) == before

    commit_write = original("stream.commit_write")

    def lost(*args: Any, **named: Any) -> int:
        commit_write(*args, **named)
        raise OutcomeUnknownError("no answer")

    with monkeypatch.context() as patch:
        substitute(patch, "stream.commit_write", lost)
        with pytest.raises(OutcomeUnknownError):
            sink.run(1)
    assert sink.ids() == list(range(20))
    assert sink.run(1) is None
    assert sink.ids() == list(range(20))


def test_empty_batch_makes_no_version_except_the_first(sink: Sink) -> None:
    assert sink.run(0, count=0) == 1
    assert sink.ids() == []
    assert sink.run(1, count=0) is None
    sink.run(2)
    assert sink.ids() == list(range(20, 30))
    sink.mode = WriteMode.OVERWRITE
    assert sink.run(3, count=0) == 3
    assert sink.ids() == []


def test_two_queries_track_their_batches_separately(sink: Sink) -> None:
    other = Sink(sink.root, sink.parts, query="other-query", properties=sink.properties)
    sink.run(0)
    other.run(0)
    other.run(1)
    assert sink.run(0) is None
    assert sink.ids() == sorted([*range(10), *range(20)])


def test_pending_batch_is_found_among_versions_of_other_writers(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.run(0)
    with monkeypatch.context() as patch:
        substitute(patch, "stream.commit_write", _dies_after(original("stream.commit_write")))
        with pytest.raises(Killed):
            sink.run(1)
    other = Sink(sink.root, sink.parts, query="other-query", properties=sink.properties)
    other.run(5)
    sink.dataset().optimize.compact_files()
    assert sink.run(1) is None
    assert sink.ids() == [*range(20), *range(50, 60)]


def test_pending_batch_whose_versions_were_cleaned_up_is_an_error(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.run(0)
    with monkeypatch.context() as patch:
        substitute(patch, "stream.commit_write", _dies_after(original("stream.commit_write")))
        with pytest.raises(Killed):
            sink.run(1)
    other = Sink(sink.root, sink.parts, query="other-query", properties=sink.properties)
    other.run(5)
    sink.dataset().cleanup_old_versions(versions=[2])
    with pytest.raises(InvalidTableStateError, match=r"versions after 1 were cleaned up .* delete that file"):
        sink.run(1)
    assert sink.ids() == [*range(20), *range(50, 60)]


def test_progress_file_survives_cleanup_and_is_purged_with_the_table(sink: Sink) -> None:
    sink.run(0)
    sink.run(1)
    dataset = sink.dataset()
    file = sink.root / sink.key()
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert file.exists()
    catalog = DirectoryNamespace(root=str(sink.root), **sink.properties)
    catalog.drop_table({"id": list(sink.parts)})
    assert file.exists()
    catalog.purge_table(list(sink.parts), force=True)
    assert not file.exists()


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (None, Verdict.COMMIT),
        (Progress(6, State.DONE, 3), Verdict.COMMIT),
        (Progress(6, State.PENDING, 3), Verdict.COMMIT),
        (Progress(7, State.PENDING, 3), Verdict.LOOK),
        (Progress(7, State.DONE, 3), Verdict.SKIP),
        (Progress(8, State.PENDING, 3), Verdict.SKIP),
        (Progress(8, State.DONE, 3), Verdict.SKIP),
    ],
)
def test_every_state_of_the_progress_file_has_a_verdict(known: Progress | None, verdict: Verdict) -> None:
    assert judge(known, 7) is verdict


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return open_context(parse_properties({"root": str(tmp_path), **V1}), SystemClock())


def test_progress_file_changed_by_another_run_is_not_overwritten(context: Context) -> None:
    key = progress_key("t.lance", QUERY)
    first = put_progress(context.storage, key, Progress(1, State.PENDING, 1), over=None)
    assert read_progress(context.storage, key) == first
    put_progress(context.storage, key, Progress(1, State.DONE, 2), over=first)
    with pytest.raises(ConcurrentModificationError):
        put_progress(context.storage, key, Progress(1, State.DONE, 3), over=first)
    with pytest.raises(ConcurrentModificationError):
        put_progress(context.storage, key, Progress(0, State.PENDING, 1), over=None)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "batch": 1}'])
def test_unreadable_progress_file_is_named(context: Context, body: bytes) -> None:
    key = progress_key("t.lance", QUERY)
    context.storage.create(key, body)
    with pytest.raises(InvalidTableStateError, match=r"t\.lance/_relance/streams"):
        read_progress(context.storage, key)


def test_invalid_query_id_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="invalid streaming query id"):
        progress_key("t.lance", "../x")
