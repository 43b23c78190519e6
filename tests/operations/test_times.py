"""Times and spans that cannot be used are refused with a remedy wherever the library takes one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.support.internals import context_of
from tests.support.roots import ipc

from relance import AutoCleanup, CleanupPolicy, CleanupPolicyBuilder, DirectoryNamespace
from relance.errors import InvalidInputError
from relance.jobs import CleanUp, DropTtl, PurgeDropped, RemoveOrphans, maintain
from relance.operations.drop_ttl import set_drop_ttl
from relance.policy import history, parse_policy, run_policy, runs
from relance.policy.schedule import repeat

_POLICY = parse_policy("[[rules]]\nname = 'all'\ntables = '**'\ncompact = {}\n", file="policy.toml")

Use = Callable[[DirectoryNamespace, Any], object]


def _opened_with(name: str) -> Use:
    return lambda lake, text: DirectoryNamespace(root=lake.root_uri, **{name: text})


MOMENTS: dict[str, Use] = {
    "purge_tables(deleted_before)": lambda lake, at: lake.purge_tables(deleted_before=at),
    "purge_tables(ids, deleted_before)": lambda lake, at: lake.purge_tables([["gone"]], deleted_before=at),
    "list_purgable_tables": lambda lake, at: lake.list_purgable_tables(at),
    "CleanupPolicy": lambda lake, at: CleanupPolicy(before_timestamp=at),
    "CleanupPolicyBuilder": lambda lake, at: CleanupPolicyBuilder().before_timestamp(at),
    "PurgeDropped": lambda lake, at: PurgeDropped(deleted_before=at),
    "history": lambda lake, at: history(lake, since=at),
    "runs": lambda lake, at: runs(lake, since=at),
}
SPANS: dict[str, Use] = {
    "cleanup_old_versions": lambda lake, span: lake.cleanup_old_versions(["t"], span),
    "set_auto_cleanup": lambda lake, span: lake.set_auto_cleanup(["t"], AutoCleanup(10, span)),
    "RemoveOrphans": lambda lake, span: RemoveOrphans(older_than=span, allow_young=True),
    "run_policy(wait)": lambda lake, span: run_policy(lake, _POLICY, wait=span),
    "repeat": lambda lake, span: repeat(span, lambda: None),
    "DropTtl": lambda lake, span: DropTtl(ttl=span),
    "CleanUp": lambda lake, span: CleanUp(older_than=span, allow_young=True),
}
PROPERTIES = ["drop_ttl", "clock_skew", "claim_lease", "request_age_bound", "marker_quarantine"]
TEXTS: dict[str, Use] = {
    "cleanup_old_versions": lambda lake, text: lake.cleanup_old_versions(["t"], text),
    "drop_table": lambda lake, text: lake.drop_table({"id": ["t"], "context": {"ttl_ms": text}}),
    "drop_namespace": lambda lake, text: lake.drop_namespace({"id": ["n"], "context": {"ttl_ms": text}}),
    "set_drop_ttl": lambda lake, text: set_drop_ttl(context_of(lake), ["t"], text),
    **{name: _opened_with(name) for name in PROPERTIES},
}

NO_MOMENTS = [
    datetime(2026, 1, 1),  # noqa: DTZ001  # that is the mistake
    datetime.max,  # noqa: DTZ901  # likewise
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    date(2026, 1, 1),
    "2026-01-01",
    1_700_000_000,
]
NO_SPANS = [timedelta.max, timedelta.min, timedelta(days=365_001), timedelta(seconds=-1), 7, 1.5]
NO_TEXTS = [
    "999999999d",
    "365001d",
    "9" * 30 + "d",
    "9" * 5000,
    "9" * 5000 + "d",
    "31622400000000000",
    "-1d",
    "soon",
    "",
]
USES = [
    pytest.param(use, value, id=f"{name}: {str(value)[:30]}")
    for uses, values in ((MOMENTS, NO_MOMENTS), (SPANS, NO_SPANS), (TEXTS, NO_TEXTS))
    for name, use in uses.items()
    for value in values
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DirectoryNamespace:
    """A catalog with a table, a namespace and a dropped table, all of which stay as they are."""
    made = DirectoryNamespace(root=tmp_path_factory.mktemp("lake"))
    for name in ("t", "gone"):
        made.create_table({"id": [name]}, ipc(pa.table({"a": [1]})))
    made.create_namespace({"id": ["n"]})
    made.drop_table({"id": ["gone"]})
    return made


@pytest.mark.parametrize(("use", "value"), USES)
def test_unusable_time_is_refused_with_a_remedy(lake: DirectoryNamespace, use: Use, value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"use|must|got|write it like") as caught:
        use(lake, value)
    assert len(str(caught.value)) < 400
    assert lake.list_tables({"id": []}).tables == ["t"]
    assert [each.id for each in lake.list_dropped_tables()] == [("gone",)]


def test_longest_usable_times_work(lake: DirectoryNamespace) -> None:
    longest, first = timedelta(days=365_000), datetime(1, 1, 2, tzinfo=UTC)
    assert lake.cleanup_old_versions(["t"], longest, dry_run=True).versions == ()
    assert lake.cleanup_with_policy(["t"], CleanupPolicy(before_timestamp=first)).versions == ()
    assert lake.list_purgable_tables(first) == []
    assert maintain(lake, RemoveOrphans(older_than=longest)).results[0].error is None
    lake.create_table({"id": ["kept"]}, ipc(pa.table({"a": [1]})))
    lake.drop_table({"id": ["kept"], "context": {"ttl_ms": "365000d"}})
    lake.undrop_table(["kept"])
    lake.drop_table({"id": ["kept"], "context": {"purge": "true"}})
