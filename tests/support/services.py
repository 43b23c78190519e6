"""Programs a machine may lack: their tests skip, or fail where CI could have installed them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class ServiceUnavailable(Exception):  # noqa: N818  # it is a reason to skip, not a failure
    """A program that a test needs is not installed."""


@contextmanager
def required(installer: str) -> Iterator[None]:
    """Skip the test if the block needs a program that is not installed.

    In CI the test fails instead where `make services` could have installed it, that is, where `installer` is.
    """
    try:
        yield
    except ServiceUnavailable as error:
        if os.environ.get("CI") and shutil.which(installer):
            pytest.fail(
                f"{error}, although {installer} can install it here: run make services", pytrace=False
            )
        pytest.skip(str(error))
