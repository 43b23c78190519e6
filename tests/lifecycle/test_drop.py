"""Drop, undrop and revive through the catalog, on real tables."""

from __future__ import annotations

import threading
from datetime import timedelta

import lance
import pytest
from tests.lifecycle.conftest import Open
from tests.support.calls import drop, make, rows, tables
from tests.support.internals import context_of
from tests.support.patches import substitute
from tests.support.roots import stream_of

import relance
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.clock import to_millis
from relance.errors import (
    InvalidInputError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.testing.clock import ManualClock

Catalog = relance.DirectoryNamespace


def test_dropped_table_is_hidden_from_every_read_until_undrop(catalog: Catalog) -> None:
    make(catalog, "t", 1, 2)
    make(catalog, "u", 3)
    drop(catalog, "t")
    assert tables(catalog) == ["u"]
    reads = (
        lambda: catalog.describe_table({"id": ["t"]}),
        lambda: catalog.describe_table({"id": ["t"], "load_detailed_metadata": True}),
        lambda: catalog.table_exists({"id": ["t"]}),
        lambda: catalog.list_table_versions({"id": ["t"]}),
        lambda: catalog.describe_table_version({"id": ["t"], "version": 1}),
        lambda: catalog.batch_delete_table_versions({"id": ["t"], "ranges": []}),
        lambda: catalog.deregister_table({"id": ["t"]}),
        lambda: catalog.register_table({"id": ["t"], "location": "t.lance"}),
        lambda: catalog.create_table_version({"id": ["t"], "version": 2, "manifest_path": "x"}),
    )
    for read in reads:
        with pytest.raises(TableNotFoundError, match="can be undropped until"):
            read()
    catalog.undrop_table(["t"])
    assert tables(catalog) == ["t", "u"]
    assert rows(catalog, "t") == [1, 2]


def test_drop_response_says_when_the_table_can_be_purged(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1)
    properties = drop(catalog, "t")
    now = to_millis(clock.now())
    assert int(properties["deleted_at_ms"]) == now
    assert int(properties["purge_after_ms"]) == now + 7 * 24 * 3600 * 1000
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.deletion_id == properties["deletion_id"]
    assert status.version == 1


def test_retention_comes_from_the_request_then_the_table_then_the_catalog(open_catalog: Open) -> None:
    catalog = open_catalog(drop_ttl="3d")
    for name in ("asked", "configured", "plain"):
        make(catalog, name, 1)
    for name in ("asked", "configured"):
        lance.dataset(namespace_client=catalog, table_id=[name]).update_config({"relance.drop_ttl": "12h"})
    drop(catalog, "asked", ttl_ms="60000")
    drop(catalog, "configured")
    drop(catalog, "plain")
    spans = {}
    for each in catalog.list_dropped_tables():
        assert each.purge_after is not None
        spans[each.id[0]] = each.purge_after - each.deleted_at
    assert spans == {
        "asked": timedelta(minutes=1),
        "configured": timedelta(hours=12),
        "plain": timedelta(days=3),
    }


@pytest.mark.parametrize("context", [{"ttl_ms": "soon"}, {"ttl_ms": "-5"}, {"purge": "perhaps"}])
def test_drop_with_invalid_context_is_refused_and_drops_nothing(
    catalog: Catalog, context: dict[str, str]
) -> None:
    make(catalog, "t", 1)
    with pytest.raises(InvalidInputError):
        drop(catalog, "t", **context)
    assert tables(catalog) == ["t"]


def test_drop_of_a_missing_or_dropped_table_raises_table_not_found(catalog: Catalog) -> None:
    with pytest.raises(TableNotFoundError):
        drop(catalog, "never")
    make(catalog, "t", 1)
    first = drop(catalog, "t")
    with pytest.raises(TableNotFoundError, match=r"can be undropped until .*undrop_table"):
        drop(catalog, "t")
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.deletion_id == first["deletion_id"], "the second drop must not move the expiry"


def test_undrop_of_a_missing_or_live_table_is_refused(catalog: Catalog) -> None:
    with pytest.raises(TableNotFoundError):
        catalog.undrop_table(["never"])
    make(catalog, "t", 1)
    with pytest.raises(TableAlreadyExistsError, match="is not dropped"):
        catalog.undrop_table(["t"])


def test_table_can_be_dropped_and_undropped_many_times(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    for _ in range(5):
        drop(catalog, "t")
        assert tables(catalog) == []
        catalog.undrop_table(["t"])
        assert rows(catalog, "t") == [1]


def test_create_over_a_dropped_table_adds_a_version_above_the_old_ones(catalog: Catalog) -> None:
    make(catalog, "t", 1, 2)
    drop(catalog, "t")
    response = catalog.create_table({"id": ["t"], "mode": "exist_ok"}, stream_of(7))
    assert response.version == 2
    assert rows(catalog, "t") == [7]
    assert rows(catalog, "t", version=1) == [1, 2]
    assert catalog.table_status(["t"]) == Exists(("t",))


@pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
def test_every_create_mode_revives_a_dropped_name(catalog: Catalog, mode: str) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    assert catalog.create_table({"id": ["t"], "mode": mode}, stream_of(5)).version == 2
    assert rows(catalog, "t") == [5]


def test_create_with_invalid_data_leaves_the_table_dropped(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    before = drop(catalog, "t")
    with pytest.raises(InvalidInputError):
        catalog.create_table({"id": ["t"]}, b"not arrow")
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert (status.state, status.deletion_id) == ("deleted", before["deletion_id"])
    catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [1]


def test_create_whose_write_fails_leaves_the_table_dropped(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    substitute(monkeypatch, "tables.write_fragments", fail)
    with pytest.raises(RelanceError, match="disk full"):
        catalog.create_table({"id": ["t"]}, stream_of(2))
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.state == "deleted"
    catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [1]


def test_declare_over_a_dropped_name_is_refused_with_the_alternatives(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    with pytest.raises(TableAlreadyExistsError) as caught:
        catalog.declare_table({"id": ["t"]})
    for way in ("undrop_table", "create_table", "purge_table"):
        assert way in str(caught.value)
    with pytest.raises(TableAlreadyExistsError):
        lance.write_dataset([{"x": 2}], namespace_client=catalog, table_id=["t"], mode="create")
    assert tables(catalog) == []


def test_declared_table_is_still_declared_after_undrop(catalog: Catalog) -> None:
    catalog.declare_table({"id": ["t"]})
    drop(catalog, "t")
    assert tables(catalog) == []
    catalog.undrop_table(["t"])
    assert catalog.describe_table({"id": ["t"], "check_declared": True}).is_only_declared
    drop(catalog, "t")
    assert catalog.create_table({"id": ["t"]}, stream_of(1)).version == 1
    assert rows(catalog, "t") == [1]


def test_deregistered_table_is_still_deregistered_after_undrop(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    catalog.deregister_table({"id": ["t"]})
    assert catalog.table_status(["t"]) == NotFound(("t",))
    drop(catalog, "t")
    assert isinstance(catalog.table_status(["t"]), SoftDeleted)
    catalog.undrop_table(["t"])
    assert catalog.table_status(["t"]) == NotFound(("t",))
    catalog.register_table({"id": ["t"], "location": "t.lance"})
    assert rows(catalog, "t") == [1]


def test_open_reader_keeps_working_while_its_table_is_dropped(catalog: Catalog) -> None:
    make(catalog, "t", *range(50_000))
    dataset = lance.dataset(namespace_client=catalog, table_id=["t"])
    expected = sum(range(50_000))
    failures: list[BaseException] = []
    reads = 0
    stop = threading.Event()

    def read() -> None:
        nonlocal reads
        while not stop.is_set():
            try:
                total = sum(sum(batch["x"].to_pylist()) for batch in dataset.to_batches())
                assert total == expected
                reads += 1
            except (OSError, ValueError, RuntimeError, AssertionError) as error:
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(4):
        drop(catalog, "t")
        catalog.undrop_table(["t"])
    drop(catalog, "t")
    seen = reads
    while reads < seen + 2 and not failures:
        assert reader.is_alive()
    stop.set()
    reader.join()
    assert failures == []
    assert rows_by_location(catalog, "t") == 50_000


def rows_by_location(catalog: Catalog, name: str) -> int:
    """Count the rows of a dropped table the way a client does that kept its location."""
    context = context_of(catalog)
    return int(
        lance.dataset(
            context.location(name), storage_options=dict(context.lance_options()) or None
        ).count_rows()
    )
