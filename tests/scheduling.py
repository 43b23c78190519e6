"""Which tests run in one process when pytest runs in several."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/spark/",)
"""Folders whose tests share something that takes long to start: a Spark session, a cluster."""


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each folder of `TOGETHER` to one process, largest first, and all other tests one by one.

    The group marks of xdist 3.8 do nothing in pytest 9.2, which keeps the names of tests elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)
