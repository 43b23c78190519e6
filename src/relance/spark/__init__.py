"""Spark: read, write and stream the tables of a catalog."""

from relance.spark.registration import register
from relance.spark.save import Saved, SaveMode, save
from relance.spark.session import session
from relance.spark.table import table

__all__ = ["SaveMode", "Saved", "register", "save", "session", "table"]
