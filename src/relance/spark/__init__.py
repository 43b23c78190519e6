"""Spark reads and writes tables of the catalog."""
