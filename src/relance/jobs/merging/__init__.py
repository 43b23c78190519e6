"""Merging new rows into a table by key."""
