"""Text searches of the spec as those of Lance."""

from __future__ import annotations

from typing import Any

import lance
from lance.query import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lance_namespace_urllib3_client.models.boolean_query import BooleanQuery as BooleanParts
from lance_namespace_urllib3_client.models.fts_query import FtsQuery
from lance_namespace_urllib3_client.models.match_query import MatchQuery as MatchParts
from lance_namespace_urllib3_client.models.query_table_request_full_text_query import (
    QueryTableRequestFullTextQuery,
)

from relance.errors import InvalidInputError, UnsupportedOperationError


def text_query(
    dataset: lance.LanceDataset, query: QueryTableRequestFullTextQuery
) -> FullTextQuery | dict[str, Any]:
    """Return the search in Lance's words.

    Raises:
        InvalidInputError: it is not exactly one search, or its column cannot be guessed.
        UnsupportedOperationError: Lance cannot search that way.
    """
    plain, structured = query.string_query, query.structured_query
    if plain is not None and structured is None:
        return {"query": plain.query, **({"columns": plain.columns} if plain.columns else {})}
    if structured is not None and plain is None:
        return _translate(dataset, structured.query)
    raise InvalidInputError("a full-text search takes either a string query or a structured query")


def _translate(dataset: lance.LanceDataset, query: FtsQuery) -> FullTextQuery:
    given = [name for name in type(query).model_fields if getattr(query, name) is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"a structured query must contain exactly one kind of query, got {given or 'none'}"
        )
    if query.match is not None:
        return _match(dataset, query.match)
    if query.phrase is not None:
        phrase = query.phrase
        column = phrase.column or _only_indexed(dataset)
        return PhraseQuery(phrase.terms, column, slop=phrase.slop or 0)
    if query.boost is not None:
        boost = query.boost
        weight = {} if boost.negative_boost is None else {"negative_boost": float(boost.negative_boost)}
        return BoostQuery(_translate(dataset, boost.positive), _translate(dataset, boost.negative), **weight)
    if query.multi_match is not None:
        return _multi_match(dataset, query.multi_match.match_queries)
    assert query.boolean is not None  # the only kind that is left
    return _boolean(dataset, query.boolean)


def _match(dataset: lance.LanceDataset, query: MatchParts) -> MatchQuery:
    given = {
        "boost": None if query.boost is None else float(query.boost),
        "fuzziness": query.fuzziness,
        "max_expansions": query.max_expansions,
        "prefix_length": query.prefix_length,
        "operator": None if query.operator is None else _operator(query.operator),
    }
    options = {name: value for name, value in given.items() if value is not None}
    return MatchQuery(query.terms, query.column or _only_indexed(dataset), **options)


def _multi_match(dataset: lance.LanceDataset, queries: list[MatchParts]) -> FullTextQuery:
    """Return one search of several columns, which Lance has for the same terms only.

    Raises:
        UnsupportedOperationError: the parts differ in more than column and boost, or are fuzzy.
    """
    if not queries:
        raise InvalidInputError("a multi-match query needs at least one match query")
    if len(queries) == 1:
        return _match(dataset, queries[0])
    fuzzy = any(each.fuzziness or each.max_expansions is not None or each.prefix_length for each in queries)
    if fuzzy or len({(each.terms, (each.operator or "or").lower()) for each in queries}) > 1:
        raise UnsupportedOperationError(
            "all parts of a multi-match query must have the same terms and no fuzziness: use a "
            "boolean query instead"
        )
    columns = [each.column for each in queries]
    if None in columns:
        raise InvalidInputError("every part of a multi-match query must name its column")
    return MultiMatchQuery(
        queries[0].terms,
        columns,
        boosts=[1.0 if each.boost is None else float(each.boost) for each in queries],
        operator=_operator(queries[0].operator or "or"),
    )


def _boolean(dataset: lance.LanceDataset, query: BooleanParts) -> BooleanQuery:
    parts = ((Occur.MUST, query.must), (Occur.MUST_NOT, query.must_not), (Occur.SHOULD, query.should))
    clauses = [(occur, _translate(dataset, each)) for occur, queries in parts for each in queries or ()]
    if not clauses:
        raise InvalidInputError("a boolean query needs at least one clause")
    return BooleanQuery(clauses)


def _operator(text: str) -> FullTextOperator:
    for operator in FullTextOperator:
        if operator.value.lower() == text.lower():
            return operator
    raise InvalidInputError(f"unknown operator {text!r}: use 'and' or 'or'")


def _only_indexed(dataset: lance.LanceDataset) -> str:
    """Return the column to search when none is named: the only one with a full-text index."""
    indexed = {each.field_names[0] for each in dataset.describe_indices() if each.index_type == "Inverted"}
    if len(indexed) != 1:
        raise InvalidInputError(
            f"{len(indexed)} columns have a full-text index: specify which column to search"
        )
    return str(indexed.pop())
