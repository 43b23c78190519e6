"""How a create makes sure of its table's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relance.operations.directory.claims import Swap, swap


def _the_directory_is_the_name() -> None:
    """Where only directories count there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Naming:
    """What a create does so that its table has the name when it is there."""

    hold: Callable[[], None] = _the_directory_is_the_name
    """Called before the first file of a new table is written, and before what makes it a table.

    Raises TableAlreadyExistsError when another one has the name.
    """
    swap: Swap = swap
    """Moves the marker of a dropped table that is written over."""
