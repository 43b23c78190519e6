"""Policies: a file says how each table of a lake should live; a pipeline sees to it and keeps a record."""
