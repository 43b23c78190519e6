"""The state of a name: one marker file per table, changed only by compare-and-swap."""
