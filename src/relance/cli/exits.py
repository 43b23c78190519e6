"""The error that commands raise; the exit codes are in relance.exits."""

from __future__ import annotations

from relance.exits import MEANINGS, Exit

__all__ = ["MEANINGS", "CliError", "Exit"]


class CliError(Exception):
    """An error that ends a command: what went wrong, and what to do next."""

    def __init__(self, what: str, to_do: str, exit_code: Exit) -> None:
        super().__init__(what)
        self.what = what
        self.to_do = to_do
        self.exit_code = exit_code
