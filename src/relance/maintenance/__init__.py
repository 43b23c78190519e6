"""Maintenance: jobs that keep tables healthy, as plans, tasks and one commit, on threads or on Spark."""
