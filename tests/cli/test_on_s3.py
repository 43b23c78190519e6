"""The command line on an object store: settings from the environment, none of which is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import run
from tests.support.servers import S3Server


def test_commands_work_on_s3_without_printing_secrets(
    moto_server: S3Server, moto_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = moto_server.storage_options()
    for name, value in options.items():
        monkeypatch.setenv(f"RELANCE_STORAGE_{name.upper()}", value)
    secrets = [value for name, value in options.items() if "key" in name]
    assert secrets
    monkeypatch.setenv("RELANCE_ROOT", f"s3://{moto_bucket}/lake")
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,y\n")
    said = ""
    for command in (
        ("import", "prod.t", "rows.csv", "--create-namespaces"),
        ("ls", "--tree", "--sizes"),
        ("show", "prod.t"),
        ("query", "prod.t"),
        ("doctor",),
        ("drop", "prod.t"),
        ("ls", "--dropped"),
        ("undrop", "prod.t"),
        ("show", "prod.nothing"),
    ):
        for more in ((), ("--json", "--debug")):
            if more and command[0] in {"import", "drop", "undrop"}:
                continue
            ran = run(*command, *more)
            assert ran.exit_code == (3 if "prod.nothing" in command else 0), ran
            said += ran.out + ran.err
    assert f"s3://{moto_bucket}/lake" in said
    assert [each for each in secrets if each in said] == []
