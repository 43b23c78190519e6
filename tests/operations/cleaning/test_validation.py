"""Validation checks that every file of a table exists and is readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cleaning import ID, VersionedTable, with_versions

from relance.errors import TableNotFoundError


def _data_file(lake: VersionedTable, version: int | None = None) -> Path:
    fragment = lake.dataset(version).get_fragments()[0]
    return Path(lake.uri) / "data" / str(fragment.data_files()[0].path)


def test_validation_of_an_intact_table_finds_no_problems(lake: VersionedTable) -> None:
    with_versions(lake)
    found = lake.catalog.validate_table(ID)
    assert found.ok
    assert found.id == ("t",)
    assert (found.version, found.versions) == (6, 1)
    assert found.files == 4  # two of data, one manifest, one transaction
    assert found.bytes > 0
    every = lake.catalog.validate_table(ID, every_version=True)
    assert every.ok
    assert every.versions == 6
    assert every.files == len(lake.files())


def test_validation_names_a_missing_file(lake: VersionedTable) -> None:
    with_versions(lake)
    gone = _data_file(lake)
    gone.unlink()
    found = lake.catalog.validate_table(ID)
    assert not found.ok
    assert found.missing == (f"data/{gone.name}",)


def test_validation_of_every_version_finds_a_file_missing_from_an_old_one(lake: VersionedTable) -> None:
    with_versions(lake)
    gone = _data_file(lake, 1)
    gone.unlink()
    assert lake.catalog.validate_table(ID).ok
    assert lake.catalog.validate_table(ID, every_version=True).missing == (f"data/{gone.name}",)


@pytest.mark.parametrize("left", [0, 10])
def test_validation_reports_a_truncated_file_as_unreadable(lake: VersionedTable, left: int) -> None:
    with_versions(lake)
    cut = _data_file(lake)
    cut.write_bytes(cut.read_bytes()[:left])
    found = lake.catalog.validate_table(ID)
    assert not found.ok
    assert len(found.unreadable) == 1
    assert found.unreadable[0].startswith(f"data/{cut.name}: ")
    assert str(lake.lake.uri) not in found.unreadable[0]


def test_validation_covers_deletion_files_and_indexes(lake: VersionedTable) -> None:
    lake.make(list(range(100)))
    dataset = lake.dataset()
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 10")
    found = lake.catalog.validate_table(ID)
    assert found.ok, found
    (deletion,) = (Path(lake.uri) / "_deletions").iterdir()
    deletion.unlink()
    assert lake.catalog.validate_table(ID).missing == (f"_deletions/{deletion.name}",)


def test_validation_of_a_missing_table_is_not_found(lake: VersionedTable) -> None:
    with pytest.raises(TableNotFoundError):
        lake.catalog.validate_table(ID)
