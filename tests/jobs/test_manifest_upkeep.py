"""Upkeep of the manifest as a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.catalog_manifests import drop_indexes
from tests.support.jobs.compaction import quiet_context, quiet_ref, run
from tests.support.modes import V1, V2
from tests.support.roots import LocalPlace, S3Place, declare, local_place, names

from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import keep_up, look_ahead
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.jobs import maintain
from relance.jobs.manifest import MaintainManifest

TABLES = [f"t{number:02}" for number in range(12)]


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    place = local_place(tmp_path, {**V2, "manifest_upkeep": "false"})
    catalog = place.open()
    for name in TABLES:
        declare(catalog, name)
    return place


def test_manifest_upkeep_dry_run_shows_due_work_and_changes_nothing(place: LocalPlace) -> None:
    drop_indexes(place.folder)
    files = place.files()
    report = maintain(quiet_ref(place), MaintainManifest(), dry_run=True)
    (result,) = report.results
    assert result.table == ()
    assert result.planned is not None
    assert result.planned.versions == 0
    assert "indexes built: object_id, object_type, base_objects" in result.planned.note
    assert place.files() == files


def test_manifest_upkeep_does_what_its_preview_announced(place: LocalPlace) -> None:
    manifest = quiet_context(place).manifest
    assert isinstance(manifest, LanceManifest)
    keep_up(manifest)
    for file in range(3):  # sealed by another writer
        rows = manifest.latest().dataset
        assert rows is not None
        one = rows.to_table(limit=1).drop_columns(["object_id"])
        renamed = one.add_column(0, "object_id", pa.array([f"zz{file}"], pa.string()))
        lance.write_dataset(renamed.select(rows.schema.names), rows.uri, mode="append")
    due = look_ahead(manifest, keep_versions_for=timedelta())
    assert due.files_merged == 3
    assert due.versions_removed > 3
    assert due.rows_indexed == 3
    done = keep_up(manifest, keep_versions_for=timedelta())
    assert (done.files_merged, done.indexes_built) == (due.files_merged, due.indexes_built)
    assert done.versions_removed >= due.versions_removed  # and those that the round itself left


def test_manifest_upkeep_matches_its_dry_run_and_then_has_nothing_to_do(place: LocalPlace) -> None:
    planned = run(place, MaintainManifest(), (), dry_run=True).planned
    result = run(place, MaintainManifest(), ())
    assert result.error is None
    assert result.effect is not None
    assert planned is not None
    assert result.effect.files == planned.files
    assert sorted(names(place.open())) == TABLES
    assert run(place, MaintainManifest(), ()).effect is None


def test_manifest_upkeep_works_on_s3(s3: S3Place) -> None:
    place = replace(s3, mode={**V2, "manifest_upkeep": "false"})
    for name in TABLES:
        declare(place.open(), name)
    result = run(place, MaintainManifest(), ())
    assert result.error is None
    assert result.effect is not None
    assert sorted(names(place.open())) == TABLES
    assert run(place, MaintainManifest(), ()).effect is None


def test_manifest_upkeep_without_a_manifest_or_for_a_table_is_refused(
    tmp_path: Path, place: LocalPlace
) -> None:
    bare = local_place(tmp_path / "bare", V1)
    assert isinstance(run(bare, MaintainManifest(), ()).error, UnsupportedOperationError)
    (named,) = maintain(quiet_ref(place), MaintainManifest(), [("t00",)]).results
    assert isinstance(named.error, InvalidInputError)
