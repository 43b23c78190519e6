"""Files on their way: written whole and made to last before a name that readers know leads to them."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from relance.storage.disk_files import sync_files, write_new, write_over

_ABANDONED_SECONDS = 24 * 3600
"""A file is on its way for seconds; one of this age belongs to a process that died."""


class _Reserved(threading.local):
    """Of each thread: empty files that are there already."""

    def __init__(self) -> None:
        self.files: list[str] = []


@dataclass(frozen=True, slots=True)
class TemporaryFiles:
    """Makes such files in a folder of its own, and removes those that did not get a name."""

    folder: str
    _reserved: _Reserved = field(default_factory=_Reserved, init=False, repr=False)

    @contextmanager
    def written(self, bodies: Sequence[bytes]) -> Iterator[list[str]]:
        """Yield synced files with the bodies, and remove those that are not struck out then."""
        files = self._names(len(bodies))
        reserved = self._reserved.files
        try:
            for number, body in enumerate(bodies):
                if reserved:
                    files[number] = reserved.pop()
                    write_over(files[number], body)
                else:
                    write_new(files[number], body)
            sync_files(files)
            yield files
        finally:
            _remove(files)

    @contextmanager
    def copied(self, source: str) -> Iterator[str]:
        """Yield a synced copy of a file, and remove it afterwards.

        Raises:
            FileNotFoundError: there is no source.
        """
        (target,) = files = self._names(1)
        try:
            write_new(target, b"")  # also makes the folder
            shutil.copyfile(source, target)
            sync_files(files)
            yield target
        finally:
            _remove(files)

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Make empty files for what this thread writes in the block.

        For minutes after it has removed many files, ext4 without a journal is slow to make new ones: it
        looks at each that is gone. So they are made before.
        """
        files = self._names(count)
        try:
            with suppress(OSError):  # whoever writes is told why that cannot be done
                self._remove_abandoned()
                for each in files:
                    write_new(each, b"")
                self._reserved.files = files
            yield
        finally:
            self._reserved.files = []
            _remove(files)

    def _names(self, count: int) -> list[str]:
        start = f"{self.folder}/{uuid.uuid4().hex}"
        return [f"{start}-{number}" for number in range(count)]

    def _remove_abandoned(self) -> None:
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            then = time.time() - _ABANDONED_SECONDS
            _remove([each.path for each in entries if each.stat(follow_symlinks=False).st_mtime < then])


def _remove(files: Sequence[str]) -> None:
    for file in files:
        if file:
            with suppress(FileNotFoundError):
                os.unlink(file)
