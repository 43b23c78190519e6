"""A purge never removes files to which something else leads, however that is spelled."""

from __future__ import annotations

import lance
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import RegisterTableRequest
from tests.support.calls import (
    assert_whole,
    deregister,
    directory,
    drop,
    generations,
    make,
    register,
    rename,
    spaces,
)
from tests.support.internals import context_of
from tests.support.jobs.lakes import JobLake
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MANIFEST_MODES, V1

from relance.errors import InvalidTableStateError, RelanceError
from relance.jobs import PurgeDropped


def register_natively(lake: Lake, name: str, location: str) -> None:
    """Register a directory as the native client does, which looks at nothing."""
    NativeNamespace(root=str(lake.folder), manifest_enabled="true", **lake.mode).register_table(
        RegisterTableRequest(id=[name], location=location)
    )


def _purge_by_job(
    lake: Lake, mode: dict[str, str], *paths: str
) -> dict[tuple[str, ...], RelanceError | None]:
    results = JobLake(lake.uri, mode, settings=QUIET).run(JOB, *(tuple(path.split("/")) for path in paths))
    return {result.table: result.error for result in results}


JOB = PurgeDropped(force=True)
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


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("mode", MANIFEST_MODES.values(), ids=MANIFEST_MODES)
def test_purge_of_an_alias_keeps_a_table_that_only_directories_know(
    spelling: str, mode: dict[str, str], compatible: Lake
) -> None:
    make(compatible.open(V1), "t", 1)
    compatible.open().create_namespace({"id": ["a"]})
    register_natively(compatible, "alias", spelling.format("t.lance"))
    drop(compatible.open(mode), "alias")
    compatible.open(mode).purge_tables([["alias"]], force=True)
    assert_whole(compatible.open(), "t", 1)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("by_job", [False, True])
def test_purge_without_the_manifest_keeps_the_files_of_an_alias_in_it(
    spelling: str, by_job: bool, compatible: Lake
) -> None:
    plain = compatible.open(V1)
    make(plain, "t", 1)
    make(plain, "u", 1)
    compatible.open().create_namespace({"id": ["a"]})
    register_natively(compatible, "alias", spelling.format("t.lance"))
    drop(plain, "t")
    drop(plain, "u")
    before = {key for key in compatible.table_files() if key.startswith("t.lance")}
    if by_job:
        errors = _purge_by_job(compatible, V1, "t", "u")
    else:
        would = plain.purge_tables([["t"], ["u"]], force=True, dry_run=True)
        errors = {result.id: result.error for result in plain.purge_tables([["t"], ["u"]], force=True)}
        assert [type(result.error) for result in would] == [type(error) for error in errors.values()]
    assert "also belong to 'alias'" in str(errors["t",])
    assert errors["u",] is None
    assert {key for key in compatible.table_files() if key.startswith("t.lance")} == before
    plain.undrop_table(["t"])
    assert_whole(plain, "t", 1)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_purge_job_keeps_the_files_of_a_live_alias(spelling: str, lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, "a/t", 1)
    place = directory(lake, "a/t")
    register_natively(lake, "alias", spelling.format(place))
    drop(lake.open(), "a/t")
    before = {key for key in lake.table_files() if key.startswith(place)}
    _purge_by_job(lake, lake.mode, "a/t")
    assert {key for key in lake.table_files() if key.startswith(place)} == before


def test_purge_job_deletes_nothing_after_a_table_was_registered_at_its_files(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, "a/t", 1)
    place = directory(lake, "a/t")
    drop(lake.open(), "a/t")
    context = context_of(lake.open())
    plan = JOB.plan(context, ("a", "t"))
    assert plan is not None
    register_natively(lake, "alias", place)
    plan.finish(context, [])
    assert_whole(lake.open(), "alias", 1)


def test_table_is_purged_after_the_dropped_alias_of_a_part_of_it(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    make(catalog, "a/t", 1)
    place = directory(lake, "a/t")
    register_natively(lake, "alias", f"{place}/data")
    for path in ("a/t", "alias"):
        drop(lake.open(), path)
    (result,) = lake.open().purge_tables([["a", "t"]], force=True)
    assert "'alias'" in str(result.error)
    assert "purge that one first" in str(result.error)
    for path in ("alias", "a/t"):
        assert lake.open().purge_table(path.split("/"), force=True).purged
    assert not (lake.folder / place).exists()


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


@pytest.mark.parametrize("verb", ["rename", "undrop"])
def test_alias_does_not_get_the_name_of_the_home_that_it_is_in(verb: str, compatible: Lake) -> None:
    """The files in and beside the directory would decide then, and they say that it is deregistered."""
    catalog = compatible.open()
    make(catalog, "t", 1)
    deregister(catalog, "t")
    register(catalog, "alias", "t.lance")
    if verb == "rename":
        with pytest.raises(InvalidTableStateError, match="register 't' instead"):
            rename(catalog, "alias", "t")
    else:
        drop(catalog, "alias")
        with pytest.raises(InvalidTableStateError, match="register 't' instead"):
            catalog.undrop_table(["alias"], new_id=["t"])
        catalog.undrop_table(["alias"])
    assert_whole(compatible.open(), "alias", 1)
    deregister(catalog, "alias")
    register(catalog, "t", "t.lance")
    assert_whole(compatible.open(), "t", 1)
