"""Gathering facts of all tables on threads, whatever state the tables are in."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pytest
from tests.support.patches import substitute
from tests.support.policy.lakes import ROWS, PolicyLake, rows_of_days

from relance.catalog.layout import flag_root
from relance.jobs.engine import Progress
from relance.jobs.facts import TableState
from relance.jobs.gather import gather
from relance.jobs.runner import ThreadRunner
from relance.storage.local_disk import LocalDiskStorage

MANY = 300


def test_facts_of_a_live_table_are_complete(lake: PolicyLake) -> None:
    lake.dataset("readings").delete("v < 10")
    found = lake.facts()["readings", ""]
    assert found.state is TableState.LIVE
    assert (found.rows, found.deleted_rows, found.fragments) == (4 * (ROWS - 10), 40, 4)
    assert (found.version, found.versions) == (5, 5)
    files = Path(lake.location("readings"), "data").iterdir()
    assert found.bytes == sum(each.stat().st_size for each in files)
    assert found.last_write is not None
    assert found.oldest_version_at is not None
    assert found.oldest_version_at < found.last_write <= datetime.now(UTC)
    assert found.unindexed_rows is None
    assert dict(found.columns)["v"] == "int64"
    assert found.deleted_ratio == pytest.approx(0.25)


def test_facts_include_index_lag_protection_properties_and_retention(lake: PolicyLake) -> None:
    lake.catalog.protect(["prod", "orders"])
    lake.dataset("readings").update_config({"relance.drop_ttl": "9d"})
    found = lake.facts()
    assert found["prod", "orders", ""].unindexed_rows == ROWS
    assert found["prod", "orders", ""].protected
    assert not found["readings", ""].protected
    assert found["readings", ""].drop_ttl == "9d"
    lake.catalog.declare_table({"id": ["prod", "own"], "properties": {"drop_ttl": "3d", "team": "a"}})
    own = lake.facts()["prod", "own", ""]
    assert own.drop_ttl == "3d"
    assert dict(own.properties)["team"] == "a"


def test_facts_include_declared_and_dropped_tables(lake: PolicyLake) -> None:
    found = lake.facts()
    assert found["later", ""].state is TableState.DECLARED
    assert found["later", ""].version is None
    dropped = {key[:-1]: each for key, each in found.items() if each.state is TableState.DROPPED}
    assert set(dropped) == {("gone",), ("kept",), ("prod", "old")}
    kept = dropped[("kept",)]
    assert kept.dropped_at is not None
    assert kept.purge_after == kept.dropped_at + timedelta(days=30)
    assert kept.rows == ROWS
    assert kept.bytes


def test_facts_include_every_generation_of_a_name(lake: PolicyLake) -> None:
    # Another directory each time: a create over a dropped name would take that one up again.
    for number in range(2):
        lake.make("prod", f"again{number}")
        lake.catalog.drop_table({"id": ["prod", f"again{number}"]})
    lake.catalog.undrop_table(["prod", "again1"], new_id=["prod", "again0"])
    lake.catalog.drop_table({"id": ["prod", "again0"]})
    drops = {key[-1] for key in lake.facts() if key[:-1] == ("prod", "again0")}
    assert len(drops) == 2


def test_unreadable_table_has_an_error_and_the_others_their_facts(lake: PolicyLake) -> None:
    for file in Path(lake.location("prod", "orders"), "_versions").iterdir():
        file.write_bytes(b"no manifest")
    found = lake.facts()
    assert found["prod", "orders", ""].error
    assert found["readings", ""].error is None
    assert found["readings", ""].rows == 4 * ROWS


def test_facts_of_many_tables_are_gathered_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "policy.gather_window", 100)
    substitute(monkeypatch, "policy.gather_per_task", 10)
    lance.write_dataset(rows_of_days(), tmp_path / "model")
    root = tmp_path / "lake"
    root.mkdir()
    flag_root(LocalDiskStorage(str(root)))
    for number in range(MANY):
        shutil.copytree(tmp_path / "model", root / f"t{number}.lance")
    told: list[Progress] = []
    found = list(gather(PolicyLake(str(root)).ref, ThreadRunner(2), progress=told.append))
    assert {each.facts.table for each in found} == {(f"t{number}",) for number in range(MANY)}
    assert {each.facts.rows for each in found} == {ROWS}
    assert {each.directory for each in found} == {f"t{number}.lance" for number in range(MANY)}
    assert (told[-1].done, told[-1].total, told[-1].failed) == (MANY, MANY, 0)


def test_facts_on_s3_match_those_on_disk(s3_lake: PolicyLake, lake: PolicyLake) -> None:
    there, here = s3_lake.facts(), lake.facts()
    assert {key[:-1] for key in there} == {key[:-1] for key in here}
    for key in (("readings", ""), ("prod", "orders", ""), ("later", "")):
        left, right = there[key], here[key]
        assert (left.rows, left.fragments, left.versions, left.state) == (
            right.rows,
            right.fragments,
            right.versions,
            right.state,
        )
        assert left.unindexed_rows == right.unindexed_rows
