"""V2: the `__manifest` table is the truth about which namespaces and tables there are."""
