"""With a manifest: each guard is switched off once, and the explorer must find a violation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.patches import original, substituted
from tests.support.scenarios.lifecycle import Step
from tests.support.scenarios.manifest import (
    Mode,
    creates,
    declares,
    drops,
    make_scenario,
    purges,
    undrops,
)

from relance.manifest.entry import Entry
from relance.manifest.store import ManifestConflictError, Snapshot
from relance.operations.directory.claims import swap
from relance.operations.rows.claims import RowClaim
from relance.testing.explorer import Budget, Exploration, explore
from relance.testing.model_manifest import ModelManifest, ModelSnapshot

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())


def _explore(
    actors: Sequence[Sequence[Step]], budget: Budget, start: Sequence[Step], mode: Mode = Mode.ROWS
) -> Exploration:
    return explore(make_scenario(actors, mode=mode, start=start), budget)


def test_without_compare_and_swap_two_changes_overwrite_each_other() -> None:
    real = original("model_manifest.put")

    def blind(self: ModelManifest, read: ModelSnapshot, *rest: Any) -> None:
        latest = self.latest()
        real(self, ModelSnapshot(read.rows, read.tokens, read.metadata, latest.stored), *rest)

    with substituted("model_manifest.put", blind):
        result = _explore([[creates("b")], [creates("c")]], Budget(), ())
    assert result.violation is not None


def test_without_looking_for_its_commit_a_landed_change_is_reported_as_failed() -> None:
    def give_up(self: ModelManifest, token: str, failure: Exception) -> None:
        raise ManifestConflictError("the manifest changed meanwhile") from failure

    with substituted("model_manifest.settle", give_up):
        result = _explore([[drops()], [undrops()]], Budget(lost=1), LIVE)
    assert result.violation is not None


def _as_it_is(snapshot: Snapshot, seen: Entry) -> tuple[Entry, Any]:
    """Take the dropped row in whatever state it is."""
    found = snapshot.get([seen.object_id]).get(seen.object_id) or seen
    return found, found.marker


def test_without_the_nonce_check_undrop_shows_a_table_being_purged() -> None:
    with substituted("row_drop.same_drop", _as_it_is):
        result = _explore([[undrops()], [purges()]], Budget(), DROPPED)
    assert result.violation is not None


def test_without_the_nonce_check_purge_deletes_an_undropped_table() -> None:
    def rename_back(snapshot: Snapshot, seen: Entry) -> tuple[Entry, Any]:
        return seen, seen.marker

    def not_shared(snapshot: Snapshot, entry: Entry) -> None:
        """The second look, for rows that lead to the same files, would notice too."""

    with (
        substituted("row_purge.same_drop", rename_back),
        substituted("row_purge.refuse_shared", not_shared),
    ):
        result = _explore([[undrops()], [purges()]], Budget(), DROPPED)
    assert result.violation is not None


def test_without_checking_its_claim_a_create_shows_a_table_taken_over() -> None:
    def anything(self: RowClaim, snapshot: Snapshot) -> Entry:
        return snapshot.get([self.entry.object_id]).get(self.entry.object_id) or self.entry

    with (
        substituted("row_claim.held", anything),
        substituted("row_claim.holder_is_gone", return_value=True),
    ):
        result = _explore([[creates("b")], [undrops(), drops()]], Budget(), DROPPED)
    assert result.violation is not None


def test_without_the_lease_a_stalled_holder_is_taken_over() -> None:
    with (
        substituted("row_claim.holder_is_gone", return_value=True),
        substituted("row_purge.holder_is_gone", return_value=True),
    ):
        result = _explore([[creates("b")], [undrops()]], Budget(), DROPPED)
    assert result.violation is not None


@pytest.mark.parametrize("module", ["drop", "create"])
def test_without_syncing_the_row_two_tables_share_a_name(module: str) -> None:
    other = undrops() if module == "drop" else creates("b")
    with substituted({"drop": "drop.announced_swap", "create": "create.announced_swap"}[module], swap):
        result = _explore([[declares()], [other]], Budget(), DROPPED, Mode.BOTH)
    assert result.violation is not None


def test_without_checking_its_name_a_cancelled_create_continues() -> None:
    settle = original("sync.settle")

    def has_its_name(*arguments: Any) -> bool:
        settle(*arguments)
        return True

    with substituted("sync.settle", has_its_name):
        result = _explore([[creates("b")], [declares()]], Budget(), DROPPED, Mode.BOTH)
    assert result.violation is not None


def test_without_completing_a_crashed_sync_the_name_stays_blocked() -> None:
    with substituted("sync.announced_row", return_value=None):
        result = _explore([[drops()], [undrops()]], Budget(crashes=1), LIVE, Mode.BOTH)
    assert result.violation is not None
