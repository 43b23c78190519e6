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


@pytest.mark.parametrize(
    ("changed", "exit_code", "said", "hint"),
    [
        ({"allow_http": None}, 2, "set the storage option allow_http to true", "allow_http = true"),
        ({"access_key_id": None, "secret_access_key": None}, 6, "no credentials are set", "ACCESS_KEY_ID"),
        ({"access_key_id": None}, 2, "Missing AccessKeyId", "[storage] in relance.toml"),
        ({"endpoint": "127.0.0.1:9"}, 2, "'endpoint' must begin with https:// or http://", "[storage]"),
        ({"allow_http": "maybe"}, 2, 'failed to parse "maybe" as boolean', "[storage]"),
        ({"root": "s3://missing-bucket/lake"}, 2, "bucket or container does not exist", "create the bucket"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("command", ["ls", "doctor", "import t rows.csv"])
def test_missing_store_setting_is_named_and_is_no_bug(
    moto_server: S3Server,
    moto_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str | None],
    exit_code: int,
    said: str,
    hint: str,
    command: str,
) -> None:
    options = {"root": f"s3://{moto_bucket}/lake", **moto_server.storage_options(), **changed}
    for name, value in options.items():
        if value is not None:
            variable = "RELANCE_ROOT" if name == "root" else f"RELANCE_STORAGE_{name.upper()}"
            monkeypatch.setenv(variable, value)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    ran = run(*command.split())
    assert ran.exit_code == exit_code, ran
    assert said in ran.err
    assert hint in ran.err.partition(" hint: ")[2]
    assert "bug" not in ran.err


def test_store_that_denies_everything_does_not_end_the_doctor(
    moto_server: S3Server, moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELANCE_ROOT", f"s3://{moto_bucket}/lake")
    monkeypatch.setenv("RELANCE_STORAGE_ENDPOINT", moto_server.storage_options()["endpoint"])
    ran = run("doctor", "--json")
    verdicts = {each["name"]: each["verdict"] for each in ran.document["result"]["checks"]}
    assert verdicts["store"] == "bad"
    assert verdicts["python"] == "good"
