"""Arrow and Lance types against Spark types: schemas both ways, and casts of batches both ways.

`reading` gives the Spark schema of a table, `writing` the table schema of a Spark schema, `fitting` says
which types go into which without loss, `arrays` casts one array, `batches` casts whole batches.
"""

from __future__ import annotations

from relance.spark.types.batches import ToLance, ToSpark, check_append
from relance.spark.types.reading import reader_schema, spark_schema
from relance.spark.types.writing import lance_schema

__all__ = ["ToLance", "ToSpark", "check_append", "lance_schema", "reader_schema", "spark_schema"]
