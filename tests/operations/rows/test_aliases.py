"""A purge never removes files to which something else leads, however that is spelled."""

from __future__ import annotations

import lance
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import RegisterTableRequest
from tests.support.calls import assert_whole, directory, drop, generations, make, spaces
from tests.support.lakes import Lake
from tests.support.modes import V1


def register_natively(lake: Lake, name: str, location: str) -> None:
    """Register a directory as the native client does, which looks at nothing."""
    NativeNamespace(root=str(lake.folder), manifest_enabled="true", **lake.mode).register_table(
        RegisterTableRequest(id=[name], location=location)
    )


SPELLINGS = ["{0}", "./{0}", "{0}/", ".//{0}", "{0}/data", "{0}//data"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", ["t", "a/t"])
def test_purge_of_a_dropped_alias_keeps_the_files_of_the_live_table(
    path: str, spelling: str, lake: Lake
) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, path, 1)
    register_natively(lake, "alias", spelling.format(directory(lake, path)))
    drop(lake.open(), "alias")
    before = lake.table_files()
    assert lake.open().purge_table(["alias"], force=True).files == 0
    assert lake.table_files() == before
    assert_whole(lake.open(), path, 1)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", ["t", "a/t"])
def test_purge_of_a_table_keeps_the_files_of_a_live_alias(path: str, spelling: str, lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, path, 1)
    place = directory(lake, path)
    register_natively(lake, "alias", spelling.format(place))
    drop(lake.open(), path)
    before = {key for key in lake.table_files() if key.startswith(place)}
    lake.open().purge_tables([path.split("/")], force=True)
    assert {key for key in lake.table_files() if key.startswith(place)} == before
    assert lance.dataset(str(lake.folder / place)).count_rows() == 1


def test_purge_of_an_alias_keeps_a_table_that_only_directories_know(compatible: Lake) -> None:
    make(compatible.open(V1), "t", 1)
    compatible.open().create_namespace({"id": ["a"]})
    register_natively(compatible, "alias", "./t.lance")
    drop(compatible.open(), "alias")
    compatible.open().purge_tables([["alias"]], force=True)
    assert_whole(compatible.open(), "t", 1)


@pytest.mark.parametrize("first", ["t", "alias"])
def test_last_purge_of_two_dropped_names_removes_the_files(first: str, lake: Lake) -> None:
    catalog = lake.open()
    make(catalog, "t", 1)
    place = directory(lake, "t")
    register_natively(lake, "alias", f"./{place}")
    drop(lake.open(), "alias")
    drop(lake.open(), "t")
    second = "alias" if first == "t" else "t"
    for name in (first, second, first):
        if generations(lake.open(), name):
            lake.open().purge_tables([[name]], force=True)
    assert lake.open().list_dropped_tables() == []
    assert not (lake.folder / place).exists()


def test_one_run_purges_two_dropped_names_with_one_directory(lake: Lake) -> None:
    catalog = lake.open()
    make(catalog, "t", 1)
    place = directory(lake, "t")
    register_natively(lake, "alias", place)
    drop(lake.open(), "t")
    drop(lake.open(), "alias")
    results = lake.open().purge_tables([["t"], ["alias"]], force=True)
    assert all(result.purged for result in results), results
    assert not (lake.folder / place).exists()
