"""A thin model of Lance's commits over plain objects, for exploring the lifecycle request by request.

A version is a JSON manifest under the next number, put if absent. tests/testing/test_model_tables.py
holds it against pylance.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from relance.catalog.layout import ManifestFile, NamingScheme, list_manifests, manifest_key
from relance.clock import Clock
from relance.config import StorageOptions
from relance.errors import InternalError, KeyExistsError, KeyNotFoundError, OutcomeUnknownError
from relance.lance_io import StagedData, TableHead, VersionTakenError, WrittenData, require_written
from relance.storage.protocol import ObjectStorage


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """What a manifest of the model says."""

    token: str
    data: Any
    files: tuple[str, ...]
    """Names of its data files, below `data/`: as in Lance, a copy of the directory is a table of its own."""
    ours: bool = True
    """Whether the transaction has the property that Relance's lifecycle gives it."""
    properties: Mapping[str, str] = field(default_factory=dict)


def encode_version(version: ModelVersion) -> bytes:
    """Return the bytes of a manifest."""
    fields = {
        "token": version.token,
        "data": version.data,
        "files": list(version.files),
        "ours": version.ours,
        **({"properties": dict(version.properties)} if version.properties else {}),
    }
    return json.dumps(fields).encode()


def decode_version(body: bytes) -> ModelVersion:
    """Return what a manifest says."""
    fields = json.loads(body)
    return ModelVersion(
        fields["token"], fields["data"], tuple(fields["files"]), fields["ours"], fields.get("properties", {})
    )


def read_version(storage: ObjectStorage, key: str) -> ModelVersion:
    """Return the manifest under `key`."""
    return decode_version(storage.read(key).body)


def data_key(directory: str, name: str) -> str:
    """Return the key of a data file."""
    return f"{directory}/data/{name}"


def write_file(storage: ObjectStorage, directory: str, token: str, data: Any) -> str:
    """Write a data file and return its name."""
    name = f"{token}.lance"
    storage.create(data_key(directory, name), json.dumps(data).encode())
    return name


def missing_files(objects: Container[str], directory: str, version: ModelVersion) -> tuple[str, ...]:
    """Return the keys of a version's data files that are not among the objects."""
    keys = (data_key(directory, name) for name in version.files)
    return tuple(key for key in keys if key not in objects)


def key_of_version(directory: str, version: int) -> str:
    """Return the key of a version's manifest."""
    return manifest_key(directory, None, version, NamingScheme.V2)


class ModelTables:
    """Lance, reduced to its requests. Data is any JSON value; of written data, the schema is that."""

    def __init__(self, storage: ObjectStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def head(self, directory: str) -> TableHead | None:
        manifests = list_manifests(self._storage, directory, None)
        return TableHead(manifests[-1].version, {}) if manifests else None

    def stage(
        self, directory: str, data: Any, *, token: str, version: int, options: StorageOptions
    ) -> StagedData:
        if isinstance(data, WrittenData):
            require_written(self._storage, directory, data)
            return StagedData(token, (), ModelVersion(token, data.schema, tuple(sorted(data.files))))
        if not version and list_manifests(self._storage, directory, None):
            raise VersionTakenError("dataset already exists")
        name = write_file(self._storage, directory, token, data)
        return StagedData(token, (data_key(directory, name),), ModelVersion(token, data, (name,)))

    def commit(
        self, directory: str, staged: StagedData, *, version: int, timeout: timedelta, options: StorageOptions
    ) -> None:
        deadline = self._clock.monotonic() + timeout.total_seconds()
        self._put(directory, version, staged.commit, deadline)

    def set_properties(
        self,
        directory: str,
        properties: Mapping[str, str],
        *,
        token: str,
        timeout: timedelta,
        options: StorageOptions,
    ) -> None:
        deadline = self._clock.monotonic() + timeout.total_seconds()
        newest = list_manifests(self._storage, directory, None)[-1]
        old = read_version(self._storage, newest.info.key)
        content = ModelVersion(token, old.data, old.files, properties=dict(properties))
        self._put(directory, newest.version + 1, content, deadline)

    def restore(self, directory: str, version: int, *, token: str, timeout: timedelta) -> None:
        deadline = self._clock.monotonic() + timeout.total_seconds()
        try:
            old = read_version(self._storage, key_of_version(directory, version))
        except KeyNotFoundError as cause:
            raise InternalError(f"version {version} is gone") from cause
        self._put(directory, version + 1, ModelVersion(token, old.data, old.files), deadline)

    def _put(self, directory: str, version: int, content: ModelVersion, deadline: float) -> None:
        if self._clock.monotonic() > deadline:
            # As pylance with commit_timeout: nothing is sent any more once the time is over.
            raise OutcomeUnknownError("the commit timed out")
        try:
            self._storage.create(key_of_version(directory, version), encode_version(content))
        except KeyExistsError as cause:
            raise VersionTakenError(f"version {version} already exists") from cause

    def committed_version(self, directory: str, tokens: Sequence[str], *, after: int) -> int | None:
        for manifest, content in self._versions(directory):
            if manifest.version <= after:
                return None
            if content is not None and content.token in tokens:
                return manifest.version
        return None

    def has_foreign_version(self, directory: str) -> bool:
        return any(content is not None and not content.ours for _, content in self._versions(directory))

    def _versions(self, directory: str) -> Iterator[tuple[ManifestFile, ModelVersion | None]]:
        for manifest in reversed(list_manifests(self._storage, directory, None)):
            try:
                yield manifest, read_version(self._storage, manifest.info.key)
            except KeyNotFoundError:
                yield manifest, None  # cleaned up

    def discard(self, staged: StagedData) -> None:
        self._storage.delete_many(staged.files)
