"""Conversion of a root of format 1, and the refusal of every other use of one. The roots are golden files."""

from __future__ import annotations

import dataclasses
import inspect
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import TableNotFoundError
from tests.support.cli import RULES, run
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.roots import ipc

from relance import DirectoryNamespace
from relance.catalog.manifest.store import Change, Manifest, Snapshot
from relance.catalog.migrate import NothingToConvertError
from relance.cli.app import app
from relance.cli.shapes import SHAPES
from relance.errors import InvalidTableStateError
from relance.jobs import Compact, maintain
from relance.testing.faults import FaultyStorage, Request

GOLDEN = Path(__file__).parent / "golden" / "format1"
MODES = {"v1": V1, "v2": V2, "compatibility": COMPATIBILITY}
LIVE = {
    "v1": ["cleared", "declared", "done-create", "live", "swept", "written"],
    "v2": ["after", "done-create", "live", "prod$kept"],
    "compatibility": [
        *("after", "announced", "cleared", "declared", "done-create", "live"),
        *("prod$kept", "swept", "target", "there", "to", "written"),
    ],
}
DROPPED = {
    "v1": ["cut-create", "cut-purge", "dropped", "dropped-deregistered"],
    "v2": ["cut-create", "cut-purge", "dropped", "half-purge", "old$t", "prod$gone"],
    "compatibility": [
        *("before", "cut-create", "cut-purge", "dropped", "dropped-deregistered", "first"),
        *("from", "old$t", "origin", "prod$gone", "second"),
    ],
}


def extract(mode: str, folder: Path) -> Path:
    root = folder / mode
    with zipfile.ZipFile(GOLDEN / f"{mode}.zip") as golden:
        golden.extractall(root)
    return root


def open_root(mode: str, root: Path, **properties: Any) -> DirectoryNamespace:
    return DirectoryNamespace(root=str(root), **(MODES[mode] | properties))


def read(catalog: DirectoryNamespace, name: str) -> list[int]:
    location = catalog.describe_table({"id": name.split("$")}).location
    return list(lance.dataset(str(location)).to_table()["id"].to_pylist())


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and ".relance-local" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def observe(mode: str, root: Path) -> dict[str, Any]:
    """Return what users see of a root."""
    catalog = open_root(mode, root)
    live = list(catalog.list_all_tables({}).tables)
    return {
        "live": {name: name != "declared" and read(catalog, name) for name in live},
        "dropped": {
            "$".join(status.id): (status.state, status.version, status.purge_after is not None)
            for status in catalog.list_dropped_tables()
        },
        "problems": [(finding.name, finding.problem.value) for finding in catalog.scrub()],
        "files": sorted(path.name for path in root.iterdir() if "-probe-" not in path.name),
    }


@pytest.mark.parametrize("mode", MODES)
def test_every_state_of_format_1_keeps_its_meaning(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    catalog = open_root(mode, root)
    before = files(root)
    plan = catalog.migrate_format(dry_run=True)
    assert files(root) == before, "a dry run changes nothing"
    assert catalog.migrate_format() == dataclasses.replace(plan, dry_run=False)
    seen = observe(mode, root)
    assert sorted(seen["live"]) == LIVE[mode]
    assert seen["live"] | {"declared": False, "done-create": [2]} == {
        name: [1] for name in (*LIVE[mode], "declared")
    } | {"declared": False, "done-create": [2]}
    assert sorted(seen["dropped"]) == DROPPED[mode]
    assert {name for name, (state, _, _) in seen["dropped"].items() if state == "purging"} <= {"half-purge"}
    assert seen["problems"] == [] if mode == "v2" else [("half-purge", "abandoned purge")]
    for name in ("purged", "half-purge"):
        with pytest.raises(TableNotFoundError):
            catalog.describe_table({"id": [name]})


@pytest.mark.parametrize("mode", MODES)
def test_every_converted_table_goes_on_with_its_life(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    catalog = open_root(mode, root)
    catalog.migrate_format()
    catalog.purge_table(["half-purge"], force=True)
    for name in ("purged", "half-purge"):
        catalog.create_table({"id": [name]}, ipc(pa.table({"id": [7]})))
        assert read(catalog, name) == [7]
    for name in DROPPED[mode]:
        if name in {"half-purge", "dropped-deregistered", "old$t"}:
            continue
        catalog.undrop_table(name.split("$"))
        assert read(catalog, name) == [1], name
    if mode == "compatibility":
        catalog.unprotect(["announced"])
    for name in LIVE[mode]:
        catalog.drop_table({"id": name.split("$")})
        catalog.purge_table(name.split("$"), force=True)
    if mode != "v1":
        assert catalog.undrop_namespace(["old"]) == [("old",), ("old", "t")]
        assert catalog.describe_table({"id": ["prod", "gone"]}).properties == {"owner": "ann"}
    assert catalog.scrub() == []


@pytest.mark.parametrize("mode", ["v1", "compatibility"])
def test_deregistered_tables_stay_deregistered(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    catalog = open_root(mode, root)
    catalog.migrate_format()
    catalog.undrop_table(["dropped-deregistered"])
    for name in ("deregistered", "dropped-deregistered", *(["unregistered"] if mode != "v1" else [])):
        with pytest.raises(TableNotFoundError, match="is deregistered"):
            catalog.describe_table({"id": [name]})
        catalog.register_table({"id": [name], "location": f"{name}.lance"})
        assert read(catalog, name) == [1]


def test_renamed_tables_get_directories_of_their_own_and_keep_their_protection(tmp_path: Path) -> None:
    root = extract("compatibility", tmp_path)
    catalog = open_root("compatibility", root)
    report = catalog.migrate_format()
    assert report.copied == ("before", "first", "from", "origin")
    directories = [str(catalog.describe_table({"id": [name]}).location) for name in ("after", "target", "to")]
    assert not [path for path in directories if path.endswith(("before.lance", "origin.lance", "from.lance"))]
    catalog.purge_table(["before"], force=True)
    assert read(catalog, "after") == [1]
    assert catalog.is_protected(["announced"])
    with pytest.raises(TableNotFoundError):
        catalog.describe_table({"id": ["held"]})


def test_root_with_a_manifest_is_converted_completely_by_a_client_that_ignores_it(tmp_path: Path) -> None:
    root = extract("compatibility", tmp_path)
    open_root("v1", root).migrate_format()
    assert sorted(observe("compatibility", root)["live"]) == LIVE["compatibility"]


@pytest.mark.parametrize("mode", MODES)
def test_root_without_a_flag_is_recognised_and_gets_one(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    (root / ".relance-root").unlink(missing_ok=True)
    with pytest.raises(InvalidTableStateError, match="migrate"):
        open_root(mode, root).list_tables({"id": []})
    open_root(mode, root).migrate_format()
    assert (root / ".relance-root").read_bytes() == b'{"format": 2, "nested_markers": "none"}\n'
    assert sorted(observe(mode, root)["live"]) == LIVE[mode]


@pytest.mark.parametrize("mode", MODES)
def test_converted_root_has_nothing_to_convert(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    open_root(mode, root).migrate_format()
    before = files(root)
    for dry_run in (True, False):
        with pytest.raises(NothingToConvertError, match="is of format 2 already"):
            open_root(mode, root).migrate_format(dry_run=dry_run)
    with pytest.raises(NothingToConvertError):
        open_root(mode, tmp_path / "nothing-there").migrate_format()
    assert files(root) == before


def test_leftover_of_format_1_in_a_converted_root_is_converted_too(tmp_path: Path) -> None:
    root = extract("v1", tmp_path)
    catalog = open_root("v1", root)
    catalog.migrate_format()
    (root / "live.deleted").write_bytes(b"0123456789abcdef01234567")
    assert catalog.migrate_format().cleared == ("live",)
    assert read(catalog, "live") == [1]


@pytest.mark.parametrize("body", [b'{"format": 1, "nonce": 7}', b'{"format": 1, "nonce": "n", "state": "?"}'])
def test_corrupt_marker_is_named_and_nothing_is_changed(body: bytes, tmp_path: Path) -> None:
    root = extract("v1", tmp_path)
    (root / "live.deleted").write_bytes(body.ljust(80))
    before = files(root)
    with pytest.raises(InvalidTableStateError, match=r"live\.deleted"):
        open_root("v1", root).migrate_format()
    assert files(root) == before


# A conversion that is killed.


class Killed(BaseException):
    """The process ends here."""


class Fuse:
    """Kills at one of the writes: before it, and thus right after the one before."""

    def __init__(self, at: int | None) -> None:
        self.left, self.writes = at, 0

    def burn(self) -> None:
        if self.left == self.writes:
            raise Killed
        self.writes += 1

    def plan(self, request: Request) -> None:
        if request.verb in {"create", "replace", "delete", "delete_many", "copy"}:
            self.burn()


class MortalManifest:
    """A manifest whose commits count as writes."""

    def __init__(self, inner: Manifest, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def commit(self, read: Snapshot, change: Change) -> None:
        self._fuse.burn()
        self._inner.commit(read, change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def migrate_until(mode: str, root: Path, at: int | None) -> int:
    """Convert a root, or die before the write with this number; return the number of writes made."""
    catalog, fuse = open_root(mode, root), Fuse(at)
    context = catalog._opened
    storage = FaultyStorage(context.storage, fuse.plan)
    manifest: Any = None if context.manifest is None else MortalManifest(context.manifest, fuse)
    connection = dataclasses.replace(context.connection, storage=storage)
    catalog._opened = dataclasses.replace(context, connection=connection, manifest=manifest)
    with suppress(Killed):
        catalog.migrate_format()
    return fuse.writes


def _check_kills(mode: str, folder: Path, *, step: int) -> None:
    complete = extract(mode, folder / "complete")
    writes = migrate_until(mode, complete, None)
    expected = observe(mode, complete)
    assert writes > 5
    for at in range(0, writes, step):
        root = extract(mode, folder / str(at))
        assert migrate_until(mode, root, at) == at
        if at > 0:
            with pytest.raises(InvalidTableStateError, match="migrate"):
                open_root(mode, root).list_tables({"id": []})
        open_root(mode, root).migrate_format()
        assert observe(mode, root) == expected, f"killed before write {at}"


@pytest.mark.parametrize("mode", MODES)
def test_killed_conversion_is_resumed(mode: str, tmp_path: Path) -> None:
    _check_kills(mode, tmp_path, step=13)


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES)
def test_conversion_killed_after_any_write_is_resumed(mode: str, tmp_path: Path) -> None:
    _check_kills(mode, tmp_path, step=1)


# Every other use is refused.

WITHOUT_THE_ROOT = {"namespace_id", "properties", "root_uri", "migrate_format"}
METHODS = sorted(
    name for name in dir(DirectoryNamespace) if not name.startswith("_") and name not in WITHOUT_THE_ROOT
)
ARGUMENTS: dict[str, Any] = {
    "request": {"id": ["live"]},
    "request_data": ipc(pa.table({"id": [1]})),
    "id": ["live"],
    "location": "live.lance",
}
REQUESTS: dict[str, dict[str, Any]] = {
    "analyze_table_query_plan": {"vector": {}, "k": 1},
    "explain_table_query_plan": {"query": {"vector": {}, "k": 1}},
    "batch_create_table_versions": {"entries": []},
    "batch_delete_table_versions": {"ranges": []},
    "create_table_version": {"version": 2, "manifest_path": "m"},
}
"""What requests need in addition to an id."""


def call(catalog: DirectoryNamespace, method: str) -> object:
    bound: Callable[..., object] = getattr(catalog, method)
    parameters = inspect.signature(bound).parameters.values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    arguments = ARGUMENTS | {"request": {**ARGUMENTS["request"], **REQUESTS.get(method, {})}}
    return bound(*[arguments.get(parameter.name, "x") for parameter in required])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_every_public_method_refuses_a_root_of_format_1(mode: str, method: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    before = files(root)
    with pytest.raises(InvalidTableStateError, match=rf"format 1.*relance --root {root} migrate"):
        call(open_root(mode, root), method)
    assert files(root) == before


@pytest.mark.parametrize("mode", MODES)
def test_jobs_refuse_a_root_of_format_1(mode: str, tmp_path: Path) -> None:
    root = extract(mode, tmp_path)
    with pytest.raises(InvalidTableStateError, match="migrate"):
        maintain(open_root(mode, root), Compact())


# On the command line.

NO_ROOT = {"completion", "migrate", "policy check", "policy schema"}
"""Commands that use no root, or convert it."""
OPTIONS = {
    "delete-rows": ["--where", "id = 1"],
    "update-rows": ["--where", "id = 1", "--set", "id=2"],
    "cleanup": ["--older-than", "1d"],
}


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


COMMANDS = dict(each for each in commands(app) if each[0] not in NO_ROOT)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_a_root_of_format_1(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, policy = extract("compatibility", tmp_path), tmp_path / "policy.toml"
    policy.write_text(RULES)
    monkeypatch.chdir(tmp_path)
    before = files(root)
    given = [each for each in COMMANDS[name].params if isinstance(each, click.Argument)]
    values = ["policy.toml" if each.type.name in {"path", "file", "filename"} else "live" for each in given]
    refused = run("--root", str(root), *name.split(), *values, *OPTIONS.get(name, []))
    assert refused.exit_code != 0
    assert f"relance --root {root} migrate" in refused.err, refused
    assert files(root) == before


def test_migrate_converts_the_format_after_confirmation(tmp_path: Path) -> None:
    root = extract("compatibility", tmp_path)
    ls = run("--root", str(root), "ls")
    assert ls.exit_code != 0
    assert f"relance --root {root} migrate" in ls.err
    refused = run("--root", str(root), "migrate")
    assert refused.exit_code != 0
    assert "pass --yes to confirm" in refused.err
    plan = run("--root", str(root), "migrate", "--dry-run")
    assert "dry run: nothing was changed" in plan.out
    assert "interrupted purge: 1 table\n  half-purge\n" in plan.out
    converted = run("--root", str(root), "migrate", "--yes", "--json").result
    assert converted["to"] == "format"
    assert converted.keys() <= SHAPES["migrate"].keys()
    assert converted["copied"] == ["before", "first", "from", "origin"]
    assert run("--root", str(root), "migrate", "--json").result["to"] == "manifest"
    again = run("--root", str(root), "migrate", "--to", "format", "--yes")
    assert again.exit_code != 0
    assert "is of format 2 already" in again.err
