"""Policy files: what they say, and complaints that name file, line and key."""

from __future__ import annotations

import pickle
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.policy.policies import DOCUMENTS, Document, policy, to_toml

from relance.errors import InvalidInputError
from relance.jobs import CleanUp, Compact, DropTtl, Protect, RefreshIndexes, RemoveOrphans
from relance.policy.model import Limits, PropertyCondition
from relance.policy.parse import MAX_FILE_BYTES, MAX_RULES, parse_policy
from relance.policy.problems import MAX_PROBLEMS, PolicyError, Problem
from relance.policy.windows import Window

RULE = '[[rules]]\nname = "a"\ntables = "**"\n'


def problems(text: str | bytes) -> list[str]:
    """Return what the parser has against a text."""
    return [str(each) for each in _found(text)]


def _found(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as raised:
        parse_policy(text, file="policy.toml")
    assert str(raised.value) == "Invalid input: " + "\n".join(map(str, raised.value.problems))
    return raised.value.problems


def test_policy_file_is_parsed_into_a_policy() -> None:
    found = policy(
        """
        [limits]
        max_tables = 10
        max_bytes_deleted = "1.5GiB"
        [defaults]
        protect = true
        remove_orphans.older_than = "2d"
        [[rules]]
        name = "events"
        tables = ["prod.*", "`a.b`.c"]
        properties = { tier = "go*", old = false }
        drop_ttl = " 30d "
        compact = { target_rows = 5, target_bytes = "1MB" }
        clean_up = { older_than = "1d 6h", retain_versions = 3 }
        refresh_indexes = true
        purge = false
        window = "22:00-06:00"
        days = ["sun", "mon", "sun"]
        timezone = "Europe/Berlin"
        rate_limit = 100
        """
    )
    assert found.limits == Limits(max_tables=10, max_bytes_deleted=3 * 2**29)
    defaults, rule = found.rules
    assert (defaults.name, defaults.line, defaults.is_for_all) == ("defaults", 5, True)
    assert defaults.jobs == {
        "protect": Protect(on=True),
        "remove_orphans": RemoveOrphans(older_than=timedelta(days=2)),
    }
    assert (rule.name, rule.line, rule.rate_limit) == ("events", 8, 100)
    assert [each.parts for each in rule.tables] == [("prod", "*"), ("a.b", "c")]
    assert rule.properties == (PropertyCondition("tier", "go*"), PropertyCondition("old", False))
    assert rule.jobs == {
        "drop_ttl": DropTtl(ttl="30d"),
        "compact": Compact(target_rows=5, target_bytes=1_000_000),
        "clean_up": CleanUp(older_than=timedelta(hours=30), retain_versions=3),
        "refresh_indexes": RefreshIndexes(),
        "purge": False,
    }
    assert rule.window == Window(22 * 60, 6 * 60, ("mon", "sun"), "Europe/Berlin")


COMPLAINTS = [
    tuple(case.split("=> "))
    for case in (Path(__file__).parent / "complaints.txt").read_text().split("----\n")[1:]
]


@pytest.mark.parametrize(("text", "complaint"), COMPLAINTS, ids=[each[1] for each in COMPLAINTS])
def test_problem_names_file_line_and_key(text: str, complaint: str) -> None:
    found = problems(text)
    assert any(each.startswith(f"policy.toml:{complaint.rstrip()}") for each in found), found


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("ts < now() - interval '90 days'", 'time_column = "ts", older_than = "90d"'),
        ("`ts` < NOW() - INTERVAL '1 week'", 'time_column = "ts", older_than = "1w"'),
        ("ts < now() - interval '3 months'", None),
        ("ts < now() - interval '90 days' and n > 1", None),
    ],
)
def test_interval_that_is_an_age_gets_a_hint(written: str, hint: str | None) -> None:
    text = f'{RULE}[rules.delete_rows]\ntime_column = "ts"\ndelete_where = "{written}"\n'
    found = parse_policy(text, file="policy.toml")
    told = f"policy.toml:4: rules[0].delete_rows: means the same as delete_rows = {{ {hint} }}"
    assert found.hints == (() if hint is None else (told,))
    simple = f"{RULE}delete_rows = {{ {hint} }}\n"
    assert hint is None or parse_policy(simple, file="policy.toml").hints == ()


def test_all_problems_are_reported_in_file_order() -> None:
    text = f"{RULE}drop_ttl = 1\n{RULE}purge = 1\n[limits]\nmax_tables = -1\n"
    assert [each.split(":")[1] for each in problems(text)] == ["4", "6", "8", "10"]


def test_number_of_reported_problems_is_limited() -> None:
    assert len(problems("".join(f"key{number} = 1\n" for number in range(30_000)))) == MAX_PROBLEMS


def test_policy_errors_are_picklable() -> None:
    with pytest.raises(PolicyError) as raised:
        policy("x = 1")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.problems, str(again)) == (raised.value.problems, str(raised.value))


def test_byte_order_marks_and_windows_line_endings_are_accepted() -> None:
    text = "\ufeff" + (RULE + "drop_ttl = 1\n").replace("\n", "\r\n")
    assert problems(text)[0].startswith("policy.toml:4: rules[0].drop_ttl")
    assert problems(text.encode())[0].startswith("policy.toml:4: rules[0].drop_ttl")


HOSTILE: dict[str, str | bytes] = {
    "lists": "a = " + "[" * 400_000,
    "closed lists": "a = " + "[" * 5_000 + "]" * 5_000,
    "tables": "a = " + "{a = " * 200_000,
    "closed tables": "a = " + "{a = " * 3_000 + "1" + "}" * 3_000,
    "dotted keys": "a." * 400_000 + "b = 1",
    "headers": "[" + "a." * 400_000 + "b]",
    "many rules": "[[rules]]\n" * 100_000,
    "many named rules": "".join(f'[[rules]]\nname="{n}"\ntables="**"\n' for n in range(MAX_RULES + 1)),
    "too large": "#" * (MAX_FILE_BYTES + 1),
    "NUL bytes": "\0" * 1000,
    "not UTF-8": b'# fine\nname = "\xff"',
    "half a character": "a = '\ud800'",
    "digits": "a = " + "9" * 100_000,
    "hex digits": RULE + "rate_limit = 0x" + "f" * 100_000,
    "unclosed string": 'a = """' + "x\\" * 400_000,
    "long pattern": '[[rules]]\nname = "a"\ntables = "' + "*a" * 200_000 + '"',
    "many patterns": '[[rules]]\nname = "a"\ntables = [' + '"*",' * 100_000 + "]",
    "long duration": RULE + f'drop_ttl = "{"9" * 10_000}d"',
    "many durations": RULE + f'drop_ttl = "{"1d " * 50_000}"',
    "long predicate": RULE + f'delete_rows.delete_where = "{"(" * 500_000}"',
    "long key": f"{'k' * 500_000} = 1",
    "many keys": "".join(f"k{number} = 1\n" for number in range(50_000)),
    "many tables": "".join(f"[t{number}]\n" for number in range(50_000)),
    "same key": "a = 1\n" * 100_000,
    "many properties": RULE + "".join(f'properties.p{number} = "*"\n' for number in range(20_000)),
}


BLAMED = {
    "not UTF-8": (2, ""),
    "same key": (2, ""),
    "half a character": (1, "a"),
    "many rules": (1, "rules"),
    "many named rules": (1, "rules"),
    "long pattern": (3, "rules[0].tables"),
    "many patterns": (3, "rules[0].tables"),
    "long duration": (4, "rules[0].drop_ttl"),
    "many durations": (4, "rules[0].drop_ttl"),
    "long predicate": (4, "rules[0].delete_rows.delete_where"),
    "hex digits": (4, "rules[0].rate_limit"),
    "many properties": (4, "rules[0].properties"),
    "long key": (1, f"'{'k' * 76}..."),
    "many keys": (1, "k0"),
    "many tables": (1, "t0"),
}
"""The line and key of the first problem; the first line and no key where nothing is listed."""


@pytest.mark.timeout(60)  # a reader that is not linear takes hours
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_short_errors_at_the_right_place(name: str) -> None:
    found = _found(HOSTILE[name])
    assert (found[0].line, found[0].key) == BLAMED.get(name, (1, ""))
    assert (
        len(found)
        == {"many keys": MAX_PROBLEMS, "many tables": MAX_PROBLEMS}.get(name, len(found))
        <= MAX_PROBLEMS
    )
    assert max(len(str(problem)) for problem in found) < 250


@settings(max_examples=200)
@given(st.text(max_size=60) | st.binary(max_size=60))
@example("\ufeff")
@example("a=0e9999999999")
def test_any_text_gives_a_policy_or_an_input_error(text: str | bytes) -> None:
    with suppress(InvalidInputError):
        parse_policy(text, file="policy.toml")


SCRAPS = st.sampled_from(
    [
        *"[]{}=.,#'\"\\\n0-_*`$\0\ud800",
        "[[rules]]\n",
        "true",
        "1979-05-27",
        "inf",
        "now()",
        '"""',
        "0x",
        "interval",
    ]
)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = to_toml(draw(DOCUMENTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(SCRAPS | st.just("")) + text[start + draw(st.integers(0, 6)) :]
    return text


@settings(max_examples=120)
@given(_mutated())
def test_mutated_policy_gives_a_policy_or_problems_with_valid_lines(text: str) -> None:
    with suppress(PolicyError):
        policy(text)
        return
    found = _found(text)
    assert all(1 <= each.line <= text.count("\n") + 1 for each in found)
    assert all("\n" not in each.message and len(str(each)) < 12_000 for each in found)


@settings(max_examples=60)
@given(DOCUMENTS, st.data())
def test_invalid_value_is_reported_on_its_line(document: Document, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(document["rules"]) - 1))
    key = data.draw(st.sampled_from(sorted(document["rules"][number])))
    rules: list[dict[str, Any]] = [dict(rule) for rule in document["rules"]]
    rules[number][key] = -17
    text = to_toml({**document, "rules": rules})
    line = next(n for n, each in enumerate(text.splitlines(), 1) if each == f"{key} = -17")
    assert any(each.startswith(f"policy.toml:{line}: rules[{number}].{key}: ") for each in problems(text))
