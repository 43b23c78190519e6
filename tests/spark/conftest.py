"""One Spark session and one cluster for all tests of Spark; tests.support.scheduling says who has which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.spark.cluster import Cluster, start_cluster

from relance.errors import UnsupportedOperationError
from relance.spark.requirements import check_requirements
from relance.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where Spark cannot run."""
    try:
        check_requirements()
    except UnsupportedOperationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run one local session with two threads for all tests."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    started = session(
        "tests",
        master="local[2]",
        conf={"spark.sql.warehouse.dir": str(warehouse), "spark.sql.shuffle.partitions": "2"},
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def running_cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run one cluster for all tests that need processes of their own."""
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """Return the cluster with all its workers up."""
    running_cluster.restore()
    return running_cluster
