"""Having the versions of a root's tables kept as rows: a property of the root, not of a client."""

from __future__ import annotations

from contextlib import suppress

from relance.catalog.manifest.schema import (
    MANAGED_VERSIONS_FLAG,
    MANAGED_VERSIONS_KEY,
    WRITER_FLAGS_KEY,
    check_flags,
    manages_versions,
)
from relance.catalog.manifest.store import Manifest, ManifestConflictError
from relance.errors import ConcurrentModificationError

_ATTEMPTS = 5


def switch_on(manifest: Manifest) -> None:
    """Have the versions of all tables of the root kept as rows, for every client, from now on.

    Raises:
        UnsupportedOperationError: a newer client uses features that this release does not know.
    """
    for _ in range(_ATTEMPTS):
        metadata = manifest.latest().metadata
        if manages_versions(metadata):
            return
        check_flags(metadata, writing=True)
        # Both at once: clients that do not know such rows must never write to a manifest that has some.
        flags = int(metadata.get(WRITER_FLAGS_KEY, "0")) | MANAGED_VERSIONS_FLAG
        with suppress(ManifestConflictError):  # another client created the manifest at the same time
            manifest.set_metadata({MANAGED_VERSIONS_KEY: "true", WRITER_FLAGS_KEY: str(flags)})
            return
    raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")
