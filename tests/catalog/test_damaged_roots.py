"""Odd things where the catalog keeps its files: one of them affects one table, and no other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.calls import make, rows, tables
from tests.support.lakes import Lake
from tests.support.modes import COMPATIBILITY, MODES, V1
from tests.support.policy.policies import policy
from tests.support.roots import S3Place, stream_of
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.catalog.repair import Problem
from relance.catalog.resolve import SoftDeleted
from relance.catalog.states import SHORT_MAX_BYTES, Timing
from relance.clock import LATEST, to_millis
from relance.errors import InvalidTableStateError, RelanceError
from relance.policy import plan

FAR = 10**15
"""Seconds: a time that no calendar has."""


def _bytes(body: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(body)

    return write


def _text(value: object) -> Callable[[Path], None]:
    return _bytes(json.dumps(value).encode())


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(512 * 1024**2)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        here = os.getcwd()
        os.chdir(path.parent)  # the whole path may be too long for a socket
        end.bind(path.name)
        os.chdir(here)


def _linked_file(path: Path) -> None:
    target = path.parent.parent / "outside.json"
    target.write_text('{"deleted_at_ms": 1, "ttl_ms": 1}')
    path.symlink_to(target)


def _filled_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


FILES: dict[str, Callable[[Path], None]] = {
    "year9999": _text({"deleted_at_ms": 253402300799999, "ttl_ms": 604800000}),
    "beyond": _text({"deleted_at_ms": 10**30, "ttl_ms": 10**40}),
    "negative": _text({"deleted_at_ms": -1, "ttl_ms": -1}),
    "longest": _text({"deleted_at_ms": 1, "ttl_ms": 86399999999999999}),
    "boolean": _text({"deleted_at_ms": True, "ttl_ms": True}),
    "text": _text({"deleted_at_ms": "soon", "ttl_ms": [1]}),
    "list": _text([{"deleted_at_ms": 1}]),
    "nan": _bytes(b'{"deleted_at_ms": NaN, "ttl_ms": Infinity}' + b" " * 80),
    "digits": _bytes(b'{"ttl_ms": ' + b"9" * 5000 + b"}"),
    "deep": _bytes(b"[" * 30_000),
    "deeper": _bytes(b"[" * 200_000),
    "bytes": _bytes(b"\xff\xfe\x00\xd8" * 40),
    "huge": _sparse,
}
"""Files that hold something else than they should."""

NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "link": _linked_file,
    "dangling": lambda path: path.symlink_to(path.parent / "nowhere"),
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "linkedfolder": lambda path: path.symlink_to(path.parent.parent),
    "folder": Path.mkdir,
    "filled": _filled_folder,
}

CONTROLS: dict[str, object] = {
    "since": {"state": "deleted", "nonce": "n", "id": "d", "since_s": FAR},
    "fence": {"state": "deleted", "nonce": "n", "id": "d", "fence_s": FAR},
    "upto": {"state": "purging", "nonce": "n", "id": "d", "token": "t", "upto_s": FAR, "before": {}},
    "nested": {"state": "purging", "nonce": "n", "id": "d", "token": "t", "before": {"before": {}}},
    "lease": {"state": "purging", "nonce": "n", "id": "d", "token": "t", "lease_ms": 86399999999999999}
    | {"before": {"state": "deleted", "nonce": "m", "id": "d"}},
    "odd id": {"state": "deleted", "nonce": "n", "id": "../$d"},
    "surrogate": {"state": "deleted", "nonce": "\ud800", "id": "d"},
    "date": {"state": "deleted", "nonce": "n", "id": "d", "deleted_at_ms": to_millis(LATEST) + 1},
    "boolean": {"state": "deleted", "nonce": "n", "id": "d", "version": True},
}
"""Bodies of an arbiter with a field that cannot be."""


@pytest.fixture(autouse=True)
def no_endless_wait() -> Iterator[None]:
    """Fail instead of waiting for ever for the other end of a pipe."""

    def give_up(*_: object) -> None:
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root with a visible table, one that may be purged, and a row for each in modes with a manifest."""
    return Lake(str(tmp_path / "lake"), MODES[request.param])


def _fill(
    lake: Lake, suffix: str, oddities: dict[str, Callable[[Path], None]], *, dropped: bool = False
) -> DirectoryNamespace:
    """Put each oddity beside a table of its own, which may be one that was dropped."""
    others = Lake(lake.uri, V1 if lake.mode == V1 else COMPATIBILITY)
    make(others.catalog, "visible", 1)
    make(others.catalog, "due", 2)
    for name in oddities:
        shutil.copytree(lake.folder / "visible.lance", lake.folder / f"{name}.lance")
    if lake.mode != V1:
        others.catalog.migrate_to_manifest()
    others.drop_long_ago("due")
    for name, place in oddities.items():
        if dropped:
            others.catalog.drop_table({"id": [name]})
            (lake.folder / f"{name}{suffix}").unlink()
        place(lake.folder / f"{name}{suffix}")
    return lake.open()


def _assert_others_go_on(catalog: DirectoryNamespace) -> tuple[list[Any], list[Any]]:
    """Check what a run over all tables does; return its failures and what scrub found."""
    assert "visible" in tables(catalog)
    assert rows(catalog, "visible") == [1]
    assert ("due",) in [each.id for each in catalog.list_dropped_tables()]
    assert ("due",) in [each.id for each in catalog.list_purgable_tables()]
    planned = plan(catalog, policy("[defaults]\npurge = true\n"))
    assert ("due",) in [each.action.table for each in planned.record.actions]
    would = catalog.purge_tables(dry_run=True)
    assert [each.id for each in would if each.error is None] == [("due",)]
    results = catalog.purge_tables()
    assert [each.id for each in results if each.purged] == [("due",)]
    assert {each.id for each in would} == {each.id for each in results}
    findings = catalog.scrub(repair=True)
    catalog.sweep_markers()
    catalog.migrate_markers()
    return [each for each in results if not each.purged], findings


def test_foreign_markers_of_any_content_count_as_drops_without_a_period(lake: Lake) -> None:
    # Where the manifest alone counts, nobody lists the markers of tables that no row calls dropped.
    catalog = _fill(lake, ".deleted", FILES, dropped=lake.is_v2)
    dropped = {each.id[0]: each for each in catalog.list_dropped_tables()}
    assert dropped.keys() == {*FILES, "due"}
    for name in FILES:
        status = dropped[name]
        if name == "longest":
            assert status.purge_after is None
        else:
            assert status.purge_after == status.deleted_at + Timing().drop_ttl, name
    failed, _ = _assert_others_go_on(catalog)
    assert failed == []
    for name in ("longest", "huge", "deep"):
        catalog.undrop_table([name])
        assert rows(catalog, name) == [1]


def test_damaged_arbiters_are_reported_and_left(lake: Lake) -> None:
    catalog = _fill(lake, ".control", FILES, dropped=lake.is_v2)
    long = {name for name in FILES if (lake.folder / f"{name}.control").stat().st_size > SHORT_MAX_BYTES}
    failed, findings = _assert_others_go_on(catalog)
    assert {each.id[0] for each in failed} == ({*FILES} if lake.is_v2 else long)
    assert all(type(each.error) is InvalidTableStateError for each in failed)
    reported = {each.name for each in findings if each.problem is Problem.DAMAGED_MARKER}
    assert reported == {*FILES}
    for name in FILES:
        with pytest.raises(InvalidTableStateError, match=name):
            catalog.drop_table({"id": [name]})


def test_arbiters_with_an_impossible_field_are_damaged(lake: Lake) -> None:
    def body(fields: object) -> Callable[[Path], None]:
        return _text({"format": 2, **fields, "more": "x" * 100})  # type: ignore[dict-item]  # a dictionary

    bodies = {name: body(fields) for name, fields in CONTROLS.items()}
    catalog = _fill(lake, ".control", bodies, dropped=lake.is_v2)
    failed, findings = _assert_others_go_on(catalog)
    assert {each.id[0] for each in failed} == {*CONTROLS}
    assert {each.name for each in findings} == {*CONTROLS}


@pytest.mark.parametrize("suffix", [".deleted", ".control"])
def test_what_is_no_file_is_never_followed_and_refuses_changes_of_its_table(lake: Lake, suffix: str) -> None:
    catalog = _fill(lake, suffix, NO_FILES)
    outside = {path.name for path in lake.folder.parent.iterdir()}
    failed, findings = _assert_others_go_on(catalog)
    assert failed == []
    reported = {each.name for each in findings if each.problem is Problem.NO_FILE}
    assert reported == {f"{name}{suffix}" for name in NO_FILES}
    for name in NO_FILES:
        assert rows(catalog, name) == [1]
        with pytest.raises(RelanceError, match=f"{name}{suffix}.* remove it"):
            catalog.drop_table({"id": [name]})
    assert {path.name for path in lake.folder.parent.iterdir()} == outside


@pytest.mark.parametrize("kind", ["nan", "boolean", "deeper", "huge", "bytes", "list", *NO_FILES])
def test_odd_root_flag_is_refused_with_a_remedy(tmp_path: Path, kind: str) -> None:
    lake = Lake(str(tmp_path / "lake"), V1)
    make(lake.catalog, "t", 1)
    (lake.folder / ".relance-root").unlink()
    (FILES | NO_FILES)[kind](lake.folder / ".relance-root")
    with pytest.raises(InvalidTableStateError, match=r"\.relance-root.* (remove|restore) |unknown format"):
        lake.open().list_tables({"id": []})


def test_damaged_bodies_on_an_object_store_affect_one_table_each(
    moto_server: S3Server, moto_bucket: str
) -> None:
    moto = S3Place(moto_server, moto_bucket, "lake")
    lake = Lake(moto.root, V1, dict(moto.server.storage_options()))
    for name in ("visible", "due", "deep", "deeper", "date"):
        make(lake.catalog, name, 1 if name == "visible" else 2)
    lake.catalog.drop_table({"id": ["due"], "context": {"ttl_ms": "0"}})
    moto.put("deep.control", b"[" * 30_000)
    moto.put("deeper.control", b"[" * 200_000)
    moto.put(
        "date.deleted", json.dumps({"deleted_at_ms": 253402300799999, "ttl_ms": 86399999999999999}).encode()
    )
    catalog = lake.open()
    assert {each.id[0] for each in catalog.list_dropped_tables()} == {"due", "date"}
    results = {each.id[0]: each for each in catalog.purge_tables()}
    assert {name for name, each in results.items() if isinstance(each.error, InvalidTableStateError)} == {
        "deep",
        "deeper",
    }
    assert "200000 bytes, but at most 65536" in str(results["deeper"].error)
    assert {each.name for each in catalog.scrub()} == {"deep", "deeper"}


def test_marker_decides_alone_once_a_damaged_arbiter_is_deleted_as_scrub_says(lake: Lake) -> None:
    if lake.is_v2:
        pytest.skip("its tables have no files beside them")
    catalog = lake.catalog
    catalog.create_table({"id": ["t"]}, stream_of(1))
    catalog.drop_table({"id": ["t"]})
    catalog.undrop_table(["t"])
    catalog.drop_table({"id": ["t"]})
    control = lake.folder / "t.control"
    control.write_bytes(b"x" * 200)
    (finding,) = catalog.scrub()
    assert "delete it to let 't.deleted' decide alone" in finding.remedy
    control.unlink()
    assert isinstance(catalog.table_status(["t"]), SoftDeleted)
    assert [each.id for each in catalog.list_dropped_tables()] == [("t",)]
    assert catalog.scrub(repair=True) == []
    catalog.undrop_table(["t"])
    assert tables(catalog) == ["t"]
