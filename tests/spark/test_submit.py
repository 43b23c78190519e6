"""The file for spark-submit, run with spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest
from tests.support.policy.lakes import POLICY, PolicyLake
from tests.support.policy.runs import a_run

import relance
from relance.errors import InvalidInputError, RelanceError, ServiceUnavailableError
from relance.exits import Exit
from relance.policy import history, runs
from relance.policy.lease import LeaseHeldError
from relance.policy.records import RunRecord, RunState
from relance.spark import submit

pytestmark = pytest.mark.deep

PACKAGE = Path(relance.__file__).parent


def test_policy_is_run_by_spark_submit(java: None, tmp_path: Path) -> None:
    lake = PolicyLake(str(tmp_path / "lake"))
    lake.make("readings", fragments=3)
    (tmp_path / "policy.toml").write_text(POLICY)
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            "--conf",
            f"spark.relance.root={lake.uri}",
        ),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        str(PACKAGE / "spark" / "jobs.py"),
        *("run", str(tmp_path / "policy.toml"), "--engine", "spark", "--only", "readings"),
    ]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PACKAGE.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["state"] == "done"
    assert answer["engine"] == "spark: requested"
    (run,) = runs(lake.catalog)
    assert (run.head.run, run.state) == (answer["run"], RunState.DONE)
    kinds = {each.record.action.kind for each in history(lake.catalog, table=["readings"])}
    assert kinds >= {"delete_rows", "compact", "clean_up"}
    assert lake.facts()["readings", ""].fragments == 1


def test_command_line_arguments_are_parsed() -> None:
    parse = submit._parser().parse_args
    given = parse(["run", "policy.toml", "--root", "r", "--only", "a", "--only", "b.c", "--wait", "5m"])
    assert (given.action, given.policy, given.only) == ("run", "policy.toml", ["a", "b.c"])
    assert given.wait == timedelta(minutes=5)
    assert parse(["resume"]).run is None
    assert parse(["plan", "policy.toml", "--save", "plan.json"]).save == "plan.json"


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (LeaseHeldError("another run"), Exit.CONFLICT),
        (InvalidInputError("bad policy"), Exit.USAGE),
        (ServiceUnavailableError("no store"), Exit.STORE),
        (a_run(state=RunState.REFUSED), Exit.REFUSED),
        (a_run(state=RunState.FAILED), Exit.FAILED),
        (a_run(), Exit.OK),
    ],
    ids=lambda value: value.name if isinstance(value, Exit) else "",
)
def test_exit_codes_are_those_of_the_command_line(ended: RelanceError | RunRecord, code: Exit) -> None:
    assert submit.exit_code_of(ended) == code


def test_bare_number_for_wait_is_refused_instead_of_read_as_milliseconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for text in ("30", " 30 ", "٣٠"):
        with pytest.raises(SystemExit) as ended:
            submit._parser().parse_args(["run", "policy.toml", "--wait", text])
        assert ended.value.code == 2
        assert "argument --wait" in capsys.readouterr().err
    assert submit._parser().parse_args(["resume", "--wait", "30s"]).wait == timedelta(seconds=30)
