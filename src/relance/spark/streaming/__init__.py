"""Streams from and into tables of the catalog."""
