"""Processes that are killed and stopped, on a root where requests fail and others work too, lose nothing.

Half a minute each here. Ten minutes:

    python -m tests.support.soak --seconds 600 --mode compatibility --store minio
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.modes import MODES
from tests.support.roots import S3Place, local_place
from tests.support.servers import S3Server, start_minio, start_moto, unreliable
from tests.support.services import ServiceUnavailable
from tests.support.soak import FAULTS, LONGEST_STOP_SECONDS, Plan, Report, soak

pytestmark = pytest.mark.deep

UNCHECKED_AT_MOST = 0.05
"""Share of the calls that lie in windows too large to search."""


@pytest.fixture
def s3_server() -> Iterator[S3Server]:
    """Run MinIO, or moto where MinIO is not installed."""
    try:
        with start_minio() as server:
            yield server
    except ServiceUnavailable:
        with start_moto() as server:
            yield server


def check(report: Report, mode: str, *, calls: int) -> None:
    """Check that nothing was wrong, and that enough was done to say so."""
    verdict, neighbours = report.verdict, ["native"] if mode == "V1" else ["native", "rows"]
    assert not verdict.violations, report.summary()
    assert verdict.checked >= calls, report.summary()
    assert verdict.unchecked <= UNCHECKED_AT_MOST * (verdict.checked + verdict.unchecked), report.summary()
    assert report.kills >= 3, report.summary()
    assert set(report.neighbours) >= {f"{each} done" for each in neighbours}, report.summary()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a folder, with its time."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


NEIGHBOURS = ("lake.lance/data/1.lance", "lake2/t1.lance/data/1.lance", "t1.lance/data/1.lance", "t1.deleted")
"""Names outside the root that a careless prefix would take for the root or for one of its tables."""


@pytest.mark.timeout(480)
@pytest.mark.parametrize("mode", MODES)
def test_processes_in_trouble_on_local_disk_lose_nothing(tmp_path: Path, mode: str) -> None:
    logs, outside = tmp_path / "logs", tmp_path / "around"
    logs.mkdir()
    for neighbour in NEIGHBOURS:
        path = outside / neighbour
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(neighbour.encode())
    before = contents(outside)
    plan = Plan(local_place(outside / "lake", MODES[mode]), logs, seconds=40)
    check(soak(plan), mode, calls=200)
    after = contents(outside)
    assert {path: after[path] for path in after if not path.startswith("lake/")} == before


@pytest.mark.timeout(480)
@pytest.mark.parametrize("mode", MODES)
def test_processes_in_trouble_on_s3_lose_nothing(s3_server: S3Server, tmp_path: Path, mode: str) -> None:
    bucket, client = s3_server.make_bucket("soak"), s3_server.client()
    for neighbour in NEIGHBOURS:
        client.put_object(Bucket=bucket, Key=neighbour, Body=neighbour.encode())
    before = {each["Key"]: each["ETag"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]}
    place = S3Place(s3_server, bucket, "lake", MODES[mode])
    with unreliable(s3_server, rate=FAULTS, latest=LONGEST_STOP_SECONDS, seed=0) as network:
        check(soak(Plan(place, tmp_path, 30, network, names=40)), mode, calls=50)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    after = {each["Key"]: each["ETag"] for page in pages for each in page["Contents"]}
    assert {key: after[key] for key in after if not key.startswith("lake/")} == before
