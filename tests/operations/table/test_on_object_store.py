"""Every operation inside a table once, in each mode, on an object store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.codes import TRANSACTION_NOT_FOUND
from tests.support.roots import S3Place, create
from tests.support.servers import S3Server
from tests.support.tables import QUIET_MODES, ROWS, call

from relance import DirectoryNamespace
from relance.errors import TransactionNotFoundError


@pytest.fixture(params=QUIET_MODES)
def stored(request: pytest.FixtureRequest, moto_server: S3Server, moto_bucket: str) -> DirectoryNamespace:
    """A catalog in a bucket, with the table `t`."""
    catalog = S3Place(moto_server, moto_bucket, "lake", QUIET_MODES[request.param]).open()
    create(catalog, "t", ROWS)
    return catalog


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("create_table_tag", {"tag": "first", "version": 1}),
    ("create_table_branch", {"name": "work"}),
    ("create_table_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1}),
    ("create_table_scalar_index", {"column": "id", "index_type": "BTREE"}),
    ("list_table_indices", {}),
    ("describe_table_index_stats", {"index_name": "vector_idx"}),
    ("drop_table_index", {"index_name": "id_idx"}),
    ("alter_table_add_columns", {"new_columns": [{"name": "n", "expression": "id + 1"}]}),
    ("alter_table_alter_columns", {"alterations": [{"path": "n", "data_type": {"type": "int32"}}]}),
    ("alter_table_drop_columns", {"columns": ["n"]}),
    ("update_table_schema_metadata", {"metadata": {"a": "b"}}),
    ("update_field_metadata", {"updates": [{"path": "id", "metadata": {"a": "b"}}]}),
    ("restore_table", {"version": 1}),
    ("get_table_stats", {}),
    ("describe_transaction", {"id": ["t", "2"]}),
    ("update_table_tag", {"tag": "first", "version": 2}),
    ("get_table_tag_version", {"tag": "first"}),
    ("list_table_tags", {}),
    ("delete_table_tag", {"tag": "first"}),
    ("alter_table_drop_columns", {"columns": ["name"], "branch": "work"}),
    ("restore_table", {"version": 1, "branch": "work"}),
    ("list_table_branches", {}),
    ("delete_table_branch", {"name": "work"}),
]


def test_every_table_operation_works_on_s3(stored: DirectoryNamespace) -> None:
    for operation, fields in STEPS:
        call(stored, operation, **fields)
    versions = stored.list_table_versions({"id": ["t"]}).versions
    assert [each.version for each in versions] == list(range(1, 11))
    assert call(stored, "list_table_branches").branches == {}
    with pytest.raises(TransactionNotFoundError) as caught:
        call(stored, "describe_transaction", id=["t", "nope"])
    assert int(caught.value.code) == TRANSACTION_NOT_FOUND
