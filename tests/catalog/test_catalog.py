"""The seam that jobs, policies, Spark and the command line use, over a real root."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from relance.catalog import Catalog
from relance.catalog.purge import PurgeOptions
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.errors import InvalidTableStateError, TableNotFoundError
from relance.lance_io import CreateMode, NewTable

ROWS = pa.table({"x": [1, 2, 3]})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.open({"root": str(tmp_path)})


def _create(catalog: Catalog, name: str, mode: CreateMode = CreateMode.CREATE) -> int:
    return catalog.create(NewTable(catalog.table_id([name]), ROWS, catalog.lance_options()), mode).version


def test_a_table_goes_through_its_whole_life(catalog: Catalog) -> None:
    assert _create(catalog, "t") == 1
    assert _create(catalog, "t", CreateMode.OVERWRITE) == 2
    assert catalog.status(["t"]) == Exists(("t",))
    directory = catalog.find(["t"]).directory
    assert [file.version for file in catalog.versions(directory)] == [1, 2]
    assert catalog.location_of(directory).startswith(catalog.root_uri)
    dropped = catalog.drop(["t"], timedelta(days=1))
    assert isinstance(catalog.status(["t"]), SoftDeleted)
    assert [each.deletion_id for each in catalog.dropped()] == [dropped.deletion_id]
    assert catalog.undrop(["t"]) == Exists(("t",))
    catalog.drop(["t"])
    assert [each.name for each in catalog.generations()] == ["t"]
    assert catalog.purge_expired(PurgeOptions()) == []
    (result,) = catalog.purge(["t"], PurgeOptions(force=True))
    assert result.purged
    assert catalog.status(["t"]) == NotFound(("t",))
    assert catalog.scrub() == []
    assert catalog.sweep(dry_run=True) == []  # its tombstone is young


def test_a_table_is_renamed_deregistered_and_registered(catalog: Catalog) -> None:
    _create(catalog, "old")
    catalog.rename(["old"], ["new"])
    directory = catalog.find(["new"]).directory
    assert directory.endswith("_new")
    assert catalog.deregister(["new"]) == directory
    with pytest.raises(TableNotFoundError):
        catalog.find(["new"])
    catalog.register(["again"], directory, {"owner": "ada"})
    assert catalog.find(["again"]).properties == {"owner": "ada"}
    assert catalog.namespaces() == []
    assert catalog.store_now().tzinfo is not None


def test_a_protected_table_is_not_dropped(catalog: Catalog) -> None:
    catalog.declare(["kept"], {"owner": "ada"})
    catalog.protect(["kept"])
    assert catalog.is_protected(["kept"])
    with pytest.raises(InvalidTableStateError):
        catalog.drop(["kept"])
    catalog.protect(["kept"], on=False)
    catalog.drop(["kept"])
    assert catalog.status(["kept"]) != Exists(("kept",))


def test_one_catalog_is_shared_in_a_process(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path)}
    assert Catalog.shared(properties).context is Catalog.shared(properties).context
    assert Catalog.shared(properties).has_manifest
