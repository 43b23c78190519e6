"""Jobs that change rows: delete, update."""
