"""Rules of a policy file: to whom they apply, and their parts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from relance.errors import InvalidInputError
from relance.policy.actions import Kind
from relance.policy.file.keys import COMMON_KEYS, NOT_TRUE, PART_KEYS, RULE_KEYS
from relance.policy.file.lines import KeyPath
from relance.policy.file.problems import Complaints, shown
from relance.policy.file.tables import read_keys, refuse_unknown
from relance.policy.file.values import read_count, read_duration, read_text
from relance.policy.model import (
    DEFAULTS,
    FLOOR,
    PARTS,
    ROOT_KINDS,
    DropTtl,
    Off,
    OrphanRemoval,
    Part,
    PropertyCondition,
    RowRetention,
    Rule,
    VersionRetention,
)
from relance.policy.patterns import ANY_PARTS, TablePattern, parse_pattern
from relance.policy.predicates import check_predicate
from relance.policy.windows import DAYS, Window, check_timezone, parse_span

T = TypeVar("T")

_MAX_NAME = 100
_MAX_LIST = 1000
_EVERY_TABLE = (parse_pattern(ANY_PARTS),)


def read_defaults(complaints: Complaints, found: object) -> Rule:
    """Return the rule that `[defaults]` makes, with what of it is right."""
    path: KeyPath = (DEFAULTS,)
    if not isinstance(found, dict):
        complaints.add(path, f"must be a table, got {shown(found)}")
        found = {}
    refuse_unknown(complaints, path, found, [*Kind, *COMMON_KEYS], PART_KEYS)
    return Rule(DEFAULTS, _EVERY_TABLE, line=complaints.line_of(path), **_common(complaints, path, found))


def read_rule(complaints: Complaints, path: KeyPath, found: object) -> Rule | None:
    """Return a rule with what of it is right; None when it has no name."""
    if not isinstance(found, dict):
        complaints.add(path, f"must be a table, got {shown(found)}")
        return None
    refuse_unknown(complaints, path, found, [*RULE_KEYS, *Kind, *COMMON_KEYS], PART_KEYS)
    name = _name(complaints, path, found)
    rule = Rule(
        name,
        _patterns(complaints, (*path, "tables"), found.get("tables")),
        _conditions(complaints, (*path, "properties"), found.get("properties", {})),
        line=complaints.line_of(path),
        **_common(complaints, path, found),
    )
    for kind in ROOT_KINDS:
        if kind in rule.parts and rule.tables and not rule.is_for_all:
            complaints.add(
                (*path, kind.value),
                'applies to the whole lake: only [defaults] or a rule with tables = "**" may set it',
            )
    return rule if name else None


def _name(complaints: Complaints, path: KeyPath, found: Mapping[str, object]) -> str:
    name = found.get("name")
    message = None
    if name is None:
        message = "is required: plans and reports show it"
    elif not isinstance(name, str):
        message = f"must be a string, got {shown(name)}"
    elif not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
        message = f"must be 1 to {_MAX_NAME} printable characters, got {shown(name)}"
    elif name == DEFAULTS:
        message = f"{DEFAULTS!r} is reserved for [{DEFAULTS}]; choose another name"
    else:
        return name
    complaints.add((*path, "name"), message)
    return ""


def _patterns(complaints: Complaints, path: KeyPath, found: object) -> tuple[TablePattern, ...]:
    texts = found if isinstance(found, list) else [found]
    if found is None or not texts:
        complaints.add(path, 'is required: use a pattern such as prod.*, or "**" for all tables')
        return ()
    if len(texts) > _MAX_LIST:
        complaints.add(path, f"has {len(texts):,} patterns; at most {_MAX_LIST:,} are allowed")
        return ()
    patterns = []
    for number, text in enumerate(texts):
        at = (*path, number) if isinstance(found, list) else path
        try:
            if not isinstance(text, str):
                raise InvalidInputError(f"must be a pattern or a list of patterns, got {shown(text)}")
            patterns.append(parse_pattern(read_text(text)))
        except InvalidInputError as error:
            complaints.add(at, error.detail)
    return tuple(patterns)


def _conditions(complaints: Complaints, path: KeyPath, found: object) -> tuple[PropertyCondition, ...]:
    if not isinstance(found, dict) or len(found) > _MAX_LIST:
        complaints.add(path, f"must be a table of at most {_MAX_LIST:,} properties, got {shown(found)}")
        return ()
    conditions = []
    for name, value in found.items():
        if isinstance(value, bool | str):
            conditions.append(PropertyCondition(name, value))
        else:
            complaints.add((*path, name), f"must be a string, true or false, got {shown(value)}")
    return tuple(conditions)


def _common(complaints: Complaints, path: KeyPath, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what rules and defaults both have, as arguments of a rule."""
    parts: dict[Kind, Part | Off] = {}
    for kind in Kind:
        if kind in found:
            part = _part(complaints, (*path, kind.value), kind, found[kind])
            if part is not None:
                parts[kind] = part
    return {
        "parts": parts,
        "window": _window(complaints, path, found),
        "rate_limit": _rate(complaints, (*path, "rate_limit"), found.get("rate_limit")),
    }


def _part(complaints: Complaints, path: KeyPath, kind: Kind, found: object) -> Part | Off | None:
    if found is False:
        return False
    if found is True and kind not in NOT_TRUE:
        found = {}
    if kind is Kind.DROP_TTL:
        return _drop_ttl(complaints, path, found)
    if not isinstance(found, dict):
        allowed = "a table or false" if kind in NOT_TRUE else "a table, true or false"
        complaints.add(path, f"must be {allowed}, got {shown(found)}")
        return None
    values = read_keys(complaints, path, found, PART_KEYS[kind])
    if any(key.required and key.name not in values for key in PART_KEYS[kind]):
        return None
    part = PARTS[kind](**values)
    _check(complaints, path, part)
    return part


def _drop_ttl(complaints: Complaints, path: KeyPath, found: object) -> DropTtl | None:
    try:
        return DropTtl(read_duration(found), str(found).strip())
    except InvalidInputError as error:
        complaints.add(path, error.detail)
        return None


def _check(complaints: Complaints, path: KeyPath, part: Part) -> None:
    """Complain about values that do not go together."""
    if isinstance(part, RowRetention):
        try:
            check_predicate(part.delete_where, part.time_column)
        except InvalidInputError as error:
            complaints.add((*path, "delete_where"), error.detail)
    if isinstance(part, VersionRetention) and part.older_than is None and part.retain_versions is None:
        complaints.add(path, "needs older_than, retain_versions or both")
    if (
        isinstance(part, VersionRetention | OrphanRemoval)
        and part.older_than is not None
        and part.older_than < FLOOR
        and not part.allow_young
    ):
        complaints.add((*path, "older_than"), "is less than 24 hours, which requires allow_young = true")


def _rate(complaints: Complaints, path: KeyPath, found: object) -> int | Off | None:
    if found is None or found is False:
        return found
    try:
        return read_count(found)
    except InvalidInputError as error:
        complaints.add(path, f"{error.detail}; use false for no limit")
        return None


def _window(complaints: Complaints, path: KeyPath, found: Mapping[str, object]) -> Window | Off | None:
    given = [key for key in ("window", "days", "timezone") if key in found]
    if not given:
        return None
    if found.get("window") is False:
        if len(given) > 1:
            complaints.add((*path, given[1]), "has no effect with window = false")
        return False
    if given == ["timezone"]:
        complaints.add((*path, "timezone"), "has no effect without window or days")
        return None
    start, end = _checked(complaints, path, found, "window", parse_span, (0, 24 * 60))
    zone = _checked(complaints, path, found, "timezone", check_timezone, "UTC")
    return Window(start, end, _days(complaints, (*path, "days"), found.get("days", list(DAYS))), zone)


def _checked(
    complaints: Complaints,
    path: KeyPath,
    found: Mapping[str, object],
    key: str,
    read: Callable[[str], T],
    default: T,
) -> T:
    if key not in found:
        return default
    value = found[key]
    try:
        if not isinstance(value, str):
            raise InvalidInputError(f"must be a string, got {shown(value)}")
        return read(value)
    except InvalidInputError as error:
        complaints.add((*path, key), error.detail)
        return default


def _days(complaints: Complaints, path: KeyPath, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not found:
        complaints.add(path, f"must be a non-empty list of {', '.join(DAYS)}, got {shown(found)}")
        return DAYS
    for number, day in enumerate(found):
        if day not in DAYS:
            complaints.add((*path, number), f"must be one of {', '.join(DAYS)}, got {shown(day)}")
    return tuple(day for day in DAYS if day in found)
