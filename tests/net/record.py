"""Records today's behaviour again: `python -m tests.net.record [NAME]`; without a name, all of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.net import commands, goldens, kept_files, names, request_counts

RECORDERS: Mapping[str, Callable[[], Any]] = {
    "commands": commands.record,
    "error_classes": names.error_classes,
    "kept_files": kept_files.record,
    "policy_schema": kept_files.policy_schema_without_texts,
    "public_names": names.public_names,
    "requests_disk": request_counts.record_disk,
    "requests_s3": request_counts.record_s3,
}


def main(arguments: Sequence[str]) -> None:
    """Record the named golden file, or all."""
    name = arguments[0] if arguments else ""
    chosen = [name] if name else sorted(RECORDERS)
    for each in chosen:
        if each not in RECORDERS:
            raise SystemExit(f"unknown record {each!r}: choose from {', '.join(RECORDERS)}")
        goldens.write(each, RECORDERS[each]())


if __name__ == "__main__":
    main(sys.argv[1:])
