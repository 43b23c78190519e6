"""The lifecycle on real tables against a plain model, by random sequences of calls of two clients.

The long profile, 1,000 sequences of 500 calls on local disk and 100 of 100 on S3, takes hours:

    make test-long ARGS=tests/lifecycle/test_state_machine.py
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.support.machines.base import OnDisk
from tests.support.machines.clock import whole_seconds
from tests.support.machines.lifecycle import LifecycleMachine
from tests.support.servers import S3Server

LONG = os.environ.get("RELANCE_PROFILE") == "long"

pytestmark = pytest.mark.timeout(0 if LONG else 300)


def profile(examples: int, steps: int) -> settings:
    """Return the settings for so many sequences of at most so many calls."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=False,
        print_blob=True,
        # Every call goes to a store, a server even, and long sequences are the point: that is their nature.
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.large_base_example,
            HealthCheck.data_too_large,
        ],
    )


def sizes(small: settings, large: settings) -> list[Any]:
    """Return the parameters of a machine: a small one for every day and a large one."""
    return [pytest.param(small, id="small"), pytest.param(large, id="large", marks=pytest.mark.deep)]


@pytest.mark.parametrize("size", sizes(profile(20, 30), profile(1000, 500) if LONG else profile(200, 50)))
def test_two_clients_on_local_disk_match_the_model(tmp_path: Path, size: settings) -> None:
    class Machine(OnDisk, LifecycleMachine):
        def __init__(self) -> None:
            super().__init__({"root": self.fresh_root(tmp_path)})

    run_state_machine_as_test(Machine, settings=size)


@pytest.mark.deep
def test_two_clients_on_s3_match_the_model(moto_server: S3Server, moto_bucket: str) -> None:
    options = {f"storage.{key}": value for key, value in moto_server.storage_options().items()}

    class OnS3(LifecycleMachine):
        def __init__(self) -> None:
            root = f"s3://{moto_bucket}/{uuid.uuid4().hex}"
            super().__init__({"root": root, **options}, read_all=False)

    with whole_seconds():
        run_state_machine_as_test(OnS3, settings=profile(100, 100) if LONG else profile(25, 40))
