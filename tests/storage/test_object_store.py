"""Object stores only: how many requests a call costs, and objects that other programs leave in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.servers import RequestCounter, count_requests

from relance.locations import parse_root
from relance.storage.connect import connect
from relance.storage.protocol import CLOCK_KEY, ObjectStorage

if TYPE_CHECKING:
    from tests.support.servers import S3Server


@pytest.fixture
def counter(moto_server: S3Server) -> Iterator[RequestCounter]:
    with count_requests(moto_server) as counter:
        yield counter


@pytest.fixture
def storage(counter: RequestCounter, moto_bucket: str) -> ObjectStorage:
    return connect(parse_root(f"s3://{moto_bucket}/below"), counter.server.storage_options()).storage


def test_list_after_costs_one_request_per_thousand_objects(
    storage: ObjectStorage, counter: RequestCounter, moto_server: S3Server, moto_bucket: str
) -> None:
    keys = [f"k{number:04d}" for number in range(2000)]
    for key in keys:
        moto_server.client().put_object(Bucket=moto_bucket, Key=f"below/{key}", Body=b"")
    counter.reset()
    found: list[str] = []
    pages = 0
    is_last = False
    while not is_last:
        page = storage.list_after(found[-1] if found else "")
        found += [info.key for info in page.objects]
        is_last = page.is_last
        pages += 1
        assert len(counter.requests) == pages
    assert found == keys
    assert pages == 3, "a full page does not tell whether there are more"


def test_folder_objects_never_lead_back(
    storage: ObjectStorage, moto_server: S3Server, moto_bucket: str
) -> None:
    for key in ("below/", "below/t/", "below/t-x", "below/t/a"):
        moto_server.client().put_object(Bucket=moto_bucket, Key=key, Body=b"")
    assert [info.key for info in storage.list_after("").objects] == ["t", "t-x", "t/a"]
    assert [info.key for info in storage.list_after("t-x").objects] == ["t/a"]


def test_time_of_the_store_costs_two_requests_and_copies_one(
    storage: ObjectStorage, counter: RequestCounter
) -> None:
    storage.now()
    storage.now()
    assert [method for method, _ in counter.requests] == ["PUT", "HEAD"] * 2
    assert [info.key for info in storage.list_recursive("")] == [CLOCK_KEY]
    counter.reset()
    storage.copy(CLOCK_KEY, "copy", share=False)
    assert [method for method, _ in counter.requests] == ["PUT"]
