"""Each guard is switched off once, and the explorer must find a violation.

The guard of reading back after a lost answer is in test_lost_responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.patches import original, substituted
from tests.support.scenarios.lifecycle import (
    LONG,
    Step,
    creates,
    declares,
    drops,
    make_scenario,
    overwrites,
    overwrites_of_files,
    purges,
    sweeps,
    undrops,
)

from relance.lifecycle.marker_store import StoredMarker
from relance.locations import MARKER_SUFFIX
from relance.operations.context import Context
from relance.operations.directory import claims
from relance.storage.probe import Capabilities
from relance.storage.protocol import ObjectStorage
from relance.testing.explorer import Budget, Exploration, explore

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())
UNDROPPED: Sequence[Step] = (*DROPPED, undrops())

STALE_CREATE_THEN_DECLARE = ([creates("b")], [creates("c"), drops(), purges(), declares()])


def _explore(actors: Sequence[Sequence[Step]], budget: Budget, **options: Any) -> Exploration:
    return explore(make_scenario(actors, **options), budget)


def _settle_by_deleting(context: Context, settled: Sequence[tuple[claims.Claim, object]]) -> list[None]:
    """What looks simpler: the purge's last step removes the marker."""
    for claim, _ in settled:
        context.storage.delete(claim.name + MARKER_SUFFIX)
    return [None for _ in settled]


def test_without_the_tombstone_a_late_create_shows_a_table_without_data() -> None:
    with substituted("purge.settle_group", _settle_by_deleting):
        result = _explore([[creates("b")], [creates("c"), drops(), purges()]], Budget())
    assert result.violation is not None


def test_without_the_check_after_commit_create_succeeds_on_a_hidden_table() -> None:
    def never(storage: ObjectStorage, name: str, seen: StoredMarker | None) -> bool:
        return True

    with substituted("create.is_unchanged", never):
        result = _explore([[creates("b")], [creates("c"), drops(), purges()]], Budget())
    assert result.violation is not None


def test_without_the_check_before_commit_a_stale_create_breaks_a_declared_table() -> None:
    real = original("create.is_unchanged")

    class OnlyAfter:
        """Looks only when a version is there already: after the commit."""

        def __call__(self, storage: ObjectStorage, name: str, seen: StoredMarker | None) -> bool:
            committed = storage.which_exist([f"{name}.lance/_versions/"])
            return bool(real(storage, name, seen)) if committed else True

    with substituted("create.is_unchanged", OnlyAfter()):
        result = _explore(STALE_CREATE_THEN_DECLARE, Budget(ticks=1))
    assert result.violation is not None


def test_without_the_wait_a_declare_after_purge_meets_older_creates() -> None:
    with substituted("declare.creators_are_gone", return_value=True):
        result = _explore(STALE_CREATE_THEN_DECLARE, Budget())
    assert result.violation is not None


def test_without_nonces_a_swap_mistakes_a_newer_drop_for_the_one_it_read() -> None:
    with (
        substituted("explorer.start_nonce", return_value="same"),
        substituted("explorer.run_nonce", return_value="same"),
    ):
        result = _explore([[purges()], [undrops(), drops()]], Budget(), start=DROPPED)
    assert result.violation is not None


@pytest.mark.parametrize(
    ("actors", "start"),
    [
        pytest.param(([purges()], [purges(), creates("b")]), DROPPED, id="purge"),
        pytest.param(([creates("b")], [undrops()]), DROPPED, id="revival"),
    ],
)
def test_without_the_lease_a_stalled_holder_is_taken_over(
    actors: Sequence[Sequence[Step]], start: Sequence[Step]
) -> None:
    with (
        substituted("claim.holder_is_gone", return_value=True),
        substituted("purge.holder_is_gone", return_value=True),
    ):
        result = _explore(actors, Budget(), start=start)
    assert result.violation is not None


def test_without_checking_its_lease_a_stalled_purge_deletes_a_newer_table() -> None:
    with substituted("claim.ensure", return_value=None):
        result = _explore([[purges()], [purges(), creates("b")]], Budget(ticks=1), start=DROPPED)
    assert result.violation is not None


def test_without_a_claim_a_sweep_removes_a_newer_drop() -> None:
    def remove(context: Context, name: str, stored: StoredMarker) -> None:
        context.storage.delete(name + MARKER_SUFFIX)

    with substituted("sweep.remove_marker", remove):
        result = _explore([[sweeps()], [drops()]], Budget(), start=UNDROPPED, age=LONG)
    assert result.violation is not None


def test_without_its_deletion_id_a_drop_with_a_lost_response_runs_twice() -> None:
    real = original("drop.settled_marker")

    def forget(context: Context, name: str) -> StoredMarker | None:
        stored: StoredMarker | None = real(context, name)
        if stored is None:
            return None
        return replace(stored, marker=replace(stored.marker, deletion_id="", undid=""))

    with substituted("drop.settled_marker", forget):
        result = _explore([[drops()], [undrops()]], Budget(lost=1, ticks=1), start=LIVE)
    assert result.violation is not None


def test_without_announcing_its_commit_an_overwrite_commits_purged_files() -> None:
    with substituted("overwrite.capabilities", return_value=Capabilities(True, False)):
        result = _explore([[overwrites("b")], [drops(), purges(), creates("c")]], Budget(), start=LIVE)
    assert result.violation is not None


def test_without_the_wait_purge_deletes_files_an_overwrite_is_committing() -> None:
    with substituted("purge.writers_are_gone", return_value=True):
        result = _explore([[overwrites("b")], [drops(), purges(), creates("c")]], Budget(), start=LIVE)
    assert result.violation is not None


def test_without_checking_its_files_an_overwrite_shows_a_purged_table() -> None:
    with substituted("model_tables.require_written"):
        result = _explore(
            [[overwrites_of_files("b")], [drops(), purges(), creates("c")]], Budget(), start=LIVE
        )
    assert result.violation is not None
