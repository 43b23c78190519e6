"""Every guard of the lifecycle: how to switch it off in the real code, and what then goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.support.patches import original, substituted
from tests.support.scenarios import tables
from tests.support.scenarios.cases import LOST, NO_FAULT, PAIR, Case, case, chain
from tests.support.scenarios.tables import DROPPED, LIVE, NAMESPACED, ROOT

from relance.catalog.arbiter import ATTEMPTS, Lease, begin_lease, home_state, is_same
from relance.catalog.layout import Bodies, inspect_name, read_control
from relance.catalog.manifest.store import ManifestConflictError
from relance.catalog.resolve import Found
from relance.catalog.states import Situation, State, cleared
from relance.errors import ConcurrentModificationError, OutcomeUnknownError, RelanceError

Off = Callable[[], dict[str, Any]]
"""Returns what replaces the code that guards, by the keys of patches."""


@dataclass(frozen=True)
class Guard:
    """A guard and the scenarios that tell that it is off."""

    name: str
    off: Off
    cases: tuple[Case | tables.Case, ...]

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        replacements = self.off()
        with ExitStack() as stack:
            for key, value in replacements.items():
                stack.enter_context(substituted(key, value))
            yield


class _Endless(Lease):
    """A lease that does not end, and does not look at the clock."""

    @property
    def has_ended(self) -> bool:
        return False

    @property
    def left(self) -> Any:
        return self.context.timing.lease

    def require(self, name: str) -> None:
        pass


def _endless(context: Any) -> Lease:
    return _Endless(context, 0.0)


class _Later:
    """Puts steps off until another one is done, for each client by itself."""

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[], object]] = {}

    def put_off(self, real: Callable[..., Any]) -> Callable[..., None]:
        def put_off(context: Any, *arguments: Any, **options: Any) -> None:
            self._waiting[id(context)] = lambda: real(context, *arguments, **options)

        return put_off

    def done(self, context: Any) -> None:
        step = self._waiting.pop(id(context), None)
        if step is not None:
            step()


def _without_after() -> dict[str, Any]:
    def counts(marked: Any, mark: Any) -> bool:
        return mark is not None

    return {"guard.counts": counts, "guard.counts_in_drop": counts}


def _without_strict_drop() -> dict[str, Any]:
    def is_strict(marked: Any, timing: Any) -> bool:
        return False

    return {"guard.is_strict": is_strict, "guard.is_strict_in_purge": is_strict}


def _without_tidy_first() -> dict[str, Any]:
    real = original("guard.delete_mark")

    def tidy(context: Any, home: Any) -> None:
        with suppress(ConcurrentModificationError, OutcomeUnknownError):
            real(context, home.name, Lease(context, context.clock.monotonic() + 600))

    return {"guard.tidy": tidy}


def _without_unmark_first() -> dict[str, Any]:
    later, real = _Later(), original("guard.delete_mark")
    swap = original("guard.swap_file_in_drop")

    def swap_file(context: Any, name: str, control: Any, *, over: Any) -> Any:
        swapped = swap(context, name, control, over=over)
        if control.state is State.CLEARED:
            with suppress(RelanceError):
                later.done(context)
        return swapped

    return {
        "guard.delete_mark_by_undrop": later.put_off(real),
        "guard.delete_mark_by_create": later.put_off(real),
        "guard.swap_file_in_drop": swap_file,
        "guard.swap_file_in_create": swap_file,
    }


def _without_unmark_before_tomb() -> dict[str, Any]:
    later, real = _Later(), original("guard.delete_marks")
    swap = original("purge.swap_files")

    def swap_files(context: Any, swaps: Any) -> Any:
        outcomes = swap(context, swaps)
        if any(control.state is State.PURGED for _, control, _ in swaps):
            later.done(context)
        return outcomes

    return {"guard.delete_marks_by_purge": later.put_off(real), "purge.swap_files": swap_files}


def _without_mark_first() -> dict[str, Any]:
    later, real = _Later(), original("guard.put_mark")
    swap = original("guard.swap_deleted")

    def swap_deleted(context: Any, *arguments: Any, **options: Any) -> Any:
        swapped = swap(context, *arguments, **options)
        with suppress(OutcomeUnknownError):
            later.done(context)
        return swapped

    return {"guard.put_mark": later.put_off(real), "guard.swap_deleted": swap_deleted}


def _without_mark_lease() -> dict[str, Any]:
    real = original("guard.delete_mark")

    def delete_mark(context: Any, name: str, lease: Any, **options: Any) -> None:
        real(context, name, _Endless(context, 0.0), **options)

    real_marks = original("guard.delete_marks")

    def delete_marks(context: Any, leases: Any, **options: Any) -> None:
        real_marks(context, dict.fromkeys(leases, _Endless(context, 0.0)), **options)

    return {
        "guard.delete_mark_by_create": delete_mark,
        "guard.delete_mark_by_undrop": delete_mark,
        "guard.delete_marks_by_purge": delete_marks,
    }


def _without_last_write() -> dict[str, Any]:
    real = original("guard.is_expired")
    return {"guard.is_expired": lambda context, generation, written=None: real(context, generation)}


def _without_tombstone() -> dict[str, Any]:
    return {"guard.purged": lambda claim: cleared(undid=claim.id)}


def _without_tomb_yield() -> dict[str, Any]:
    def may_revive(context: Any, home: Any, claim: Any) -> bool:
        if not is_same(read_control(context, home.name), claim):
            raise ConcurrentModificationError("changed")
        return True

    return {"guard.may_revive": may_revive}


def _without_order() -> dict[str, Any]:
    real = original("guard.sync_many")

    def sync_many(context: Any, snapshot: Any, states: Any, **options: Any) -> Any:
        manifest = context.manifest
        for _ in range(ATTEMPTS):
            with suppress(ManifestConflictError):
                return real(_Once(context, manifest), snapshot, states, **options)
            states = {name: home_state(inspect_name(context, name, bodies=Bodies.ALL)) for name in states}
            snapshot = manifest.latest()
        raise ConcurrentModificationError("too many concurrent changes")

    return {"guard.sync_many": sync_many, "guard.sync_many_in_purge": sync_many}


class _Once:
    """A context whose manifest tells a conflict instead of waiting for the next attempt."""

    def __init__(self, context: Any, manifest: Any) -> None:
        self._real = context
        self.manifest = _OnceManifest(manifest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _OnceManifest:
    def __init__(self, manifest: Any) -> None:
        self._manifest = manifest

    def back_off(self, attempt: int) -> None:
        raise ManifestConflictError("once")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manifest, name)


def _without_always_commit() -> dict[str, Any]:
    real = original("guard.rows_commit")

    def commit(self: Any, read: Any, change: Any) -> None:
        if not change.is_empty:
            real(self, read, change)

    return {"guard.rows_commit": commit}


def _without_strict_commits() -> dict[str, Any]:
    real = original("guard.resolve_outcome")

    def resolve(self: Any, token: str, read: Any, kind: Any, failure: Any) -> Any:
        try:
            return real(self, token, read, kind, failure)
        except ManifestConflictError:
            return None, self.latest()

    return {"guard.resolve_outcome": resolve}


def _without_marker_decides() -> dict[str, Any]:
    real = original("guard.find_in")

    def find_in(context: Any, snapshot: Any, table_id: Any, *, versions: bool = False) -> Found:
        row = None if snapshot is None else snapshot.get([str(table_id)]).get(str(table_id))
        if context.dir_listing or row is None or not row.is_home:
            found: Found = real(context, snapshot, table_id, versions=versions)
            return found
        home = inspect_name(context, table_id.name, bodies=Bodies.ALL)
        home = replace(home, situation=Situation.VISIBLE)
        if not home.holds_table:
            return real(context, snapshot, table_id)  # type: ignore[no-any-return]
        return Found(table_id, home.directory, {}, home)

    return {"guard.find_in": find_in}


def _without_both_positions() -> dict[str, Any]:
    real = original("guard.home_rows")

    def home_rows(snapshot: Any, name: str) -> Any:
        return [row for row in real(snapshot, name) if not row.is_dropped]

    return {"guard.home_rows_in_resolve": home_rows}


def _without_look_after() -> dict[str, Any]:
    real = original("guard.is_unchanged")
    return {"guard.is_unchanged": lambda before, now: now.has_versions or real(before, now)}


def _without_restage() -> dict[str, Any]:
    swap = original("guard.swap_file_in_create")
    reviving = original("guard.reviving")
    made: dict[int, Any] = {}

    def swap_file(context: Any, name: str, control: Any, *, over: Any) -> Any:
        if control.state is not State.REVIVING:
            return swap(context, name, control, over=over)
        now = read_control(context, name)
        if now is None or now.state not in {State.DELETED, State.PURGED, State.REVIVING}:
            raise ConcurrentModificationError("changed")
        return swap(context, name, reviving(now, control.token, context.timing), over=now)

    del made
    return {"guard.swap_file_in_create": swap_file}


def _without_exact_version() -> dict[str, Any]:
    real = original("guard.commit_next")

    def commit_next(context: Any, directory: str, *arguments: Any, after: int, **options: Any) -> Any:
        head = context.tables.head(directory)
        after = head.version if head is not None else 0
        return real(context, directory, *arguments, after=after, **options)

    return {"guard.commit_next": commit_next}


def _without_fence_kept() -> dict[str, Any]:
    return {"guard.fence_is_up": lambda context, control: False}


def _without_own_fence() -> dict[str, Any]:
    real = original("guard.arbiter_returned")
    return {"guard.arbiter_returned": lambda claim, *, fence: real(claim, fence=claim.fence)}


def _without_fence_carried() -> dict[str, Any]:
    return {"guard.cleared_by_undrop": lambda *, undid, fence=None: cleared(undid=undid)}


def _without_writers() -> dict[str, Any]:
    taken_over, reviving = original("claim.taken_over"), original("guard.reviving")

    def alone(control: Any) -> Any:
        return replace(control, writers=(control.token,))

    return {
        "claim.taken_over": lambda over, timing: alone(taken_over(over, timing)),
        "guard.reviving": lambda over, token, timing: alone(reviving(over, token, timing)),
    }


def _without_lease() -> dict[str, Any]:
    return {"guard.begin_lease_of_purge": _endless, "guard.still_ours": lambda self: self.result is None}


class _Late:
    """A lease that begins when it is first looked at: once the claims were sent."""

    def __init__(self, context: Any) -> None:
        self._opened = context
        self._lease: Lease | None = None

    def __getattr__(self, name: str) -> Any:
        if self._lease is None:
            self._lease = begin_lease(self._opened)
        return getattr(self._lease, name)


def _without_lease_from_before() -> dict[str, Any]:
    return {"guard.begin_lease_of_purge": _Late}


def _without_same_row() -> dict[str, Any]:
    def any_row(snapshot: Any, seen: Any) -> Any:
        row = snapshot.get([seen.object_id]).get(seen.object_id)
        if row is None:
            raise ConcurrentModificationError("gone")
        return row

    return {"guard.same_row": any_row, "guard.same_row_in_undrop": any_row}


def _without_decision_first() -> dict[str, Any]:
    real = original("rename.swap_file")

    def swap_file(context: Any, name: str, control: Any, *, over: Any) -> Any:
        decides = control.to and over is not None and over.control.to
        return over if decides else real(context, name, control, over=over)

    return {"rename.swap_file": swap_file}


def _without_read_back() -> dict[str, Any]:
    def own_version(storage: Any, key: str, body: bytes, doubt: Any) -> Any:
        raise doubt

    return {"readback.own_version": own_version}


GUARDS = (
    Guard(
        "after",
        _without_after,
        (case("late M", "drop/c", "undrop/c"),),
    ),
    Guard(
        "strict-drop",
        _without_strict_drop,
        (case("dead undrop", "undrop/c", "drop/c", "read/c", budget=NO_FAULT, after=chain(3)),),
    ),
    Guard("tidy-first", _without_tidy_first, (case("late M", "purge/c", "drop/c"),)),
    Guard("unmark-first", _without_unmark_first, (case("dropped", "undrop/c", "purge/c", ticks=1),)),
    Guard("unmark-before-tomb", _without_unmark_before_tomb, (case("dropped", "purge/c", "ncreate/n/x"),)),
    Guard("mark-first", _without_mark_first, (case("live", "drop/c", "undrop/c", budget=PAIR),)),
    Guard(
        "drop-lease",
        lambda: {"guard.begin_lease_of_drop": _endless},
        (
            case(
                "dead create",
                "undrop/c",
                "drop/c",
                "purge/c",
                "create/c/b",
                budget=LOST,
                ticks=1,
                after=chain(4),
            ),
            case("dead undrop", "undrop/c", "drop/c", "read/c", budget=NO_FAULT, ticks=1, after=chain(3)),
            case("late M", "purge/1", "drop/1", "read/1", budget=LOST, ticks=1, after=chain(3)),
        ),
    ),
    Guard(
        "mark-lease",
        _without_mark_lease,
        (
            case(
                "dropped",
                "purge/1",
                "purge/1",
                "create/1/b",
                "drop/1",
                budget=NO_FAULT,
                ticks=2,
                after=((2, 1), (3, 2)),
                stalled=((0, "delete_many", ".deleted"),),
            ),
        ),
    ),
    Guard(
        "purge-look",
        lambda: {"guard.look_again": lambda context, table: None},
        (case("dropped", "sundrop", "read/1", "purge/1", budget=NO_FAULT, after=((1, 0),)),),
    ),
    Guard(
        "listed-once",
        lambda: {"guard.is_doomed": lambda self, context, info: True},
        (
            case("dropped", "purge/c", "ncreate/n/x", ticks=1),
            case("dead purge", "ncreate/n/x", "purge/c", budget=NO_FAULT, ticks=1),
        ),
    ),
    Guard(
        "last-write",
        _without_last_write,
        (case("dropped", "nappend/n/x", "purge/c/due", budget=NO_FAULT, after=chain(2), kept=0),),
    ),
    Guard(
        "tomb-foreign",
        lambda: {"guard.has_foreign_version": lambda self, directory: False},
        (case("purged", "ncreate/n/x", "create/c/b", budget=NO_FAULT),),
    ),
    Guard(
        "tombstone",
        _without_tombstone,
        (
            case(
                "nothing",
                "create/1/b",
                "create/1/e",
                "drop/1",
                "purge/1",
                "create/1/h",
                budget=NO_FAULT,
                after=((2, 1), (3, 2), (4, 3)),
            ),
        ),
    ),
    Guard("tomb-yield", _without_tomb_yield, (case("purged", "ncreate/n/x", "create/c/b"),)),
    Guard(
        "order",
        _without_order,
        (case("live", "drop/c", "undrop/c", "drop/2"),),
    ),
    Guard(
        "always-commit",
        _without_always_commit,
        (
            case("live", "drop/c", "undrop/c"),
            case("v1-dropped", "undrop/c", "drop/c", after=chain(2)),
            case("live", "drop/c", "undrop/c", "drop/c"),
        ),
    ),
    Guard(
        "strict",
        _without_strict_commits,
        (case("live", "drop/c", "undrop/c"), case("dropped", "take/c", "undrop/c")),
    ),
    Guard("marker-decides", _without_marker_decides, (case("v1-dropped", "read/2", budget=NO_FAULT),)),
    Guard(
        "both-positions", _without_both_positions, (case("dropped", "undrop/1", "read/2", after=chain(2)),)
    ),
    Guard(
        "look-after",
        _without_look_after,
        (
            case(
                "nothing",
                "create/1/b",
                "create/1/e",
                "drop/1",
                "purge/1",
                budget=NO_FAULT,
                after=((2, 1), (3, 2)),
            ),
            case("nothing", "create/c/b", "create/c/e", "drop/c", budget=NO_FAULT, after=((2, 1),)),
        ),
    ),
    Guard(
        "restage",
        _without_restage,
        (case("dropped", "create/1/b", "purge/1", "ncreate/n/x", budget=NO_FAULT, after=((2, 1),)),),
    ),
    Guard(
        "nonce",
        lambda: {"guard.new_nonce": lambda: "same"},
        (
            case("dropped", "create/1/b", "undrop/1"),
            case("dropped", "undrop/1", "drop/1", "purge/1", budget=NO_FAULT, after=((1, 0),)),
            case("live", "drop/1", "undrop/1", "drop/1", "undrop/1", budget=NO_FAULT, after=chain(3)),
        ),
    ),
    Guard("exact-version", _without_exact_version, (case("dropped", "create/c/b", "undrop/1"),)),
    Guard(
        "fence-version",
        lambda: {"guard.restore": lambda self, *arguments, **options: None},
        (case("dead create", "undrop/c", budget=NO_FAULT), case("dead create", "undrop/c", "create/c/b")),
    ),
    Guard(
        "fence-kept",
        _without_fence_kept,
        (
            case(
                "dead create",
                "undrop/c",
                "drop/c",
                "purge/c",
                "create/c/b",
                budget=NO_FAULT,
                after=chain(4),
            ),
        ),
    ),
    Guard(
        "own-fence",
        _without_own_fence,
        (
            case(
                "dead create",
                "undrop/1",
                "drop/1",
                "purge/1",
                "create/1/b",
                budget=LOST,
                ticks=1,
                after=chain(4),
            ),
        ),
    ),
    Guard(
        "fence-carried",
        _without_fence_carried,
        (
            case(
                "dead create",
                "undrop/c",
                "drop/c",
                "purge/c",
                "create/c/b",
                budget=NO_FAULT,
                after=chain(4),
            ),
        ),
    ),
    Guard(
        "writers",
        _without_writers,
        (case("dead create", "create/1/b", "undrop/1"), case("dead create", "undrop/1", budget=NO_FAULT)),
    ),
    Guard(
        "takeover-wait",
        lambda: {"guard.is_dead": lambda context, control, modified: True},
        (case("dropped", "purge/1", "purge/1", "create/1/b", budget=NO_FAULT, after=((2, 1),)),),
    ),
    Guard(
        "lease",
        _without_lease,
        (
            case(
                "dropped",
                "purge/1",
                "purge/1",
                "create/1/b",
                budget=NO_FAULT,
                ticks=1,
                after=((2, 1),),
                stalled=((0, "delete_many", ".manifest"),),
            ),
        ),
    ),
    Guard(
        "lease from before the claim was sent",
        _without_lease_from_before,
        (
            case(
                "dropped",
                "purge/1",
                "purge/1",
                "create/1/b",
                budget=LOST,
                ticks=1,
                after=((2, 1),),
                stalled=((0, "replace", ".control"),),
            ),
        ),
    ),
    Guard(
        "body-last",
        lambda: {"guard.read_listed": lambda context, name, listed=None: read_control(context, name)},
        (case("late M", "purge/1", "drop/c", budget=NO_FAULT),),
    ),
    Guard(
        "nonce in a row's claim",
        _without_same_row,
        (
            tables.Case(NAMESPACED, DROPPED, ("undrop t", "purge t"), NO_FAULT),
            tables.Case(NAMESPACED, DROPPED, ("create t b", "undrop t"), NO_FAULT),
        ),
    ),
    Guard(
        "look at the manifest after a commit that was not the next version",
        lambda: {"guard.require_undisturbed": lambda *arguments: None},
        (tables.Case(NAMESPACED, DROPPED, ("undrop t", "insert t"), NO_FAULT),),
    ),
    Guard(
        "look at the arbiter after copying for an undrop",
        lambda: {"guard.is_same_in_copy": lambda one, other: True},
        (
            tables.Case(ROOT, DROPPED, ("undrop t u", "purge t"), NO_FAULT),
            tables.Case(ROOT, DROPPED, ("undrop t u", "create t b"), NO_FAULT),
        ),
    ),
    Guard(
        "look at the arbiter after copying for a rename",
        lambda: {"guard.is_same_in_rename": lambda one, other: True},
        (tables.Case(ROOT, LIVE, ("rename t u", "create t b"), NO_FAULT),),
    ),
    Guard(
        "own body before a rename is decided",
        _without_decision_first,
        (tables.Case(ROOT, LIVE, ("rename t u", "purge t"), NO_FAULT),),
    ),
    Guard("read-back", _without_read_back, (case("nothing", "create/1/b", "declare/1", budget=LOST),)),
)
"""Those of the format page, and those of rows and renames."""
