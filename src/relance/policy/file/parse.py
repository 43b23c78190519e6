"""Policy files: TOML to the model, and complaints that name file, line and key. Pure.

Which keys there are is in keys, which lines they stand in is in lines.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from relance.policy.file.keys import FILE_KEYS, LIMIT_KEYS
from relance.policy.file.lines import Scan, scan
from relance.policy.file.problems import Complaints, refuse, shown
from relance.policy.file.rules import read_defaults, read_rule
from relance.policy.file.tables import read_keys, refuse_unknown
from relance.policy.model import Limits, Policy, Rule

MAX_FILE_BYTES = 1024 * 1024
MAX_RULES = 1000

_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse_policy(text: str | bytes, *, file: str) -> Policy:
    """Return the policy that a file holds.

    Raises:
        PolicyError: it cannot be used; all that was found wrong is in `problems`, with file, line and key.
    """
    plain = _decoded(text, file)
    places = scan(plain)
    document = _loaded(plain, places, file)
    complaints = Complaints(file, places)
    refuse_unknown(complaints, (), document, FILE_KEYS)
    limits = _limits(complaints, document.get("limits"))
    rules = _rules(complaints, document)
    complaints.settle()
    return Policy(file, tuple(rules), limits)


def _decoded(text: str | bytes, file: str) -> str:
    if len(text) > MAX_FILE_BYTES:
        refuse(file, 1, f"the file is larger than {MAX_FILE_BYTES:,} bytes")
    if isinstance(text, bytes):
        try:
            plain = text.decode()
        except UnicodeDecodeError as error:
            refuse(file, text.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")
    else:
        plain = text
    return plain.removeprefix("\ufeff").replace("\r\n", "\n")


def _loaded(text: str, places: Scan, file: str) -> dict[str, Any]:
    if places.too_deep is not None:
        refuse(file, places.too_deep, "keys, lists or tables are nested too deeply")
    try:
        # Where our own look ended, tomllib says what is wrong, and gets no further either.
        document = tomllib.loads(text[: places.end])
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        where = _WHERE.search(message)
        last = text.rstrip("\n").count("\n") + 1
        line = int(where[1]) if where and where[1] else min(places.lost or last, last)
        column = f" (column {where[2]})" if where and where[2] else ""
        refuse(file, line, f"invalid TOML: {_WHERE.sub('', message)}{column}")
    except (ValueError, OverflowError, RecursionError) as error:
        refuse(file, 1, f"invalid TOML: {shown(str(error))}")
    if places.lost is not None:
        refuse(file, places.lost, "invalid TOML")
    return document


def _limits(complaints: Complaints, found: object) -> Limits:
    if found is None:
        return Limits()
    if not isinstance(found, dict):
        complaints.add(("limits",), f"must be a table, got {shown(found)}")
        return Limits()
    return Limits(**read_keys(complaints, ("limits",), found, LIMIT_KEYS))


def _rules(complaints: Complaints, document: dict[str, Any]) -> list[Rule]:
    rules = []
    if "defaults" in document:
        rules.append(read_defaults(complaints, document["defaults"]))
    found = document.get("rules", [])
    if not isinstance(found, list):
        complaints.add(("rules",), f"must be an array of tables, written as [[rules]], got {shown(found)}")
        return []
    if len(found) > MAX_RULES:
        complaints.add(("rules",), f"has {len(found):,} entries; at most {MAX_RULES:,} are allowed")
        return []
    if not found and not rules:
        complaints.add((), "no rules: add at least one [[rules]] table")
    lines: dict[str, int] = {}
    for number, each in enumerate(found):
        rule = read_rule(complaints, ("rules", number), each)
        if rule is None:
            continue
        if rule.name in lines:
            complaints.add(
                ("rules", number, "name"),
                f"{shown(rule.name)} is already the name of the rule on line {lines[rule.name]}",
            )
        lines.setdefault(rule.name, rule.line)
        rules.append(rule)
    return rules
