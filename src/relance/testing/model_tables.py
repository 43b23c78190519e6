"""A thin model of Lance's commits over plain objects, for exploring the lifecycle request by request.

A version is a JSON manifest under the next number, put if absent. tests/testing/test_model_tables.py
holds it against pylance.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from relance.clock import Clock
from relance.config import StorageOptions
from relance.errors import InternalError, KeyExistsError, KeyNotFoundError, OutcomeUnknownError
from relance.listing.manifest_files import NamingScheme, list_manifests, manifest_key
from relance.operations.lance_tables import StagedData, TableHead
from relance.operations.new_table import WrittenData
from relance.operations.written import require_written
from relance.storage.protocol import ObjectStorage


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """What a manifest of the model says."""

    token: str
    data: Any
    files: tuple[str, ...]


def read_version(storage: ObjectStorage, key: str) -> ModelVersion:
    """Return the manifest under `key`."""
    fields = json.loads(storage.read(key).body)
    return ModelVersion(fields["token"], fields["data"], tuple(fields["files"]))


class ModelTables:
    """Lance, reduced to its requests. Data is any JSON value; of written data, the schema is that."""

    def __init__(self, storage: ObjectStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def head(self, directory: str) -> TableHead | None:
        manifests = list_manifests(self._storage, directory, None)
        return TableHead(manifests[-1].version, {}) if manifests else None

    def stage(
        self, directory: str, data: Any, *, token: str, overwrite: bool, options: StorageOptions
    ) -> StagedData:
        if isinstance(data, WrittenData):
            return self._adopt(directory, data, token)
        if not overwrite and list_manifests(self._storage, directory, None):
            raise InternalError("dataset already exists")
        file = f"{directory}/data/{token}.lance"
        self._storage.create(file, json.dumps(data).encode())
        manifest = {"token": token, "data": data, "files": [file]}
        return StagedData(token, (file,), json.dumps(manifest).encode())

    def _adopt(self, directory: str, data: WrittenData, token: str) -> StagedData:
        require_written(self._storage, directory, data)
        files = [f"{directory}/data/{each}" for each in sorted(data.files)]
        manifest = {"token": token, "data": data.schema, "files": files}
        return StagedData(token, (), json.dumps(manifest).encode())

    def commit(
        self, directory: str, staged: StagedData, *, first: bool, timeout: timedelta, options: StorageOptions
    ) -> int:
        deadline = self._clock.monotonic() + timeout.total_seconds()
        while True:
            manifests = [] if first else list_manifests(self._storage, directory, None)
            version = manifests[-1].version + 1 if manifests else 1
            if self._clock.monotonic() > deadline:
                # As pylance with commit_timeout: nothing is sent any more once the time is over.
                raise OutcomeUnknownError("the commit timed out")
            try:
                self._storage.create(manifest_key(directory, None, version, NamingScheme.V2), staged.commit)
            except KeyExistsError as cause:
                if first:
                    raise InternalError("dataset already exists") from cause
                continue
            return version

    def committed_version(self, directory: str, token: str, *, after: int) -> int | None:
        for manifest in reversed(list_manifests(self._storage, directory, None)):
            if manifest.version <= after:
                return None
            try:
                if read_version(self._storage, manifest.info.key).token == token:
                    return manifest.version
            except KeyNotFoundError:
                continue  # cleaned up
        return None

    def discard(self, staged: StagedData) -> None:
        self._storage.delete_many(staged.files)
