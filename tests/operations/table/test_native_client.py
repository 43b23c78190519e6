"""The same requests to the native directory namespace and to ours: one outcome, or a listed difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import lance_namespace
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace.errors import LanceNamespaceError
from tests.support.roots import ipc, local_place
from tests.support.tables import QUIET_MODES, ROWS

Step = tuple[str, dict[str, Any]]

INDEX: Step = ("create_table_index", {"column": "id", "index_type": "BTREE"})
TEXT: Step = ("create_table_scalar_index", {"column": "name", "index_type": "FTS"})
NEAR: Step = ("create_table_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1})
TAG: Step = ("create_table_tag", {"tag": "a", "version": 1})
BRANCH: Step = ("create_table_branch", {"name": "work"})
METADATA: Step = ("update_table_schema_metadata", {"metadata": {"a": "b"}})
ADD: Step = ("alter_table_add_columns", {"new_columns": [{"name": "n", "expression": "id + 1"}]})
DROP: Step = ("alter_table_drop_columns", {"columns": ["name"]})
RENAME: Step = ("alter_table_alter_columns", {"alterations": [{"path": "id", "rename": "k"}]})
STATUS = {"actions": [{"set_status_action": {"status": "SUCCEEDED"}}]}

SAME: dict[str, Sequence[Step]] = {
    "scalar index": [INDEX],
    "text index": [TEXT],
    "vector index": [NEAR],
    "taken index name": [INDEX, INDEX],
    "index of unknown column": [("create_table_index", {"column": "nope", "index_type": "BTREE"})],
    "index of unknown type": [("create_table_index", {"column": "id", "index_type": "MAGIC"})],
    "vector index as scalar": [("create_table_scalar_index", {"column": "vector", "index_type": "IVF_FLAT"})],
    "list indexes": [INDEX, TEXT, ("list_table_indices", {})],
    "list indexes, first page": [INDEX, TEXT, ("list_table_indices", {"limit": 1})],
    "list indexes, next page": [INDEX, TEXT, ("list_table_indices", {"page_token": "id_idx"})],
    "list indexes of a version": [INDEX, ("list_table_indices", {"version": 1})],
    "index statistics": [INDEX, ("describe_table_index_stats", {"index_name": "id_idx"})],
    "statistics of unknown index": [("describe_table_index_stats", {"index_name": "nope"})],
    "statistics of no index": [("describe_table_index_stats", {})],
    "drop index": [INDEX, TEXT, ("drop_table_index", {"index_name": "id_idx"})],
    "drop unknown index": [("drop_table_index", {"index_name": "nope"})],
    "drop no index": [("drop_table_index", {})],
    "tag": [TAG, ("get_table_tag_version", {"tag": "a"})],
    "list tags": [TAG, ("list_table_tags", {})],
    "taken tag": [TAG, TAG],
    "tag of unknown version": [("create_table_tag", {"tag": "b", "version": 99})],
    "tag of version 0": [("create_table_tag", {"tag": "b", "version": 0})],
    "tag with a bad name": [("create_table_tag", {"tag": "b b", "version": 1})],
    "move tag": [TAG, INDEX, ("update_table_tag", {"tag": "a", "version": 2})],
    "move unknown tag": [("update_table_tag", {"tag": "a", "version": 1})],
    "get unknown tag": [("get_table_tag_version", {"tag": "a"})],
    "delete tag": [TAG, ("delete_table_tag", {"tag": "a"})],
    "delete unknown tag": [("delete_table_tag", {"tag": "a"})],
    "branch": [BRANCH, ("list_table_branches", {})],
    "branch of a version": [INDEX, ("create_table_branch", {"name": "b", "from_version": 1})],
    "branch of a branch": [BRANCH, ("create_table_branch", {"name": "b", "from_branch": "work"})],
    "taken branch": [BRANCH, BRANCH],
    "branch main": [("create_table_branch", {"name": "main"})],
    "branch with a bad name": [("create_table_branch", {"name": "a b"})],
    "delete branch": [BRANCH, ("delete_table_branch", {"name": "work"})],
    "delete unknown branch": [("delete_table_branch", {"name": "nope"})],
    "statistics": [INDEX, ("get_table_stats", {})],
    "statistics of a branch": [BRANCH, INDEX, ("get_table_stats", {"branch": "work"})],
    "transaction": [INDEX, ("describe_transaction", {"id": ["t", "2"]})],
    "transaction of a create": [("describe_transaction", {"id": ["t", "1"]})],
    "unknown transaction": [("describe_transaction", {"id": ["t", "nope"]})],
    "transaction of unknown version": [("describe_transaction", {"id": ["t", "99"]})],
    "transaction without id": [("describe_transaction", {"id": ["t"]})],
    "alter transaction": [INDEX, ("alter_transaction", {"id": ["t", "2"], **STATUS})],
    "schema metadata": [METADATA],
    "add column": [ADD],
    "rename column": [RENAME],
    "restore": [DROP, ("restore_table", {"version": 1})],
    "statistics of unknown table": [("get_table_stats", {"id": ["nope"]})],
    "indexes of unknown table": [("list_table_indices", {"id": ["nope"]})],
    "tag of unknown table": [("create_table_tag", {"id": ["nope"], "tag": "a", "version": 1})],
    "branch of unknown table": [("create_table_branch", {"id": ["nope"], "name": "a"})],
    "restore of unknown table": [("restore_table", {"id": ["nope"], "version": 1})],
    "drop columns of unknown table": [("alter_table_drop_columns", {"id": ["nope"], "columns": ["id"]})],
}

OK = "ok"
DIFFERENT: dict[str, tuple[Sequence[Step], int | str, str]] = {
    "index that does not fit": (
        [("create_table_index", {"column": "name", "index_type": "LABEL_LIST"})],
        13,
        "the request is at fault; native says Internal (18)",
    ),
    "parameters of an index": (
        [("create_table_index", {**NEAR[1], "index_type": "IVF_PQ", "num_sub_vectors": 2})],
        OK,
        "native does not pass num_sub_vectors on, and its default does not fit",
    ),
    "distance of an index": (
        [NEAR, ("describe_table_index_stats", {"index_name": "vector_idx"})],
        OK,
        "native leaves distance_type out",
    ),
    "index on a branch": (
        [BRANCH, (INDEX[0], {**INDEX[1], "branch": "work"})],
        OK,
        "native writes to main",
    ),
    "columns on a branch": ([BRANCH, (DROP[0], {**DROP[1], "branch": "work"})], OK, "native writes to main"),
    "metadata on a branch": (
        [BRANCH, (METADATA[0], {**METADATA[1], "branch": "work"})],
        OK,
        "native writes to main",
    ),
    "empty schema metadata": (
        [("update_table_schema_metadata", {"metadata": {}})],
        OK,
        "native makes a version that changes nothing",
    ),
    "branch of unknown version": (
        [("create_table_branch", {"name": "b", "from_version": 99})],
        11,
        "the code of a version that is missing; native says InvalidInput (13)",
    ),
    "branch of unknown branch": (
        [("create_table_branch", {"name": "b", "from_branch": "nope"})],
        22,
        "the code of a branch that is missing; native says Internal (18)",
    ),
    "delete branch in use": (
        [
            BRANCH,
            ("create_table_branch", {"name": "b", "from_branch": "work"}),
            ("delete_table_branch", {"name": "work"}),
        ],
        19,
        "the table's state is at fault; native says InvalidInput (13)",
    ),
    "statistics of unknown branch": (
        [("get_table_stats", {"branch": "nope"})],
        22,
        "the code of a branch that is missing; native says TableNotFound (4)",
    ),
    "cancel a transaction": (
        [
            (
                "alter_transaction",
                {"id": ["t", "1"], "actions": [{"set_status_action": {"status": "CANCELED"}}]},
            )
        ],
        0,
        "native ignores what is asked for",
    ),
    "add a taken column": ([ADD, ADD], 13, "native raises OSError, or says ConcurrentModification (14)"),
    "add a bad expression": (
        [("alter_table_add_columns", {"new_columns": [{"name": "n", "expression": "nope"}]})],
        13,
        "native raises OSError, or says Internal (18)",
    ),
    "add without expression": (
        [("alter_table_add_columns", {"new_columns": [{"name": "n"}]})],
        13,
        "native raises ValueError",
    ),
    "alter unknown column": (
        [("alter_table_alter_columns", {"alterations": [{"path": "nope", "rename": "n"}]})],
        12,
        "native raises OSError, or says Internal (18)",
    ),
    "cast column": (
        [("alter_table_alter_columns", {"alterations": [{"path": "id", "data_type": {"type": "int32"}}]})],
        OK,
        "native wants a JSON string, which the request model does not allow",
    ),
    "drop column": ([DROP], OK, "native leaves the transaction out"),
    "drop unknown column": (
        [("alter_table_drop_columns", {"columns": ["nope"]})],
        12,
        "native raises OSError, or says Internal (18)",
    ),
    "restore unknown version": ([("restore_table", {"version": 99})], 11, "native raises RuntimeError"),
    "field metadata": (
        [("update_field_metadata", {"updates": [{"path": "id", "metadata": {"a": "b"}}]})],
        OK,
        "native does not have it",
    ),
    "backfill": (
        [("alter_table_backfill_columns", {"column": "id"})],
        0,
        "native raises NotImplementedError",
    ),
    "refresh a view": ([("refresh_materialized_view", {})], 0, "native raises NotImplementedError"),
}

VOLATILE = {"transaction_id", "uuid", "index_uuid", "created_at", "create_at", "manifest_size", "size_bytes"}
"""What differs between two runs of the same."""


def _request(operation: str, fields: dict[str, Any]) -> Any:
    name = "create_table_index" if operation == "create_table_scalar_index" else operation
    model = "".join(part.title() for part in name.split("_")) + "Request"
    return getattr(lance_namespace, model)(**({"id": ["t"]} | fields))


def _plain(value: Any) -> Any:
    """Return an answer without what differs between two runs; whether it is there is kept."""
    if isinstance(value, dict):
        return {
            key: each is not None if key in VOLATILE else _plain(each) for key, each in sorted(value.items())
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _answer(catalog: Any, operation: str, fields: dict[str, Any]) -> Any:
    """Return the answer, the code of an error, or the class of one without a code."""
    try:
        return _plain(getattr(catalog, operation)(_request(operation, fields)).model_dump())
    except (LanceNamespaceError, OSError, ValueError, RuntimeError) as error:
        return int(error.code) if hasattr(error, "code") else type(error).__name__


def _state(catalog: Any) -> Any:
    """Return what is in the table, on main and on its branches."""
    location = catalog.describe_table(lance_namespace.DescribeTableRequest(id=["t"])).location
    main = lance.dataset(location)
    lines = [main, *(main.checkout_version((name, None)) for name in sorted(main.branches.list()))]
    return [
        (
            each.version,
            str(each.schema),
            sorted((index.name, index.index_type) for index in each.describe_indices()),
            each.count_rows(),
        )
        for each in lines
    ], sorted((name, tag["version"]) for name, tag in main.tags.list().items())


def _run(root: Path, mode: str, steps: Sequence[Step]) -> tuple[Any, Any]:
    """Return what both namespaces answer to the last step and what is in the table then: native, ours."""
    native_mode = {key: value for key, value in QUIET_MODES[mode].items() if key != "manifest_upkeep"}
    catalogs = (
        NativeNamespace(root=str(root / "native"), **native_mode),
        local_place(root / "ours", QUIET_MODES[mode]).open(),
    )
    outcomes = []
    for catalog in catalogs:
        catalog.create_table(lance_namespace.CreateTableRequest(id=["t"]), ipc(ROWS))
        answers = [_answer(catalog, *step) for step in steps]
        outcomes.append((answers[-1], _state(catalog)))
    return outcomes[0], outcomes[1]


@pytest.mark.parametrize("mode", QUIET_MODES)
@pytest.mark.parametrize("case", SAME)
def test_operations_behave_as_in_the_native_client(tmp_path: Path, mode: str, case: str) -> None:
    native, ours = _run(tmp_path, mode, SAME[case])
    assert ours == native


@pytest.mark.parametrize("mode", QUIET_MODES)
@pytest.mark.parametrize("case", DIFFERENT)
def test_documented_differences_from_the_native_client_still_exist(
    tmp_path: Path, mode: str, case: str
) -> None:
    steps, wanted, why = DIFFERENT[case]
    native, ours = _run(tmp_path, mode, steps)
    assert ours != native, f"no longer different: {why}"
    assert ours[0] == wanted if isinstance(wanted, int) else isinstance(ours[0], dict)
