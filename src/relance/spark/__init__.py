"""Catalog tables in Spark: sessions, reads, writes and streams."""
