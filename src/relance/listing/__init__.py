"""V1: the directory is the truth about which tables there are."""
