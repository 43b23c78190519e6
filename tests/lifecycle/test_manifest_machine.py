"""The catalog with a manifest on real tables against a plain model, by random sequences of calls.

Where rows alone decide (V2), and where directories count too, beside a client that knows nothing else.
The long profile, 500 sequences of 200 calls in each mode and 50 of 100 on S3, takes hours:

    make test-long ARGS=tests/lifecycle/test_manifest_machine.py
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.lifecycle.test_state_machine import LONG, profile, sizes
from tests.support.machines.base import OnDisk
from tests.support.machines.clock import whole_seconds
from tests.support.machines.compatibility import CompatibilityMachine
from tests.support.machines.manifest import ManifestMachine
from tests.support.models.manifest import ManifestModel
from tests.support.modes import V2
from tests.support.servers import S3Server

pytestmark = pytest.mark.timeout(0 if LONG else 900)

ON_DISK = sizes(profile(10, 25), profile(500, 200) if LONG else profile(60, 30))
ON_S3 = profile(50, 100) if LONG else profile(3, 15)


@pytest.fixture
def properties_on_s3(moto_server: S3Server) -> dict[str, str]:
    return {f"storage.{key}": value for key, value in moto_server.storage_options().items()}


@pytest.mark.parametrize("size", ON_DISK)
def test_manifest_only_catalog_on_disk_matches_the_model(tmp_path: Path, size: settings) -> None:
    class Machine(OnDisk, ManifestMachine):
        def __init__(self) -> None:
            super().__init__({"root": self.fresh_root(tmp_path), **V2}, ManifestModel())

    run_state_machine_as_test(Machine, settings=size)


@pytest.mark.parametrize("size", ON_DISK)
def test_compatibility_catalog_on_disk_matches_the_model(tmp_path: Path, size: settings) -> None:
    class Machine(OnDisk, CompatibilityMachine):
        def __init__(self) -> None:
            super().__init__({"root": self.fresh_root(tmp_path)})

    run_state_machine_as_test(Machine, settings=size)


@pytest.mark.deep
def test_manifest_only_catalog_on_s3_matches_the_model(
    properties_on_s3: dict[str, str], moto_bucket: str
) -> None:
    class OnS3(ManifestMachine):
        def __init__(self) -> None:
            root = f"s3://{moto_bucket}/{uuid.uuid4().hex}"
            super().__init__({"root": root, **properties_on_s3, **V2}, ManifestModel())

    with whole_seconds():
        run_state_machine_as_test(OnS3, settings=ON_S3)


@pytest.mark.deep
def test_compatibility_catalog_on_s3_matches_the_model(
    properties_on_s3: dict[str, str], moto_bucket: str
) -> None:
    class OnS3(CompatibilityMachine):
        def __init__(self) -> None:
            super().__init__({"root": f"s3://{moto_bucket}/{uuid.uuid4().hex}", **properties_on_s3})

    with whole_seconds():
        run_state_machine_as_test(OnS3, settings=ON_S3)
