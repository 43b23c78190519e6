"""Policy files: TOML to the model, and complaints that name file, line and key. Pure.

What a job of a rule may hold is said by its class; which line a key stands in is in lines.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from relance.errors import InvalidInputError
from relance.jobs.base import Job, Scope, complaints_of, policy_kinds, says_enough, settings_for
from relance.jobs.settings import COUNT, SettingError, read_text, shown
from relance.policy.lines import KeyPath, Scan, scan
from relance.policy.model import DEFAULTS, Limits, Off, Policy, PropertyCondition, Rule
from relance.policy.patterns import ANY_PARTS, TablePattern, parse_pattern
from relance.policy.problems import Complaints, refuse
from relance.policy.windows import DAYS, Window, check_timezone, parse_span

T = TypeVar("T")
_Model = TypeVar("_Model", bound=BaseModel)

MAX_FILE_BYTES = 1024 * 1024
MAX_RULES = 1000

FILE_KEYS: Mapping[str, str] = {
    "limits": "Limits for one run; a run that would exceed any of them does nothing.",
    "defaults": "A rule for all tables, read before the others.",
    "rules": "The rules, read from top to bottom.",
}

RULE_KEYS: Mapping[str, str] = {
    "name": "Name of the rule, shown in plans, reports and the history.",
    "tables": "Pattern or list of patterns that table ids must match: prod.*, **.events_*, **.",
    "properties": "Required table properties: a string that may contain *, true (set) or false (not set).",
}
"""Keys that only a rule has."""

COMMON_KEYS: Mapping[str, str] = {
    "window": "Time of day during which runs may act on the tables, such as 22:00-06:00.",
    "days": "Days on which the window opens, such as mon or sat.",
    "timezone": "Time zone of the window, such as Europe/Berlin; defaults to UTC.",
    "rate_limit": "Maximum files deleted per second per process, unless the action sets its own.",
}
"""Keys of a rule, and of the defaults, beside the jobs."""

_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_MAX_NAME = 100
_MAX_LIST = 1000
_COMPARED = 50
"""Characters of an unknown key that are compared; longer ones are no slips of the pen."""
_EVERY_TABLE = (parse_pattern(ANY_PARTS),)


def parse_policy(text: str | bytes, *, file: str) -> Policy:
    """Return the policy that a file holds.

    Raises:
        PolicyError: it cannot be used; all that was found wrong is in `problems`, with file, line and key.
    """
    plain = _decoded(text, file)
    places = scan(plain)
    document = _loaded(plain, places, file)
    complaints = Complaints(file, places)
    _refuse_unknown(complaints, (), document, FILE_KEYS)
    limits = _limits(complaints, document.get("limits"))
    rules = _rules(complaints, document)
    complaints.settle()
    return Policy(file, tuple(rules), limits, tuple(complaints.hints))


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
    return _validated(complaints, ("limits",), Limits, found, Limits.model_fields) or Limits()


def _rules(complaints: Complaints, document: dict[str, Any]) -> list[Rule]:
    rules = []
    if "defaults" in document:
        rules.append(_defaults(complaints, document["defaults"]))
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
        rule = _rule(complaints, ("rules", number), each)
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


def _defaults(complaints: Complaints, found: object) -> Rule:
    """Return the rule that `[defaults]` makes, with what of it is right."""
    path: KeyPath = (DEFAULTS,)
    if not isinstance(found, dict):
        complaints.add(path, f"must be a table, got {shown(found)}")
        found = {}
    _refuse_unknown(complaints, path, found, [*_kind_names(), *COMMON_KEYS], hint_jobs=True)
    return Rule(DEFAULTS, _EVERY_TABLE, line=complaints.line_of(path), **_common(complaints, path, found))


def _rule(complaints: Complaints, path: KeyPath, found: object) -> Rule | None:
    """Return a rule with what of it is right; None when it has no name."""
    if not isinstance(found, dict):
        complaints.add(path, f"must be a table, got {shown(found)}")
        return None
    _refuse_unknown(complaints, path, found, [*RULE_KEYS, *_kind_names(), *COMMON_KEYS], hint_jobs=True)
    name = _name(complaints, path, found)
    rule = Rule(
        name,
        _patterns(complaints, (*path, "tables"), found.get("tables")),
        _conditions(complaints, (*path, "properties"), found.get("properties", {})),
        line=complaints.line_of(path),
        **_common(complaints, path, found),
    )
    for kind in policy_kinds(Scope.ROOT):
        if kind.kind in rule.jobs and rule.tables and not rule.is_for_all:
            complaints.add(
                (*path, kind.kind),
                'applies to the whole lake: only [defaults] or a rule with tables = "**" may set it',
            )
    return rule if name else None


def _kind_names() -> list[str]:
    return [kind.kind for kind in policy_kinds()]


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
        if not isinstance(text, str):
            complaints.add(at, f"must be a pattern or a list of patterns, got {shown(text)}")
            continue
        pattern = _checked(complaints, at, text, lambda value: parse_pattern(read_text(value)), None)
        patterns += [pattern] if pattern is not None else []
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
    jobs: dict[str, Job | Off] = {}
    for kind in policy_kinds():
        if kind.kind in found:
            job = _job(complaints, (*path, kind.kind), kind, found[kind.kind])
            if job is not None:
                jobs[kind.kind] = job
    return {
        "jobs": jobs,
        "window": _window(complaints, path, found),
        "rate_limit": _rate(complaints, (*path, "rate_limit"), found.get("rate_limit")),
    }


def _job(complaints: Complaints, path: KeyPath, kind: type[Job], found: object) -> Job | Off | None:
    """Return a job with the settings of a rule; False switches it off, None is that it cannot be used."""
    if found is False:
        return False
    if found is True and says_enough(kind):
        found = {}
    known = settings_for(kind, "policy")
    if kind.key is not None:
        found = {kind.key: found}
    elif not isinstance(found, dict):
        allowed = "a table, true or false" if says_enough(kind) else "a table or false"
        complaints.add(path, f"must be {allowed}, got {shown(found)}")
        return None
    job = _validated(complaints, path, kind, found, known, is_key=kind.key is not None)
    if job is not None:
        try:
            job.check_rule()
        except SettingError as error:
            complaints.add((*path, error.key) if error.key else path, error.message)
        if simpler := job.simpler():
            complaints.hint(path, f"means the same as {kind.kind} = {{ {simpler} }}")
    return job


def _validated(
    complaints: Complaints,
    path: KeyPath,
    model: type[_Model],
    found: Mapping[str, object],
    known: Mapping[str, object],
    *,
    is_key: bool = False,
) -> _Model | None:
    """Return a model of these values, or of the one of the key itself; complain about what cannot be used."""
    if not is_key:
        _refuse_unknown(complaints, path, found, known)
        found = {name: value for name, value in found.items() if name in known}
    try:
        return model.model_validate(found, strict=True)
    except ValidationError as error:
        for key, message in complaints_of(error):
            complaints.add((*path, key) if key and not is_key else path, message)
        return None


def _refuse_unknown(
    complaints: Complaints,
    path: KeyPath,
    found: Mapping[str, object],
    known: Iterable[str],
    *,
    hint_jobs: bool = False,
) -> None:
    """Complain about each key that is not known, with the nearest one that is.

    With `hint_jobs`, a key that belongs into a job is told where.
    """
    names = list(known)
    for name in found:
        if name in names:
            continue
        inside = [kind.kind for kind in policy_kinds() if hint_jobs and not kind.key and _has(kind, name)]
        near = difflib.get_close_matches(name[:_COMPARED], names, n=1)
        if inside:
            hint = f"did you mean {' or '.join(f'{kind} = {{ {name} = … }}' for kind in inside)}?"
        elif near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"known keys: {', '.join(names) or 'none'}"
        complaints.add((*path, name), f"unknown key; {hint}")


def _has(kind: type[Job], name: str) -> bool:
    return name in settings_for(kind, "policy")


def _rate(complaints: Complaints, path: KeyPath, found: object) -> int | Off | None:
    if found is None or found is False:
        return found
    try:
        rate: int = COUNT.read(found)
    except SettingError as error:
        complaints.add(path, f"{error.message}; use false for no limit")
        return None
    return rate


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
    start, end = _text(complaints, path, found, "window", parse_span, (0, 24 * 60))
    zone = _text(complaints, path, found, "timezone", check_timezone, "UTC")
    return Window(start, end, _days(complaints, (*path, "days"), found.get("days", list(DAYS))), zone)


def _text(
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
    if not isinstance(value, str):
        complaints.add((*path, key), f"must be a string, got {shown(value)}")
        return default
    return _checked(complaints, (*path, key), value, read, default)


def _checked(complaints: Complaints, path: KeyPath, value: str, read: Callable[[str], T], default: T) -> T:
    try:
        return read(value)
    except SettingError as error:
        complaints.add(path, error.message)
    except InvalidInputError as error:
        complaints.add(path, error.detail)
    return default


def _days(complaints: Complaints, path: KeyPath, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not found:
        complaints.add(path, f"must be a non-empty list of {', '.join(DAYS)}, got {shown(found)}")
        return DAYS
    for number, day in enumerate(found):
        if day not in DAYS:
            complaints.add((*path, number), f"must be one of {', '.join(DAYS)}, got {shown(day)}")
    return tuple(day for day in DAYS if day in found)
