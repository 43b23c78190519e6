"""Spark: read, write, stream and maintain the tables of a catalog."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relance.spark.requirements import check_pyspark

check_pyspark()  # otherwise the first use would only report a missing module

if TYPE_CHECKING:
    from relance.jobs.merging.merges import MergeResult
    from relance.spark.maintenance import maintain
    from relance.spark.merge import merge
    from relance.spark.policy import plan_policy, run_policy
    from relance.spark.registration import register
    from relance.spark.save import Saved, SaveMode, save
    from relance.spark.session import session
    from relance.spark.table import table
    from relance.spark.views import Attached, attach

__all__ = [
    "Attached",
    "MergeResult",
    "SaveMode",
    "Saved",
    "attach",
    "maintain",
    "merge",
    "plan_policy",
    "register",
    "run_policy",
    "save",
    "session",
    "table",
]

_HOMES = {
    "Attached": "relance.spark.views",
    "MergeResult": "relance.jobs.merging.merges",
    "SaveMode": "relance.spark.save",
    "Saved": "relance.spark.save",
    "attach": "relance.spark.views",
    "maintain": "relance.spark.maintenance",
    "merge": "relance.spark.merge",
    "plan_policy": "relance.spark.policy",
    "register": "relance.spark.registration",
    "run_policy": "relance.spark.policy",
    "save": "relance.spark.save",
    "session": "relance.spark.session",
    "table": "relance.spark.table",
}


class _LazyPackage(ModuleType):
    """Imports the module of a public name when the name is used.

    Every Python worker imports this package to unpickle its task and needs a quarter of the modules. A plain
    module-level `__getattr__` would not do: importing `relance.spark.session` sets an attribute `session`.
    """

    def __getattribute__(self, name: str) -> Any:
        home = _HOMES.get(name)
        return super().__getattribute__(name) if home is None else getattr(import_module(home), name)


sys.modules[__name__].__class__ = _LazyPackage
