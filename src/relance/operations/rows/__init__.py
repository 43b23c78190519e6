"""Namespaces and tables that a row of the manifest decides about (V2)."""
