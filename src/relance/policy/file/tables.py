"""Tables of a policy file read by their keys: known ones are checked, others refused. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relance.errors import InvalidInputError
from relance.policy.actions import Kind
from relance.policy.file.keys import Key
from relance.policy.file.lines import KeyPath
from relance.policy.file.problems import Complaints
from relance.policy.file.values import read_value

_COMPARED = 50
"""Characters of an unknown key that are compared; longer ones are no slips of the pen."""

_NO_PARTS: Mapping[Kind, Sequence[Key]] = {}


def refuse_unknown(
    complaints: Complaints,
    path: KeyPath,
    found: Mapping[str, object],
    known: Iterable[str],
    inside: Mapping[Kind, Sequence[Key]] = _NO_PARTS,
) -> None:
    """Complain about each key that is not known, with the nearest one that is.

    A key that belongs into one of the parts `inside` is told where.
    """
    names = list(map(str, known))
    for name in found:
        if name in names:
            continue
        parts = [str(part) for part, keys in inside.items() if any(name == key.name for key in keys)]
        near = difflib.get_close_matches(name[:_COMPARED], names, n=1)
        if parts:
            hint = f"did you mean {' or '.join(f'{part} = {{ {name} = … }}' for part in parts)}?"
        elif near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"known keys: {', '.join(names) or 'none'}"
        complaints.add((*path, name), f"unknown key; {hint}")


def read_keys(
    complaints: Complaints, path: KeyPath, found: Mapping[str, object], keys: Sequence[Key]
) -> dict[str, Any]:
    """Return the values of the keys that are there and right; complain about all else."""
    refuse_unknown(complaints, path, found, [key.name for key in keys])
    values: dict[str, Any] = {}
    for key in keys:
        if key.name in found:
            try:
                values[key.name] = read_value(key, found[key.name])
            except InvalidInputError as error:
                complaints.add((*path, key.name), error.detail)
        elif key.required:
            complaints.add((*path, key.name), "is required")
    return values
