"""From a root and its options to a backend, and to the URI under which Lance finds the same bytes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from relance.config import StorageOptions
from relance.errors import InvalidInputError, InvalidTableStateError
from relance.forks import ProcessLock
from relance.locations import Root, Scheme
from relance.storage.failures import SETTINGS_HINT, first_line
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.object_store import ObjectStoreStorage
from relance.storage.options import SplitOptions, split_options
from relance.storage.protocol import ObjectStorage

_STORES: dict[Scheme, type[S3Store] | type[GCSStore] | type[AzureStore]] = {
    Scheme.S3: S3Store,
    Scheme.GS: GCSStore,
    Scheme.AZ: AzureStore,
}


@dataclass(frozen=True, slots=True)
class Connection:
    """A root, reachable both for us and for Lance."""

    storage: ObjectStorage
    lance_root: str
    """What a table's directory is appended to, for Lance to open it."""
    lance_options: StorageOptions

    def lance_uri(self, directory: str) -> str:
        """Return the URI under which Lance finds the table in `directory`.

        Raises:
            InvalidTableStateError: a link or a file is there, or on the way there.
        """
        self.require_folder(directory)
        return f"{self.lance_root}/{directory}"

    def require_folder(self, directory: str) -> None:
        """Check that no link or file has the place of a table's directory: Lance would follow it.

        Raises:
            InvalidTableStateError: one has it, or lies on the way there.
        """
        if self.storage.is_occupied(directory):
            raise InvalidTableStateError(
                f"{directory!r} in {self.lance_root} is, or lies behind, a link or a file where a folder "
                "belongs; it is never followed: replace it by the folder"
            )


def connect(root: Root, options: Mapping[str, str]) -> Connection:
    """Return the backend for `root`. Nothing is requested from the store yet.

    Raises:
        InvalidInputError: the value of an option is not accepted.
    """
    split = split_options(root.scheme, options)
    if root.scheme is Scheme.FILE:
        return Connection(LocalDiskStorage(root.path, keeps_ballast=True), root.path.rstrip("/"), split.lance)
    if root.scheme is Scheme.MEMORY:
        folder = os.path.join(_ephemeral_folder(root.base), root.path).rstrip("/")
        return Connection(LocalDiskStorage(folder), folder, split.lance)
    storage = ObjectStoreStorage(
        _open_store(root, split),
        root.uri,
        StorageOptions(options),
        # Azure lists from the start whatever the offset, S3 Express in no order.
        sorted_pages=root.scheme is not Scheme.AZ
        and split.store.get("s3_express", "false").lower() != "true",
    )
    return Connection(storage, root.uri, split.lance)


def _open_store(root: Root, split: SplitOptions) -> ObjectStore:
    store = _STORES[root.scheme]
    try:
        return store(
            root.base,
            prefix=root.path or None,
            config=split.store,  # type: ignore[arg-type]  # a TypedDict per store; the keys were checked
            client_options=split.client,  # type: ignore[arg-type]  # likewise
            retry_config=split.retry,  # type: ignore[arg-type]  # likewise
        )
    except (BaseError, ValueError) as cause:
        StorageOptions(split.lance).hide_in(cause)
        what = f"invalid storage options for {root.uri}: {first_line(str(cause))}"
        raise InvalidInputError(what, hint=SETTINGS_HINT) from cause


_ephemeral: dict[tuple[int, str], str] = {}
_lock = ProcessLock()


def _ephemeral_folder(name: str) -> str:
    """Return this process's folder behind `memory://name`, removed when the process ends.

    Lance must read and write such a root too, and its own in-memory store is out of reach for
    others; a private temporary folder is the one thing both can share.
    """
    owner = (os.getpid(), name)
    with _lock:
        if owner not in _ephemeral:
            folder = tempfile.mkdtemp(prefix="relance-memory-")
            _ephemeral[owner] = folder
            atexit.register(_remove_own, owner, folder)
        return _ephemeral[owner]


def _remove_own(owner: tuple[int, str], folder: str) -> None:
    if owner[0] == os.getpid():  # a forked child inherits the list but not the folders
        shutil.rmtree(folder, ignore_errors=True)
