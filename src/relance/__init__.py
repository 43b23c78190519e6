"""Relance: a directory catalog for Lance tables."""

__version__ = "0.1.0"
