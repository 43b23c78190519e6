"""`python -m examples.demo`: the whole story in four acts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from examples.demo.lake import LAKE, build_lake
from examples.demo.lifecycle import drop_and_undrop
from examples.demo.nightly import POLICY, maintain
from examples.demo.show import console, heading, say
from examples.demo.spark_tables import start_spark, use_spark


def main() -> None:
    catalog = build_lake()
    drop_and_undrop(catalog)
    spark = start_spark()
    use_spark(spark)
    maintain(spark, catalog)
    spark.stop()
    suggest_next_steps()


def suggest_next_steps() -> None:
    """Print commands that work on the lake as the demo leaves it."""
    heading("What to try next")
    say(f"The lake stays in ./{LAKE}. Look around, drop a table and restore it, see what is due now:")
    for command in (
        "ls --tree --sizes",
        "drop scratch.notes",
        "undrop scratch.notes",
        f"plan {os.path.relpath(POLICY)}",
    ):
        console.print(f"    {_relance()} --root {LAKE} {command}", style="cyan")
    say("docs/tutorial.md explains the code of each act. Run the demo again to start over.")


def _relance() -> str:
    """Return the command as it can be typed here: the program next to this Python, or the module."""
    program = Path(sys.executable).with_name("relance")
    if not program.exists():
        return f"{sys.executable} -m relance"
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)


if __name__ == "__main__":
    main()
