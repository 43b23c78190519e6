"""Opens the latest version of the manifest table without listing its versions each time.

Versions have no gaps: if one was the latest and the next is not there, it still is. That holds for as
long as no upkeep can have removed the next one, so what was known longer ago is not used. To look for
one key is far cheaper than to list: there are as many versions as were committed in half an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import lance

from relance.clock import since_boot
from relance.config import StorageOptions
from relance.errors import ConcurrentModificationError, KeyNotFoundError, TableNotFoundError
from relance.lance_errors import lance_errors, open_at
from relance.listing.manifest_files import NamingScheme, manifest_key
from relance.locations import VERSIONS_DIRECTORY
from relance.manifest.schema import MANIFEST_DIRECTORY
from relance.storage.protocol import ObjectStorage

_KNOWN_FOR_SECONDS = 10.0
"""Far less than the time upkeep leaves old versions alone."""

_ATTEMPTS = 5
"""How often the latest version is looked for when it is removed under our hands."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A version that was the latest not long ago."""

    dataset: lance.LanceDataset
    until: float
    seen_until: float
    """By then it is made sure again that the version is still there: someone may replace the whole table."""


class ManifestTable:
    """The table's place, and the version of it that was last seen. Threads may share it."""

    def __init__(self, storage: ObjectStorage, uri: str, options: StorageOptions) -> None:
        self.uri = uri
        self.options = options
        self._storage = storage
        self._session = lance.Session()
        self._known: _Known | None = None

    @property
    def cheap_lookups(self) -> bool:
        return self._storage.cheap_lookups

    def open(self) -> lance.LanceDataset | None:
        """Return the latest version, or None when there is no table."""
        known, asked = self._known, since_boot()
        if known is not None and asked < known.until:
            stepped = self._step_on(known, asked)
            if stepped is not None:
                self._known = stepped
                return stepped.dataset
        dataset = self.open_apart()
        if dataset is not None:
            self.note(dataset, asked)
        return dataset

    def open_apart(self) -> lance.LanceDataset | None:
        """Return the latest version as an object that nobody shares: some calls change it in place.

        Raises:
            ConcurrentModificationError: each version was removed before it could be read.
        """
        for _ in range(_ATTEMPTS):
            try:
                return open_at(self.uri, self.options, MANIFEST_DIRECTORY, session=self._session)
            except TableNotFoundError:
                # Listed as the latest, and removed by upkeep since? An empty catalog would be a wrong answer.
                if not self._storage.which_exist([f"{MANIFEST_DIRECTORY}/{VERSIONS_DIRECTORY}/"]):
                    return None
        raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")

    def has_versions_before(self, moment: datetime) -> bool:
        """Tell whether a version is older than this, in one listing."""
        level = self._storage.list_level(f"{MANIFEST_DIRECTORY}/{VERSIONS_DIRECTORY}")
        return any(each.modified is not None and each.modified < moment for each in level.files)

    def note(self, dataset: lance.LanceDataset, asked: float) -> None:
        """Remember a version that was the latest at some time after `asked`."""
        self._known = _Known(dataset, asked + _KNOWN_FOR_SECONDS, asked + _KNOWN_FOR_SECONDS)

    def _step_on(self, known: _Known, asked: float) -> _Known | None:
        """Return the latest version, starting from one that was; None when that has to be listed."""
        until = asked + _KNOWN_FOR_SECONDS
        version = int(known.dataset.version)
        if not self._is_there(version + 1):
            if asked < known.seen_until and not self.cheap_lookups:
                return _Known(known.dataset, until, known.seen_until)
            return _Known(known.dataset, until, until) if self._is_there(version) else None
        latest = self._latest_after(version + 1)
        with lance_errors("the catalog's manifest", self.options):
            try:
                return _Known(known.dataset.checkout_version(latest), until, until)
            except (OSError, ValueError) as cause:
                if "not found" in str(cause).lower():
                    return None
                raise

    def _latest_after(self, version: int) -> int:
        """Return the last version of an unbroken row of them that begins at `version`, which is there."""
        step = 1
        while self._is_there(version + step):
            version, step = version + step, step * 2
        while step > 1:
            step //= 2
            if self._is_there(version + step):
                version += step
        return version

    def _is_there(self, version: int) -> bool:
        try:
            self._storage.head(manifest_key(MANIFEST_DIRECTORY, None, version, NamingScheme.V2))
        except KeyNotFoundError:
            return False
        return True
