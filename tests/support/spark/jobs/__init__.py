"""Drivers that tests start on the cluster, each as a process of its own."""
