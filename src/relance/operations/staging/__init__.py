"""Writes whose data files are made elsewhere, by many tasks, and become one version through the catalog."""
