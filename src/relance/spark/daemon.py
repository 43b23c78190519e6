"""The process that Spark forks its Python workers from, with Lance imported before the first fork.

A worker that is forked from it starts without the imports, and all workers share their pages. Spark runs
it as a module when `spark.python.daemon.module` names it. Who sets that is in session.
"""

from __future__ import annotations

import importlib
import warnings

PRELOADED = ("pyarrow", "lance", "relance", "pyspark.worker")
"""What nearly every task needs."""


def main() -> None:
    """Import what tasks need, then fork workers until Spark closes the standard input."""
    # Only imports: Lance starts threads when it opens a dataset, and a fork after that gives broken workers.
    for name in PRELOADED:
        importlib.import_module(name)
    # Lance warns at every fork of a process that has imported it. Here it has not started anything yet.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
