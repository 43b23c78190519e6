"""Which tests run in one process when pytest runs in several."""

from __future__ import annotations

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
    # All others share one session.
    "session": ("tests/spark/",),
    "browser": ("tests/policy/report/test_page_browser.py",),
}
"""Tests that share something that takes long to start. The first group that fits counts."""


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each group of `TOGETHER` to one process, largest first, and all other tests one by one.

    The group marks of xdist 3.8 do nothing in pytest 9.2, which keeps the names of tests elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((name for name, starts in TOGETHER.items() if nodeid.startswith(starts)), nodeid)
