"""The machine in compatibility mode, with a third client that knows nothing of the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests.support.machines.base import WHO
from tests.support.machines.clients import ANY, TABLES, choose
from tests.support.machines.clock import OffsetClock
from tests.support.machines.lifecycle import answer
from tests.support.machines.manifest import FLAG, MODE, WHICH, ManifestMachine
from tests.support.models.compatibility import CompatibilityModel, State
from tests.support.models.manifest import Error
from tests.support.roots import stream_of

from relance.catalog.repair import Problem
from relance.errors import TableAlreadyExistsError

NAMES = tuple(each[0] for each in TABLES if len(each) == 1)
NAME = st.sampled_from(NAMES)


class CompatibilityMachine(ManifestMachine):
    """Two clients that look at directories and rows, and one that looks at directories alone."""

    model: CompatibilityModel

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties, CompatibilityModel(NAMES))
        self.plain = self.open_client(OffsetClock(timedelta(0)), manifest_enabled="false")

    @rule(name=NAME, mode=MODE)
    def create_in_directory(self, name: str, mode: str) -> None:
        self.touched, rows = {(name,)}, self.new_rows()
        expected = self.model.create_in_directory(name, mode, rows)
        request = {"id": [name], "mode": mode}
        response = answer(expected, lambda: self.plain.create_table(request, stream_of(*rows)))
        if response is not None:
            data = self.model.homes[name].data
            assert data is not None
            data.location = data.location or response.location
            assert response.location == data.location
            assert response.version == len(data.versions)

    def some_name(self, which: int, state: State) -> str:
        """Return a name whose directory holds a table in this state, or sometimes any."""
        found = [name for name, home in self.model.homes.items() if home.data and home.state is state]
        return choose(which, found if found and which < ANY else NAMES)

    @rule(which=WHICH)
    def drop_in_directory(self, which: int) -> None:
        name = self.some_name(which, State.OPEN)
        self.touched, at = {(name,)}, self.later()
        expected = self.model.drop_in_directory(name, at)
        response = answer(expected, lambda: self.plain.drop_table({"id": [name]}))
        if response is not None:
            self.model.drops[-1].deletion_id = response.properties["deletion_id"]

    @rule(which=WHICH)
    def undrop_in_directory(self, which: int) -> None:
        name = self.some_name(which, State.DROPPED)
        self.touched = {(name,)}
        expected = self.model.undrop_in_directory(name)
        answer(expected, lambda: self.plain.undrop_table([name]))

    def call_register(self, request: dict[str, Any], who: int, expected: Error) -> Any:
        data = self.model.homes[request["id"][0]].shown if len(request["id"]) == 1 else None
        if expected is not TableAlreadyExistsError or data is None or data.location != request["location"]:
            return super().call_register(request, who, expected)
        # What is visible in the directory of the name may be new to the manifest, or not.
        with suppress(TableAlreadyExistsError):
            self.clients[who].register_table(request)
            data.properties = request["properties"] or data.properties
        return None

    @rule(who=WHO, dry_run=FLAG)
    def migrate_to_manifest(self, who: int, dry_run: bool) -> None:
        """Afterwards a client that looks at rows alone sees the same."""
        client = self.clients[who]
        plan = client.migrate_to_manifest(dry_run=dry_run)
        assert list(plan.shadowed) == self.model.shadowed()
        if dry_run:
            return
        again = client.migrate_to_manifest(dry_run=True)
        assert again.registered == again.dropped == again.mended == ()
        rows = self.open_client(OffsetClock(self.offsets[who]), dir_listing_enabled="false")
        assert list(rows.list_all_tables({"id": []}).tables) == self.model.all_tables()
        assert rows.list_dropped_tables() == client.list_dropped_tables()

    @rule(who=WHO)
    def sweep_markers(self, who: int) -> None:
        for name in self.clients[who].sweep_markers():
            self.model.sweep(name)

    def harmless(self) -> set[Problem]:
        return {Problem.OUT_OF_STEP, Problem.STALE_SIGN}

    @invariant()
    def a_client_without_manifest_lists_directories(self) -> None:
        assert list(self.plain.list_tables({"id": []}).tables) == self.model.shown_in_directories()
