"""Store requests of each verb, compared with the record. Re-record only a change that reduces them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.net import goldens, request_counts
from tests.net.verbs import MODES, Record, told_verbs, verbs
from tests.support.servers import S3Server


def _assert_costs(name: str, mode: str, found: dict[str, Record]) -> None:
    recorded: dict[str, Record] = goldens.read(name).get(mode, {})
    as_found = {
        step: recorded[step] if step in recorded and request_counts.within(record, recorded[step]) else record
        for step, record in found.items()
    }
    goldens.assert_as_recorded(name, {mode: as_found}, {mode: recorded})


@pytest.mark.parametrize("mode", MODES)
def test_each_verb_costs_the_recorded_requests_on_disk(mode: str, tmp_path: Path) -> None:
    _assert_costs("requests_disk", mode, request_counts.on_disk(tmp_path / "lake", mode))


@pytest.mark.parametrize("mode", MODES)
def test_each_verb_costs_the_recorded_requests_on_s3(mode: str, moto_server: S3Server) -> None:
    _assert_costs("requests_s3", mode, request_counts.on_s3(moto_server, mode))


BUDGET = {
    "describe_table": 1,
    "table_exists": 1,
    "create_table": 16,
    "declare_table": 12,
    "drop_table": 10,
    "undrop_table": 10,
    "create_table, over dropped": 16,
    "create_table, overwrite": 10,
}
"""The most requests on S3 that a warm client may need for a root table in compatibility mode."""


def test_recorded_requests_of_root_tables_in_compatibility_mode_are_within_the_budget() -> None:
    recorded: dict[str, Record] = goldens.read("requests_s3")["compatibility"]
    for verb, most in BUDGET.items():
        record = recorded[f"root | {verb}"]
        counts = record.get(request_counts.AT_MOST, record)
        assert 0 < sum(counts.values()) <= most, verb


def test_every_verb_of_the_catalog_has_its_requests_recorded() -> None:
    assert told_verbs(list(goldens.read("requests_disk").values())) == verbs()
