"""The `__manifest` table: its rows, its snapshots, its commits and its upkeep."""
