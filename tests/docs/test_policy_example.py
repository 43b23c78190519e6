"""The example policy is a policy, and does what its comments say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.paths import REPOSITORY

from relance.jobs.facts import TableFacts
from relance.policy.evaluate import evaluate, evaluate_root
from relance.policy.model import Policy
from relance.policy.parse import parse_policy

EXAMPLE = REPOSITORY / "examples" / "policy.toml"
NIGHT = datetime(2026, 11, 15, 23, tzinfo=UTC)


@pytest.fixture
def policy() -> Policy:
    return parse_policy(EXAMPLE.read_bytes(), file="policy.toml")


def _facts(*table: str, **properties: str) -> TableFacts:
    return TableFacts(
        table,
        rows=1000,
        fragments=50,
        versions=100,
        oldest_version_at=NIGHT - timedelta(days=100),
        unindexed_rows=100,
        columns=(("ts", "timestamp[us, tz=UTC]"),),
        properties=tuple(properties.items()),
    )


def test_production_events_get_actions_from_three_rules(policy: Policy) -> None:
    actions = evaluate(policy, _facts("prod", "events_web"), NIGHT)
    assert [(each.kind, each.rule) for each in actions] == [
        ("protect", "production"),
        ("drop_ttl", "production"),
        ("delete_rows", "events keep 90 days"),
        ("compact", "defaults"),
        ("refresh_indexes", "defaults"),
        ("clean_up", "production"),
    ]


def test_only_scratch_tables_are_touched_during_the_day(policy: Policy) -> None:
    noon = NIGHT.replace(hour=12)
    assert evaluate(policy, _facts("prod", "events_web"), noon) == []
    assert evaluate_root(policy, noon) == []
    assert [each.kind for each in evaluate(policy, _facts("team", "scratch", "a"), noon)] == [
        "drop_ttl",
        "compact",
        "clean_up",
    ]


def test_legal_hold_keeps_rows_and_versions(policy: Policy) -> None:
    kinds = [each.kind for each in evaluate(policy, _facts("prod", "events_web", legal_hold="2026"), NIGHT)]
    assert kinds == ["protect", "drop_ttl", "compact", "refresh_indexes"]


def test_root_actions_run_at_night(policy: Policy) -> None:
    assert [each.kind for each in evaluate_root(policy, NIGHT)] == [
        "remove_orphans",
        "maintain_manifest",
    ]
