"""System calls that fail for some paths, as they do on a disk that is full, broken or not ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

READS = ("scandir", "lstat", "stat", "listdir")
WRITES = ("unlink", "rename", "replace", "link", "mkdir", "rmdir")
_WRITING = os.O_CREAT | os.O_WRONLY | os.O_RDWR


def break_paths(
    monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[str], bool], number: int, *, reads: bool
) -> None:
    """Let the calls that write to some paths, and with `reads` those that look at them, fail."""

    def failing(function: Callable[..., Any], always: bool) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            folder = options.get("dir_fd", options.get("src_dir_fd"))
            writing = always or (
                bool(arguments) and isinstance(arguments[0], int) and arguments[0] & _WRITING
            )
            if (reads or writing) and is_broken(_place(path, folder)):
                raise OSError(number, os.strerror(number), path)
            return function(path, *arguments, **options)

        return call

    for name in (*READS, "open"):
        monkeypatch.setattr(os, name, failing(getattr(os, name), always=False))
    for name in WRITES:
        monkeypatch.setattr(os, name, failing(getattr(os, name), always=True))


def _place(path: Any, folder: int | None) -> str:
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    text = os.fspath(path)
    if folder is None or text.startswith("/"):
        return str(text)
    return f"{os.readlink(f'/proc/self/fd/{folder}')}/{text}"
