"""Checks of a store for `doctor`: permissions, conditional writes, listings and clock."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from relance.clock import Clock
from relance.errors import RelanceError
from relance.storage.probe import PROBE_PREFIX, probe
from relance.storage.protocol import ObjectStorage
from relance.units import duration, exact_duration

_BODY = b"written by a check of this store"


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """Not checked because an earlier check failed, or the store does not report it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its outcome."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""
    """What to do if the check failed."""


def check_store(storage: ObjectStorage, clock: Clock, *, skew: timedelta) -> list[Check]:
    """Try what a catalog needs of its store, with small objects that are removed again.

    Never raises for what the store does: that is what it tells.
    """
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    checks = [_tried("list", lambda: _list(storage), "allow the credentials to list the root")]
    written = _tried("write", lambda: _write(storage, key), "allow the credentials to write below the root")
    checks.append(written)
    if written.verdict is not Verdict.GOOD:
        untried = ("read", "list after write", "clock", "create-only", "replace", "delete")
        return checks + [
            Check(name, Verdict.UNKNOWN, "not checked: the root is not writable") for name in untried
        ]
    try:
        checks += [
            _tried("read", lambda: _read(storage, key), "allow the credentials to read below the root"),
            _tried("list after write", lambda: _listed(storage, key), "use a store with consistent listings"),
            _clock(storage, clock, key, skew),
            *_conditions(storage),
        ]
    finally:
        deleted = _tried(
            "delete", lambda: _delete(storage, key), "allow the credentials to delete below the root"
        )
    return [*checks, deleted]


def _tried(name: str, attempt: Callable[[], str | None], remedy: str) -> Check:
    """Return a check whose attempt gives what is wrong, or None, or raises it."""
    try:
        wrong = attempt()
    except RelanceError as error:
        wrong = str(error)
    return Check(name, Verdict.GOOD, "works") if wrong is None else Check(name, Verdict.BAD, wrong, remedy)


def _list(storage: ObjectStorage) -> None:
    storage.list_level("")


def _write(storage: ObjectStorage, key: str) -> None:
    storage.create(key, _BODY)


def _read(storage: ObjectStorage, key: str) -> str | None:
    return None if storage.read(key).body == _BODY else "the object's content differs from what was written"


def _listed(storage: ObjectStorage, key: str) -> str | None:
    found = {each.key for each in storage.list_level("").files}
    return None if key in found else "a newly written object is missing from the listing"


def _delete(storage: ObjectStorage, key: str) -> str | None:
    storage.delete(key)
    return "a deleted object still exists" if storage.which_exist([key]) else None


def _clock(storage: ObjectStorage, clock: Clock, key: str, skew: timedelta) -> Check:
    try:
        modified = storage.head(key).modified
    except RelanceError as error:
        return Check("clock", Verdict.BAD, str(error), "allow the credentials to read below the root")
    if modified is None:
        return Check("clock", Verdict.UNKNOWN, "the store does not report when objects were written")
    # Stores tell whole seconds; a moment has passed since the object was written.
    ahead = clock.now() - modified
    side = "behind" if ahead < timedelta(0) else "ahead of"
    detail = f"this machine's clock is {duration(abs(ahead))} {side} the store's, which decides"
    if abs(ahead) <= skew:
        return Check("clock", Verdict.GOOD, detail)
    remedy = f"fix this machine's clock, or raise clock_skew (now {exact_duration(skew)})"
    return Check("clock", Verdict.BAD, detail, remedy)


def _conditions(storage: ObjectStorage) -> list[Check]:
    remedy = "move the root to a store that honours it (see docs/stores.md)"
    try:
        found = probe(storage)
    except RelanceError as error:
        return [Check(name, Verdict.BAD, str(error), remedy) for name in ("create-only", "replace")]
    return [
        Check(name, Verdict.GOOD, "honoured")
        if honoured
        else Check(name, Verdict.BAD, f"{what} is not honoured", remedy)
        for name, honoured, what in (
            ("create-only", found.create_only, "a write that must not overwrite"),
            ("replace", found.replace, "a write that must overwrite one particular version"),
        )
    ]
