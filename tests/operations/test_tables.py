"""describe_table and table_exists: every field of the request is honoured."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    TAG_NOT_FOUND,
    VERSION_NOT_FOUND,
)
from tests.support.roots import (
    MORE_ROWS,
    ROWS,
    LocalPlace,
    Place,
    S3Place,
    create,
    dataset,
    declare,
    describe,
    exists_or_raise,
    refused,
)

from relance import DirectoryNamespace


@pytest.fixture
def history(catalog: DirectoryNamespace) -> DirectoryNamespace:
    """A catalog whose table t has two versions on main, two tags, and a branch of its own."""
    create(catalog, "t")
    lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="append")
    opened = dataset(catalog, "t")
    opened.tags.create("first", 1)
    opened.tags.create("second", 2)
    branch = opened.create_branch("work/in-progress")
    branch.insert(MORE_ROWS)
    branch.insert(MORE_ROWS)
    return catalog


def total_rows(catalog: DirectoryNamespace, **fields: Any) -> int:
    """Return the number of rows that the description of t tells."""
    metadata = describe(catalog, "t", load_detailed_metadata=True, **fields).metadata
    assert metadata is not None
    return int(metadata["total_rows"])


class TestDescribe:
    def test_describe_returns_the_location_and_nothing_expensive(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        described = describe(catalog, "t")
        assert (described.table, described.namespace) == ("t", [])
        assert described.location == described.table_uri == f"{local.root}/t.lance"
        for field in ("version", "var_schema", "stats", "metadata", "is_only_declared", "managed_versioning"):
            assert getattr(described, field) is None

    def test_location_can_be_opened_with_pylance(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        assert dataset(catalog, "t").to_table() == ROWS

    @pytest.mark.parametrize("trailing", ["", "/", "//"])
    def test_trailing_slash_of_the_root_makes_no_difference(self, trailing: str, local: LocalPlace) -> None:
        catalog = local.open(root=local.root + trailing)
        create(catalog, "t")
        assert describe(catalog, "t").location == f"{local.root}/t.lance"
        assert catalog.namespace_id() == f'DirectoryNamespace {{ root: "{local.root}" }}'

    def test_file_uri_and_path_object_name_the_same_root(self, local: LocalPlace) -> None:
        create(local.open(), "t")
        for catalog in (
            local.open(root=f"file://{local.root}"),
            local.open(root=local.folder),
        ):
            assert describe(catalog, "t").location == f"{local.root}/t.lance"

    @pytest.mark.parametrize("folder", ["a b", "é", "100%", "a%20b", "a#b", "a?b", "it's", "x$y", "[a]", "~"])
    def test_local_root_may_have_an_unusual_name(self, folder: str, local: LocalPlace) -> None:
        catalog = local.open(root=local.folder / folder)
        create(catalog, "t")
        lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        assert dataset(catalog, "t").count_rows() == 5
        assert [path.name for path in local.folder.iterdir()] == [folder]

    def test_missing_table_is_not_found(self, catalog: DirectoryNamespace) -> None:
        with refused(TABLE_NOT_FOUND) as caught:
            describe(catalog, "t")
        assert str(caught.value).startswith("Table not found: ")
        with refused(TABLE_NOT_FOUND):
            exists_or_raise(catalog, "t")

    def test_version_tracking_makes_clients_commit_through_the_catalog(self, place: Place) -> None:
        create(place.open(), "t")
        managed = place.open(table_version_tracking_enabled="true")
        assert describe(managed, "t").managed_versioning is True
        assert declare(managed, "u").managed_versioning is True
        assert describe(place.open(), "t").managed_versioning is None


class TestVersionsTagsAndBranches:
    def test_describe_returns_the_latest_version_of_main_by_default(
        self, history: DirectoryNamespace
    ) -> None:
        assert describe(history, "t", load_detailed_metadata=True).version == 2
        assert total_rows(history) == 5

    def test_describe_of_a_version_returns_that_version(self, history: DirectoryNamespace) -> None:
        for version, rows in ((1, 3), (2, 5)):
            assert describe(history, "t", version=version).version == version
            assert total_rows(history, version=version) == rows

    def test_describe_of_a_tag_returns_its_version(self, history: DirectoryNamespace) -> None:
        for tag, version, rows in (("first", 1, 3), ("second", 2, 5)):
            assert describe(history, "t", tag=tag).version == version
            assert total_rows(history, tag=tag) == rows

    def test_describe_of_a_branch_returns_its_latest_version(self, history: DirectoryNamespace) -> None:
        assert describe(history, "t", branch="work/in-progress").version == 4
        assert total_rows(history, branch="work/in-progress") == 9
        assert describe(history, "t", branch="main").version == 2

    def test_describe_of_a_branch_version_returns_that_version(self, history: DirectoryNamespace) -> None:
        assert describe(history, "t", branch="work/in-progress", version=3).version == 3
        assert total_rows(history, branch="work/in-progress", version=3) == 7

    def test_describe_of_a_tag_on_a_branch_returns_its_version(self, history: DirectoryNamespace) -> None:
        dataset(history, "t").tags.create("there", ("work/in-progress", 3))
        assert total_rows(history, tag="there") == 7

    def test_describe_of_a_missing_version_is_not_found(self, history: DirectoryNamespace) -> None:
        for version in (0, 3, 99, 2**63, 2**64):
            for detailed in (False, True):
                with refused(VERSION_NOT_FOUND):
                    describe(history, "t", version=version, load_detailed_metadata=detailed)
            with refused(VERSION_NOT_FOUND):
                exists_or_raise(history, "t", version=version)
        for version in (1, 5):
            with refused(VERSION_NOT_FOUND):
                describe(history, "t", branch="work/in-progress", version=version)

    def test_describe_of_a_missing_tag_is_not_found(self, history: DirectoryNamespace) -> None:
        for tag in ("third", "", "a/b", "../t", "a\0b"):
            with refused(TAG_NOT_FOUND):
                describe(history, "t", tag=tag)

    def test_describe_of_a_missing_branch_is_not_found(self, history: DirectoryNamespace) -> None:
        for branch in ("play", "", "work", "../t", "a\0b"):
            with refused(BRANCH_NOT_FOUND):
                describe(history, "t", branch=branch)

    def test_describe_by_tag_excludes_version_and_branch(self, history: DirectoryNamespace) -> None:
        others: list[dict[str, Any]] = [{"version": 1}, {"branch": "work/in-progress"}, {"branch": "main"}]
        for other in others:
            with refused(INVALID_INPUT):
                describe(history, "t", tag="first", **other)

    def test_table_exists_honours_the_version(self, history: DirectoryNamespace) -> None:
        exists_or_raise(history, "t")
        exists_or_raise(history, "t", version=1)
        exists_or_raise(history, "t", version=2)


class TestDetailed:
    def test_detailed_description_has_version_schema_and_counts(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        dataset(catalog, "t").delete("id = 2")
        described = describe(catalog, "t", load_detailed_metadata=True)
        assert described.version == 2
        assert described.var_schema is not None
        assert [field.name for field in described.var_schema.fields] == ["id", "name"]
        assert described.stats is not None
        assert (described.stats.num_deleted_rows, described.stats.num_fragments) == (1, 1)
        assert described.metadata is not None
        assert described.metadata["total_rows"] == "2"
        assert described.is_only_declared is False

    def test_detailed_description_has_the_schema_of_its_version(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        create(catalog, "t", pa.table({"other": [1.5]}), mode="overwrite")
        for version, columns in ((1, ["id", "name"]), (2, ["other"])):
            described = describe(catalog, "t", version=version, load_detailed_metadata=True)
            assert described.var_schema is not None
            assert [field.name for field in described.var_schema.fields] == columns

    def test_detailed_description_of_a_declared_table_is_empty(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        described = describe(catalog, "t", load_detailed_metadata=True)
        assert described.is_only_declared is True
        assert (described.version, described.var_schema, described.metadata) == (None, None, None)

    def test_version_of_a_declared_table_is_not_found(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        exists_or_raise(catalog, "t")
        looks: list[Callable[..., object]] = [describe, exists_or_raise]
        for look in looks:
            with pytest.raises(LanceNamespaceError) as caught:
                look(catalog, "t", version=1)
            assert int(caught.value.code) in {TABLE_NOT_FOUND, VERSION_NOT_FOUND}


class TestCheckDeclared:
    def test_is_only_declared_is_returned_only_on_request(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        assert describe(catalog, "t").is_only_declared is None
        assert describe(catalog, "t", check_declared=False).is_only_declared is None
        assert describe(catalog, "t", check_declared=True).is_only_declared is True

    def test_written_table_is_not_only_declared(self, catalog: DirectoryNamespace) -> None:
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        assert describe(catalog, "t", check_declared=True).is_only_declared is False
        create(catalog, "u")
        assert describe(catalog, "u", check_declared=True).is_only_declared is False


class TestVendedOptions:
    def test_responses_vend_the_options_needed_to_open_the_table(self, moto: S3Place) -> None:
        catalog = moto.open()
        created = create(catalog, "t")
        for response in (created, declare(catalog, "u"), describe(catalog, "t")):
            assert response.storage_options == moto.server.storage_options()
        opened = lance.dataset(created.location, storage_options=created.storage_options)
        assert opened.to_table() == ROWS

    def test_vended_options_can_be_declined(self, moto: S3Place) -> None:
        catalog = moto.open()
        create(catalog, "t")
        assert describe(catalog, "t", vend_credentials=False).storage_options is None
        assert declare(catalog, "u", vend_credentials=False).storage_options is None

    def test_vended_options_can_be_disabled_unless_requested(self, moto: S3Place) -> None:
        catalog = moto.open(vend_input_storage_options="false")
        assert create(catalog, "t").storage_options is None
        assert declare(catalog, "u").storage_options is None
        assert describe(catalog, "t").storage_options is None
        assert describe(catalog, "t", vend_credentials=True).storage_options == moto.server.storage_options()

    def test_local_table_vends_no_options(self, local: LocalPlace) -> None:
        assert create(local.open(), "t").storage_options is None
        assert describe(local.open(), "t", vend_credentials=True).storage_options is None

    def test_texts_hide_vended_values_and_data_carries_them(self, moto: S3Place) -> None:
        catalog = moto.open(**{"storage.secret_access_key": "do-not-show"})
        responses: list[Any] = [create(catalog, "t"), declare(catalog, "u"), describe(catalog, "t")]
        for response in responses:
            pickled = pickle.loads(pickle.dumps(response))
            others: list[Any] = [response, copy.deepcopy(response), response.model_copy(), pickled]
            for other in others:
                assert type(other) is type(response)
                _assert_hidden_in_texts(other, other.storage_options)
                for dumped in (other.model_dump(), other.model_dump(mode="json"), other.to_dict()):
                    assert dumped["storage_options"]["secret_access_key"] == "do-not-show"
                    _assert_hidden(repr(dumped), str(dumped["storage_options"]))
                    # What pylance and lancedb do with every response, from threads of their own.
                    assert "do-not-show" in json.dumps(dumped)
                    _assert_hidden_in_texts(type(other).model_validate(dumped))
                    _assert_hidden_in_texts(type(other).from_dict(dumped))

    def test_texts_of_a_batch_hide_vended_values(self, moto: S3Place) -> None:
        managed = {**MANAGED, "storage.secret_access_key": "do-not-show"}
        response = moto.open(**managed).batch_commit_tables(
            {"operations": [{"declare_table": {"id": ["t"]}}]}
        )
        (result,) = response.results
        assert result.declare_table is not None
        assert result.declare_table.storage_options is not None
        assert result.declare_table.storage_options["secret_access_key"] == "do-not-show"
        for each in (response, result, result.declare_table):
            _assert_hidden_in_texts(each)
            assert "do-not-show" in json.dumps(each.model_dump())
            assert "do-not-show" in json.dumps(each.to_dict())
            again = type(each).model_validate(json.loads(json.dumps(each.to_dict())))
            _assert_hidden_in_texts(again)
            assert again.to_dict() == each.to_dict()


MANAGED = {"manifest_enabled": "true", "table_version_management": "true"}


def _assert_hidden_in_texts(response: Any, *others: Any) -> None:
    _assert_hidden(
        repr(response),
        str(response),
        response.to_str(),
        response.to_json(),
        response.model_dump_json(),
        response.model_dump_json(by_alias=True, indent=2),
        repr(response.model_dump()),
        repr(response.to_dict()),
        *(f"{each!r} {each}" for each in others),
    )


def _assert_hidden(*texts: str) -> None:
    for text in texts:
        assert "do-not-show" not in text
        assert "secret_access_key" in text
        assert "***" in text
