"""Policies for tests: as documents that can be written as TOML in many ways, and ready made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from relance.jobs.base import policy_kinds
from relance.policy.model import Policy
from relance.policy.parse import parse_policy
from relance.policy.windows import DAYS

Document = dict[str, Any]

KINDS = [kind.kind for kind in policy_kinds()]
"""All that a policy can ask for, in the order in which a run does them."""

PATTERNS = ("**", "prod.*", "**.events_*", "prod.**", "a.b", "`my.table*`.*", "*", "*.*.c*")
DURATIONS = ("1d", "36h", "7d", "2w", "1d 6h", "400d")
SIZES = ("1KB", "1.5MiB", "500gb", 1, 10**12)

_COUNTS = st.integers(1, 10**6)
_RATE = {"rate_limit": _COUNTS}
_OLD = st.sampled_from(DURATIONS)
_WHERE = st.sampled_from(
    [
        {"delete_where": "x > 3"},
        {"delete_where": "ts < now() - interval '90 days'", "time_column": "ts"},
        {"delete_where": "`day` < current_date", "time_column": "day"},
    ]
)


def _table(optional: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=dict(optional))


_FLAGS = st.booleans()
_SHARES = st.sampled_from([0, 0.25, 1, 0.1])
PARTS: Mapping[str, st.SearchStrategy[Any]] = {
    "protect": _FLAGS | _table({"on": _FLAGS}),
    "drop_ttl": _OLD | st.just(False),
    "delete_rows": _WHERE | st.just(False),
    "compact": _FLAGS
    | _table(
        {
            "target_rows": _COUNTS,
            "target_bytes": st.sampled_from(SIZES),
            "deletion_threshold": _SHARES,
            "partial_progress": _COUNTS,
            "defer_index_remap": _FLAGS,
            "batch_size": _COUNTS,
            "min_fragments": _COUNTS,
        }
    ),
    "refresh_indexes": _FLAGS
    | _table({"max_lag_rows": st.integers(0, 100), "max_lag_ratio": _SHARES, "segment_rows": _COUNTS}),
    "clean_up": st.just(False)
    | st.fixed_dictionaries({"older_than": _OLD}, optional={"retain_versions": _COUNTS, **_RATE})
    | st.fixed_dictionaries(
        {"retain_versions": _COUNTS}, optional={"allow_young": _FLAGS, "ignore_clones": _FLAGS}
    ),
    "purge": _FLAGS | _table(_RATE),
}
ROOT_PARTS: Mapping[str, st.SearchStrategy[Any]] = {
    "remove_orphans": _FLAGS
    | _table({"older_than": _OLD, "allow_young": _FLAGS, "with_versions": _FLAGS, **_RATE}),
    "maintain_manifest": _FLAGS,
}


def _body(kinds: Mapping[str, st.SearchStrategy[Any]]) -> dict[str, st.SearchStrategy[Any]]:
    return {**dict(kinds), "rate_limit": _COUNTS | st.just(False)}


def _with_window(body: Document, window: Document) -> Document:
    return {**body, **window}


_WINDOWS = st.sampled_from(
    [
        {},
        {"window": False},
        {"window": "22:00-06:00", "timezone": "Europe/Berlin"},
        {"days": [DAYS[0], DAYS[6]]},
        {"window": "09:30-17:00", "days": list(DAYS[:5]), "timezone": "UTC"},
    ]
)
_NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
_PROPERTIES = st.dictionaries(_NAMES, st.booleans() | st.text("ab*", max_size=4), max_size=3)

RULES = st.builds(
    _with_window,
    st.fixed_dictionaries(
        {
            "name": _NAMES.filter(lambda name: name != "defaults"),
            "tables": st.sampled_from(PATTERNS) | st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
        },
        optional={**_body(PARTS), "properties": _PROPERTIES},
    ),
    _WINDOWS,
)
DOCUMENTS: st.SearchStrategy[Document] = st.fixed_dictionaries(
    {"rules": st.lists(RULES, min_size=1, max_size=4, unique_by=lambda rule: rule["name"])},
    optional={
        "limits": _table({"max_tables": _COUNTS, "max_bytes_deleted": st.sampled_from(SIZES)}),
        "defaults": st.builds(
            _with_window, st.fixed_dictionaries({}, optional=_body({**PARTS, **ROOT_PARTS})), _WINDOWS
        ),
    },
)


def quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def inline(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{quoted(name)} = {inline(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


def to_toml(document: Document) -> str:
    """Return a document as a person might write it."""
    lines = []
    for name in ("limits", "defaults"):
        if name in document:
            lines += [f"[{name}]", *(f"{key} = {inline(value)}" for key, value in document[name].items())]
    for rule in document["rules"]:
        lines += ["[[rules]]", *(f"{key} = {inline(value)}" for key, value in rule.items())]
    return "\n".join(lines) + "\n"


def policy(text: str) -> Policy:
    """Return the policy of a text."""
    return parse_policy(text, file="policy.toml")
