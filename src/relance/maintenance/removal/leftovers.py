"""Find directories of a root that nothing names. What to do with them is in orphans."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from relance.catalog.context import Context
from relance.catalog.layout import Bodies, inspect_name
from relance.catalog.repair import HASHED_DIRECTORY
from relance.config import ENABLE_MANIFEST
from relance.errors import InvalidTableStateError, UnsupportedOperationError
from relance.identifiers import why_unusable
from relance.locations import (
    DEREGISTERED_FILE,
    LAYOUT_KEY,
    MANIFEST_DIRECTORY,
    POLICY_DIRECTORY,
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
)
from relance.operations.cleaning.clones import find_clones
from relance.storage.protocol import ObjectInfo

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA_FILE = rf"(?:[01]{{24}}[0-9a-f]{{26}}|{_UUID})"
"""24 binary digits, which spread the names, and 26 hexadecimal ones; old releases took a UUID."""
_BY_LANCE_ALONE = "|".join(
    (
        rf"data/{_DATA_FILE}\.lance",
        rf"data/{_DATA_FILE}/[01]{{32}}\.blob",
        rf"_versions/d?[0-9]{{1,20}}\.manifest(?:-{_UUID})?",
        rf"_transactions/[0-9]{{1,20}}-{_UUID}\.txn",
        r"_deletions/[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}\.(?:arrow|bin)",
        rf"_indices/{_UUID}/[^/]+",
    )
)
_BY_OTHERS_TOO = "|".join(
    (
        r"_versions/(?:latest_version_hint\.json|_latest\.manifest)",
        r"_latest\.manifest",
        r"_refs/(?:tags|branches)/[^/]+\.json",
        re.escape(RESERVED_FILE),
        re.escape(DEREGISTERED_FILE),
    )
)
_IN_TABLE = re.compile(rf"(?:tree/.+/)?(?:(?P<proof>{_BY_LANCE_ALONE})|{_BY_OTHERS_TOO})(?:#[0-9]+)?")
"""What Lance and the catalog write into the directory of a table, and below `tree` for a branch; `proof`
has a name that nobody else gives. `#` and a number: not yet whole."""


class Kind(StrEnum):
    """What a directory is that nothing names."""

    AT_HOME = "at home"
    """`<name>.lance` without a version: of a create in the directory of its name."""
    OWN = "own"
    """A directory made up by the catalog, without a version: of a create, or of a job that writes files."""
    WITH_VERSIONS = "with versions"
    """The same with a version: of a create that died just before its row came, or a deregistered table."""


class Kept(StrEnum):
    """Why a directory that nothing names stays."""

    YOUNG = "young"
    UNKNOWN_AGE = "of unknown age"
    WITH_VERSIONS = "with versions"
    CLONED = "read by clones"
    DECLARED = "declared"
    DAMAGED = "with a damaged marker"
    """`scrub` says which file, and what to do about it."""
    FOREIGN = "foreign"
    """Not of a kind that the catalog makes, with a file in it that is none of a table, or without one that
    only Lance writes."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A directory that may go."""

    directory: str
    kind: Kind
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look at the root showed."""

    orphans: tuple[Orphan, ...]
    kept: tuple[tuple[str, Kept], ...]

    def note(self) -> str:
        """Tell what stays, and why."""
        counts = Counter(why for _, why in self.kept)
        return ", ".join(f"{counts[why]} {why}" for why in Kept if counts[why])


def find_orphans(context: Context, before: datetime, *, with_versions: bool) -> Findings:
    """Look for directories that nothing names and of which every file was written before a moment.

    Raises:
        UnsupportedOperationError: the root has a manifest, and the catalog is opened without it.
        InvalidTableStateError: directories with versions may go, and a table cannot be read that may be a
            clone of one.
    """
    # First the directories, then the rows: one that gets its row in between is not taken for an orphan.
    directories = context.storage.list_level("").directories
    if context.manifest is None and MANIFEST_DIRECTORY in directories:
        raise UnsupportedOperationError(
            "this root has a manifest that may refer to the directories: "
            "open the catalog with manifest_enabled=true",
            hint=ENABLE_MANIFEST,
        )
    named = _named(context)
    kinds = {each: kind_of(context, each) for each in sorted(directories) if not _is_ours(each, named)}
    cloned = _read_by_clones(context, kinds) if with_versions else frozenset[str]()
    orphans: list[Orphan] = []
    kept: list[tuple[str, Kept]] = []
    for directory, kind in kinds.items():
        if kind is None:
            continue
        if directory in cloned:
            kept.append((directory, Kept.CLONED))
        elif isinstance(kind, Kind) and not (kind is Kind.WITH_VERSIONS and not with_versions):
            found = measure(files_of(context, directory), before)
            if isinstance(found, Kept):
                kept.append((directory, found))
            else:
                orphans.append(Orphan(directory, kind, len(found), sum(each.size for each in found)))
        else:
            kept.append((directory, Kept.WITH_VERSIONS if isinstance(kind, Kind) else kind))
    return Findings(tuple(orphans), tuple(kept))


def _is_ours(directory: str, named: frozenset[str]) -> bool:
    """Tell whether a directory is the catalog's own, or one that rows name."""
    ours = directory in (MANIFEST_DIRECTORY, POLICY_DIRECTORY) or directory.startswith(LAYOUT_KEY)
    return ours or directory in named


def _read_by_clones(context: Context, kinds: Mapping[str, Kind | Kept | None]) -> frozenset[str]:
    """Return the directories with versions of which a table that stays reads files.

    Raises:
        InvalidTableStateError: a table cannot be read, so nobody can tell what it names.
    """
    chosen = {each for each, kind in kinds.items() if kind is Kind.WITH_VERSIONS}
    if not chosen:
        return frozenset()
    bases = {base.split("/")[0] for clone in find_clones(context, besides=chosen) for base in clone.bases}
    return frozenset(chosen & bases)


def _named(context: Context) -> frozenset[str]:
    """Return the top directories that rows lead to or below, and those of names that rows keep."""
    if context.manifest is None:
        return frozenset()
    return frozenset(_names_of_rows(context.manifest.latest().all_rows()))


def _names_of_rows(rows: Iterable[object]) -> Iterator[str]:
    for row in rows:
        assert isinstance(row, dict)  # of Arrow's rows
        yield f"{row['object_id']}{TABLE_SUFFIX}"
        if row["location"]:
            yield str(row["location"]).strip("/").split("/")[0]


def kind_of(context: Context, directory: str) -> Kind | Kept | None:
    """Tell what a directory is that no row names; None when it is a table, or a marker tells about it."""
    if directory.endswith(TABLE_SUFFIX):
        name = directory.removesuffix(TABLE_SUFFIX)
        if why_unusable(name) is not None or not context.settings.dir_listing:
            return Kept.FOREIGN
        try:
            home = inspect_name(context, name, bodies=Bodies.ALL)
        except InvalidTableStateError:
            return Kept.DAMAGED
        # Leftovers are hidden like a dropped table while they are removed.
        return None if home.has_versions or home.reserved else Kind.AT_HOME
    if context.manifest is None or not HASHED_DIRECTORY.fullmatch(directory):
        return Kept.FOREIGN
    versions, reserved, hidden = (
        f"{directory}/{VERSIONS_DIRECTORY}/",
        f"{directory}/{RESERVED_FILE}",
        f"{directory}/{DEREGISTERED_FILE}",
    )
    present = context.storage.which_exist([versions, reserved, hidden])
    if versions in present:
        return Kind.WITH_VERSIONS
    return Kept.DECLARED if present else Kind.OWN


def files_of(context: Context, directory: str) -> Iterator[ObjectInfo]:
    """Yield the files of a directory with their times as the catalog's clock shows them."""
    for info in context.storage.list_recursive(directory):
        modified = None if info.modified is None else context.clock.at_store(info.modified)
        yield replace(info, modified=modified)


def measure(infos: Iterable[ObjectInfo], before: datetime) -> list[ObjectInfo] | Kept:
    """Return the files of a directory of the root if all are of a table and old, else why not."""
    found = list(infos)
    if not found or any(each.modified is None for each in found):
        return Kept.UNKNOWN_AGE
    # A name tells little: `20260101_backup` looks as if the catalog had made it up.
    names = [_IN_TABLE.fullmatch(each.key.partition("/")[2]) for each in found]
    if not all(names) or not any(name is not None and name["proof"] for name in names):
        return Kept.FOREIGN
    if any(each.modified is not None and each.modified >= before for each in found):
        return Kept.YOUNG
    return found
