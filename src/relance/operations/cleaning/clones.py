"""Which tables of a root read files of other tables of it: shallow clones, live or dropped.

Lance does not know who cloned a table, so cleaning one asks here which of its files others name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

import lance

from relance.catalog.context import Context
from relance.catalog.manifest.row import ObjectType
from relance.errors import InvalidInputError, InvalidTableStateError, RelanceError, TableNotFoundError
from relance.lance_io import lance_errors, open_at
from relance.locations import MANIFEST_DIRECTORY, VERSIONS_DIRECTORY, Scheme, directory_of_location

_PARALLEL = 3
"""Or as many as the store takes requests: more of them on a disk only hinder each other."""
_AT_ONCE = 512
_ATTEMPTS = 3
OR_SKIP = ", or pass look_for_clones=False"
"""What else whoever cleans a table can do about another one that cannot be read."""

_OF_BRANCH = frozenset({"data", "_deletions", "_indices"})
"""Folders of a branch with files that others can name."""
_REMEMBERED_BYTES = 4 * 2**20
"""Of the tables that a run opened: some 800 small ones."""


@dataclass(frozen=True, slots=True)
class Clone:
    """A table, and the directories of the root that it reads besides its own."""

    directory: str
    bases: tuple[str, ...]


class ClonesOfRun:
    """The clones of a root, looked for once in a run and process."""

    def __init__(self) -> None:
        self.session = lance.Session(index_cache_size_bytes=0, metadata_cache_size_bytes=_REMEMBERED_BYTES)
        """To open a table in that was opened to look at it: in a tenth of the time."""
        self._lock = threading.Lock()
        self._found: list[Clone] | None = None

    def get(self, context: Context) -> list[Clone]:
        with self._lock:
            if self._found is None:
                self._found = find_clones(context, session=self.session, or_else=OR_SKIP)
            return self._found


@lru_cache(maxsize=8)
def clones_of_run(run: str, root: str) -> ClonesOfRun:
    """Return what the tasks of one run in this process share."""
    return ClonesOfRun()


def find_clones(
    context: Context,
    *,
    besides: Collection[str] = (),
    session: lance.Session | None = None,
    or_else: str = "",
) -> list[Clone]:
    """Open every table of the root, also dropped ones, and return those that read files of others.

    `besides` are directories that are not looked at. A session keeps what was read of the others. `or_else`
    is added to what can be done about a table that cannot be read.

    One damaged table stops every cleanup, deliberately: what is left of a manifest cannot show that the
    table is no clone, and files that a clone reads are lost for good once they are removed.

    Raises:
        InvalidTableStateError: a table cannot be read, so nobody can tell what it names.
    """
    directories = sorted(each for each in _directories(context) if each not in besides)
    clones: list[Clone] = []
    with ThreadPoolExecutor(max(_PARALLEL, context.storage.requests_at_once)) as pool:
        # A part at a time: what waits for a thread takes more memory than a name.
        for start in range(0, len(directories), _AT_ONCE):
            found = pool.map(
                partial(_look_at, context, session, or_else), directories[start : start + _AT_ONCE]
            )
            clones += [each for each in found if each is not None]
    return clones


def _directories(context: Context) -> Iterator[str]:
    yield from (
        each
        for each in context.storage.list_level("").directories
        if each.split("/")[0] != MANIFEST_DIRECTORY
    )
    if context.manifest is not None:
        for row in context.manifest.latest().all_rows():
            location = row["location"] or ""
            if row["object_type"] == ObjectType.TABLE and "/" in location:
                yield location


def _look_at(context: Context, session: lance.Session | None, or_else: str, directory: str) -> Clone | None:
    for attempt in range(_ATTEMPTS):
        if not context.storage.which_exist([f"{directory}/{VERSIONS_DIRECTORY}/"]):
            return None  # not a table, or one that is being purged
        try:
            bases = _bases(context, session, directory)
        except TableNotFoundError:
            return None  # it has no version: a copy under way, or what a purge has left
        except RelanceError as cause:
            if attempt < _ATTEMPTS - 1:
                continue  # its files may be going under our hands
            raise InvalidTableStateError(
                f"cannot read the table at '{directory}', which may be a shallow clone that uses files of "
                f"other tables. Nothing was removed: repair it, or drop and purge it{or_else}",
                hint="repair that table, drop and purge it, or pass --ignore-clones if the catalog has no "
                "shallow clones",
            ) from cause
        return Clone(directory, bases) if bases else None
    return None


def _bases(context: Context, session: lance.Session | None, directory: str) -> tuple[str, ...]:
    with lance_errors(f"table at '{directory}'", context.lance_options()):
        paths = [each.path for each in _open(context, directory, session).base_paths().values()]
    found = (directory_in_root(context, path) for path in paths)
    return tuple(each for each in found if each is not None)


def _open(context: Context, directory: str, session: lance.Session | None = None) -> lance.LanceDataset:
    return open_at(context.location_of(directory), context.lance_options(), directory, session=session)


def directory_in_root(context: Context, uri: str) -> str | None:
    """Return the key that a URI or path of Lance's stands for, None when it is outside the root."""
    root = context.root.uri
    if context.root.scheme is Scheme.FILE:
        root, uri = os.path.realpath(root), os.path.realpath(uri.removeprefix("file://"))
    try:
        return directory_of_location(uri, root_uri=root)
    except InvalidInputError:
        return None


def files_of_clones(context: Context, clones: list[Clone], directory: str) -> frozenset[str]:
    """Return the files of a table that its clones name, relative to its directory."""
    named: set[str] = set()
    for clone in clones:
        if clone.directory == directory or not any(_overlap(base, directory) for base in clone.bases):
            continue
        with lance_errors(f"table at '{clone.directory}'", context.lance_options()):
            for batch in _open(context, clone.directory).tracked_files():
                named.update(_below(context, directory, batch.to_pylist()))
    return frozenset(named)


def clone_of_branch(context: Context, directory: str, branch: str) -> str | None:
    """Return the directory of a clone that reads files of a branch; None when there is none.

    Raises:
        InvalidTableStateError: a table cannot be read, so nobody can tell what it names.
    """
    inside = f"{directory}/tree/{branch}"
    for clone in find_clones(context, besides=[directory]):
        named = files_of_clones(context, [clone], inside)
        # What lies deeper is of a branch whose name begins with this one.
        if any(path.partition("/")[0] in _OF_BRANCH for path in named):
            return clone.directory
    return None


def _overlap(base: str, directory: str) -> bool:
    return f"{base}/".startswith(f"{directory}/") or f"{directory}/".startswith(f"{base}/")


def _below(context: Context, directory: str, rows: list[dict[str, str]]) -> Iterator[str]:
    inside: dict[str, str | None] = {}
    for row in rows:
        base = row["base_uri"]
        if base not in inside:
            inside[base] = directory_in_root(context, base)
        key = f"{inside[base]}/{row['path']}"
        if inside[base] is not None and key.startswith(f"{directory}/"):
            yield key[len(directory) + 1 :]
