"""Spark: read, write and stream the tables of a catalog."""

from relance.spark.registration import register
from relance.spark.save import Saved, SaveMode, save
from relance.spark.session import session
from relance.spark.table import table
from relance.spark.views import Attached, attach

__all__ = ["Attached", "SaveMode", "Saved", "attach", "register", "save", "session", "table"]
