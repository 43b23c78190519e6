"""Expressions that Lance cannot work with, in every place that takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.codes import INTERNAL, INVALID_INPUT
from tests.support.patches import substitute
from tests.support.roots import LocalPlace, ipc, refused, refused_unchanged
from tests.support.rows import count, make, people, query

from relance import DirectoryNamespace
from relance.errors import InvalidInputError
from relance.operations.data.expressions import check_expressions


def _merge(catalog: Any, **filters: str) -> None:
    catalog.merge_insert_into_table({"id": ["t"], "on": ["id"], **filters}, ipc(people([1])))


PLACES: dict[str, Callable[[Any, str], Any]] = {
    "count": lambda catalog, text: count(catalog, predicate=text),
    "filter": lambda catalog, text: query(catalog, filter=text),
    "alias": lambda catalog, text: query(catalog, columns={"column_aliases": {"a": text}}),
    "delete": lambda catalog, text: catalog.delete_from_table({"id": ["t"], "predicate": text}),
    "predicate": lambda catalog, text: catalog.update_table(
        {"id": ["t"], "updates": [["name", "'x'"]], "predicate": text}
    ),
    "update": lambda catalog, text: catalog.update_table({"id": ["t"], "updates": [["name", text]]}),
    "merge update": lambda catalog, text: _merge(catalog, when_matched_update_all_filt=text),
    "merge delete": lambda catalog, text: _merge(catalog, when_not_matched_by_source_delete_filt=text),
}


@pytest.mark.parametrize("call", PLACES)
@pytest.mark.parametrize(
    "text",
    [
        "id = ?",
        "id = $1",
        "sum(id) > 1",
        "id in (select 1)",
        "nothing(id)",
        "id = 1; drop table t",
        "id = 1) or (id = 2",
        "\0",
    ],
)
def test_unsupported_expression_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, call: str, text: str
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        PLACES[call](catalog, text)


def test_placeholders_inside_quotes_are_accepted() -> None:
    check_expressions(
        [None, "name = 'what?'", "name = 'it''s $1'", "`a?` = 1", 'a = "$1"', "name = 'a; b'", "id = 1;"]
    )
    with pytest.raises(InvalidInputError):
        check_expressions(["name = 'what' or id = ?"])


def test_panic_in_lance_is_raised_as_an_internal_error(
    catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog)
    # What the check would find, Lance is given here.
    substitute(monkeypatch, "rows.check_count_expressions", lambda _: None)
    with refused(INTERNAL):
        count(catalog, predicate="id = ?")
