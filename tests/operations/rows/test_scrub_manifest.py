"""Scrub reports inconsistencies in the manifest with their repair, and repairs them on request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.failures import interrupt
from tests.support.patches import substitute
from tests.support.roots import stream_of

import relance
from relance.catalog.manifest.schema import SCHEMA, WRITER_FLAGS_KEY
from relance.catalog.repair import Finding, Problem
from relance.errors import UnsupportedOperationError
from relance.testing.clock import ManualClock


@pytest.fixture
def catalog(tmp_path: Path, clock: ManualClock) -> relance.DirectoryNamespace:
    found = relance.DirectoryNamespace(clock=clock, root=str(tmp_path), manifest_upkeep="false")
    found.create_namespace({"id": ["a"]})
    found.create_table({"id": ["a", "t"]}, stream_of(1))
    found.create_table({"id": ["home"]}, stream_of(1))
    return found


def add_row(root: Path, object_id: str, location: str | None, metadata: str | None = None) -> None:
    """Write a row as another client might."""
    row = {"object_id": object_id, "object_type": "table", "location": location, "metadata": metadata}
    lance.write_dataset(pa.Table.from_pylist([row], schema=SCHEMA), f"{root}/__manifest", mode="append")


def kinds(findings: list[Finding]) -> list[tuple[str, Problem]]:
    return [(each.name, each.problem) for each in findings]


def location(catalog: relance.DirectoryNamespace, *parts: str) -> Path:
    return Path(str(catalog.describe_table({"id": list(parts)}).location))


def test_scrub_finds_no_problems_in_a_healthy_catalog(catalog: relance.DirectoryNamespace) -> None:
    catalog.drop_table({"id": ["a", "t"]})
    catalog.drop_table({"id": ["home"]})
    catalog.rename_table({"id": catalog_table(catalog), "new_table_name": "u"})
    assert catalog.scrub() == []


def catalog_table(catalog: relance.DirectoryNamespace) -> list[str]:
    """Create one more root table and return its id."""
    catalog.create_table({"id": ["r"]}, stream_of(1))
    return ["r"]


def test_scrub_reports_corrupt_rows_and_removes_the_duplicate_of_a_row(
    catalog: relance.DirectoryNamespace, tmp_path: Path
) -> None:
    add_row(tmp_path, "a$t", "elsewhere")
    add_row(tmp_path, "a$json", "x", "not JSON")
    corrupt = json.dumps({"format": 2, "state": "not a state"})
    add_row(tmp_path, "a$marker", "y", json.dumps({"relance.control": corrupt}))
    before = lance.dataset(f"{tmp_path}/__manifest").version
    expected = [
        ("a$json", Problem.ROW_WITHOUT_FILES),  # metadata that is no JSON is tolerated
        ("a$marker", Problem.DAMAGED_ROW),
        ("a$t", Problem.DUPLICATE_ROW),
    ]
    assert [each for each in kinds(catalog.scrub()) if each[0].startswith("a$")] == expected
    assert lance.dataset(f"{tmp_path}/__manifest").version == before
    catalog.scrub(repair=True)
    left = [each for each in kinds(catalog.scrub()) if each[0].startswith("a$")]
    assert ("a$t", Problem.DUPLICATE_ROW) not in left
    assert expected[1] in left, "it is reported and left"


@pytest.mark.parametrize("bad", ["", "../x", "__manifest", "a/../b", None])
def test_scrub_reports_an_invalid_location_and_deletes_nothing(
    catalog: relance.DirectoryNamespace, tmp_path: Path, bad: str | None
) -> None:
    add_row(tmp_path, "a$bad", bad)
    assert kinds(catalog.scrub(repair=True)) == [("a$bad", Problem.BAD_LOCATION)]
    assert (tmp_path / "__manifest").is_dir()


def test_scrub_reports_rows_without_files_and_objects_without_a_namespace(
    catalog: relance.DirectoryNamespace, tmp_path: Path
) -> None:
    shutil.rmtree(location(catalog, "a", "t"))
    shutil.copytree(tmp_path / "home.lance", tmp_path / "12345678_lost")
    add_row(tmp_path, "gone$t", "12345678_lost")
    assert kinds(catalog.scrub()) == [("a$t", Problem.ROW_WITHOUT_FILES), ("gone$t", Problem.NO_NAMESPACE)]


def test_scrub_reports_a_directory_without_a_row(catalog: relance.DirectoryNamespace, tmp_path: Path) -> None:
    shutil.copytree(location(catalog, "a", "t"), tmp_path / "0123abcd_a$loser")
    assert kinds(catalog.scrub(repair=True)) == [("0123abcd_a$loser", Problem.ORPHAN_DIRECTORY)]
    assert (tmp_path / "0123abcd_a$loser").is_dir()


def test_scrub_repairs_a_row_that_disagrees_with_its_marker(
    catalog: relance.DirectoryNamespace, tmp_path: Path, clock: ManualClock
) -> None:
    flat = relance.DirectoryNamespace(clock=clock, root=str(tmp_path), manifest_enabled="false")
    flat.drop_table({"id": ["home"]})  # a client without the manifest
    assert kinds(catalog.scrub()) == [("home", Problem.OUT_OF_STEP)]
    (finding,) = catalog.scrub(repair=True)
    assert finding.repaired
    assert catalog.scrub() == []
    assert [each.id for each in catalog.list_dropped_tables()] == [("home",)]


def test_scrub_completes_a_purge_whose_holder_is_gone(
    catalog: relance.DirectoryNamespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.drop_table({"id": ["a", "t"]})
    with monkeypatch.context() as patch:
        substitute(patch, "row_purge.delete_directory", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.purge_table(["a", "t"], force=True)
    # It was stopped, not killed: nothing that it sent is under way.
    (finding,) = catalog.scrub(repair=True)
    assert finding.problem is Problem.STALE_PURGE
    assert finding.repaired
    assert catalog.list_dropped_tables() == []


def test_manifest_of_a_newer_release_is_explained_and_not_changed(
    catalog: relance.DirectoryNamespace, tmp_path: Path
) -> None:
    lance.dataset(f"{tmp_path}/__manifest").update_metadata({WRITER_FLAGS_KEY: str(1 << 60)})
    with pytest.raises(UnsupportedOperationError, match="use a newer release to change"):
        catalog.create_namespace({"id": ["b"]})
    lance.dataset(f"{tmp_path}/__manifest").update_metadata(
        {"lance.namespace.manifest.reader_feature_flags": "2"}
    )
    (finding,) = catalog.scrub(repair=True)
    assert finding.problem is Problem.UNREADABLE_MANIFEST
    assert "use a newer release to read" in finding.remedy
