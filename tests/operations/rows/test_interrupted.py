"""Whatever stops an operation, also Ctrl-C: what it claimed is free at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.calls import assert_gone, assert_whole, drop, generations, make, spaces
from tests.support.codes import CONCURRENT_MODIFICATION, TABLE_EXISTS
from tests.support.failures import interrupt
from tests.support.lakes import Lake
from tests.support.modes import V1
from tests.support.patches import original, substitute
from tests.support.roots import refused

from relance.catalog.purge import PurgeProgress

PATHS = ["t", "a/t"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_interrupted_create_over_a_dropped_name_can_be_undropped_at_once(
    path: str, mode: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, path, 1)
    drop(catalog, path)
    with monkeypatch.context() as patches:
        substitute(patches, "tables.commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make(catalog, path, 2, mode=mode)
    before = lake.clock.now()
    lake.open().undrop_table(path.split("/"))
    assert lake.clock.now() == before, "nobody waited"
    assert_whole(lake.open(), path, 1)


@pytest.mark.parametrize("path", PATHS)
def test_interrupted_overwrite_leaves_the_table_free_for_the_next_one(
    path: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, path, 1)
    with monkeypatch.context() as patches:
        substitute(patches, "tables.commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make(catalog, path, 2, mode="overwrite")
    assert_whole(lake.open(), path, 1)
    before = lake.clock.now()
    make(lake.open(), path, 3, mode="overwrite")
    drop(lake.open(), path)
    assert lake.clock.now() == before
    assert_gone(lake.open(), path)
    lake.open().undrop_table(path.split("/"))
    assert_whole(lake.open(), path, 3)


@pytest.mark.parametrize("path", PATHS)
def test_failing_progress_callback_stops_a_purge_that_another_can_finish_at_once(
    path: str, lake: Lake
) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, path, 1)
    drop(catalog, path)

    def fail(progress: PurgeProgress) -> None:
        raise ValueError(progress.files)

    with pytest.raises(ValueError, match=r"\d"):
        catalog.purge_table(path.split("/"), force=True, progress=fail)
    lake.open().purge_table(path.split("/"), force=True)
    make(lake.open(), path, 2)
    assert_whole(lake.open(), path, 2)


def test_undrop_passes_over_a_generation_that_is_being_purged(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, "a/t", 1)
    drop(catalog, "a/t")

    def fail(progress: PurgeProgress) -> None:
        raise ValueError(progress.files)

    with pytest.raises(ValueError, match=r"\d"):
        catalog.purge_table(["a", "t"], force=True, progress=fail)
    with refused(CONCURRENT_MODIFICATION):
        catalog.undrop_table(["a", "t"])
    make(catalog, "a/t", 2)
    with refused(TABLE_EXISTS):
        catalog.undrop_table(["a", "t"])
    deletion_id = drop(catalog, "a/t")["deletion_id"]
    catalog.undrop_table(["a", "t"])
    assert_whole(lake.open(), "a/t", 2)
    assert deletion_id not in generations(catalog, "a/t")


def test_undrop_under_another_name_refuses_a_table_that_is_being_purged(
    compatible: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = compatible.open(), compatible.open()
    make(catalog, "t", 1)
    drop(catalog, "t")
    real = original("purge.purge_claimed")

    def meanwhile(*arguments: Any) -> None:
        with refused(CONCURRENT_MODIFICATION):
            other.undrop_table(["t"], new_id=["u"])
        real(*arguments)

    substitute(monkeypatch, "purge.purge_claimed", meanwhile)
    assert catalog.purge_table(["t"], force=True).purged
    assert_gone(compatible.open(), "u")


def test_interrupted_create_in_v1_mode_frees_the_name(
    compatible: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    v1 = compatible.open(V1)
    make(v1, "t", 1)
    drop(v1, "t")
    with monkeypatch.context() as patches:
        substitute(patches, "tables.commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make(v1, "t", 2)
    v1.undrop_table(["t"])
    assert_whole(compatible.open(), "t", 1)
