"""The command line. Its modules load Lance and Spark only inside of commands, so that help is quick."""

from relance.cli.app import main

__all__ = ["main"]
