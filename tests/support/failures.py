"""Functions that fail, to put in place of the product's."""

from __future__ import annotations

from typing import NoReturn

from relance.errors import PermissionDeniedError


def interrupt(*_: object, **__: object) -> NoReturn:
    """Stop as if the user had pressed Ctrl-C: no handler of errors continues from here."""
    raise KeyboardInterrupt


def deny(*_: object, **__: object) -> NoReturn:
    """Fail as a store does that refuses access."""
    raise PermissionDeniedError("not yours")
