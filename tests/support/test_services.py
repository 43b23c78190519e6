"""Tests of missing programs skip on a bare machine and fail where CI could have installed them."""

from __future__ import annotations

import shutil

import pytest
from tests.support.services import ServiceUnavailable, required


def _use_something_missing() -> None:
    with required("installer"):
        raise ServiceUnavailable("minio is not installed")


def _machine(monkeypatch: pytest.MonkeyPatch, *, in_ci: bool, installer: str | None) -> None:
    monkeypatch.setenv("CI", "true" if in_ci else "")
    monkeypatch.setattr(shutil, "which", lambda name: installer)


def test_ci_fails_where_a_missing_program_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, in_ci=True, installer="/bin/installer")
    with pytest.raises(pytest.fail.Exception, match="minio is not installed, although installer can"):
        _use_something_missing()


@pytest.mark.parametrize(("in_ci", "installer"), [(True, None), (False, "/bin/installer"), (False, None)])
def test_elsewhere_the_test_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, in_ci: bool, installer: str | None
) -> None:
    _machine(monkeypatch, in_ci=in_ci, installer=installer)
    with pytest.raises(pytest.skip.Exception, match="minio is not installed"):
        _use_something_missing()
