"""Files on their way: written whole and made to last before a name that readers know leads to them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from relance.locations import OWN_DIRECTORY
from relance.storage.ballast import Ballast
from relance.storage.disk_files import in_folder, open_file, sync_files, write_new, write_over

_FOLDER = f"{OWN_DIRECTORY}/tmp"

_NAME = re.compile(r"[0-9a-f]{32}-\d+")
"""What the files are called. Nothing else is ever removed."""

_ABANDONED_SECONDS = 24 * 3600
"""A file is on its way for seconds; one of this age belongs to a process that died."""


class _Reserved(threading.local):
    """Of each thread: empty files that are there already."""

    def __init__(self) -> None:
        self.files: list[str] = []


@dataclass(frozen=True, slots=True)
class Written:
    """Files in the open folder of temporary files; one that got another name is struck out."""

    folder: int
    files: list[str]


@dataclass(frozen=True, slots=True)
class TemporaryFiles:
    """Makes such files in a folder of its own below the root, and removes those that did not get a name."""

    root: str
    ballast: Ballast
    _reserved: _Reserved = field(default_factory=_Reserved, init=False, repr=False)

    @contextmanager
    def written(self, bodies: Sequence[bytes]) -> Iterator[Written]:
        """Yield synced files with the bodies, and remove those that are not struck out then."""
        with self._opened() as folder:
            files = _names(len(bodies))
            self.ballast.retried(lambda: self._write(files, bodies, folder))
            try:
                yield Written(folder, files)
            finally:
                _remove(files, folder)

    def _write(self, files: list[str], bodies: Sequence[bytes], folder: int) -> None:
        """Write and sync all the files, or leave none of them."""
        reserved = self._reserved.files
        try:
            for number, body in enumerate(bodies):
                if reserved:
                    files[number] = reserved.pop()
                    write_over(files[number], body, folder=folder)
                else:
                    write_new(files[number], body, folder=folder)
            sync_files(files, folder)
        except BaseException:
            _remove(files, folder)
            raise

    @contextmanager
    def copied(self, source: str, *, folder: int) -> Iterator[Written]:
        """Yield a synced copy of a file of an open folder, and remove it afterwards.

        Raises:
            FileNotFoundError: there is no source.
            InvalidTableStateError: the source is no file.
        """
        with self._opened() as own:
            (target,) = files = _names(1)
            try:
                write_new(target, b"", folder=own)
                with (
                    os.fdopen(open_file(source, folder=folder), "rb") as origin,
                    os.fdopen(open_file(target, os.O_WRONLY, folder=own), "wb") as copy,
                ):
                    shutil.copyfileobj(origin, copy, 1 << 20)
                sync_files(files, own)
                yield Written(own, files)
            finally:
                _remove(files, own)

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Make empty files for what this thread writes in the block.

        For minutes after it has removed many files, ext4 without a journal is slow to make new ones: it
        looks at each that is gone. So they are made before.
        """
        files: list[str] = []
        try:
            # Whoever writes is told why that cannot be done.
            with suppress(OSError), self._opened() as folder:
                _remove_abandoned(folder)
                for file in _names(count):
                    write_new(file, b"", folder=folder)
                    files.append(file)
                self._reserved.files = list(files)
            yield
        finally:
            self._reserved.files = []
            if files:
                with suppress(OSError), self._opened() as folder:
                    _remove(files, folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield the folder, open. A link in its place is not followed."""
        folder = self.ballast.retried(lambda: in_folder(self.root, _FOLDER, os.dup))
        try:
            yield folder
        finally:
            os.close(folder)


def _names(count: int) -> list[str]:
    start = uuid.uuid4().hex
    return [f"{start}-{number}" for number in range(count)]


def _remove_abandoned(folder: int) -> None:
    then = time.time() - _ABANDONED_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) is None:
                continue
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_mtime < then:
                _remove([entry.name], folder)


def _remove(files: Sequence[str], folder: int) -> None:
    for file in files:
        if file:
            with suppress(FileNotFoundError):
                os.unlink(file, dir_fd=folder)
