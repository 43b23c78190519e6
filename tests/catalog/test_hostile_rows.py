"""Rows that another client made up: nothing outside the root is touched, and other tables go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.seeds.clients import ManifestClient
from tests.support.calls import all_tables, make, rows, tables
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.lakes import Lake, make_older
from tests.support.modes import MANIFEST_MODES
from tests.support.policy.policies import policy
from tests.support.roots import S3Place, numbers, refused, snapshot, stream_of
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.catalog.repair import Problem
from relance.errors import InvalidTableStateError, TableNotFoundError
from relance.policy import plan

Catalog = DirectoryNamespace

LOCATIONS: dict[str, str | None] = {
    "climbing": "../outside/t",
    "through": "due/../../outside/t",
    "absolute": "{outside}/t",
    "file": "file://{outside}/t",
    "url": "s3://bucket/t",
    "escaped": "%2e%2e/outside/t",
    "backslash": "..\\outside\\t",
    "inner": "a\\..\\b",
    "empty": "",
    "none": None,
    "dot": ".",
    "slashes": ".//./",
    "nul": "visible\0",
    "query": "visible.lance?x",
    "fragment": "visible.lance#x",
    "long": "x" * 300,
    "manifest": "__manifest",
    "manifestdata": "./__manifest//data",
    "policy": ".relance-policy/history",
    "local": ".relance-local/trash",
}

VERBS: dict[str, Callable[[Catalog, str], object]] = {
    "describe": lambda catalog, name: catalog.describe_table({"id": [name]}),
    "exists": lambda catalog, name: catalog.table_exists({"id": [name]}),
    "count": lambda catalog, name: catalog.count_table_rows({"id": [name]}),
    "query": lambda catalog, name: catalog.query_table({"id": [name], "k": 1, "vector": {}}),
    "versions": lambda catalog, name: catalog.list_table_versions({"id": [name]}),
    "insert": lambda catalog, name: catalog.insert_into_table({"id": [name]}, stream_of(9)),
    "delete": lambda catalog, name: catalog.delete_from_table({"id": [name], "predicate": "x = 1"}),
    "update": lambda catalog, name: catalog.update_table({"id": [name], "updates": [["x", "5"]]}),
    "restore": lambda catalog, name: catalog.restore_table({"id": [name], "version": 1}),
    "overwrite": lambda catalog, name: catalog.create_table(
        {"id": [name], "mode": "overwrite"}, stream_of(9)
    ),
    "exist ok": lambda catalog, name: catalog.create_table({"id": [name], "mode": "exist_ok"}, stream_of(9)),
    "stats": lambda catalog, name: catalog.get_table_stats({"id": [name]}),
    "clean up": lambda catalog, name: catalog.cleanup_old_versions([name]),
    "rename": lambda catalog, name: catalog.rename_table({"id": [name], "new_table_name": "other"}),
    "drop": lambda catalog, name: catalog.drop_table({"id": [name]}),
}


@pytest.fixture(params=MANIFEST_MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root with a visible table and one that may be purged; a table that is not ours lies beside it."""
    lake = Lake(str(tmp_path / "lake"), MANIFEST_MODES[request.param])
    make(lake.catalog, "visible", 1)
    make(lake.catalog, "due", 2)
    _drop_long_ago(lake, "due")
    lance.write_dataset(numbers(7), str(tmp_path / "outside" / "t"))
    return lake


def _drop_long_ago(lake: Lake, name: str) -> None:
    if not lake.is_v2:
        lake.drop_long_ago(name)
        return
    make_older(Path(lake.location(name)))
    lake.catalog.drop_table({"id": [name], "context": {"ttl_ms": "0"}})
    manifest = lance.dataset(f"{lake.uri}/__manifest")
    (row,) = [each for each in manifest.to_table().to_pylist() if f'"{name}"' in (each["metadata"] or "")]
    control = json.loads(json.loads(row["metadata"])["relance.control"])
    metadata = {"relance.id": name, "relance.control": json.dumps(control | {"deleted_at_ms": 1})}
    manifest.update(
        {"metadata": "'" + json.dumps(metadata).replace("'", "''") + "'"}, f"object_id = '{row['object_id']}'"
    )


def _located(lake: Lake, location: str | None) -> str | None:
    return None if location is None else location.replace("{outside}", str(lake.folder.parent / "outside"))


def _insert(lake: Lake) -> list[str]:
    """Add a visible row for each location, and one that was dropped; return the names."""
    client = ManifestClient(lake.uri)
    control = {
        "format": 2,
        "state": "deleted",
        "nonce": "n",
        "deleted_at_ms": 1,
        "clock": "store",
        "ttl_ms": 0,
    }
    for name, location in LOCATIONS.items():
        client.insert(name, "table", _located(lake, location))
        dropped = json.dumps(control | {"id": name, "more": "x" * 100})
        client.insert(
            f"__dropped${name}",
            "table",
            _located(lake, location),
            {"relance.id": f"was_{name}", "relance.control": dropped},
        )
    return list(LOCATIONS)


def test_row_that_leads_elsewhere_is_followed_by_no_verb(lake: Lake) -> None:
    names = _insert(lake)
    outside, before = lake.folder.parent / "outside", snapshot(lake.folder.parent / "outside")
    catalog = lake.open()
    for verb, call in VERBS.items():
        for name in names:
            with refused(TABLE_NOT_FOUND) as caught:
                call(catalog, name)
            assert "location" in str(caught.value), (verb, name)
    for name in names:
        with pytest.raises(TableNotFoundError, match="no valid location"):
            catalog.undrop_table([f"was_{name}"])
        with pytest.raises(TableNotFoundError, match="no valid location"):
            catalog.purge_table([f"was_{name}"], force=True)
    assert snapshot(outside) == before
    assert rows(catalog, "visible") == [1]


def test_rows_that_lead_elsewhere_stop_no_run_over_all_tables(lake: Lake) -> None:
    names = _insert(lake)
    outside, before = lake.folder.parent / "outside", snapshot(lake.folder.parent / "outside")
    catalog = lake.open()
    assert set(tables(catalog)) == set(all_tables(catalog)) == {"visible", *names}
    assert tables(catalog, include_declared=False) == ["visible"]
    assert {each.id[0] for each in catalog.list_dropped_tables()} == {
        "due",
        *(f"was_{name}" for name in names),
    }
    assert [each.id for each in catalog.list_purgable_tables()] == [("due",)]
    planned = plan(catalog, policy("[defaults]\npurge = true\n"))
    assert ("due",) in [each.action.table for each in planned.record.actions if each.action.kind == "purge"]
    for dry_run in (True, False):
        results = {each.id[0]: each.error for each in catalog.purge_tables(dry_run=dry_run)}
        assert results.pop("due") is None
        assert results.keys() == {f"was_{name}" for name in names}
        assert {type(error) for error in results.values()} == {TableNotFoundError}
    findings = {each.name for each in catalog.scrub(repair=True) if each.problem is Problem.BAD_LOCATION}
    assert findings == {*names, *(f"__dropped${name}" for name in names)}
    catalog.maintain_manifest()
    assert snapshot(outside) == before
    assert rows(catalog, "visible") == [1]


def test_row_that_leads_elsewhere_can_be_deregistered(lake: Lake) -> None:
    catalog = lake.open()
    for name in _insert(lake):
        assert catalog.deregister_table({"id": [name]}).location is None
    assert tables(catalog) == ["visible"]


@pytest.mark.parametrize("link", ["linked", "folder/t"])
def test_row_that_leads_to_a_link_is_not_followed(lake: Lake, link: str) -> None:
    outside = lake.folder.parent / "outside"
    (lake.folder / link.partition("/")[0]).symlink_to(outside if "/" in link else outside / "t")
    client = ManifestClient(lake.uri)
    client.insert("bad", "table", link)
    before, catalog = snapshot(outside), lake.open()
    for verb, call in VERBS.items():
        if verb in {"rename", "drop"}:
            continue  # they only change the row
        with pytest.raises((InvalidTableStateError, TableNotFoundError), match="never followed"):
            call(catalog, "bad")
    (finding,) = catalog.scrub()
    assert (finding.name, finding.problem) == ("bad", Problem.ROW_WITHOUT_FILES)
    with pytest.raises(InvalidTableStateError, match="is never followed"):
        catalog.drop_table({"id": ["bad"]})
    catalog.purge_tables()
    catalog.purge_table(["bad"], force=True)
    assert snapshot(outside) == before
    assert (lake.folder / link.partition("/")[0]).is_symlink()


METADATA: dict[str, object] = {
    "numbers": {"a": 1, "b": None, "c": True},
    "list": [1, 2],
    "text": "no JSON {",
    "nan": '{"a": NaN}',
    "digits": '{"a": ' + "9" * 5000 + "}",
    "deep": '{"a": ' + "[" * 900 + "]" * 900 + "}",
    "deeper": "[" * 200_000,
    "large": {"a": "x" * 5_000_000},
    "odd keys": {"relance.protected": [True], "relance.text": 5, "relance.cascade": {}},
    "surrogate": '{"a": "\\ud800"}',
    "infinite": '{"a":1e400}',
    "negative": '{"a": [-1e400], "b": 1E400}',
    "exact": '{"a": 0.1234567890123456789012, "b": 1e5, "c": 1.10}',
    "twice": '{"a": 1, "a": 2}',
    "named text": '{"relance.text": "x"}',
}

DAMAGED: dict[str, object] = {
    "number": {"relance.id": "n", "relance.control": 7},
    "brackets": {"relance.id": "b", "relance.control": "[" * 200_000},
    "year": {
        "relance.id": "y",
        "relance.control": '{"format": 2, "state": "deleted", "since_s": 10}' + " " * 99,
    },
    "since": {
        "relance.id": "s",
        "relance.control": json.dumps(
            {"format": 2, "state": "deleted", "nonce": "n", "id": "d", "since_s": 10**15, "m": "x" * 99}
        ),
    },
    "half": {"relance.id": "h", "relance.control": "\ud800" * 99},
}


def test_metadata_of_any_kind_stops_no_run_over_all_tables(lake: Lake) -> None:
    client = ManifestClient(lake.uri)
    location = client.rows()["visible"]["location"] if lake.is_v2 else "visible.lance"
    for number, (name, value) in enumerate(METADATA.items()):
        lance.write_dataset(numbers(1), f"{lake.uri}/dir{number}")
        _insert_text(client, name, f"dir{number}", value)
    for name, value in DAMAGED.items():
        _insert_text(client, f"__dropped${name}", location, value)
    client.insert("visible$" + "9" * 5000, "table_version", None, {})
    catalog = lake.open()
    assert set(tables(catalog)) == {"visible", *METADATA}
    for name in METADATA:
        catalog.describe_table({"id": [name]})
        assert rows(catalog, name) == [1]
    assert [each.id for each in catalog.list_dropped_tables()] == [("due",)]
    results = {each.id[0]: each.error for each in catalog.purge_tables()}
    assert results.pop("due") is None
    assert results.keys() == {"n", "b", "y", "s", "h"}
    assert {type(error) for error in results.values()} == {InvalidTableStateError}
    findings = {each.name for each in catalog.scrub(repair=True) if each.problem is Problem.DAMAGED_ROW}
    assert findings == {f"__dropped${name}" for name in DAMAGED}
    plan(catalog, policy("[defaults]\npurge = true\n"))
    for name in METADATA:
        catalog.drop_table({"id": [name]})
        catalog.undrop_table([name])
        assert client.rows()[name]["metadata"] == _text_of(METADATA[name]), name


EXACT = [
    '{"a":1e400}',
    '{"a": {"b": [-1e400]}, "c": 1E400}',
    '{"a": 0.1234567890123456789012, "b": 1e5, "c": 1.10}',
    '{"a": 1, "a": 2}',
    '{"relance.id": 1e400, "relance.theirs": 1e5}',
]


@pytest.mark.parametrize("text", EXACT)
def test_metadata_that_python_cannot_hold_comes_back_as_it_was(lake: Lake, text: str) -> None:
    client, catalog = ManifestClient(lake.uri), lake.open()
    assert client.insert("n", "namespace", None, text)
    for name in ("n$u", "u"):
        lance.write_dataset(numbers(7), f"{lake.uri}/{name}.lance")
        assert client.insert(name, "table", f"{name}.lance", text)
    for parts in (["n", "u"], ["u"]):
        catalog.protect(parts)
        catalog.unprotect(parts)
        catalog.drop_table({"id": parts})
        assert tuple(parts) in [each.id for each in catalog.list_dropped_tables()]
        catalog.undrop_table(parts)
    catalog.drop_namespace({"id": ["n"], "behavior": "cascade"})
    catalog.undrop_namespace(["n"])
    found = {name: row["metadata"] for name, row in client.rows().items()}
    assert (found["n"], found["n$u"], found["u"]) == (text, text, text)


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _insert_text(client: ManifestClient, object_id: str, location: str, value: object) -> None:
    """Insert a row whose metadata is this text, or the JSON of this value."""
    schema = lance.dataset(client.uri).schema
    row: dict[str, Any] = {
        "object_id": object_id,
        "object_type": "table",
        "location": location,
        "metadata": _text_of(value),
    }
    columns = {name: [row.get(name)] for name in schema.names}
    lance.write_dataset(pa.table(columns, schema), client.uri, mode="append")


def test_rows_that_lead_elsewhere_on_an_object_store(moto_server: S3Server, moto_bucket: str) -> None:
    place = S3Place(moto_server, moto_bucket, "lake")
    lake = Lake(place.root, {}, dict(moto_server.storage_options()))
    make(lake.catalog, "visible", 1)
    outside = f"s3://{moto_bucket}/outside"
    lance.write_dataset(numbers(7), outside, storage_options=lake.options)
    client = ManifestClient(place.root, lake.options)
    for name, location in {"climbing": "../outside", "escaped": "%2e%2e/outside", "url": outside}.items():
        client.insert(name, "table", location)
    before, catalog = place.bucket_files(), lake.open()
    for verb in ("describe", "insert", "overwrite", "drop"):
        for name in ("climbing", "escaped", "url"):
            with refused(TABLE_NOT_FOUND):
                VERBS[verb](catalog, name)
    assert catalog.purge_tables() == []
    assert {each.name for each in catalog.scrub()} == {"climbing", "escaped", "url"}
    after = place.bucket_files()
    assert {key: after[key] for key in before if key.startswith("outside/")} == {
        key: body for key, body in before.items() if key.startswith("outside/")
    }
