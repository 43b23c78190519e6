"""What lies at the root: one look at a name, one listing of all names, and the manifest files of a table.

Names, sizes and times decide nearly always; bodies are read where they do not. What arbiter and
marker mean is in states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from relance.catalog.states import (
    FORMAT,
    SHORT_MAX_BYTES,
    TOMBSTONE_MAX_BYTES,
    Mark,
    Marked,
    Situation,
    State,
    Timing,
    decode_control,
    decode_mark,
    is_deleted,
    is_format_1,
    is_purged,
    situation,
    state_of,
)
from relance.clock import Clock
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    KeyExistsError,
    KeyNotFoundError,
    PermissionDeniedError,
    RelanceError,
    ServiceUnavailableError,
    StorageError,
    TableBranchNotFoundError,
)
from relance.foreign_json import parse_json
from relance.identifiers import why_unusable
from relance.locations import (
    CONTROL_SUFFIX,
    CREATING_SUFFIX,
    DECLARED_SUFFIX,
    DEREGISTERED_FILE,
    DEREGISTERED_SUFFIX,
    LAYOUT_KEY,
    MARKER_SUFFIX,
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
)
from relance.storage.at_once import map_at_once
from relance.storage.failures import damaged
from relance.storage.protocol import BODY_MAX_BYTES, Level, ObjectInfo, ObjectStorage, Stored
from relance.storage.readback import create_once, replace_once

SIGNS = (CREATING_SUFFIX, DECLARED_SUFFIX, DEREGISTERED_SUFFIX)
"""Empty files beside a table's directory that tell listings to look inside; they decide nothing."""

_ATTEMPTS = 20
"""How often a name is looked at again because its arbiter changed between two requests."""

_LARGEST = 2**64 - 1
_NEVER = datetime.min.replace(tzinfo=UTC)
_MANIFEST_NAME = re.compile(r"(\d+)\.manifest")


class Surroundings(Protocol):
    """What a look at the root needs of an opened catalog."""

    @property
    def storage(self) -> ObjectStorage: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def timing(self) -> Timing: ...

    @property
    def memory(self) -> Memory: ...

    def has_foreign_version(self, directory: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class KnownProperties:
    """The properties of a table's latest version, and when that was seen to be the latest."""

    newest: ManifestFile
    properties: dict[str, str]
    seen: float
    """By the monotonic clock."""


@dataclass(slots=True)
class Memory:
    """What an opened catalog remembers of its root. It saves requests and time, and decides nothing."""

    format_checked: bool = False
    flagged: bool = False
    is_large: bool = False
    """A page from the middle of the root is long, so small requests are faster."""
    store_time: tuple[datetime, float] | None = None
    may_not_write: bool = False
    """The store refused a change that nobody asked for, so nothing more is tidied up on the side."""
    needs_pages: bool = False
    """The root has too many keys for one page of them all."""
    nested: NestedFiles | None = None
    """What a client that may only read saw inside the tables of a large root."""
    nested_until: float = 0.0
    properties: dict[str, KnownProperties] = field(default_factory=dict)
    """By directory, the properties that Lance has of a table."""


# The manifest files of a table's versions.


class NamingScheme(StrEnum):
    """How a version number becomes a file name."""

    V1 = "V1"
    """`<version>.manifest`"""
    V2 = "V2"
    """`<2^64-1 - version, 20 digits>.manifest`: the newest sorts first."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One version's manifest."""

    version: int
    info: ObjectInfo


def parse_scheme(text: str | None) -> NamingScheme:
    """Return the naming scheme; none named means V2.

    Raises:
        InvalidInputError: there is no such scheme.
    """
    try:
        return NamingScheme(text.upper()) if text else NamingScheme.V2
    except ValueError:
        raise InvalidInputError(f"unknown naming scheme {text!r}: use V1 or V2") from None


def file_name(version: int, scheme: NamingScheme) -> str:
    """Return the name of the manifest of `version`."""
    return f"{version}.manifest" if scheme is NamingScheme.V1 else f"{_LARGEST - version:020d}.manifest"


def version_of(name: str) -> int | None:
    """Return the version that a file name stands for, or None: staged, detached and other files."""
    match = _MANIFEST_NAME.fullmatch(name)
    if match is None:
        return None
    digits = match[1]
    return _LARGEST - int(digits) if len(digits) == 20 else int(digits)


def manifest_key(directory: str, branch: str | None, version: int, scheme: NamingScheme) -> str:
    """Return the key of a version's manifest."""
    return f"{_versions_directory(directory, branch)}/{file_name(version, scheme)}"


def list_manifests(
    storage: ObjectStorage, directory: str, branch: str | None, *, missing_ok: bool = False
) -> list[ManifestFile]:
    """Return the versions of the table or of one of its branches, oldest first.

    Raises:
        TableBranchNotFoundError: there is no such branch, unless `missing_ok`.
    """
    manifests = _manifests_among(storage.list_level(_versions_directory(directory, branch)).files)
    if not manifests and _is_branch(branch) and not missing_ok:
        raise TableBranchNotFoundError(f"branch '{branch}' of the table at '{directory}'")
    return manifests


def newest_manifest(storage: ObjectStorage, directory: str) -> ManifestFile | None:
    """Return the latest version of a table."""
    manifests = list_manifests(storage, directory, None)
    return manifests[-1] if manifests else None


def _manifests_among(files: Iterable[ObjectInfo]) -> list[ManifestFile]:
    manifests = ((version_of(info.key.rpartition("/")[2]), info) for info in files)
    known = [ManifestFile(version, info) for version, info in manifests if version is not None]
    return sorted(known, key=lambda file: file.version)


def _versions_directory(directory: str, branch: str | None) -> str:
    if not _is_branch(branch):
        return f"{directory}/{VERSIONS_DIRECTORY}"
    if any(part in {"", ".", ".."} for part in str(branch).split("/")):
        raise InvalidInputError(f"invalid branch name {branch!r}")
    return f"{directory}/tree/{branch}/{VERSIONS_DIRECTORY}"


def _is_branch(branch: str | None) -> bool:
    return branch is not None and branch != "main"


# One name.


@dataclass(frozen=True, slots=True)
class NameSnapshot:
    """What lies under a root name: its arbiter, its marker and its home directory."""

    name: str
    control: ObjectInfo | None
    marker: ObjectInfo | None
    signs: frozenset[str]
    has_versions: bool
    newest: ManifestFile | None
    """The latest version, if it was asked for or is known without asking."""
    reserved: bool
    """Declared: the spec's own file is in the directory."""
    deregistered: bool
    """Hidden by the spec's own file in the directory."""
    is_empty: bool
    """Nothing at all lies in the directory."""
    marked: Marked | None = None
    """The arbiter's body, if it was read."""
    mark: Mark | None = None
    """The marker's body, if it was read."""
    situation: Situation = Situation.VISIBLE
    shows_nothing: bool = False
    """A tombstone hides what is in the directory: Relance wrote it, before the purge."""

    @property
    def directory(self) -> str:
        return table_directory(self.name)

    @property
    def holds_table(self) -> bool:
        """Whether a table is there, hidden or not; leftovers of an unfinished create are none."""
        return (self.has_versions or self.reserved) and not self.shows_nothing

    @property
    def is_live(self) -> bool:
        """Whether a table is there that neither arbiter nor marker hide; it may be deregistered."""
        return self.situation is Situation.VISIBLE and self.holds_table

    @property
    def is_visible(self) -> bool:
        return self.is_live and not self.deregistered

    @property
    def is_dropped(self) -> bool:
        """Whether there is a dropped table that an undrop could bring back."""
        return self.situation is Situation.DROPPED and (self.has_versions or self.reserved)

    @property
    def only_declared(self) -> bool:
        return self.reserved and not self.has_versions

    @property
    def version(self) -> int:
        """The latest version; 0 when there is none."""
        return self.newest.version if self.newest is not None else 0


class Bodies(StrEnum):
    """When a look at a name reads the arbiter's body."""

    NEEDED = "needed"
    """Where names, sizes and times do not decide."""
    HIDDEN = "hidden"
    """Also where the arbiter may hide something, or there is a marker."""
    ALL = "all"


def inspect_name(
    catalog: Surroundings, name: str, *, bodies: Bodies = Bodies.NEEDED, versions: bool = False
) -> NameSnapshot:
    """Look at a name once; the latest version is looked up where `versions` asks for it.

    Raises:
        InvalidTableStateError: the arbiter cannot be understood, and its body is needed.
        ConcurrentModificationError: the name keeps changing.
    """
    for _ in range(_ATTEMPTS):
        page = _page(catalog, name, versions=versions, signs=bodies is not Bodies.NEEDED)
        decided = _by_size(page.control, page.marker)
        if bodies is Bodies.NEEDED or (bodies is Bodies.HIDDEN and decided is Situation.VISIBLE):
            if not (page.has_versions or page.reserved):
                return page  # nothing is there, whatever arbiter and marker say
            if decided is page.situation:
                return page
            if decided is not None:
                return replace(page, situation=decided)
        snapshot = _read_bodies(catalog, page)
        if snapshot is not None:
            return snapshot
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{name}'; retry")


def _by_size(control: ObjectInfo | None, marker: ObjectInfo | None) -> Situation | None:
    """Return what names, sizes and times decide about a table; None if that takes the bodies."""
    short = control is None or control.size <= SHORT_MAX_BYTES
    if short and marker is None:
        return Situation.VISIBLE
    if control is None:
        return Situation.DROPPED
    if short or control.size <= TOMBSTONE_MAX_BYTES:
        return None
    if marker is None or marker.modified is None or control.modified is None:
        return None
    return Situation.DROPPED if marker.modified <= control.modified else None


def _read_bodies(catalog: Surroundings, page: NameSnapshot) -> NameSnapshot | None:
    """Return the snapshot with its bodies; None when one changed since the page was listed.

    The arbiter is read last, and has to be the one that the page showed: then the page is as good as one
    taken at this moment.
    """
    older = _by_size(page.control, page.marker) is Situation.DROPPED and page.control is not None
    mark = marked = None
    if page.marker is not None and not older:
        mark = read_mark(catalog, page.name, page.marker)
        if mark is None:
            return None
    if page.control is not None:
        marked = read_control(catalog, page.name, page.control)
        if marked is None:
            return None
    elif page.marker is not None and read_control(catalog, page.name) is not None:
        return None
    if older and is_deleted(marked):
        # A marker that is not younger than the arbiter belongs to it: its body says nothing more.
        purging = state_of(marked) is State.PURGING
        return replace(page, marked=marked, situation=Situation.PURGING if purging else Situation.DROPPED)
    if older and page.marker is not None:
        mark = read_mark(catalog, page.name, page.marker)
        if mark is None:
            return None
    hides_ours = page.reserved
    if is_purged(marked) and page.has_versions:
        hides_ours = not catalog.has_foreign_version(page.directory)
    return replace(
        page,
        marked=marked,
        mark=mark,
        situation=situation(marked, mark, catalog.timing),
        shows_nothing=is_purged(marked) and hides_ours,
    )


def read_control(catalog: Surroundings, name: str, listed: ObjectInfo | None = None) -> Marked | None:
    """Return the arbiter of a root name; None when there is none, or no longer the one that was listed.

    Raises:
        InvalidTableStateError: it cannot be understood.
        StorageError: the response is not what was listed.
    """
    try:
        stored = catalog.storage.read(name + CONTROL_SUFFIX)
    except KeyNotFoundError:
        return None
    if listed is not None and not _is_listed(stored, listed):
        return None
    return Marked(decode_control(stored.body, name=name), stored.version, _time(catalog, stored.modified))


def read_mark(catalog: Surroundings, name: str, listed: ObjectInfo) -> Mark | None:
    """Return the marker of a root name; None when it is no longer the one that was listed.

    Raises:
        InvalidTableStateError: it was written by the first format.
        StorageError: the response is not what was listed.
    """
    if listed.size > BODY_MAX_BYTES:
        return Mark(modified=_time(catalog, listed.modified))  # no marker is that long: its body is not read
    try:
        stored = catalog.storage.read(name + MARKER_SUFFIX)
    except KeyNotFoundError:
        return None
    if not _is_listed(stored, listed):
        return None
    if is_format_1(stored.body):
        raise old_format(catalog.storage)
    return decode_mark(stored.body, _time(catalog, stored.modified))


def _is_listed(stored: Stored, listed: ObjectInfo) -> bool:
    """Tell whether an object that was read is still the one that was listed.

    Raises:
        StorageError: the tag says that it is, and the body is another one: a proxy cut it short.
    """
    if stored.e_tag != listed.e_tag:
        return False
    if listed.e_tag is not None and len(stored.body) != listed.size:
        raise damaged(repr(listed.key), f"{len(stored.body)} of {listed.size} bytes")
    return len(stored.body) == listed.size


def _time(catalog: Surroundings, modified: datetime | None) -> datetime | None:
    return None if modified is None else catalog.clock.at_store(modified)


def _page(catalog: Surroundings, name: str, *, versions: bool, signs: bool) -> NameSnapshot:
    storage = catalog.storage
    page = None
    if storage.lists_in_order and not catalog.memory.is_large:
        page = _page_in_order(catalog, name)
    if page is None and storage.cheap_lookups:
        page = _page_in_parts(storage, name, versions=versions, signs=signs)
    elif page is None:
        page = _page_in_small_requests(storage, name, versions=versions)
    newest = page.newest
    if versions and page.has_versions and newest is None:
        newest = newest_manifest(storage, page.directory)
    if newest is not None:
        newest = replace(newest, info=_timed(catalog, newest.info))
    elif page.control is None and page.marker is None:
        return page  # mostly
    return replace(
        page,
        control=None if page.control is None else _timed(catalog, page.control),
        marker=None if page.marker is None else _timed(catalog, page.marker),
        newest=newest,
    )


def _timed(catalog: Surroundings, info: ObjectInfo) -> ObjectInfo:
    return replace(info, modified=_time(catalog, info.modified))


def _snapshot(
    name: str,
    control: ObjectInfo | None,
    marker: ObjectInfo | None,
    present: Container[str],
    newest: ManifestFile | None,
    *,
    has_versions: bool,
    is_empty: bool,
) -> NameSnapshot:
    return NameSnapshot(
        name=name,
        control=control,
        marker=marker,
        signs=frozenset(suffix for suffix in SIGNS if name + suffix in present),
        has_versions=has_versions,
        newest=newest,
        reserved=table_file(name, RESERVED_FILE) in present,
        deregistered=table_file(name, DEREGISTERED_FILE) in present,
        is_empty=is_empty,
    )


def _page_in_order(catalog: Surroundings, name: str) -> NameSnapshot | None:
    """Return what one listing shows that begins just before the arbiter's name; mostly one is enough.

    None: so many keys of other names come in between that the listing ends before the home directory.
    """
    storage = catalog.storage
    inside, versions = table_file(name, ""), table_file(name, f"{VERSIONS_DIRECTORY}/")
    page = storage.list_after(f"{name}.c")
    # A page of a thousand keys took 20 times as long as a small request (design/0008).
    catalog.memory.is_large = not page.is_last
    last = page.objects[-1].key if page.objects else ""
    if not page.is_last and last < inside:
        return None
    files = {info.key: info for info in page.objects if info.key.startswith(f"{name}.")}
    is_cut = not page.is_last and last.startswith(inside) and last < versions
    if is_cut:  # many other files come before the versions
        rest = storage.list_after(versions)
        files |= {info.key: info for info in rest.objects if info.key.startswith(versions)}
        page, last = rest, rest.objects[-1].key if rest.objects else ""
    manifests = _manifests_among(info for key, info in files.items() if key.startswith(versions))
    all_listed = page.is_last or not last.startswith(versions)
    # The newest sorts first in the one naming scheme, and anywhere in the other.
    is_newest = bool(manifests) and (all_listed or _sorts_first(manifests[-1]))
    return _snapshot(
        name,
        files.get(name + CONTROL_SUFFIX),
        files.get(name + MARKER_SUFFIX),
        files,
        manifests[-1] if is_newest else None,
        has_versions=bool(manifests),
        is_empty=not any(key.startswith(inside) for key in files),
    )


def _sorts_first(file: ManifestFile) -> bool:
    return file.info.key.endswith(f"/{file_name(file.version, NamingScheme.V2)}")


def _page_in_parts(storage: ObjectStorage, name: str, *, versions: bool, signs: bool) -> NameSnapshot:
    """Return what several requests show, in this order: arbiter, marker, directory."""
    directory = table_directory(name)
    beside = [name + CONTROL_SUFFIX, name + MARKER_SUFFIX]
    first = manifest_key(directory, None, 1, NamingScheme.V2)
    files = [table_file(name, RESERVED_FILE), table_file(name, DEREGISTERED_FILE)]
    inside = [first, *files, *(name + suffix for suffix in SIGNS if signs)]
    control = marker = None
    present = storage.which_exist([*beside, *inside])
    if not present.isdisjoint(beside):
        control, marker = (_head(storage, key) for key in beside)
        present = storage.which_exist(inside)
    # Most tables still have their first version; a folder of many need not be read then.
    looked = versions or first not in present
    newest = newest_manifest(storage, directory) if looked else None
    has_versions = newest is not None or not looked
    occupied = has_versions or not present.isdisjoint(files)
    is_empty = not occupied and not storage.which_exist([f"{directory}/"])
    return _snapshot(name, control, marker, present, newest, has_versions=has_versions, is_empty=is_empty)


def _page_in_small_requests(storage: ObjectStorage, name: str, *, versions: bool) -> NameSnapshot:
    """Return the same on an object store, where looking for a sign costs as much as removing it."""
    directory = table_directory(name)
    control = _head(storage, name + CONTROL_SUFFIX)
    marker = _head(storage, name + MARKER_SUFFIX)
    level = storage.list_level(directory)
    present = {info.key for info in level.files} | {name + suffix for suffix in SIGNS}
    has_versions = VERSIONS_DIRECTORY in level.directories
    newest = newest_manifest(storage, directory) if versions and has_versions else None
    return _snapshot(
        name,
        control,
        marker,
        present,
        newest,
        has_versions=newest is not None if versions else has_versions,
        is_empty=not level.files and not level.directories,
    )


def _head(storage: ObjectStorage, key: str) -> ObjectInfo | None:
    try:
        return storage.head(key)
    except KeyNotFoundError:
        return None


# All names.


@dataclass(frozen=True, slots=True)
class RootListing:
    """What one listing of the root shows, by name."""

    directories: frozenset[str]
    """Names with a home directory, whatever their state."""
    controls: dict[str, ObjectInfo]
    markers: dict[str, ObjectInfo]
    signs: dict[str, frozenset[str]]
    """Names with each kind of sign."""
    flagged_at: datetime | None
    """When the root's flag was written: every table that a file inside it hid then had a sign beside it."""
    others: frozenset[str]
    """Directories that are no table's home."""
    odd: frozenset[str]
    """Names of files of ours that on a disk something else has: a link, a pipe, a folder."""

    @property
    def is_flagged(self) -> bool:
        return self.flagged_at is not None

    def doubtful(self) -> frozenset[str]:
        """Return the names whose bodies have to be read: their sizes and times do not decide."""
        return self._decided(None)

    def shown_by_size(self) -> frozenset[str]:
        """Return the names that neither arbiter nor marker hide, as far as that shows without bodies."""
        return self._decided(Situation.VISIBLE)

    def _decided(self, wanted: Situation | None) -> frozenset[str]:
        sizes = ((name, self.controls.get(name), self.markers.get(name)) for name in self.directories)
        return frozenset(name for name, *infos in sizes if _by_size(*infos) is wanted)

    def hidden(self) -> frozenset[str]:
        """Return the names with a marker, or with an arbiter that may hide them."""
        long = {name for name, info in self.controls.items() if info.size > SHORT_MAX_BYTES}
        return frozenset(long | self.markers.keys())

    def claimed(self) -> frozenset[str]:
        """Return the names whose arbiter may be a claim, or a drop; it is longer than a tombstone."""
        return frozenset(name for name, info in self.controls.items() if info.size > TOMBSTONE_MAX_BYTES)


def list_root(catalog: Surroundings, level: Level | None = None) -> RootListing:
    """Sort the entries of the root's top level by name; what is of none of the kinds is not ours.

    `level` is that level, if the caller has listed it.
    """
    level = catalog.storage.list_level("") if level is None else level
    controls: dict[str, ObjectInfo] = {}
    markers: dict[str, ObjectInfo] = {}
    signs: dict[str, set[str]] = {suffix: set() for suffix in SIGNS}
    flagged_at: datetime | None = None
    for info in level.files:
        stem, dot, ending = info.key.rpartition(".")
        suffix = dot + ending
        if info.key == LAYOUT_KEY:
            flagged_at = _time(catalog, info.modified) or _NEVER
        elif (suffix not in signs and suffix not in {CONTROL_SUFFIX, MARKER_SUFFIX}) or why_unusable(
            stem
        ) is not None:
            continue
        elif suffix in signs:
            signs[suffix].add(stem)
        else:
            (controls if suffix == CONTROL_SUFFIX else markers)[stem] = _timed(catalog, info)
    homes = {name for name in level.directories if name.endswith(TABLE_SUFFIX)}
    names = (name.removesuffix(TABLE_SUFFIX) for name in homes)
    suffixes = (CONTROL_SUFFIX, MARKER_SUFFIX, *SIGNS)
    no_files = (*level.odd, *level.directories)
    return RootListing(
        # A directory with a name we refuse cannot be addressed either, so it is not shown.
        directories=frozenset(name for name in names if why_unusable(name) is None),
        controls=controls,
        markers=markers,
        signs={suffix: frozenset(stems) for suffix, stems in signs.items()},
        flagged_at=flagged_at,
        others=frozenset(level.directories) - homes,
        odd=frozenset(name for name in no_files if name == LAYOUT_KEY or name.endswith(suffixes)),
    )


def list_names(catalog: Surroundings, *, include_declared: bool) -> list[str]:
    """Return the names of the visible root tables in their home directories, sorted by their bytes.

    Costs one listing of the root: of all keys where one page holds them, of the top level where not.
    Names that it leaves in doubt are looked at together: those whose bodies decide, those whose create did
    not finish, and declared ones when they are to be left out. What other clients left inside directories
    shows among all keys; where only the top level is listed, all directories are looked into now and then.
    """
    storage = catalog.storage
    level, paths = _whole_root(catalog) or (None, None)
    listing = list_root(catalog, level)
    names = listing.shown_by_size() | visible_among(catalog, listing.doubtful())
    which_exist = _unreadable_shown(storage) if storage.cheap_lookups else storage.which_exist
    unfinished = foreign = names  # as far as looking inside costs next to nothing, nothing is left to signs
    if paths is None and not storage.cheap_lookups:
        nested = _look_inside_if_due(catalog, listing)
        if nested is not None:
            paths = nested.paths
        else:
            unfinished = names & listing.signs[CREATING_SUFFIX]
            if not include_declared:
                unfinished |= names & listing.signs[DECLARED_SUFFIX]
            foreign = names & listing.signs[DEREGISTERED_SUFFIX]
    if paths is not None:
        which_exist = paths.intersection
    without = unfinished - _with(which_exist, unfinished, f"{VERSIONS_DIRECTORY}/")
    if include_declared:
        without -= _with(which_exist, without, RESERVED_FILE)
    visible = names - without
    return sorted(visible - _with(which_exist, foreign & visible, DEREGISTERED_FILE), key=str.encode)


ONE_TABLE_FAILS = (PermissionDeniedError, StorageError)
"""Failures that on a disk may be of one table alone, and after which nothing is still under way."""

_WhichExist = Callable[[Sequence[str]], frozenset[str]]


def _unreadable_shown(storage: ObjectStorage) -> _WhichExist:
    """Return a look at a disk that shows a table whose directory cannot be read: using it will say why."""

    def is_shown(path: str) -> bool:
        try:
            return bool(storage.which_exist([path]))
        except ONE_TABLE_FAILS:
            return not path.endswith(f"/{DEREGISTERED_FILE}")

    def which_exist(paths: Sequence[str]) -> frozenset[str]:
        with suppress(*ONE_TABLE_FAILS):
            return storage.which_exist(paths)
        return frozenset(path for path in paths if is_shown(path))

    return which_exist


def _with(which_exist: _WhichExist, names: frozenset[str], file: str) -> frozenset[str]:
    files = {table_file(name, file): name for name in names}
    return frozenset(files[path] for path in which_exist(list(files)))


def _whole_root(catalog: Surroundings) -> tuple[Level, frozenset[str]] | None:
    """Return the top level of the root, and all keys and folders, if one page holds them; tried once."""
    storage, memory = catalog.storage, catalog.memory
    if storage.cheap_lookups or not storage.lists_in_order or memory.needs_pages:
        return None
    page = storage.list_after("")
    if not page.is_last:
        memory.needs_pages = True
        return None
    keys = [info.key.split("/") for info in page.objects]
    folders = {"/".join(parts[:count]) + "/" for parts in keys for count in range(1, len(parts))}
    directories = dict.fromkeys(parts[0] for parts in keys if len(parts) > 1)
    level = Level(tuple(directories), tuple(info for info in page.objects if "/" not in info.key))
    return level, frozenset(folders | {info.key for info in page.objects})


LOOK_INSIDE_EVERY = timedelta(minutes=10)
"""For so long the root's flag vouches for the files inside tables. Other clients do not keep its promise, so
it expires; a look at a single table sees these files at once."""


@dataclass(frozen=True, slots=True)
class NestedFiles:
    """What lies in home directories: versions, and the files that declare a table or hide it."""

    names: frozenset[str]
    paths: frozenset[str]

    @property
    def with_versions(self) -> frozenset[str]:
        return _with(self.paths.intersection, self.names, f"{VERSIONS_DIRECTORY}/")

    @property
    def declared(self) -> frozenset[str]:
        return _with(self.paths.intersection, self.names, RESERVED_FILE) - self.with_versions

    @property
    def deregistered(self) -> frozenset[str]:
        return _with(self.paths.intersection, self.names, DEREGISTERED_FILE)


def nested_files(storage: ObjectStorage, names: frozenset[str]) -> NestedFiles:
    """Look into the home directories of these names, all together."""
    files = (DEREGISTERED_FILE, RESERVED_FILE, f"{VERSIONS_DIRECTORY}/")
    paths = [table_file(name, file) for name in sorted(names) for file in files]
    return NestedFiles(names, storage.which_exist(paths))


def _look_inside_if_due(catalog: Surroundings, listing: RootListing) -> NestedFiles | None:
    """Return what lies inside the tables of a large root; None while the flag vouches that signs tell it.

    Whoever finds the flag expired looks inside all tables, writes the signs that are missing, and renews the
    flag for everybody. A client that may not write remembers for itself what it saw.
    """
    storage, memory, now = catalog.storage, catalog.memory, catalog.clock.now()
    # Its own clock decides only how often a client does this: a wrong one makes it look more often.
    if listing.flagged_at is not None and abs(now - listing.flagged_at) < LOOK_INSIDE_EVERY:
        return None
    if memory.nested is not None and catalog.clock.monotonic() < memory.nested_until:
        if listing.directories <= memory.nested.names:
            return memory.nested
        memory.nested = None
    nested = nested_files(storage, listing.directories)
    if listing.is_flagged and not memory.may_not_write:
        with _on_the_side(memory):
            sign_nested_files(storage, nested, listing)
            renew_flag(storage)
    if listing.is_flagged and memory.may_not_write:
        memory.nested = nested
        memory.nested_until = catalog.clock.monotonic() + LOOK_INSIDE_EVERY.total_seconds()
    return nested


def visible_among(catalog: Surroundings, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that show a table when they are looked at one by one."""

    def is_visible(name: str) -> bool:
        try:
            return inspect_name(catalog, name).is_visible
        except InvalidTableStateError:
            return False  # scrub() reports it
        except ONE_TABLE_FAILS:
            if not catalog.storage.cheap_lookups:
                raise
            return True  # using it will say why it cannot be read

    chosen = sorted(names)
    shown = map_at_once(catalog.storage, is_visible, chosen)
    return frozenset(name for name, visible in zip(chosen, shown, strict=True) if visible)


# Reservations, signs and the root's flag.


@contextmanager
def _on_the_side(memory: Memory) -> Iterator[None]:
    """Make a change that nobody asked for: if it fails the next look makes it, unless it is not allowed."""
    try:
        yield
    except PermissionDeniedError:
        memory.may_not_write = True
    except RelanceError:
        pass


def sign_nested_files(storage: ObjectStorage, nested: NestedFiles, listing: RootListing) -> None:
    """Write the signs that are missing for what lies inside tables; remove those of tables with data."""
    for name in sorted(nested.deregistered - listing.signs[DEREGISTERED_SUFFIX]):
        put_sign(storage, name, DEREGISTERED_SUFFIX)
    for name in sorted(nested.declared - listing.signs[DECLARED_SUFFIX]):
        put_sign(storage, name, DECLARED_SUFFIX)
    settled = sorted(nested.with_versions & listing.signs[DECLARED_SUFFIX])
    if settled:
        storage.delete_many(name + DECLARED_SUFFIX for name in settled)


def sign_deregistered(catalog: Surroundings, home: NameSnapshot) -> None:
    """Have listings know of a table that another client deregistered."""
    if DEREGISTERED_SUFFIX in home.signs or catalog.storage.cheap_lookups or catalog.memory.may_not_write:
        return
    with _on_the_side(catalog.memory):
        put_sign(catalog.storage, home.name, DEREGISTERED_SUFFIX)


def end_reservation(catalog: Surroundings, directory: str) -> None:
    """Remove the file that declares a table, which has a version now. Nobody depends on it any more."""
    if catalog.memory.may_not_write:
        return
    with _on_the_side(catalog.memory):
        catalog.storage.delete(f"{directory}/{RESERVED_FILE}")


def end_reservation_at_home(catalog: Surroundings, home: NameSnapshot) -> None:
    """Do so if the home directory of a visible table has a version and that file."""
    # Anything in the folder of versions counts as one, unless one was seen: perhaps it is only staged.
    seen = home.newest is not None or (home.has_versions and catalog.storage.cheap_lookups)
    if home.reserved and seen and home.is_visible:
        end_reservation(catalog, home.directory)


def put_sign(storage: ObjectStorage, name: str, suffix: str) -> None:
    """Tell listings to look inside this name's directory."""
    with suppress(KeyExistsError):
        storage.create(name + suffix, b"")


def remove_signs(storage: ObjectStorage, keys: Iterable[str]) -> None:
    """Remove signs and other keys; one that stays costs listings a look, which is no reason to fail."""
    with suppress(RelanceError):
        storage.delete_many(keys)


_FLAG = json.dumps({"format": FORMAT, "nested_markers": "none"}).encode() + b"\n"
_FLAG_OF_FORMAT_1 = json.dumps({"format": 1}).encode() + b"\n"


def check_format(storage: ObjectStorage) -> bool:
    """Tell whether the root has its flag, which states the format; without one its markers are looked at.

    Raises:
        InvalidTableStateError: the root is of the first format, or of one that this release does not know.
    """
    stated = stated_format(storage)
    if stated == 1 or (stated is None and _has_marker_of_format_1(storage)):
        raise old_format(storage)
    return stated is not None


def stated_format(storage: ObjectStorage) -> int | None:
    """Return the format that the root's flag states, None when there is no flag.

    Raises:
        InvalidTableStateError: this release does not know it.
    """
    try:
        body = storage.read(LAYOUT_KEY).body
    except KeyNotFoundError:
        return None
    try:
        stated = parse_json(body)["format"]
    except (ValueError, TypeError, KeyError):
        raise _damaged_flag(storage) from None
    if type(stated) is not int or stated not in (1, FORMAT):
        raise InvalidTableStateError(
            f"the root {storage.name} has the unknown format {stated!r}. Nothing was changed; use the "
            "release that wrote it"
        )
    return stated


def _damaged_flag(storage: ObjectStorage) -> RelanceError:
    """Return the error for a flag that Relance did not write, which on a network often comes from a proxy."""
    where = f"corrupt flag {LAYOUT_KEY!r} in the root {storage.name}. Nothing was changed"
    if storage.cheap_lookups:
        return InvalidTableStateError(f"{where}; restore it from a backup")
    return ServiceUnavailableError(
        f"{where}; retry, and check the endpoint and the proxy: the response may not be the store's"
    )


def _has_marker_of_format_1(storage: ObjectStorage) -> bool:
    """Tell whether a marker is there that the first format wrote, which had no arbiter beside it."""
    keys = {info.key for info in storage.list_level("").files if info.size <= BODY_MAX_BYTES}
    markers = sorted(
        key
        for key in keys
        if key.endswith(MARKER_SUFFIX) and key.removesuffix(MARKER_SUFFIX) + CONTROL_SUFFIX not in keys
    )

    def is_old(key: str) -> bool:
        try:
            return is_format_1(storage.read(key).body)
        except (KeyNotFoundError, PermissionDeniedError, InvalidTableStateError):
            return False  # a look at its table reports it

    return any(map_at_once(storage, is_old, markers))


def old_format(storage: ObjectStorage) -> InvalidTableStateError:
    """Return the error for a root of the first format."""
    return InvalidTableStateError(
        f"the root {storage.name} was written by a pre-release of Relance (format 1). Nothing was "
        f"changed; stop all other clients, then convert it: relance --root {storage.name} migrate"
    )


def flag_new_root(storage: ObjectStorage) -> None:
    """Set the flag if the root has no tables yet."""
    level = storage.list_level("")
    if not any(name.endswith(TABLE_SUFFIX) for name in level.directories):
        flag_root(storage)


def flag_root(storage: ObjectStorage) -> None:
    """Set the flag."""
    with suppress(KeyExistsError):  # another process was first
        storage.create(LAYOUT_KEY, _FLAG)


def renew_flag(storage: ObjectStorage) -> None:
    """Write the flag again as it is, for its new time.

    Raises:
        KeyChangedError: another client does the same.
        KeyNotFoundError: it was removed.
    """
    stored = storage.read(LAYOUT_KEY)
    storage.replace(LAYOUT_KEY, stored.body, expected=stored.version)


def state_format(storage: ObjectStorage, *, converted: bool) -> None:
    """Have the flag state the first format, so that only a conversion may use the root, or this one.

    Raises:
        KeyChangedError: another process changes the flag at the same time.
    """
    body = _FLAG if converted else _FLAG_OF_FORMAT_1
    try:
        stored = storage.read(LAYOUT_KEY)
    except KeyNotFoundError:
        create_once(storage, LAYOUT_KEY, body)
        return
    if stored.body != body:
        replace_once(storage, LAYOUT_KEY, body, expected=stored.version)
