"""Which tests run in one process when pytest runs in several."""

from __future__ import annotations

import re
from functools import cache

from tests.support.paths import REPOSITORY
from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    # A Spark context excludes another one in its process: these start drivers of their own, one at a time.
    "drivers": (
        "tests/cli/test_with_spark.py",
        "tests/spark/test_cluster.py",
        "tests/spark/test_connect.py",
        "tests/spark/test_guide.py",
        "tests/spark/test_on_cluster.py",
        "tests/spark/test_submit.py",
        "tests/spark/test_upkeep_on_cluster.py",
    ),
    "browser": ("tests/policy/test_report_browser.py",),
}
"""Modules that share something slow to start."""

_TAKES_THE_SESSION = re.compile(r"\bspark: SparkSession\b")


@cache
def group_of(module: str) -> str | None:
    """Return the group whose process runs all tests of `module`, or None if any process may run them."""
    for name, modules in TOGETHER.items():
        if module in modules:
            return name
    text = (REPOSITORY / module).read_text()
    return "session" if _TAKES_THE_SESSION.search(text) else None


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each group to one process, largest first, and all other tests one by one.

    The group marks of xdist 3.8 do nothing in pytest 9.2, which keeps the names of tests elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0]) or nodeid
