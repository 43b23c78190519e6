"""Commands that work through Spark, in a process with a driver of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import CommandLake, spawn

from relance.errors import UnsupportedOperationError


@pytest.mark.deep
def test_import_of_several_files_runs_through_spark(lake: CommandLake, tmp_path: Path) -> None:
    try:
        from relance.spark.requirements import check_requirements

        check_requirements()
    except UnsupportedOperationError as error:
        pytest.skip(str(error))
    for number in (1, 2):
        (tmp_path / f"part{number}.csv").write_text(f"id,name\n{number},x\n")
    ran = spawn(
        *("--root", str(lake.folder), "import", "prod.parts", "part1.csv", "part2.csv"),
        *("--master", "local[1]", "--json"),
        folder=tmp_path,
    )
    assert ran.exit_code == 0, ran
    assert ran.result["engine"] == "spark"
    rows = lake.json("query", "prod.parts")["rows"]
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "x"), (2, "x")]


def test_master_with_the_local_engine_is_a_usage_error(lake: CommandLake) -> None:
    assert lake.run("compact", "--engine", "local", "--master", "local[1]").exit_code == 2
