"""Spark: read, write, stream and maintain the tables of a catalog."""

from relance.spark.requirements import check_pyspark

check_pyspark()  # the imports below would only say that a module is missing

from relance.maintenance.merging.merges import MergeResult  # noqa: E402
from relance.spark.maintenance import maintain  # noqa: E402
from relance.spark.merge import merge  # noqa: E402
from relance.spark.policy import plan_policy, run_policy  # noqa: E402
from relance.spark.registration import register  # noqa: E402
from relance.spark.save import Saved, SaveMode, save  # noqa: E402
from relance.spark.session import session  # noqa: E402
from relance.spark.table import table  # noqa: E402
from relance.spark.views import Attached, attach  # noqa: E402

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
