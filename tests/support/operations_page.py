"""Generate docs/reference/operations.md by trying each operation of a Lance namespace in each mode.

`python -m tests.support.operations_page` writes the page; a test fails while it is out of date.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import UnsupportedOperationError
from tests.support.managed_versions import directory_of, stage
from tests.support.paths import REPOSITORY
from tests.support.roots import ipc, local_place
from tests.support.tables import QUIET_MODES, ROWS

from relance import DirectoryNamespace

PAGE = REPOSITORY / "docs/reference/operations.md"

OPERATIONS = sorted(
    name for name, member in vars(LanceNamespace).items() if callable(member) and not name.startswith("_")
)

Fields = dict[str, Any]
Arguments = tuple[Any, ...]
Request = Fields | Callable[[DirectoryNamespace], Fields]

_SPACE: Fields = {"id": ["space"]}
_VECTOR: Fields = {"k": 1, "vector": {"single_vector": [0.0] * 8}, "vector_column": "vector"}
_ADD: Fields = {"new_columns": [{"name": "n", "expression": "id + 1"}]}


def _staged(catalog: DirectoryNamespace) -> Fields:
    """Stage a manifest for version 2 and return the fields of the request that commits it."""
    manifest = next((directory_of(catalog, "t") / "_versions").glob("*.manifest"))
    return {"id": ["t"], "version": 2, "manifest_path": stage(catalog, "t", body=manifest.read_bytes())}


def _hidden(catalog: DirectoryNamespace) -> Fields:
    """Deregister the table and return the fields of the request that registers it again."""
    location = directory_of(catalog, "t").name
    catalog.deregister_table({"id": ["t"]})
    return {"id": ["t"], "location": location}


_REQUESTS: dict[str, Request] = {
    "alter_table_add_columns": _ADD,
    "alter_table_alter_columns": {"alterations": [{"path": "id", "rename": "n"}]},
    "alter_table_backfill_columns": {"column": "id"},
    "alter_table_drop_columns": {"columns": ["id"]},
    "alter_transaction": {"id": ["t", "1"], "actions": [{"set_status_action": {"status": "SUCCEEDED"}}]},
    "analyze_table_query_plan": _VECTOR,
    "batch_commit_tables": lambda catalog: {"operations": [{"create_table_version": _staged(catalog)}]},
    "batch_create_table_versions": lambda catalog: {"entries": [_staged(catalog)]},
    "batch_delete_table_versions": {"ranges": [{"start_version": 5, "end_version": 6}]},
    "create_empty_table": {"id": ["new"]},
    "create_materialized_view": {
        "id": ["new"],
        "kind": "query",
        "source_query": "select 1",
        "output_schema": "e30=",
    },
    "create_namespace": {"id": ["new"]},
    "create_table": {"id": ["new"]},
    "create_table_branch": {"name": "new"},
    "create_table_index": {"column": "id", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "id", "index_type": "BTREE"},
    "create_table_tag": {"tag": "new", "version": 1},
    "create_table_version": _staged,
    "declare_table": {"id": ["new"]},
    "delete_from_table": {"predicate": "id = 1"},
    "delete_table_branch": {"name": "work"},
    "delete_table_tag": {"tag": "first"},
    "describe_namespace": _SPACE,
    "describe_table_index_stats": {"index_name": "name_idx"},
    "describe_transaction": {"id": ["t", "1"]},
    "drop_namespace": _SPACE,
    "drop_table_index": {"index_name": "name_idx"},
    "explain_table_query_plan": {"query": _VECTOR},
    "get_table_tag_version": {"tag": "first"},
    "list_all_tables": {},
    "list_namespaces": _SPACE,
    "list_tables": _SPACE,
    "merge_insert_into_table": {"on": ["id"], "when_not_matched_insert_all": True},
    "namespace_exists": _SPACE,
    "query_table": _VECTOR,
    "register_table": _hidden,
    "rename_table": {"new_table_name": "new"},
    "restore_table": {"version": 1},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {"a": "b"}}]},
    "update_table": {"updates": [["id", "id + 1"]]},
    "update_table_schema_metadata": {"metadata": {"a": "b"}},
    "update_table_tag": {"tag": "first", "version": 1},
}
"""Fields of the requests that need more than the id of the table `t`."""

_WITH_BODY = {"create_table", "insert_into_table", "merge_insert_into_table"}
_AT_THE_ROOT = {"describe_namespace", "list_namespaces", "list_tables", "namespace_exists"}


_INSTEAD = {
    "alter_table_backfill_columns": "needs a service that computes columns; use `update_table`",
    "create_materialized_view": "needs a service that runs queries; store the result with `create_table`",
    "refresh_materialized_view": "needs a service that runs queries; store the result with `create_table`",
}
"""Notes on the operations that no mode supports."""


class Support(StrEnum):
    """Whether an operation works in a mode."""

    YES = "yes"
    NO = "no"
    ROOT = "root"
    """For the root namespace only."""
    MANAGED = "managed"
    """With managed versions only."""


def _prepared(root: str, mode: str, *, managed: bool) -> DirectoryNamespace:
    """Return a catalog that holds one of everything."""
    more: dict[str, Any] = {"table_version_management": "true"} if managed else {}
    catalog = local_place(Path(root), QUIET_MODES[mode]).open(**more)
    catalog.create_table({"id": ["t"]}, ipc(ROWS))
    if mode != "V1":
        catalog.create_namespace(_SPACE)
    return catalog


def _try(catalog: DirectoryNamespace, operation: str, fields: Fields) -> None:
    if operation == "namespace_id":
        catalog.namespace_id()
        return
    if "branch" in operation:
        catalog.create_table_branch({"id": ["t"], "name": "work"})
    if "tag" in operation:
        catalog.create_table_tag({"id": ["t"], "tag": "first", "version": 1})
    if "index" in operation:
        catalog.create_table_index({"id": ["t"], "column": "name", "index_type": "BTREE"})
    body: Arguments = (ipc(ROWS),) if operation in _WITH_BODY else ()
    getattr(catalog, operation)({"id": ["t"], **fields}, *body)


def support(operation: str, mode: str) -> Support:
    """Return whether an operation works in a mode, by trying it."""
    if getattr(DirectoryNamespace, operation) is getattr(LanceNamespace, operation):
        return Support.NO
    if _works(operation, mode):
        return Support.YES
    if operation in _AT_THE_ROOT and _works(operation, mode, {"id": []}):
        return Support.ROOT
    if mode != "V1" and _works(operation, mode, managed=True):
        return Support.MANAGED
    return Support.NO


def _works(operation: str, mode: str, given: Fields | None = None, *, managed: bool = False) -> bool:
    """Try an operation in a fresh root; False if it is refused as unsupported."""
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        catalog = _prepared(root, mode, managed=managed)
        request = _REQUESTS.get(operation, {}) if given is None else given
        try:
            _try(catalog, operation, request(catalog) if callable(request) else request)
        except UnsupportedOperationError:
            return False
    return True


def _note(operation: str, by_mode: Mapping[str, Support]) -> str:
    """Return what the operation needs where it is not supported, or what to use instead."""
    supports = set(by_mode.values())
    if supports == {Support.NO}:
        return _INSTEAD[operation]
    if Support.MANAGED in supports:
        return "needs [managed versions](../managed-versions.md)"
    if Support.ROOT in supports:
        return "child namespaces need the manifest"
    return "needs the manifest" if by_mode["V1"] is Support.NO else ""


def page() -> str:
    """Return the page."""
    lines = [
        "# Operations",
        "",
        f"All {len(OPERATIONS)} operations of a Lance namespace and the [modes](../namespaces.md#modes) that",
        "support them. This page is generated by trying each operation in each mode.",
        "`root` means: for the root namespace only. `managed` means: with managed versions only.",
        "An operation that is not supported fails with Unsupported (0).",
        "",
        "| operation | V1 | V2 | compatibility | note |",
        "|---|---|---|---|---|",
    ]
    for operation in OPERATIONS:
        by_mode = {mode: support(operation, mode) for mode in QUIET_MODES}
        lines.append(f"| `{operation}` | {' | '.join(by_mode.values())} | {_note(operation, by_mode)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
