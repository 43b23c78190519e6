"""The English check objects to every phrase the style guide rejects, and to none that it recommends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.english import literals, objections, objections_to_page, objections_to_program

NOT_BUT: list[tuple[str, str]] = [
    (
        "Bring a run to its end that was stopped: the newest such.",
        "Resume the most recent interrupted run.",
    ),
    (
        "Do not ask before what cannot be undone.",
        "Skip the confirmation of irreversible actions.",
    ),
    (
        "Named tables also before their time has passed.",
        "Purge the named tables even if their retention period has not ended.",
    ),
    (
        "From so many new rows on an index is built in parts.",
        "Build the index in segments once this many rows are unindexed.",
    ),
    (
        "With a larger share of deleted rows it is written anew.",
        "Rewrite fragments whose share of deleted rows exceeds this.",
    ),
    (
        "A table that fails keeps from no other.",
        "A failing table does not affect the others.",
    ),
    (
        "Purging again what was purged half is always safe.",
        "Re-running an interrupted purge is always safe.",
    ),
    (
        "the marker of table 't' is damaged: it is left as it is; scrub() tells what to do",
        "corrupt marker for table 't'. Nothing was changed; run scrub() for repair options",
    ),
    (
        "table id 't' is not gone: 3 files are still there; purge it again",
        "purge of 't' is incomplete: 3 files remain. Run purge again",
    ),
    (
        "table id 't' has its marker swept by another client, whose claim holds until …: try again later",
        "'t' is locked by another client (sweeping its marker) until …; retry after that",
    ),
    (
        "this lake's policy is being run: root@vm runs it since 22:31 UTC; wait for it",
        "another policy run is in progress (started 22:31 UTC by root@vm). Retry later or pass --wait",
    ),
    (
        "an interval leads to a time that no clock shows",
        "interval out of range",
    ),
    (
        "table id '[x' starts like a JSON list of names and is none",
        "invalid table id '[x': looks like JSON but is not a list of strings",
    ),
    (
        "table id 't' is another table now: plan again",
        "table 't' was replaced after the plan was made; re-plan",
    ),
    (
        "mend what it names; relance COMMAND --help shows how it is written",
        "fix the value above; see relance COMMAND --help",
    ),
    (
        "They are told some at a time, while the next are being removed; any other stays where it is.",
        "Yields removed directories in groups while later ones are still being removed.",
    ),
    (
        "What was undropped after the plan is whole.",
        "Tables undropped after planning are left untouched.",
    ),
    (
        "the job looks what is due",
        "the job decides what is due when it runs",
    ),
    (
        "The two lines of the upsert are six runs.",
        "Both upsert rows are the best of six runs.",
    ),
    (
        "commit: What could not be removed is put back only by who still holds the table",
        "commit: Restore a trashed directory only while its claim is held",
    ),
]
"""The style guide's table: a phrase that reads like a translation, and the same in plain English."""

TELLTALES = [
    "Bring a run to its end",
    "the newest such",
    "Do not ask before",
    "what cannot be undone",
    "before their time",
    "its time has not passed",
    "whose time has passed",
    "is written anew",
    "it is left as it is",
    "scrub() tells what to do",
    "is not gone",
    "3 files are still there",
    "purge it again",
    "has its marker swept by another client",
    "whose claim holds",
    "try again later",
    "the policy is being run",
    "root@vm runs it since 22:31",
    "leads to a time",
    "a time that no clock shows",
    "starts like a JSON list",
    "and is none",
    "is another table now",
    "plan again",
    "mend it",
    "shows how it is written",
    "some at a time",
    "stays where it is",
    "what was undropped",
    "is put back only by",
    "who still holds the table",
    "the error is told",
    "both can be had",
]
"""Parts of the rejected phrases, each of which gives the rest away."""


@pytest.mark.parametrize("phrase", [rejected for rejected, _ in NOT_BUT])
def test_a_phrase_rejected_by_the_style_guide_is_objected_to(phrase: str) -> None:
    assert objections(phrase)


@pytest.mark.parametrize("phrase", [recommended for _, recommended in NOT_BUT])
def test_a_phrase_recommended_by_the_style_guide_is_accepted(phrase: str) -> None:
    assert objections(phrase) == []


@pytest.mark.parametrize("part", TELLTALES)
def test_a_telltale_part_alone_is_objected_to(part: str) -> None:
    assert objections(f"Before. {part.upper()} after.")


def test_an_objection_says_what_to_write_instead() -> None:
    assert objections("a table whose time has passed") == [
        "'whose time has passed': write 'expired, the retention period has (not) ended'"
    ]


def test_a_phrase_is_found_across_a_line_break(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Fine.\nA table whose time\nhas passed.\n")
    assert len(objections_to_page(page)) == 1
    page.write_text("Fine.\nA table whose time has passed.\n")
    (objection,) = objections_to_page(page)
    assert objection.startswith("2: 'whose time has passed'")


def test_f_strings_count_as_one_literal_and_docstrings_only_where_they_are_shown(tmp_path: Path) -> None:
    code = '"""Internal."""\n\nraise ValueError(f"table {name} was " "dropped")\n'
    (tmp_path / "internal.py").write_text(code)
    (tmp_path / "methods.py").write_text(code)
    assert [text for _, text in literals(tmp_path / "internal.py")] == ["table … was dropped"]
    assert {text for _, text in literals(tmp_path / "methods.py")} == {"Internal.", "table … was dropped"}


def test_names_in_code_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text('found = {"mended": [], "all": "what was mended"}\n')
    (tmp_path / "names.md").write_text("`mended` lists the repaired rows; `result.mended` too.\n")
    assert objections_to_page(tmp_path / "names.md") == []
    assert len(objections_to_program(tmp_path / "names.py")) == 1
