"""What directories add to the model: root tables in the directory of their name.

And clients without manifest, who see nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from tests.support.machines.clock import TIME
from tests.support.models.manifest import DROP_TTL, Data, Drop, Error, Id, ManifestModel

from relance.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableAlreadyExistsError,
    TableNotFoundError,
)


class State(StrEnum):
    """What marker, arbiter and the files inside say of a directory."""

    OPEN = "open"
    """Nothing is hidden; a table may be there or not."""
    DROPPED = "dropped"
    DEREGISTERED = "deregistered"
    PURGED = "purged"
    NOWHERE = "nowhere"
    """A table in a namespace has no such directory."""


@dataclass(slots=True)
class Home:
    """The directory of a name."""

    data: Data | None = None
    state: State = State.OPEN

    @property
    def shown(self) -> Data | None:
        """The table that a client without manifest sees."""
        return self.data if self.state is State.OPEN else None


class CompatibilityModel(ManifestModel):
    """A catalog that finds root tables by their directories too."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.homes = {name: Home() for name in names}

    def home(self, key: Id) -> Home:
        """Return the directory of a name; one that leads nowhere for names in a namespace."""
        return (
            self.homes.get(key[0], Home(state=State.NOWHERE)) if len(key) == 1 else Home(state=State.NOWHERE)
        )

    def home_of(self, data: Data) -> Home | None:
        """Return the home that a table is in."""
        home = self.homes.get(data.home or "")
        return home if home is not None and home.data is data else None

    def table(self, key: Id) -> Data | None:
        if key in self.rows or key in self.spaces:
            return self.rows.get(key)
        return self.home(key).shown

    def visible(self) -> dict[Id, Data]:
        at_home = {(name,): home.shown for name, home in self.homes.items() if home.shown}
        return {
            **{key: data for key, data in at_home.items() if key not in self.spaces and data is not None},
            **self.rows,
        }

    def shadowed(self) -> list[str]:
        """Return the names whose directory shows a table that another object keeps from being seen."""
        return sorted(
            name
            for name, home in self.homes.items()
            if home.shown and ((name,) in self.rows or (name,) in self.spaces)
        )

    def directories(self) -> list[Data]:
        at_home = [home.data for home in self.homes.values() if home.data is not None]
        loose = [data for data in at_home if self.is_loose(data) and data not in self.loose]
        known = [*loose, *super().directories()]
        return [*known, *(data for data in at_home if data not in known)]

    # Where tables are.

    def place(self, key: Id, data: Data) -> None:
        home = self.home(key)
        empty = home.state is State.OPEN and home.data is None
        # A create may write below a tombstone; a declare, which tells nobody when it writes, may not.
        if empty or (home.state is State.PURGED and data.versions):
            home.data, home.state = data, State.OPEN
            data.home = key[0]
        else:
            self.rows[key] = data

    def hide(self, key: Id, drop: Drop) -> None:
        if key in self.rows:
            super().hide(key, drop)
            return
        self.home(key).state = State.DROPPED
        drop.version = len(drop.data.versions)

    def show(self, drop: Drop, target: Id) -> None:
        home = self.home_of(drop.data)
        if home is None:
            super().show(drop, target)
            return
        if target == drop.id:
            self.drops.remove(drop)
            home.state = State.DEREGISTERED if drop.was_deregistered else State.OPEN
        else:
            self.rows[target] = _copy(drop.data)  # the drop stays

    def revive(self, drop: Drop) -> None:
        drop.was_deregistered = False  # the new table is not, whatever the dropped one was
        self.show(drop, drop.id)

    def forget(self, drop: Drop) -> None:
        super().forget(drop)
        if isinstance(drop.what, Data):
            self.empty(drop.what)

    def empty(self, data: Data) -> None:
        """Note that the files of a table are gone."""
        decided = self.home_of(data)
        if decided is not None:
            decided.state = State.PURGED
        for home in self.homes.values():
            if home.data is data:
                home.data = None

    def take(self, key: Id) -> Data:
        if key in self.rows:
            return super().take(key)
        # A copy gets the new name; the old one is dropped.
        home = self.home(key)
        assert home.data is not None
        copy = _copy(home.data)
        self._drop_home(key, TIME.now(), self._ttl(key, home.data, None))
        return copy

    def loosen(self, key: Id) -> None:
        if key in self.rows:
            super().loosen(key)
            return
        home = self.home(key)
        assert home.data is not None
        home.state, home.data.properties = State.DEREGISTERED, {}

    def is_loose(self, data: Data) -> bool:
        home = self.home_of(data)
        if home is None:
            return data in self.loose
        return home.state is State.DEREGISTERED and data not in self.rows.values()

    def adopt(self, key: Id, data: Data) -> None:
        super().adopt(key, data)

    # Calls that differ.

    def drop(self, key: Id, at: datetime, ttl: timedelta | None) -> Error:
        home = self.home(key)
        nothing_else = key not in self.rows and key not in self.spaces
        if nothing_else and home.state is State.DEREGISTERED and home.data is not None:
            self._drop_home(key, at, ttl)
            return None
        return super().drop(key, at, ttl)

    def _drop_home(self, key: Id, at: datetime, ttl: timedelta | None) -> None:
        home = self.home(key)
        assert home.data is not None
        was_deregistered = home.state is State.DEREGISTERED
        drop = Drop(key, home.data, at, DROP_TTL if ttl is None else ttl, was_deregistered=was_deregistered)
        drop.version, home.state = len(home.data.versions), State.DROPPED
        self.drops.append(drop)

    def rename(self, key: Id, target: Id) -> Error:
        data = self.table(key)
        if key != target and data is not None and key not in self.rows and data.protected:
            return InvalidTableStateError
        return super().rename(key, target)

    def purge(self, key: Id, at: datetime, *, force: bool) -> Error:
        home = self.home(key)
        nothing_else = not self.dropped_tables(key) and not self.table(key)
        if nothing_else and home.state is State.DEREGISTERED and home.data is not None:
            return InvalidTableStateError  # it has to be dropped first
        return super().purge(key, at, force=force)

    def register(self, key: Id, data: Data, mode: str, properties: dict[str, str]) -> Error:
        home = self.home_of(data)
        if home is None or key != (data.home,):
            return super().register(key, data, mode, properties)
        if home.state is State.DROPPED:
            return TableNotFoundError
        if key in self.rows or key in self.spaces:
            registered = any(other is data for other in self.rows.values())
            return InvalidInputError if registered else TableAlreadyExistsError
        if home.state is State.OPEN and mode == "create":
            return TableAlreadyExistsError
        if data.protected:
            return InvalidTableStateError
        # Without a row and without new ones they are those that Lance has.
        kept = data.stored if home.state is State.DEREGISTERED else {}
        home.state, data.properties = State.OPEN, dict(properties or kept)
        return None

    def sweep(self, name: str) -> None:
        """Note that a marker is gone, which hid nothing."""
        home = self.homes[name]
        assert home.shown or home.data is None
        home.state = State.OPEN

    # Calls of a client without manifest, which sees directories and their markers alone.

    def shown_in_directories(self) -> list[str]:
        return sorted((name for name, home in self.homes.items() if home.shown), key=str.encode)

    def create_in_directory(self, name: str, mode: str, rows: list[int]) -> Error:
        home = self.homes[name]
        if home.state in {State.DEREGISTERED}:
            return TableAlreadyExistsError
        if home.shown and home.shown.versions:
            return self._create_over(home.shown, mode, rows, {})
        if home.data is None:
            home.data, home.state = Data(home=name), State.OPEN
            home.data.write(rows, {})
            return None
        home.data.write(rows, {})
        if home.state is State.DROPPED:
            self.revive(self._drop_at(name))
        return None

    def drop_in_directory(self, name: str, at: datetime) -> Error:
        """Drop what is there; such a client knows nothing of protection, nor of properties."""
        home = self.homes[name]
        if home.data is None or home.state not in {State.OPEN, State.DEREGISTERED}:
            return TableNotFoundError
        self._drop_home((name,), at, None)
        return None

    def undrop_in_directory(self, name: str) -> Error:
        home = self.homes[name]
        if home.shown or home.state is State.DEREGISTERED:
            return TableAlreadyExistsError
        if home.state is not State.DROPPED:
            return TableNotFoundError
        self.show(self._drop_at(name), (name,))
        return None

    def _drop_at(self, name: str) -> Drop:
        data = self.homes[name].data
        return next(each for each in self.drops if each.what is data)


def _copy(data: Data) -> Data:
    """Return a table with the same versions in a directory of its own."""
    return replace(
        data,
        versions=list(data.versions),
        properties=dict(data.properties),
        location="",
        home=None,
        written_at=TIME.now(),
    )
