"""How tables are stored: options, properties, declared tables and managed versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.seeds.clients import ManifestClient
from tests.support.calls import declare, describe, drop, ident, make, rename, rows, spaces, write
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MANIFEST_MODES, MODES
from tests.support.roots import stream_of
from tests.support.servers import S3Server, count_requests


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["disk", "memory", "s3"])
def test_storage_options_reach_lance_on_every_kind_of_root(
    tmp_path: Path, moto_server: S3Server, moto_bucket: str, kind: str, mode: str
) -> None:
    roots = {"disk": str(tmp_path), "memory": f"memory://{mode}", "s3": f"s3://{moto_bucket}/lake"}
    options = {"region": "eu-central-1", "only_lance_knows": "1"}
    if kind == "s3":
        options |= moto_server.storage_options()
    catalog = Lake(roots[kind], MODES[mode], options, QUIET).open()
    make(catalog, "t", 1, 2)
    described = describe(catalog, "t")
    assert described.storage_options == options
    opened = lance.dataset(described.location, storage_options=described.storage_options)
    assert opened.count_rows() == 2
    assert rows(catalog, "t") == [1, 2]


MANAGED = {"table_version_management": "true"}


def _recorded(root: Path, table_id: str) -> dict[int, dict[str, Any]]:
    """Return the metadata of a table's version rows by version, read as the specification describes them."""
    found = ManifestClient(str(root)).rows()
    ids = [key for key, row in found.items() if row["object_type"] == "table_version"]
    below = [key for key in ids if key.rpartition("$")[0] == table_id]
    return {int(key.rpartition("$")[2]): json.loads(found[key]["metadata"]) for key in below}


def _assert_every_version_recorded(root: Path, path: str, latest: int) -> None:
    """Check that each version has a row whose path leads, from the root, to its manifest."""
    table_id = path.replace("/", "$")
    recorded = _recorded(root, table_id)
    assert sorted(recorded) == list(range(1, latest + 1))
    location = ManifestClient(str(root)).rows()[table_id]["location"]
    dataset = lance.dataset(root / location)
    assert dataset.version == latest
    for version, metadata in recorded.items():
        file = root / metadata["manifest_path"]
        assert file.parent == root / location / "_versions"
        assert file.name == f"{2**64 - 1 - version:020d}.manifest"
        assert file.stat().st_size == metadata["manifest_size"]


@pytest.mark.parametrize("mode", MANIFEST_MODES)
@pytest.mark.parametrize("path", ["t", "sales/t"])
def test_every_managed_version_has_a_row_that_leads_to_its_manifest(
    tmp_path: Path, mode: str, path: str
) -> None:
    catalog = Lake(str(tmp_path), MANIFEST_MODES[mode], settings=QUIET | MANAGED).open()
    spaces(catalog, "sales")
    make(catalog, path, 1)
    _assert_every_version_recorded(tmp_path, path, 1)
    make(catalog, path, 2, mode="overwrite")
    _assert_every_version_recorded(tmp_path, path, 2)
    write(catalog, path, 3, mode="append")
    _assert_every_version_recorded(tmp_path, path, 3)
    catalog.update_table({"id": ident(path), "updates": [["x", "x + 1"]]})
    _assert_every_version_recorded(tmp_path, path, 4)
    drop(catalog, path)
    catalog.undrop_table(ident(path))
    _assert_every_version_recorded(tmp_path, path, 4)
    drop(catalog, path)
    make(catalog, path, 5)
    _assert_every_version_recorded(tmp_path, path, 5)


@pytest.mark.parametrize("mode", MANIFEST_MODES)
def test_moved_tables_keep_a_row_for_every_version(tmp_path: Path, mode: str) -> None:
    catalog = Lake(str(tmp_path), MANIFEST_MODES[mode], settings=QUIET | MANAGED).open()
    spaces(catalog, "sales")
    make(catalog, "t", 1)
    make(catalog, "t", 2, mode="overwrite")
    rename(catalog, "t", "sales/u")
    _assert_every_version_recorded(tmp_path, "sales/u", 2)
    location = ManifestClient(str(tmp_path)).rows()["sales$u"]["location"]
    catalog.deregister_table({"id": ["sales", "u"]})
    assert _recorded(tmp_path, "sales$u") == {}
    catalog.register_table({"id": ["w"], "location": location})
    _assert_every_version_recorded(tmp_path, "w", 2)
    drop(catalog, "w")
    catalog.undrop_table(["w"], new_id=["sales", "v"])
    _assert_every_version_recorded(tmp_path, "sales/v", 2)


def _reserved(root: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(root)) for path in root.rglob(".lance-reserved"))


def _kept(root: Path) -> set[str]:
    """Return the files of all tables but those that declare one."""
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    own = (".relance-local", ".lance-reserved")
    return {str(path) for path in files if not path.parts[0].startswith(own) and path.name not in own}


@pytest.mark.parametrize("mode", MODES)
def test_file_that_declares_a_table_is_gone_once_the_table_is_created(tmp_path: Path, mode: str) -> None:
    catalog = Lake(str(tmp_path), MODES[mode], settings=QUIET).open()
    paths = ["t", "u"]
    if mode != "V1":
        spaces(catalog, "sales")
        paths += ["sales/t", "sales/u"]
    for path in paths:
        declare(catalog, path)
    assert len(_reserved(tmp_path)) == len(paths)
    for path in paths[::2]:
        make(catalog, path, 1)
    for path in paths[1::2]:
        catalog.insert_into_table({"id": ident(path)}, stream_of(1))
    assert _reserved(tmp_path) == []
    assert all(rows(catalog, path) == [1] for path in paths)


@pytest.mark.parametrize("mode", MODES)
def test_client_that_writes_by_path_ends_the_reservation_of_its_table(tmp_path: Path, mode: str) -> None:
    catalog = Lake(str(tmp_path), MODES[mode], settings=QUIET).open()
    write(catalog, "t", 1)  # declares, then writes by path
    location = Path(describe(catalog, "t").location)
    declare(catalog, "u")
    assert describe(catalog, "u", check_declared=True).is_only_declared
    before = _kept(tmp_path)
    # The catalog looks inside a home directory at every call, and inside others where details are asked for.
    assert describe(catalog, "t", load_detailed_metadata=mode == "V2").location == str(location)
    assert _kept(tmp_path) == before
    assert not (location / ".lance-reserved").exists()
    assert rows(catalog, "t") == [1]
    assert len(_reserved(tmp_path)) == 1, "a table without data stays declared"


@pytest.mark.parametrize("mode", MANIFEST_MODES)
def test_managed_first_version_ends_the_reservation(tmp_path: Path, mode: str) -> None:
    catalog = Lake(str(tmp_path), MANIFEST_MODES[mode], settings=QUIET | MANAGED).open()
    declare(catalog, "t")
    assert len(_reserved(tmp_path)) == 1
    write(catalog, "u", 1)
    assert len(_reserved(tmp_path)) == 1
    write(catalog, "t", 1, mode="append")
    assert _reserved(tmp_path) == []
    assert rows(catalog, "t") == [1]


OWNER = {"owner": "ann", "unit": "kg"}


@pytest.mark.parametrize("mode", MODES)
def test_properties_are_in_the_metadata_of_the_lance_table(tmp_path: Path, mode: str) -> None:
    lake = Lake(str(tmp_path), MODES[mode], settings=QUIET)
    catalog = lake.catalog
    paths = ["t"]
    if mode != "V1":
        spaces(catalog, "sales")
        paths += ["sales/t", "sales/declared", "declared"]
        for path in paths[2:]:
            declare(catalog, path, properties=OWNER)
    for path in paths:
        given = {} if "declared" in path else {"properties": OWNER}
        assert make(catalog, path, 1, **given).properties == OWNER
        assert lake.dataset(*ident(path)).metadata == OWNER
        assert describe(lake.open(), path).properties == OWNER
        drop(catalog, path)
        catalog.undrop_table(ident(path))
        assert describe(catalog, path).properties == OWNER
        assert make(catalog, path, 2, mode="overwrite", properties={"owner": "bob"}).properties == {
            "owner": "bob"
        }
        assert lake.dataset(*ident(path)).metadata == {"owner": "bob"}
        assert describe(catalog, path).properties == {"owner": "bob"}
        drop(catalog, path)
        make(catalog, path, 3, properties=OWNER)
        assert lake.dataset(*ident(path)).metadata == OWNER
        assert describe(catalog, path).properties == OWNER
        assert rows(catalog, path) == [3]
        lake.dataset(*ident(path)).update_metadata({"owner": "eve"})
        detailed = describe(catalog, path, load_detailed_metadata=True)
        assert detailed.properties == OWNER | {"owner": "eve"}


def test_properties_of_a_table_without_a_row_are_read_from_lance(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), MODES["V1"], settings=QUIET)
    both = lake.open(MODES["compatibility"])
    for name in ("t", "u", "v"):
        make(lake.catalog, name, 1, properties=OWNER)
        assert describe(both, name).properties == OWNER
    drop(both, "t")
    both.undrop_table(["t"])
    both.protect(["u"])
    both.deregister_table({"id": ["v"]})
    both.register_table({"id": ["v"], "location": "v.lance"})
    for name in ("t", "u", "v"):
        assert json.loads(ManifestClient(str(tmp_path)).rows()[name]["metadata"]).items() >= OWNER.items()
        assert describe(both, name).properties == OWNER
        assert describe(lake.open(), name).properties == OWNER


@pytest.mark.parametrize("mode", MODES)
def test_describing_a_table_again_costs_one_request(
    moto_server: S3Server, moto_bucket: str, mode: str
) -> None:
    with count_requests(moto_server) as counter:
        lake = Lake(f"s3://{moto_bucket}/lake", MODES[mode], counter.server.storage_options(), QUIET)
        for name, properties in (("with", OWNER), ("without", {})):
            make(lake.catalog, name, 1, properties=properties)
            for _ in range(2):
                counter.reset()
                described = describe(lake.catalog, name)
                assert (described.table, described.properties or {}) == (name, properties)
            assert len(counter.requests) == 1, counter.requests
