"""The lifecycle's transition table, checked pair by pair."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.states import LEASED, TRANSITIONS, VISIBLE, Action, State, is_allowed, target

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)

FROM_NOTHING = {Action.DROP, Action.DEREGISTER, Action.CLAIM_WRITE, Action.MOVE}
"""What can be done to a name that has no marker."""


def _marker(state: State) -> Marker | None:
    if state is State.ABSENT:
        return None
    if state is State.CLEARED:
        return moves.cleared("n0")
    before = {
        State.PURGING: State.DELETED,
        State.REVIVING: State.DELETED,
        State.SWEEPING: State.PURGED,
        State.WRITING: State.CLEARED,
    }.get(state)
    leased = state in LEASED
    return Marker(
        state,
        "n0",
        deleted_at=NOW,
        ttl=None if state is State.DEREGISTERED else timedelta(days=7),
        version=3,
        deletion_id="d0",
        before=before,
        token="t0" if leased else "",
        lease_until=LATER if leased else None,
    )


def _do(action: Action, marker: Marker | None) -> Marker:
    assert marker is not None or action in FROM_NOTHING
    known = marker if marker is not None else moves.cleared("never used")
    makers = {
        Action.DROP: lambda: moves.drop(marker, "n1", at=NOW, ttl=timedelta(days=7), version=3),
        Action.UNDROP: lambda: moves.undrop(known, "n1"),
        Action.CLAIM_PURGE: lambda: moves.claim_purge(known, "n1", token="t1", until=LATER),
        Action.FINISH_PURGE: lambda: moves.finish_purge(known, "n1", at=LATER),
        Action.CLAIM_REVIVAL: lambda: moves.claim_revival(known, "n1", token="t1", until=LATER),
        Action.FINISH_REVIVAL: lambda: moves.finish_revival(known, "n1"),
        Action.RECOVER: lambda: moves.recover(known, "n1"),
        Action.DEREGISTER: lambda: moves.deregister(marker, "n1", at=NOW),
        Action.REGISTER: lambda: moves.register(known, "n1"),
        Action.CLAIM_WRITE: lambda: moves.claim_write(marker, "n1", until=LATER),
        Action.FINISH_WRITE: lambda: moves.finish_write(known, "n1"),
        Action.CLAIM_SWEEP: lambda: moves.claim_sweep(known, "n1", until=LATER),
        Action.MOVE: lambda: moves.move(marker, "n1", at=NOW),
    }
    return makers[action]()


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("action", list(Action))
def test_transition_is_made_if_and_only_if_the_table_allows_it(state: State, action: Action) -> None:
    marker = _marker(state)
    if marker is None and action not in FROM_NOTHING:
        assert not is_allowed(state, action)
        return
    if not is_allowed(state, action):
        with pytest.raises(KeyError):
            _do(action, marker)
        return
    before = marker.before if marker else None
    assert _do(action, marker).state is target(state, action, before=before)
    assert _do(action, marker).nonce == "n1"


def test_every_state_has_a_way_out() -> None:
    for state in State:
        assert any(start is state for start, _ in TRANSITIONS), f"{state} is a dead end"


def test_only_absent_and_cleared_markers_hide_nothing() -> None:
    for state in State:
        marker = _marker(state)
        assert (marker is not None and marker.hides) == (state not in VISIBLE)


def test_undrop_of_a_deregistered_table_restores_it_deregistered() -> None:
    hidden = moves.deregister(None, "n1", at=NOW)
    dropped = moves.drop(hidden, "n2", at=NOW, ttl=timedelta(days=1), version=1)
    assert moves.undrop(dropped, "n3").state is State.DEREGISTERED
    claimed = moves.claim_revival(dropped, "n4", token="t", until=LATER)
    assert moves.undrop(moves.recover(claimed, "n5"), "n6").state is State.DEREGISTERED


def test_deletion_id_is_kept_until_the_drop_is_undone() -> None:
    dropped = moves.drop(None, "d1", at=NOW, ttl=timedelta(days=1), version=1)
    claimed = moves.claim_purge(dropped, "n2", token="t", until=LATER)
    assert moves.finish_purge(claimed, "n3", at=LATER).deletion_id == "d1"
    assert moves.undrop(dropped, "n4").undid == "d1"
    revived = moves.finish_revival(moves.claim_revival(dropped, "n5", token="t", until=LATER), "n6")
    assert revived.undid == "d1"
