"""The kinds of index, which fields of a request each takes, and which columns each fits. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace import CreateTableIndexRequest

from relance.errors import InvalidInputError

_ABOUT_THE_REQUEST = frozenset({"identity", "context", "id", "branch", "column", "index_type", "name"})
_IVF = {
    "distance_type": "metric",
    "num_partitions": "num_partitions",
    "target_partition_size": "target_partition_size",
    "sample_rate": "sample_rate",
    "max_iterations": "max_iters",
}
_PQ = {"num_sub_vectors": "num_sub_vectors", "num_bits": "num_bits"}
_HNSW = {"m": "m", "ef_construction": "ef_construction"}
_TEXT = {
    name: name
    for name in (
        "with_position",
        "base_tokenizer",
        "language",
        "max_token_length",
        "lower_case",
        "stem",
        "remove_stop_words",
        "ascii_folding",
    )
}
_SMALLEST_M = 4
_DISTANCES = frozenset({"l2", "euclidean", "cosine", "dot", "hamming"})


def _is_vector(data_type: pa.DataType) -> bool:
    if pa.types.is_list(data_type):
        data_type = data_type.value_type  # several vectors per row
    if isinstance(data_type, pa.FixedShapeTensorType):
        return len(data_type.shape) == 1
    if not pa.types.is_fixed_size_list(data_type):
        return False
    return bool(pa.types.is_floating(data_type.value_type) or pa.types.is_uint8(data_type.value_type))


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def _is_text_or_list(data_type: pa.DataType) -> bool:
    return _is_text(data_type.value_type if _is_list(data_type) else data_type)


def _is_plain(data_type: pa.DataType) -> bool:
    return not (pa.types.is_nested(data_type) or isinstance(data_type, pa.BaseExtensionType))


def _any(data_type: pa.DataType) -> bool:
    return True  # Lance knows which geometries it takes


@dataclass(frozen=True, slots=True)
class IndexType:
    """One kind of index."""

    name: str
    is_vector: bool
    fields: dict[str, str]
    """The fields of a request that it takes, with what Lance calls each."""
    fits: Callable[[pa.DataType], bool]
    needs: str
    """The columns that it fits, in words."""


def _vector(name: str, fields: dict[str, str]) -> IndexType:
    return IndexType(name, True, _IVF | fields, _is_vector, "a vector (a fixed-size list of floats or uint8)")


def _scalar(
    name: str, fits: Callable[[pa.DataType], bool], needs: str, fields: dict[str, str] | None = None
) -> IndexType:
    return IndexType(name, False, fields or {}, fits, needs)


_PLAIN = "numbers, text, binary, booleans or times"

TYPES: tuple[IndexType, ...] = (
    _vector("IVF_FLAT", {}),
    _vector("IVF_PQ", _PQ),
    _vector("IVF_SQ", {}),
    _vector("IVF_RQ", {"num_bits": "num_bits"}),
    _vector("IVF_HNSW_FLAT", _HNSW),
    _vector("IVF_HNSW_PQ", _HNSW | _PQ),
    _vector("IVF_HNSW_SQ", _HNSW),
    _scalar("BTREE", _is_plain, _PLAIN),
    _scalar("BITMAP", _is_plain, _PLAIN),
    _scalar("ZONEMAP", _is_plain, _PLAIN),
    _scalar("BLOOMFILTER", _is_plain, _PLAIN),
    _scalar("LABEL_LIST", _is_list, "a list"),
    _scalar("NGRAM", _is_text, "text"),
    _scalar("INVERTED", _is_text_or_list, "text or a list of strings", _TEXT),
    _scalar("RTREE", _any, "geometries"),
)
_BY_NAME = {each.name.replace("_", ""): each for each in TYPES} | {"FTS": TYPES[-2]}


def parse_index_type(text: str) -> IndexType:
    """Return the kind of index that `text` names, in any letter case, with or without underscores.

    Raises:
        InvalidInputError: there is no such kind.
    """
    found = _BY_NAME.get(text.replace("_", "").upper())
    if found is None:
        known = ", ".join(sorted({"FTS", *(each.name for each in TYPES)}))
        raise InvalidInputError(f"unknown index type {text!r}: use one of {known}")
    return found


def check_fit(index_type: IndexType, column: str, data_type: pa.DataType) -> None:
    """Check that the index can be of a column of this type.

    Raises:
        InvalidInputError: it cannot.
    """
    if not index_type.fits(data_type):
        raise InvalidInputError(
            f"{index_type.name} requires {index_type.needs}; column '{column}' is {data_type}"
        )


def parameters(
    index_type: IndexType, request: CreateTableIndexRequest, data_type: pa.DataType
) -> dict[str, Any]:
    """Return what Lance is told about the index.

    Raises:
        InvalidInputError: a field does not belong to this kind of index, or has an unusable value.
    """
    given = {
        name: value
        for name in type(request).model_fields
        if name not in _ABOUT_THE_REQUEST and (value := getattr(request, name)) is not None
    }
    strange = sorted(given.keys() - index_type.fields.keys())
    if strange:
        raise InvalidInputError(f"{', '.join(strange)}: not supported by an index of type {index_type.name}")
    found = {index_type.fields[name]: value for name, value in given.items()}
    if "metric" in found:
        found["metric"] = _distance(found["metric"])
    if found.get("m", _SMALLEST_M) < _SMALLEST_M:
        # Lance finds this out when it has written part of the index.
        raise InvalidInputError(
            f"m {found['m']} is too small to build a connected graph: use {_SMALLEST_M} or more"
        )
    if "num_sub_vectors" in index_type.fields:
        found["num_sub_vectors"] = _sub_vectors(found.get("num_sub_vectors"), _dimension(data_type))
    return found


def _distance(text: str) -> str:
    if text.lower() not in _DISTANCES:
        raise InvalidInputError(f"unknown distance_type {text!r}: use one of {', '.join(sorted(_DISTANCES))}")
    return text.lower()


def _dimension(data_type: pa.DataType) -> int:
    if pa.types.is_list(data_type):
        data_type = data_type.value_type
    if isinstance(data_type, pa.FixedShapeTensorType):
        return int(data_type.shape[0])
    return int(data_type.list_size)


def _sub_vectors(given: int | None, dimension: int) -> int:
    """Return into how many parts a vector is cut; by default each of 16 or 8 numbers, if that is even.

    Raises:
        InvalidInputError: the parts would not be of the same length.
    """
    if given is None:
        return next((dimension // size for size in (16, 8) if dimension % size == 0), 1)
    if dimension % given:
        raise InvalidInputError(f"num_sub_vectors {given} does not divide the dimension {dimension}")
    return given
