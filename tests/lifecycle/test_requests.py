"""What the lifecycle costs on an object store, counted request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support.calls import describe, drop, make, tables
from tests.support.internals import context_of
from tests.support.servers import RequestCounter, count_requests

import relance
from relance.jobs import PurgeDropped
from relance.jobs.base import Effect, Step

LARGE = {
    "describe": 3,
    "exists": 3,
    "create": 22,
    "declare": 13,
    "drop": 10,
    "undrop": 11,
    "create over dropped": 23,
    "overwrite": 13,
}
"""The most requests in a root of which a page is full: several small ones take less time than the page."""

if TYPE_CHECKING:
    from tests.support.servers import S3Server


@pytest.fixture
def counter(moto_server: S3Server) -> Iterator[RequestCounter]:
    with count_requests(moto_server) as counted:
        yield counted


@pytest.fixture
def catalog(counter: RequestCounter, moto_bucket: str) -> relance.DirectoryNamespace:
    options = {f"storage.{key}": value for key, value in counter.server.storage_options().items()}
    properties = {"root": f"s3://{moto_bucket}/lake", "manifest_enabled": "false", **options}
    return relance.DirectoryNamespace(clock=None, **properties)


def test_drop_costs_five_requests_and_undrop_four(
    catalog: relance.DirectoryNamespace, counter: RequestCounter
) -> None:
    make(catalog, "warm-up", 1)  # the store is tried out once per root
    drop(catalog, "warm-up")
    make(catalog, "t", 1)
    counter.reset()
    drop(catalog, "t")
    assert counter.count() <= 5, (
        counter.requests
    )  # versions, the newest one's config, arbiter; marker, arbiter
    counter.reset()
    catalog.undrop_table(["t"])
    assert counter.count() <= 4, counter.requests


def test_repeated_drop_and_undrop_cost_the_same(
    catalog: relance.DirectoryNamespace, counter: RequestCounter
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    for _ in range(2):
        catalog.undrop_table(["t"])
        counter.reset()
        drop(catalog, "t")
        assert counter.count() <= 5, counter.requests


def test_markers_add_no_requests_to_a_listing(
    catalog: relance.DirectoryNamespace, counter: RequestCounter
) -> None:
    for index in range(6):
        make(catalog, f"t{index}", index)
    for index in range(3):
        drop(catalog, f"t{index}")
    catalog.undrop_table(["t0"])
    counter.reset()
    assert tables(catalog) == ["t0", "t3", "t4", "t5"]
    assert counter.count() == 1, counter.requests


def test_group_purge_costs_six_requests_per_table_and_five_in_total(
    catalog: relance.DirectoryNamespace, counter: RequestCounter
) -> None:
    names = [f"t{index}" for index in range(6)]
    for index, name in enumerate(names):
        make(catalog, name, index)
        drop(catalog, name)
    counter.reset()
    steps = [Step(PurgeDropped(force=True), (name,)) for name in names]
    groups = PurgeDropped.run_batch(context_of(catalog), steps)
    effects = [effect for group in groups for effect in group.values()]
    assert len(effects) == len(names)
    assert all(isinstance(effect, Effect) and effect.files > 2 for effect in effects)
    # Per table: look, arbiter, files, claim, look, end. Together: a look for the manifest, whose rows may
    # lead to the same files; manifests, other files, markers.
    assert counter.count() <= 6 * len(names) + 5, counter.requests
    assert tables(catalog) == []
    counter.reset()
    make(catalog, "t", 1)
    drop(catalog, "t")
    counter.reset()
    assert catalog.purge_table(["t"], force=True).purged
    assert counter.count() <= 11, counter.requests


@pytest.mark.deep
def test_verbs_in_a_large_root_cost_a_few_small_requests_more(
    counter: RequestCounter, moto_bucket: str
) -> None:
    options = {f"storage.{key}": value for key, value in counter.server.storage_options().items()}
    properties = {"root": f"s3://{moto_bucket}/lake", "manifest_upkeep": "false", **options}
    catalog = relance.DirectoryNamespace(clock=None, **properties)
    make(catalog, "warm", 1)
    client = counter.server.client()
    keys = [f"lake/z{number:05d}.lance/_versions/18446744073709551614.manifest" for number in range(1_001)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: client.put_object(Bucket=moto_bucket, Key=key, Body=b"x"), keys))
    for _ in range(2):
        describe(catalog, "warm")  # meets the full page, and reads the properties

    def create_over_dropped() -> object:
        drop(catalog, "u")
        counter.reset()
        return make(catalog, "u", 2)

    calls: dict[str, Callable[[], object]] = {
        "describe": lambda: describe(catalog, "warm"),
        "exists": lambda: catalog.table_exists({"id": ["warm"]}),
        "create": lambda: make(catalog, "t", 1),
        "declare": lambda: catalog.declare_table({"id": ["d"]}),
        "drop": lambda: drop(catalog, "t"),
        "undrop": lambda: catalog.undrop_table(["t"]),
        "create over dropped": create_over_dropped,
        "overwrite": lambda: make(catalog, "u", 3, mode="overwrite"),
    }
    make(catalog, "u", 1)
    counts = {}
    for verb, call in calls.items():
        counter.reset()
        call()
        counts[verb] = counter.count()
    assert {verb: count for verb, count in counts.items() if not 0 < count <= LARGE[verb]} == {}
