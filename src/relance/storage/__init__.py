"""Bytes under keys, on every kind of store. Knows nothing of tables."""
