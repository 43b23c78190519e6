"""Every backend against the storage contract."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relance.locations import parse_root
from relance.storage.connect import connect
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import ObjectStorage
from relance.testing.storage_contract import StorageContract

if TYPE_CHECKING:
    from tests.support.servers import AzureServer, S3Server


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> ObjectStorage:
        return MemoryStorage()


class TestLocalDiskStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> ObjectStorage:
        return LocalDiskStorage(str(tmp_path / "root"))


class TestLocalDiskStorageWithoutHardLinks(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "links are refused here")

        monkeypatch.setattr(os, "link", refuse)
        return LocalDiskStorage(str(tmp_path / "root"))


class TestEphemeralStorage(StorageContract):
    @pytest.fixture
    def storage(self, request: pytest.FixtureRequest) -> ObjectStorage:
        return connect(parse_root(f"memory://{abs(hash(request.node.nodeid))}/below"), {}).storage


class TestS3StorageOnMoto(StorageContract):
    @pytest.fixture
    def storage(self, moto_server: S3Server, moto_bucket: str) -> ObjectStorage:
        return connect(parse_root(f"s3://{moto_bucket}/below/here"), moto_server.storage_options()).storage


class TestS3StorageOnMinio(StorageContract):
    @pytest.fixture
    def storage(self, minio_server: S3Server, minio_bucket: str) -> ObjectStorage:
        return connect(parse_root(f"s3://{minio_bucket}"), minio_server.storage_options()).storage


class TestAzureStorageOnAzurite(StorageContract):
    @pytest.fixture
    def storage(self, azurite_server: AzureServer) -> ObjectStorage:
        container = azurite_server.make_container("contract")
        return connect(parse_root(f"az://{container}/below"), azurite_server.storage_options()).storage
