"""What every call of a catalog with a manifest answers when calls come one after the other: dictionaries.

The machine that compares it with the real thing is in manifest_machine; what directories add in
compatibility mode is in compatibility_model. Nothing of the catalog's own code is used here, except
its error classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.machines.clock import TIME

from relance.errors import (
    InvalidInputError,
    InvalidTableStateError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

DROP_TTL = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=5)
"""By how much the clients' clocks differ; the store's clock decides, so nothing depends on it."""

MARGIN = timedelta(minutes=1)
"""How long after the end of its period a table is still not purged."""

TTL_PROPERTY = "drop_ttl"
TTL_OF_PROPERTY = {"1d": timedelta(days=1), "0": timedelta(0)}
"""What the values of that property mean, as far as they are used here."""

Id = tuple[str, ...]
Error = type[RelanceError] | None
"""The class of the error that is expected, or None for success."""


@dataclass(slots=True, eq=False)
class Data:
    """One directory with a table, whatever name leads to it."""

    versions: list[list[int]] = field(default_factory=list)
    """The rows of version 1, 2, and so on; none when it is only declared."""
    properties: dict[str, str] = field(default_factory=dict)
    protected: bool = False
    location: str = ""
    """As clients are told; it never changes."""
    home: str | None = None
    """Compatibility mode: it lies in the directory of this name."""
    written_at: datetime | None = None
    """When the newest version was written, by the store's clock."""
    written: int = 0
    """The version that the last write of rows made; properties make one more."""
    stored: dict[str, str] = field(default_factory=dict)
    """The properties that Lance has, for whoever finds the directory without a row."""

    @property
    def directory(self) -> str:
        """Its name in the root."""
        return self.location.rpartition("/")[2]

    def write(self, rows: list[int], properties: dict[str, str]) -> None:
        """Add a version that replaces the rows, and one with new properties if there are any."""
        self.versions.append(rows)
        self.written, self.written_at = len(self.versions), TIME.now()
        if properties:
            self.versions.append(rows)
            self.properties, self.stored = dict(properties), dict(properties)

    def append(self, rows: list[int]) -> None:
        """Note an append through a handle; handles do not know of the lifecycle."""
        self.write(sorted(self.versions[-1] + rows), {})


@dataclass(slots=True, eq=False)
class Space:
    """A namespace."""

    properties: dict[str, str] = field(default_factory=dict)
    protected: bool = False


@dataclass(slots=True, eq=False)
class Drop:
    """A dropped table or namespace."""

    id: Id
    what: Data | Space
    deleted_at: datetime
    ttl: timedelta
    version: int = 0
    """Of the table at the drop, where the marker beside its directory tells; rows do not."""
    deletion_id: str = ""
    cascade: str | None = None
    """Names the drop of a namespace that this one is part of."""
    top: bool = False
    """It is that namespace."""
    was_deregistered: bool = False

    @property
    def data(self) -> Data:
        assert isinstance(self.what, Data)
        return self.what

    @property
    def purge_after(self) -> datetime:
        return self.deleted_at + self.ttl

    def is_due(self, at: datetime) -> bool:
        """Tell whether its retention period ended, which begins anew with a write after the drop."""
        written = self.what.written_at if isinstance(self.what, Data) else None
        return max(self.deleted_at, written or self.deleted_at) + self.ttl + MARGIN <= at


class ManifestModel:
    """A catalog whose rows decide about everything. Calls take the time by the store's clock."""

    def __init__(self) -> None:
        self.spaces: dict[Id, Space] = {}
        self.rows: dict[Id, Data] = {}
        """Tables that a row shows."""
        self.drops: list[Drop] = []
        self.loose: list[Data] = []
        """Directories that were deregistered, and have no name."""

    # What is there.

    def table(self, key: Id) -> Data | None:
        """Return the visible table."""
        return self.rows.get(key)

    def visible(self) -> dict[Id, Data]:
        """Return all visible tables."""
        return dict(self.rows)

    def tables_in(self, namespace: Id, *, include_declared: bool = True) -> list[str]:
        """Return the names that a listing shows."""
        found = (
            key
            for key, data in self.visible().items()
            if key[:-1] == namespace and (include_declared or data.versions)
        )
        return sorted((key[-1] for key in found), key=str.encode)

    def all_tables(self) -> list[str]:
        """Return the ids that a listing of everything shows."""
        return sorted(("$".join(key) for key in self.visible()), key=str.encode)

    def namespaces_in(self, namespace: Id) -> list[str]:
        return sorted((key[-1] for key in self.spaces if key[:-1] == namespace), key=str.encode)

    def exists(self, namespace: Id) -> bool:
        return not namespace or namespace in self.spaces

    def dropped_tables(self, key: Id | None = None) -> list[Drop]:
        """Return the dropped tables, of all or of one id, oldest drop first."""
        found = [each for each in self.drops if isinstance(each.what, Data) and key in {None, each.id}]
        return sorted(found, key=lambda each: (each.deleted_at, each.id, each.deletion_id))

    def due(self, at: datetime) -> list[Drop]:
        """Return the dropped tables whose time has passed."""
        return [each for each in self.dropped_tables() if each.is_due(at)]

    def directories(self) -> list[Data]:
        """Return every directory that holds a table, those without a name first."""
        return [*self.loose, *self.visible().values(), *(each.data for each in self.dropped_tables())]

    def missing(self, key: Id) -> Error:
        """Tell what is missing of a table that is not there: it, or its namespace."""
        return TableNotFoundError if self.exists(key[:-1]) else NamespaceNotFoundError

    def free(self, key: Id) -> Error:
        """Tell why a table cannot get this id, if it cannot."""
        if not self.exists(key[:-1]):
            return NamespaceNotFoundError
        return TableAlreadyExistsError if self.table(key) or key in self.spaces else None

    # Tables.

    def create(self, key: Id, mode: str, rows: list[int], properties: dict[str, str]) -> Error:
        data = self.table(key)
        if data is not None:
            return self._create_over(data, mode, rows, properties)
        error = self.free(key)
        if error is not None:
            return error
        dropped = self.dropped_tables(key)
        if dropped:
            dropped[-1].data.write(rows, properties)
            self.revive(dropped[-1])
        else:
            data = Data()
            data.write(rows, properties)
            self.place(key, data)
        return None

    @staticmethod
    def _create_over(data: Data, mode: str, rows: list[int], properties: dict[str, str]) -> Error:
        if not data.versions:
            if properties:
                return InvalidInputError
            data.write(rows, data.properties)
            return None
        if mode == "overwrite":
            data.write(rows, properties)
        return TableAlreadyExistsError if mode == "create" else None

    def declare(self, key: Id, properties: dict[str, str]) -> Error:
        error = self.free(key)
        if error is None:
            self.place(key, Data(properties=dict(properties)))
        return error

    def drop(self, key: Id, at: datetime, ttl: timedelta | None) -> Error:
        data = self.table(key)
        if data is None:
            return self.missing(key)
        if data.protected:
            return InvalidTableStateError
        drop = Drop(key, data, at, self._ttl(key, data, ttl))
        self.hide(key, drop)
        self.drops.append(drop)
        return None

    def _ttl(self, key: Id, what: Data | Space, asked: timedelta | None) -> timedelta:
        if asked is not None:
            return asked
        above = [self.spaces[key[:length]] for length in range(len(key) - 1, 0, -1)]
        for each in (what, *above):
            if TTL_PROPERTY in each.properties:
                return TTL_OF_PROPERTY[each.properties[TTL_PROPERTY]]
        return DROP_TTL

    def to_undrop(self, key: Id, deletion_id: str | None) -> Drop | None:
        """Return the generation that an undrop brings back."""
        found = [each for each in self.dropped_tables(key) if deletion_id in {None, each.deletion_id}]
        return found[-1] if found else None

    def undrop(self, key: Id, deletion_id: str | None, target: Id) -> Error:
        drop = self.to_undrop(key, deletion_id)
        if drop is None:
            nothing_dropped = not self.dropped_tables(key)
            return TableAlreadyExistsError if nothing_dropped and self.table(key) else TableNotFoundError
        error = self.free(target)
        if error is None:
            self.show(drop, target)
        return error

    def purge(self, key: Id, at: datetime, *, force: bool) -> Error:
        """Purge what may be purged of this id; one generation that may not be is an error for all."""
        dropped = self.dropped_tables(key)
        if not dropped:
            return InvalidTableStateError if self.table(key) else TableNotFoundError
        for each in dropped:
            if force or each.is_due(at):
                self.forget(each)
        return None if force or all(each.is_due(at) for each in dropped) else InvalidTableStateError

    def purge_due(self, at: datetime) -> None:
        """Purge all whose time has passed, dropped namespaces too."""
        for each in list(self.drops):
            if each.is_due(at):
                self.forget(each)

    def rename(self, key: Id, target: Id) -> Error:
        if key == target:
            return InvalidInputError
        if self.table(key) is None:
            return TableNotFoundError
        error = self.free(target)
        if error is None:
            self.rows[target] = self.take(key)
        return error

    def deregister(self, key: Id) -> Error:
        data = self.table(key)
        if data is None:
            return self.missing(key)
        if data.protected:
            return InvalidTableStateError
        self.loosen(key)
        return None

    def register(self, key: Id, data: Data, mode: str, properties: dict[str, str]) -> Error:
        """Give a directory a name."""
        old = self.table(key)
        if data is not old and not self.is_loose(data):
            return InvalidInputError
        if old is None or mode == "create":
            error = self.free(key)
            if error is not None:
                return error
        elif old.protected:
            return InvalidTableStateError
        elif old is not data:
            self.loosen(key)
        self.adopt(key, data)
        data.properties = dict(properties)
        return None

    def protect(self, key: Id, *, on: bool) -> Error:
        what = self.spaces.get(key) or self.table(key)
        if what is None:
            return InvalidTableStateError
        what.protected = on
        return None

    # Namespaces.

    def create_namespace(self, key: Id, mode: str, properties: dict[str, str]) -> Error:
        if not self.exists(key[:-1]):
            return NamespaceNotFoundError
        old = self.spaces.get(key)
        if self.table(key) or (old is not None and mode == "create"):
            return NamespaceAlreadyExistsError
        if old is None:
            self.spaces[key] = Space(dict(properties))
        elif mode == "overwrite":
            old.properties = dict(properties)
        return None

    def inside(self, namespace: Id) -> Iterator[Id]:
        """Yield the ids of all that is in a namespace, at any depth."""
        for key in (*self.spaces, *self.rows):
            if key != namespace and key[: len(namespace)] == namespace:
                yield key

    def drop_namespace(self, key: Id, at: datetime, ttl: timedelta | None, *, cascade: bool) -> Error:
        if key not in self.spaces:
            return NamespaceNotFoundError
        inside = list(self.inside(key))
        if inside and not cascade:
            return NamespaceNotEmptyError
        whole: list[tuple[Id, Data | Space]] = [(key, self.spaces[key])]
        whole += [(each, self.rows.get(each) or self.spaces[each]) for each in inside]
        if any(what.protected for _, what in whole):
            return InvalidTableStateError
        span = self._ttl(key, self.spaces[key], ttl)
        for each, what in whole:
            (self.rows if isinstance(what, Data) else self.spaces).pop(each)
            self.drops.append(Drop(each, what, at, span, cascade="", top=each == key))
        return None

    def dropped_namespaces(self) -> list[Drop]:
        """Return all dropped namespaces, oldest drop first."""
        found = [each for each in self.drops if isinstance(each.what, Space)]
        return sorted(found, key=lambda each: each.deleted_at)

    def undrop_namespace(self, key: Id, cascade: str | None) -> tuple[Error, list[Id]]:
        """Bring back what one drop of this namespace took, and return the ids."""
        tops = [each for each in self.dropped_namespaces() if each.top and each.id == key]
        found = [each for each in tops if cascade in {None, each.cascade}]
        if not found or not self.exists(key[:-1]):
            return NamespaceNotFoundError, []
        parts = sorted(
            (each for each in self.drops if each.cascade == found[-1].cascade),
            key=lambda each: "$".join(each.id).encode(),
        )
        for each in parts:
            if self.table(each.id):
                return TableAlreadyExistsError, []
            if each.id in self.spaces:
                return NamespaceAlreadyExistsError, []
        for each in parts:
            self.drops.remove(each)
            if isinstance(each.what, Data):
                self.rows[each.id] = each.what
            else:
                self.spaces[each.id] = each.what
        return None, sorted(each.id for each in parts)

    # Where tables are; directories change this.

    def place(self, key: Id, data: Data) -> None:
        """Give a new table its place."""
        self.rows[key] = data

    def hide(self, key: Id, drop: Drop) -> None:
        """Take a table that is dropped out of sight."""
        del self.rows[key]

    def show(self, drop: Drop, target: Id) -> None:
        """Bring a dropped table back."""
        self.drops.remove(drop)
        self.rows[target] = drop.data

    def revive(self, drop: Drop) -> None:
        """Bring back a dropped table that a create wrote over."""
        self.show(drop, drop.id)

    def forget(self, drop: Drop) -> None:
        """Note that a dropped table or namespace was purged."""
        self.drops.remove(drop)

    def take(self, key: Id) -> Data:
        """Take the name off a visible table."""
        return self.rows.pop(key)

    def loosen(self, key: Id) -> None:
        """Deregister a visible table: only its directory stays."""
        data = self.rows.pop(key)
        data.properties = {}
        self.loose.append(data)

    def is_loose(self, data: Data) -> bool:
        """Tell whether a directory has no name and may get one."""
        return data in self.loose

    def adopt(self, key: Id, data: Data) -> None:
        """Put a directory under a name."""
        if data in self.loose:
            self.loose.remove(data)
        self.rows[key] = data
