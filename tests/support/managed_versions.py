"""Staged manifests, direct reads of rows and files, and power cuts, for tests of managed versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import CreateTableVersionRequest, TableVersion
from tests.support.internals import context_of, replace_context

from relance import DirectoryNamespace
from relance.catalog.manifest.store import Change, Snapshot
from relance.storage.probe import capabilities
from relance.storage.protocol import Version

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
MORE_ROWS = pa.table({"id": [4, 5], "name": ["d", "e"]})


def directory_of(catalog: DirectoryNamespace, *parts: str) -> Path:
    """Return where a table lies."""
    location = catalog.describe_table({"id": list(parts)}).location
    assert location is not None
    return Path(location)


def stage(catalog: DirectoryNamespace, *parts: str, body: bytes, name: str = "staged") -> str:
    """Put a staged manifest into a table, and return its path as clients tell it."""
    return stage_in(directory_of(catalog, *parts), body, name)


def stage_in(directory: Path, body: bytes, name: str = "staged") -> str:
    """Put a staged manifest into the table in a directory."""
    file = directory / "_versions" / f"{name}.manifest-{len(body)}"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(body)
    return str(file).lstrip("/")


def put_version(
    catalog: DirectoryNamespace, table: str, version: int, path: str, **fields: Any
) -> TableVersion:
    """Create a version from a staged manifest."""
    request = CreateTableVersionRequest(id=[table], version=version, manifest_path=path, **fields)
    made = catalog.create_table_version(request).version
    assert made is not None
    return made


def entry(catalog: DirectoryNamespace, table: str, version: int, body: bytes) -> dict[str, Any]:
    """Return one version of a batch, with its manifest staged."""
    path = stage(catalog, table, body=body, name=f"batch-{version}")
    return {"id": [table], "version": version, "manifest_path": path}


def versions(catalog: DirectoryNamespace, *parts: str, **fields: Any) -> list[int]:
    """Return the numbers of the listed versions, in their order."""
    return [each.version for each in catalog.list_table_versions({"id": list(parts), **fields}).versions]


def manifest_rows(root: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of the manifest by id, read with Lance alone."""
    rows = lance.dataset(str(root / "__manifest")).to_table().to_pylist()
    return {each["object_id"]: each for each in rows}


def version_rows(root: Path, table: str) -> list[int]:
    """Return the versions of which a table has rows."""
    prefix = f"{table}$"
    numbers = (key.removeprefix(prefix) for key in manifest_rows(root) if key.startswith(prefix))
    return sorted(int(each) for each in numbers if each.isdecimal())


def version_files(directory: Path) -> list[int]:
    """Return the versions of which a table has final manifests."""
    names = (each.stem for each in (directory / "_versions").glob("*.manifest"))
    return sorted(2**64 - 1 - int(each) if len(each) == 20 else int(each) for each in names)


def staged_files(directory: Path) -> list[str]:
    """Return the staged manifests of a table."""
    return sorted(each.name for each in (directory / "_versions").glob("*.manifest-*"))


def assert_in_step(
    catalog: DirectoryNamespace, root: Path, *parts: str, staged_ok: bool = False
) -> list[int]:
    """Check that listing, rows and files of a table agree and nothing is left over; return its versions."""
    listed = versions(catalog, *parts)
    directory = directory_of(catalog, *parts)
    assert version_files(directory) == listed
    assert version_rows(root, "$".join(parts)) == listed
    assert staged_ok or staged_files(directory) == []
    rows = [
        row["metadata"] for key, row in manifest_rows(root).items() if key.startswith("$".join(parts) + "$")
    ]
    assert not any("manifest-" in each or "deleting" in each for each in rows)
    return listed


class PowerCutError(Exception):
    """The process stops here."""


class Power:
    """Lasts for a number of writes."""

    def __init__(self, writes: int) -> None:
        """Keep how many are left."""
        self.left = writes

    def spend(self, write: Callable[[], Any]) -> Any:
        """Do a write, and stop if it was the last one."""
        if self.left == 0:
            raise PowerCutError
        self.left -= 1
        done = write()
        if self.left == 0:
            raise PowerCutError
        return done


class Pause(Power):
    """Lets somebody else act before one write."""

    def __init__(self, writes: int, meanwhile: Callable[[], Any]) -> None:
        """Keep after how many writes that is."""
        super().__init__(writes)
        self.happened = False
        self._meanwhile = meanwhile

    def spend(self, write: Callable[[], Any]) -> Any:
        """Do a write; before the one that was named, somebody else acts."""
        if self.left == 0 and not self.happened:
            self.happened = True
            self._meanwhile()
        self.left -= 1
        return write()


class _Powered:
    """Something whose writes need power; its reads do not."""

    def __init__(self, inner: Any, power: Power) -> None:
        """Wrap a storage or a manifest."""
        self._inner, self._power = inner, power

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Storage(_Powered):
    """A storage that writes while there is power."""

    def create(self, key: str, body: bytes) -> Version:
        written: Version = self._power.spend(lambda: self._inner.create(key, body))
        return written

    def delete(self, key: str) -> None:
        self._power.spend(lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        chosen = list(keys)
        if chosen:
            self._power.spend(lambda: self._inner.delete_many(chosen))


class _Manifest(_Powered):
    """A manifest that commits while there is power."""

    def commit(self, read: Snapshot, change: Change) -> None:
        self._power.spend(lambda: self._inner.commit(read, change))


def with_power(catalog: DirectoryNamespace, writes: int) -> Power:
    """Let a catalog do this many writes and no more."""
    power = Power(writes)
    _supply(catalog, power)
    return power


def _supply(catalog: DirectoryNamespace, power: Power) -> None:
    context = context_of(catalog)
    capabilities(context.storage)  # found out once, by writing
    assert context.manifest is not None
    storage: Any = _Storage(context.storage, power)
    manifest: Any = _Manifest(context.manifest, power)
    changed = replace(context, connection=replace(context.connection, storage=storage), manifest=manifest)
    replace_context(catalog, changed)


def cut_after_each_write(
    make: Callable[[], DirectoryNamespace], act: Callable[[DirectoryNamespace], Any]
) -> Iterable[int]:
    """Do `act` on a fresh root once for each of its writes, cut after that one; yield its number."""
    for writes in range(1, 50):
        catalog = make()
        power = with_power(catalog, writes)
        try:
            act(catalog)
        except PowerCutError:
            yield writes
            continue
        assert power.left > 0
        assert writes > 1, "there was nothing to cut"
        return
    raise AssertionError("too many writes")


def interrupted_at_each_write(
    make: Callable[[], DirectoryNamespace],
    act: Callable[[DirectoryNamespace], Any],
    meanwhile: Callable[[], Any],
) -> Iterable[int]:
    """Do `act` on a fresh root once for each of its writes, with `meanwhile` before that one."""
    for writes in range(50):
        catalog = make()
        pause = Pause(writes, meanwhile)
        _supply(catalog, pause)
        act(catalog)
        if not pause.happened:
            assert writes > 1, "there was nothing to interrupt"
            return
        yield writes
    raise AssertionError("too many writes")
