"""One run per lake at a time: a lease in the lake's own storage, renewed while its holder lives.

It keeps two runs from doing the same work twice. It is not what keeps data safe: each job by itself stands
another one beside it, so a holder that only slept and goes on does no harm; it stops at its next look.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from relance.catalog.context import Context
from relance.clock import from_millis, to_millis
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    RelanceError,
)
from relance.foreign_json import parse_json
from relance.locations import POLICY_DIRECTORY
from relance.storage.ballast import emptying
from relance.storage.probe import require_replace
from relance.storage.protocol import Version
from relance.storage.readback import create_once, replace_once
from relance.units import require_duration

LEASE_KEY = f"{POLICY_DIRECTORY}/lease"
LENGTH = timedelta(minutes=2)
"""How long a lease holds without being renewed."""

_LONGEST = timedelta(days=1)
"""No run asks for more at a time: a lease that ends later was not written by one."""

_FORMAT = 1
_POLL_SECONDS = 1.0


class LeaseHeldError(ConcurrentModificationError):
    """Another run is in progress; the message names it."""

    hint = "wait for the other run with --wait 10m; if it was interrupted: relance run --resume"


class LeaseLostError(ConcurrentModificationError):
    """The lease expired or another run took it over: this run stops."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs a policy."""

    run: str
    actor: str
    process: str
    """Tells a process of this machine from all others: machine, process id and when it began."""
    since: datetime
    until: datetime
    nonce: str
    free: bool = False
    """The run has ended."""

    def told(self) -> str:
        return (
            f"run {self.run}, started {self.since:%Y-%m-%d %H:%M:%S} UTC by {self.actor}, "
            f"lease until {self.until:%H:%M:%S} UTC"
        )


@contextmanager
def held(
    context: Context,
    run: str,
    actor: str,
    *,
    wait: timedelta | None = None,
    length: timedelta = LENGTH,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Lease]:
    """Hold the lake for a run while the block lasts; with `wait`, for so long until another run ends.

    Raises:
        LeaseHeldError: another run holds it.
        UnsupportedOperationError: the store does not honour conditional writes.
    """
    patience = require_duration(wait or timedelta(0), what="wait")
    with emptying():
        require_replace(context.storage, to_do="a policy run")
    lease = _acquire(context, run, actor, patience, length, sleep)
    lease.start()
    try:
        yield lease
    finally:
        lease.stop()


def holder_of(context: Context) -> Holder | None:
    """Return who runs a policy now; None when nobody does, or did not end and its lease is over."""
    found = _read(context)
    return None if found is None or _is_over(context, found[0]) else found[0]


def _acquire(
    context: Context,
    run: str,
    actor: str,
    wait: timedelta,
    length: timedelta,
    sleep: Callable[[float], None],
) -> Lease:
    give_up = context.clock.monotonic() + wait.total_seconds()
    while True:
        found = _read(context)
        if found is None or _is_over(context, found[0]):
            with suppress(KeyExistsError, KeyChangedError):  # another was faster: look again
                return _take(context, run, actor, length, None if found is None else found[1])
            continue
        left = give_up - context.clock.monotonic()
        if left <= 0:
            raise LeaseHeldError(
                f"another policy run is in progress on this lake ({found[0].told()}); retry later or set wait"
            )
        sleep(min(left, _POLL_SECONDS))


@emptying()  # a run may be what frees space; nothing more stays of the lease than one small file
def _take(context: Context, run: str, actor: str, length: timedelta, over: Version | None) -> Lease:
    asked, now = context.clock.monotonic(), context.clock.now()
    holder = Holder(run, actor, this_process(), now, now + length, secrets.token_hex(12))
    body = _encode(holder)
    if over is None:
        version = create_once(context.storage, LEASE_KEY, body)
    else:
        version = replace_once(context.storage, LEASE_KEY, body, expected=over)
    return Lease(context, holder, version, asked, length)


def _is_over(context: Context, holder: Holder) -> bool:
    if holder.free or _has_died(holder.process):
        return True
    return context.clock.now() > holder.until + context.timing.clock_skew


class Lease:
    """A lease that is held, with the thread that renews it."""

    def __init__(
        self, context: Context, holder: Holder, version: Version, asked: float, length: timedelta
    ) -> None:
        self._context = context
        self._holder = holder
        self._version = version
        self._length = length
        self._good_until = asked + length.total_seconds()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_on, name="relance lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Make sure that the lease still holds, before the next piece of work.

        Raises:
            LeaseLostError: it does not.
        """
        if self._lost is None and self._context.clock.monotonic() < self._good_until:
            return
        raise LeaseLostError(f"run {self._holder.run} lost its lease{self._lost or ''}; resume it later")

    def stop(self) -> None:
        """Give the lake free; if that fails, others wait until the lease is over."""
        self._ended.set()
        self._thread.join()
        if self._lost is None:
            with suppress(RelanceError):
                self._swap(replace(self._holder, nonce=secrets.token_hex(12), free=True))

    def _renew_on(self) -> None:
        while not self._ended.wait(self._length.total_seconds() / 4):
            asked, now = self._context.clock.monotonic(), self._context.clock.now()
            next_one = replace(self._holder, nonce=secrets.token_hex(12), until=now + self._length)
            try:
                self._swap(next_one)
            except KeyChangedError:
                found = _read(self._context)
                self._lost = "" if found is None else f" to {found[0].actor} (run {found[0].run})"
                return
            except RelanceError:
                continue  # the store is away: until the lease is over there is time to try again
            self._good_until = asked + self._length.total_seconds()

    @emptying()
    def _swap(self, holder: Holder) -> None:
        self._version = replace_once(
            self._context.storage, LEASE_KEY, _encode(holder), expected=self._version
        )
        self._holder = holder


def _read(context: Context) -> tuple[Holder, Version] | None:
    try:
        stored = context.storage.read(LEASE_KEY)
    except KeyNotFoundError:
        return None
    holder = _decode(stored.body)
    if holder.until > context.clock.now() + _LONGEST:
        raise _corrupt()
    return holder, stored.version


def _encode(holder: Holder) -> bytes:
    values = asdict(holder) | {"since": to_millis(holder.since), "until": to_millis(holder.until)}
    return json.dumps({"format": _FORMAT, **values}).encode()


def _decode(body: bytes) -> Holder:
    try:
        values = parse_json(body)
        if values.pop("format") != _FORMAT:
            raise InvalidTableStateError(f"'{LEASE_KEY}' was written by a newer release; upgrade this one")
        since, until = from_millis(values.pop("since")), from_millis(values.pop("until"))
        free = values.pop("free")
        if not all(isinstance(value, str) for value in values.values()) or not isinstance(free, bool):
            raise TypeError("not a string")
        return Holder(**values, since=since, until=until, free=free)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as cause:
        raise _corrupt() from cause


def _corrupt() -> InvalidTableStateError:
    return InvalidTableStateError(
        f"corrupt policy lease '{LEASE_KEY}'; delete it if no policy run is in progress"
    )


def this_process() -> str:
    """Return what tells this process from all others, on this machine and elsewhere."""
    return f"{_machine()} {os.getpid()} {_began(os.getpid())}"


def _has_died(process: str) -> bool:
    """Tell whether a process of this machine is gone; of another machine nobody knows."""
    machine, _, rest = process.partition(" ")
    pid, _, began = rest.partition(" ")
    if not machine or machine != _machine() or not pid.isdecimal():
        return False
    return _began(int(pid)) != began


def _machine() -> str:
    """Return what only processes have that see the same process ids; empty when that is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return when a process began, as its machine counts; empty when there is none."""
    try:
        # The name, in brackets, may hold anything.
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if found[0] in {"Z", "X"} else found[19]  # dead, and nobody has asked how it ended
