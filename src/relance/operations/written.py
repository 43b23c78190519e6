"""Data files that others have written: are they there, and what does Lance call them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lance.fragment import FragmentMetadata

from relance.errors import ConcurrentModificationError
from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.operations.new_table import WrittenData
from relance.storage.protocol import ObjectStorage

_FEW = 20
"""Up to so many files are looked for one by one; more are compared with a listing."""


def fragments_of(data: WrittenData) -> list[FragmentMetadata]:
    """Return Lance's fragments of the data."""
    return [FragmentMetadata.from_json(each) for each in data.fragments]


def files_of(fragments: Iterable[str]) -> frozenset[str]:
    """Return the names of the files of fragments that are given as JSON."""
    return frozenset(file["path"] for fragment in fragments for file in json.loads(fragment)["files"])


def require_written(storage: ObjectStorage, directory: str, data: WrittenData) -> None:
    """Check that the files are where the table is: a purge may have taken them along.

    Asked after the table's state was read, and before a commit that depends on that state, this is as
    good as writing the files at this moment.

    Raises:
        ConcurrentModificationError: the table is in another directory, or files are missing.
    """
    if directory != data.directory:
        raise ConcurrentModificationError(
            f"the table moved from '{data.directory}' to '{directory}' while it was being "
            "written; write the data again"
        )
    missing = data.files - _present(storage, directory, data.files)
    if missing:
        raise ConcurrentModificationError(
            f"{len(missing)} of {len(data.files)} data files below '{directory}' are missing, "
            "possibly because of a purge; write the data again"
        )


def require_same_drop(table_id: TableId, data: object, marker: Marker) -> None:
    """Check that a dropped table is still under the marker that it had when its files were written.

    A purge that came between listed them, and those who delete for it may do so late.

    Raises:
        ConcurrentModificationError: it was dropped, purged or created anew since.
    """
    if isinstance(data, WrittenData) and data.marker != marker.nonce:
        raise ConcurrentModificationError(
            f"table id '{table_id}' was dropped or purged while it was being written; write the data again"
        )


def _present(storage: ObjectStorage, directory: str, files: frozenset[str]) -> frozenset[str]:
    folder = f"{directory}/data/"
    if len(files) <= _FEW:
        found = storage.which_exist([folder + each for each in sorted(files)])
        return frozenset(each.removeprefix(folder) for each in found)
    return frozenset(each.key.removeprefix(folder) for each in storage.list_recursive(folder.rstrip("/")))
