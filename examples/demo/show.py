"""How the demo speaks."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from relance.errors import RelanceError

console = Console(highlight=False, soft_wrap=True)


def step(text: str) -> None:
    """Say what comes next."""
    console.print(f"\n[bold]» {text}[/bold]")


def expect_error(call: Callable[[], object]) -> None:
    """Make a call that must fail, and show what it says."""
    try:
        call()
    except RelanceError as error:
        console.print(f"[red]{error}[/red]  (code {error.code.value})")
    else:
        raise SystemExit("this should have been refused")
