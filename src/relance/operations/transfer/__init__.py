"""Rows from files into tables, and from tables into files, a batch at a time."""
