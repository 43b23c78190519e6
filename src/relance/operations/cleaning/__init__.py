"""Removing what no version of a table needs any more, and telling whether all that it needs is there."""
