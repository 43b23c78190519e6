"""File systems of a test's own, where the machine allows it to mount some."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Mount something on a folder, which is made; skip the test with the reason where that is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("mount") is None:
        pytest.skip("there is no program 'mount'")
    tried = subprocess.run(
        ["mount", *arguments, str(folder)], capture_output=True, text=True, check=False, timeout=30
    )
    if tried.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of this size."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield folder


def fill(folder: Path) -> Path:
    """Write a file until the disk is full to the last byte, and return it."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as target:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    target.write(b"x" * size)
            except OSError:
                continue
    return file
