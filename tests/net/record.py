"""Records today's behaviour again: `python -m tests.net.record [NAME [PYTEST OPTIONS]]`.

Without a name everything is recorded except the explorer's states, which take some fifteen minutes.
Options such as `-k "rename_explorer and there"` select cases of the explorer; the others keep their record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.net import commands, goldens, kept_files, names, record_states, request_counts
from tests.support.exploration import GOLDEN as STATES

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
    """Record the named golden file, or all that take no minutes."""
    name, *options = arguments or [""]
    if name == STATES:
        goldens.write(STATES, record_states.record_states(options))
        return
    chosen = [name] if name else sorted(RECORDERS)
    for each in chosen:
        if each not in RECORDERS:
            raise SystemExit(f"unknown record {each!r}: choose from {', '.join([*RECORDERS, STATES])}")
        goldens.write(each, RECORDERS[each]())


if __name__ == "__main__":
    main(sys.argv[1:])
