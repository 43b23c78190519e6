"""Spark: read, write and stream the tables of a catalog."""
