"""Managed versions: rows and files agree, batches are all or nothing, and no crash leaves half of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import BatchDeleteTableVersionsRequest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import exists
from tests.support.codes import (
    CONCURRENT_MODIFICATION,
    INTERNAL,
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
    UNSUPPORTED,
    VERSION_NOT_FOUND,
)
from tests.support.internals import manifest_of
from tests.support.managed_versions import (
    MORE_ROWS,
    ROWS,
    assert_in_step,
    cut_after_each_write,
    directory_of,
    entry,
    interrupted_at_each_write,
    manifest_rows,
    put_version,
    stage,
    stage_in,
    staged_files,
    version_files,
    version_rows,
    versions,
)
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, V2
from tests.support.mortal_clients import make_failing
from tests.support.patches import original, substitute
from tests.support.paths import REPOSITORY
from tests.support.racing import Outcome, team
from tests.support.roots import ipc, refused
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.catalog.manifest.schema import MANAGED_VERSIONS_FLAG, MANAGED_VERSIONS_KEY, WRITER_FLAGS_KEY
from relance.errors import (
    ConcurrentModificationError,
    KeyExistsError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
    TableVersionAlreadyExistsError,
)
from relance.storage.protocol import ObjectStorage


@pytest.fixture(params=MANIFEST_MODES)
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The properties that open a root in each mode that has a manifest."""
    return MANIFEST_MODES[request.param]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root that does not exist yet."""
    return tmp_path / "root"


@pytest.fixture
def catalog(root: Path, mode: dict[str, Any]) -> DirectoryNamespace:
    """A catalog that asks for managed versions."""
    return managed(root, mode)


def managed(root: Path, mode: dict[str, Any]) -> DirectoryNamespace:
    """Open a root and ask for managed versions."""
    return DirectoryNamespace(
        root=str(root), table_version_management="true", manifest_upkeep="false", **mode
    )


def plain(root: Path, mode: dict[str, Any]) -> DirectoryNamespace:
    """Open a root as it is."""
    return DirectoryNamespace(root=str(root), manifest_upkeep="false", **mode)


def create(catalog: DirectoryNamespace, *parts: str, data: pa.Table = ROWS, **fields: Any) -> None:
    """Create a table, which commits its first version straight to the store."""
    catalog.create_table({"id": list(parts), **fields}, ipc(data))


def opened(catalog: DirectoryNamespace, *parts: str, **pinned: Any) -> Any:
    """Open a table with pylance through the catalog."""
    return lance.dataset(namespace_client=catalog, table_id=list(parts), **pinned)


def past(catalog: DirectoryNamespace, *parts: str) -> Any:
    """Open a table with pylance past the catalog."""
    return lance.dataset(str(directory_of(catalog, *parts)))


def _overwrites(storage: ObjectStorage, target: str, body: bytes) -> bool:
    """Copy a manifest to its final name whatever is there, as the specification does."""
    storage.delete(target)
    with suppress(KeyExistsError):
        storage.create(target, body)
    return True


class TestSwitchingOn:
    def test_first_declare_switches_on_managed_versions_for_every_client(
        self, root: Path, mode: dict[str, Any]
    ) -> None:
        catalog = managed(root, mode)
        assert not root.exists()
        assert catalog.declare_table({"id": ["t"]}).managed_versioning is True
        metadata = lance.dataset(str(root / "__manifest")).metadata
        assert metadata[MANAGED_VERSIONS_KEY] == "true"
        assert int(metadata[WRITER_FLAGS_KEY]) == MANAGED_VERSIONS_FLAG
        assert plain(root, mode).describe_table({"id": ["t"]}).managed_versioning is True

    def test_describe_and_create_switch_on_managed_versions_too(
        self, tmp_path: Path, mode: dict[str, Any]
    ) -> None:
        create(plain(tmp_path / "a", mode), "t")
        assert plain(tmp_path / "a", mode).describe_table({"id": ["t"]}).managed_versioning is None
        assert managed(tmp_path / "a", mode).describe_table({"id": ["t"]}).managed_versioning is True
        create(managed(tmp_path / "b", mode), "t")
        for root in ("a", "b"):
            assert plain(tmp_path / root, mode).describe_table({"id": ["t"]}).managed_versioning is True

    def test_management_set_to_false_leaves_the_root_setting_unchanged(
        self, root: Path, mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        substitute(monkeypatch, "manifest.recent_seconds", 0.0)  # describe may be some seconds behind
        catalog = DirectoryNamespace(root=str(root), table_version_management="false", **mode)
        assert catalog.declare_table({"id": ["t"]}).managed_versioning is None
        managed(root, mode).describe_table({"id": ["t"]})
        assert catalog.describe_table({"id": ["t"]}).managed_versioning is True

    def test_managed_versions_without_a_manifest_are_refused(self, root: Path) -> None:
        with refused(INVALID_INPUT):
            DirectoryNamespace(root=str(root), manifest_enabled="false", table_version_management="true")


class TestNativeClients:
    """The decision of design/0005: rows as the specification has them, and a flag that native obeys."""

    def open_native(self, root: Path, mode: dict[str, Any]) -> NativeNamespace:
        return NativeNamespace(
            root=str(root), manifest_enabled="true", **({"dir_listing_enabled": "true"} | mode)
        )

    def test_native_client_can_read_and_its_changes_are_refused_cleanly(
        self, root: Path, mode: dict[str, Any], catalog: DirectoryNamespace
    ) -> None:
        catalog.create_namespace({"id": ["n"]})
        create(catalog, "n", "t")
        opened(catalog, "n", "t").insert(MORE_ROWS)
        native = self.open_native(root, mode)
        before = manifest_rows(root)
        assert native.list_tables(_request("ListTablesRequest", id=["n"])).tables == ["t"]
        location = native.describe_table(_request("DescribeTableRequest", id=["n", "t"])).location
        assert lance.dataset(location).count_rows() == 5
        for method, request in (
            ("create_namespace", _request("CreateNamespaceRequest", id=["m"])),
            ("drop_table", _request("DropTableRequest", id=["n", "t"])),
            ("deregister_table", _request("DeregisterTableRequest", id=["n", "t"])),
            ("declare_table", _request("DeclareTableRequest", id=["n", "u"])),
        ):
            with pytest.raises(LanceNamespaceError) as caught:
                getattr(native, method)(request)
            assert int(caught.value.code) == UNSUPPORTED, f"{method}: {caught.value}"
        assert manifest_rows(root) == before
        assert versions(catalog, "n", "t") == [1, 2]

    def test_without_the_writer_flag_native_changes_fail_with_an_internal_error(self, root: Path) -> None:
        catalog = managed(root, V2)
        create(catalog, "t")
        opened(catalog, "t")
        manifest_of(catalog).set_metadata({WRITER_FLAGS_KEY: "0"})
        with pytest.raises(LanceNamespaceError) as caught:
            self.open_native(root, V2).create_namespace(_request("CreateNamespaceRequest", id=["m"]))
        assert int(caught.value.code) == INTERNAL
        assert "Invalid object type" in str(caught.value)


def _request(kind: str, **fields: Any) -> Any:
    import lance_namespace

    return getattr(lance_namespace, kind)(**fields)


class TestCreate:
    def test_created_version_has_a_row_and_a_file(self, root: Path, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        made = put_version(catalog, "t", 2, stage(catalog, "t", body=b"second"), metadata={"by": "me"})
        final = f"{2**64 - 1 - 2:020d}.manifest"
        assert (made.version, made.manifest_size, made.metadata) == (2, 6, {"by": "me"})
        assert made.manifest_path.endswith(f"/_versions/{final}")
        row = manifest_rows(root)["t$2"]
        assert (row["object_type"], row["location"]) == ("table_version", None)
        path = f"{directory_of(catalog, 't').name}/_versions/{final}"
        for part in (f'"manifest_path": "{path}"', '"manifest_size": 6', '"by": "me"'):
            assert part in row["metadata"]
        assert (directory_of(catalog, "t") / "_versions" / final).read_bytes() == b"second"
        assert assert_in_step(catalog, root, "t") == [1, 2]

    def test_listing_and_describing_return_the_version_metadata(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        made = put_version(catalog, "t", 2, stage(catalog, "t", body=b"second"), metadata={"by": "me"})
        (listed,) = catalog.list_table_versions({"id": ["t"], "limit": 1, "descending": True}).versions
        described = catalog.describe_table_version({"id": ["t"], "version": 2}).version
        assert (listed.metadata, listed.manifest_path) == (made.metadata, made.manifest_path)
        assert described == listed
        assert catalog.describe_table_version({"id": ["t"]}).version == listed
        with refused(VERSION_NOT_FOUND):
            catalog.describe_table_version({"id": ["t"], "version": 3})

    def test_pages_list_every_version(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        for number in (2, 3, 4, 5):
            put_version(catalog, "t", number, stage(catalog, "t", body=b"x" * number))
        first = catalog.list_table_versions({"id": ["t"], "limit": 3, "descending": True})
        assert [each.version for each in first.versions] == [5, 4, 3]
        assert versions(catalog, "t", limit=3, descending=True, page_token=first.page_token) == [2, 1]

    def test_first_version_of_a_declared_table_can_be_created(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        catalog.declare_table({"id": ["t"]})
        put_version(catalog, "t", 1, stage(catalog, "t", body=b"first"))
        assert assert_in_step(catalog, root, "t") == [1]

    def test_creating_the_same_version_with_the_same_content_succeeds(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        for name in ("once", "again"):
            put_version(catalog, "t", 2, stage(catalog, "t", body=b"second", name=name))
        assert assert_in_step(catalog, root, "t") == [1, 2]

    def test_version_with_different_content_or_a_gap_is_refused(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        put_version(catalog, "t", 2, stage(catalog, "t", body=b"second"))
        other = stage(catalog, "t", body=b"another")
        with pytest.raises(TableVersionAlreadyExistsError) as caught:
            put_version(catalog, "t", 2, other)
        assert caught.value.spec_code == 12
        with refused(CONCURRENT_MODIFICATION) as gap:
            put_version(catalog, "t", 4, other)
        assert "expected 3" in str(gap.value)
        assert staged_files(directory_of(catalog, "t")) == ["staged.manifest-7"]

    @pytest.mark.parametrize("key", ["manifest_path", "naming_scheme", "relance.deleting"])
    def test_reserved_metadata_keys_are_refused(self, key: str, root: Path) -> None:
        catalog = managed(root, COMPATIBILITY)
        create(catalog, "t")
        with refused(INVALID_INPUT):
            put_version(catalog, "t", 2, stage(catalog, "t", body=b"x"), metadata={key: "x"})

    def test_manifest_staged_for_a_branch_is_refused_for_main(self, root: Path) -> None:
        catalog = managed(root, COMPATIBILITY)
        create(catalog, "t")
        folder = root / "t.lance" / "tree" / "b"
        folder.mkdir(parents=True)
        with refused(INVALID_INPUT):
            put_version(catalog, "t", 2, stage_in(folder, b"x"))

    def test_table_with_the_id_of_a_version_row_is_an_invalid_state(self, root: Path) -> None:
        native = NativeNamespace(root=str(root), manifest_enabled="true", dir_listing_enabled="false")
        native.declare_table(_request("DeclareTableRequest", id=["t", "2"]))
        catalog = managed(root, V2)
        create(catalog, "t")
        with refused(INVALID_TABLE_STATE) as caught:
            put_version(catalog, "t", 2, stage(catalog, "t", body=b"x"))
        assert "t.2" in str(caught.value)
        catalog.rename_table({"id": ["t"], "new_table_name": "u"})
        assert {"u", "u$1", "t$2"} <= set(manifest_rows(root)), "only the table's own rows went with it"

    def test_one_of_four_processes_creating_the_same_version_wins(self, tmp_path: Path) -> None:
        with team(4) as racers:
            for how, mode in MANIFEST_MODES.items():
                root = tmp_path / how
                catalog = managed(root, mode)
                for number in range(2):
                    create(catalog, f"t{number}")
                outcomes = racers.race({"root": str(root), **mode}, put_second, rounds=2)
                for name, each in outcomes.items():
                    self.check_race(catalog, root, name, each)

    def check_race(self, catalog: DirectoryNamespace, root: Path, name: str, outcomes: list[Outcome]) -> None:
        """Check that one process won, that its version is there, and that the others were told."""
        assert [each.code for each in outcomes if not each.won] == [CONCURRENT_MODIFICATION] * 3
        (winner,) = (each for each in outcomes if each.won)
        newest = min((directory_of(catalog, name) / "_versions").glob("*.manifest"))
        assert newest.read_bytes() == b"of %d" % winner.process
        assert assert_in_step(catalog, root, name, staged_ok=True) == [1, 2]
        left = {f"of-{each.process}" for each in outcomes if not each.won}
        assert {each.partition(".")[0] for each in staged_files(directory_of(catalog, name))} == left


def put_second(catalog: DirectoryNamespace, name: str, process: int) -> None:
    """Want the second version of a table."""
    path = stage(catalog, name, body=b"of %d" % process, name=f"of-{process}")
    put_version(catalog, name, 2, path)


class TestAdoption:
    """Versions that came without the catalog."""

    def test_table_from_before_managed_versions_is_adopted_completely(
        self, root: Path, mode: dict[str, Any]
    ) -> None:
        before = plain(root, mode)
        create(before, "t")
        for _ in range(3):
            past(before, "t").insert(MORE_ROWS)
        catalog = managed(root, mode)
        assert versions(catalog, "t", limit=1, descending=True) == [4]
        assert assert_in_step(catalog, root, "t") == [1, 2, 3, 4]
        opened(catalog, "t").insert(MORE_ROWS)
        assert assert_in_step(catalog, root, "t") == [1, 2, 3, 4, 5]

    def test_directory_known_only_to_a_v1_client_is_adopted(self, root: Path) -> None:
        create(DirectoryNamespace(root=str(root), manifest_enabled="false"), "t")
        catalog = managed(root, COMPATIBILITY)
        opened(catalog, "t").insert(MORE_ROWS)
        assert manifest_rows(root)["t"]["location"] == "t.lance"
        assert assert_in_step(catalog, root, "t") == [1, 2]

    def test_create_overwrite_and_revival_record_their_versions(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        opened(catalog, "t").insert(MORE_ROWS)
        create(catalog, "t", data=MORE_ROWS, mode="overwrite")
        assert assert_in_step(catalog, root, "t") == [1, 2, 3]
        catalog.drop_table({"id": ["t"]})
        create(catalog, "t")
        assert assert_in_step(catalog, root, "t") == [1, 2, 3, 4]
        opened(catalog, "t").insert(MORE_ROWS)
        assert opened(catalog, "t").count_rows() == 5
        assert opened(catalog, "t", version=2).count_rows() == 5

    def test_versions_removed_outside_the_catalog_lose_their_rows(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        dataset = opened(catalog, "t")
        for _ in range(4):
            dataset.insert(MORE_ROWS)
        dataset.tags.create("kept", 2)
        past(catalog, "t").cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
        dataset.insert(MORE_ROWS)
        assert assert_in_step(catalog, root, "t") == [2, 5, 6]

    def test_latest_version_removed_outside_the_catalog_can_be_created_again(self, root: Path) -> None:
        catalog = managed(root, COMPATIBILITY)
        create(catalog, "t")
        put_version(catalog, "t", 2, stage(catalog, "t", body=b"second"))
        min((root / "t.lance" / "_versions").glob("*.manifest")).unlink()
        assert assert_in_step(catalog, root, "t") == [1]
        put_version(catalog, "t", 2, stage(catalog, "t", body=b"another second"))
        assert assert_in_step(catalog, root, "t") == [1, 2]

    def test_commit_outside_the_catalog_wins_and_the_insert_is_rebased(
        self, root: Path, mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = managed(root, mode)
        create(catalog, "t")
        dataset = opened(catalog, "t")
        rival = past(catalog, "t")
        on_commit(monkeypatch, catalog, lambda: rival.insert(pa.table({"id": [77], "name": ["rival"]})))
        dataset.insert(MORE_ROWS)  # its row was first, the rival's file too: pylance goes on with version 3
        assert opened(catalog, "t").count_rows() == 6
        assert opened(catalog, "t", version=2).count_rows() == 4
        assert version_files(directory_of(catalog, "t")) == versions(catalog, "t") == [1, 2, 3]
        assert version_rows(root, "t") == [1, 2, 3]

    def test_batch_that_loses_its_first_version_loses_the_ones_built_on_it(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = managed(root, V2)
        create(catalog, "t")
        assert versions(catalog, "t") == [1]
        rival = past(catalog, "t")
        entries = [entry(catalog, "t", 2, b"second"), entry(catalog, "t", 3, b"third.")]
        on_commit(monkeypatch, catalog, lambda: rival.insert(MORE_ROWS))
        with pytest.raises(TableVersionAlreadyExistsError):
            catalog.batch_create_table_versions({"entries": entries})
        assert assert_in_step(catalog, root, "t") == [1, 2]
        assert past(catalog, "t").count_rows() == 5


def on_commit(monkeypatch: pytest.MonkeyPatch, catalog: DirectoryNamespace, act: Callable[[], Any]) -> None:
    """Do something once, right after the next commit of the manifest."""
    kind = type(manifest_of(catalog))
    commit, waiting = original("manifest.commit", on=kind), [act]

    def and_then(self: Any, *args: Any) -> None:
        commit(self, *args)
        if waiting:
            waiting.pop()()

    substitute(monkeypatch, "manifest.commit", and_then, on=kind)


BATCH = (("t", 2, b"t2"), ("u", 2, b"u2"), ("t", 3, b"t3"))


class TestBatchCreate:
    def test_batch_creates_versions_of_several_tables(self, root: Path, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        create(catalog, "u")
        entries = [entry(catalog, *each) for each in BATCH]
        before = lance.dataset(str(root / "__manifest")).version
        made = catalog.batch_create_table_versions({"entries": entries}).versions
        assert [each.version for each in made] == [2, 2, 3]
        assert assert_in_step(catalog, root, "t") == [1, 2, 3]
        assert assert_in_step(catalog, root, "u") == [1, 2]
        assert lance.dataset(str(root / "__manifest")).version <= before + 4, "adopted, committed, finished"
        assert catalog.batch_create_table_versions({"entries": []}).versions == []

    @pytest.mark.parametrize(
        ("spoil", "code"),
        [
            ({"id": ["missing"]}, TABLE_NOT_FOUND),
            ({"version": 9}, CONCURRENT_MODIFICATION),
            ({"version": 1}, CONCURRENT_MODIFICATION),
            ({"manifest_path": "elsewhere"}, INVALID_INPUT),
            ({"branch": "b"}, UNSUPPORTED),
        ],
        ids=str,
    )
    def test_failing_entry_of_a_version_batch_undoes_the_whole_batch(
        self, spoil: dict[str, Any], code: int, root: Path
    ) -> None:
        catalog = managed(root, V2)
        create(catalog, "t")
        create(catalog, "u")
        with refused(code):
            entries = [entry(catalog, "t", 2, b"t2"), entry(catalog, "u", 2, b"u2") | spoil]
            catalog.batch_create_table_versions({"entries": entries})
        assert (versions(catalog, "t"), versions(catalog, "u")) == ([1], [1])

    def test_batch_of_a_single_branch_version_is_created(self, root: Path) -> None:
        catalog = managed(root, COMPATIBILITY)
        create(catalog, "t")
        opened(catalog, "t").create_branch("b")
        path = stage_in(root / "t.lance" / "tree" / "b", b"x")
        branch = {"id": ["t"], "version": 2, "manifest_path": path, "branch": "b"}
        catalog.batch_create_table_versions({"entries": [branch]})
        assert versions(catalog, "t", branch="b") == [1, 2]
        assert assert_in_step(catalog, root, "t") == [1]


class TestDelete:
    def delete(self, catalog: DirectoryNamespace, *ranges: tuple[int, int]) -> int | None:
        asked = [{"start_version": start, "end_version": end} for start, end in ranges]
        request = BatchDeleteTableVersionsRequest.from_dict({"id": ["t"], "ranges": asked})
        assert request is not None
        return catalog.batch_delete_table_versions(request).deleted_count

    @pytest.fixture
    def grown(self, catalog: DirectoryNamespace) -> DirectoryNamespace:
        """A table of five versions, of which the catalog made three."""
        create(catalog, "t")
        past(catalog, "t").insert(MORE_ROWS)
        for _ in range(3):
            opened(catalog, "t").insert(MORE_ROWS)
        return catalog

    def test_deleted_versions_lose_their_rows_and_files(self, root: Path, grown: DirectoryNamespace) -> None:
        assert self.delete(grown, (1, 3), (2, 4), (9, -1)) == 3
        assert assert_in_step(grown, root, "t") == [4, 5]
        assert self.delete(grown, (1, 3)) == 0
        assert opened(grown, "t").count_rows() == 11
        opened(grown, "t").insert(MORE_ROWS)
        assert assert_in_step(grown, root, "t") == [4, 5, 6]

    def test_delete_of_the_latest_version_is_refused(self, root: Path, grown: DirectoryNamespace) -> None:
        for ranges in ((0, -1), (5, 6), (3, -1)):
            with refused(INVALID_TABLE_STATE) as caught:
                self.delete(grown, ranges)
            assert "restore" in str(caught.value)
        assert assert_in_step(grown, root, "t") == [1, 2, 3, 4, 5]


@pytest.fixture
def fresh(tmp_path: Path, mode: dict[str, Any]) -> Fresh:
    return Fresh(tmp_path, mode)


class TestCrashes:
    """The process stops after any of its writes; the next client finds all of it or nothing, and goes on."""

    def test_crash_while_creating_a_version_leaves_rows_and_files_consistent(self, fresh: Fresh) -> None:
        seen = set()
        for _ in cut_after_each_write(fresh.make, lambda each: put_second(each, "t", 1)):
            after = fresh.reopen()
            assert after.describe_table_version({"id": ["t"]}).version.version == len(versions(after, "t"))
            seen.add(tuple(versions(after, "t")))
            put_version(after, "t", 3, stage(after, "t", body=b"next"))
            assert assert_in_step(after, fresh.root, "t", staged_ok=True) == [1, 2, 3]
        assert seen == {(1, 2)}, "the first write is the row, and that decides"

    def test_version_whose_staged_manifest_is_lost_in_a_crash_is_undone(self, fresh: Fresh) -> None:
        next(iter(cut_after_each_write(fresh.make, lambda each: put_second(each, "t", 1))))
        after = fresh.reopen()
        directory = directory_of(after, "t")
        (staged,) = staged_files(directory)
        (directory / "_versions" / staged).unlink()
        assert assert_in_step(after, fresh.root, "t") == [1], "nobody was told of the second"
        put_version(after, "t", 2, stage(after, "t", body=b"another"))
        assert assert_in_step(after, fresh.root, "t") == [1, 2]

    def test_read_only_client_can_list_versions_except_unfinished_ones(
        self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        next(iter(cut_after_each_write(fresh.make, lambda each: put_second(each, "t", 1))))
        past(fresh.reopen(), "u").insert(MORE_ROWS)

        def refuse(*_: Any) -> None:
            raise PermissionDeniedError("read only")

        substitute(monkeypatch, "managed_versions.synchronise", refuse)
        assert versions(fresh.reopen(), "u") == [1, 2]
        with pytest.raises(PermissionDeniedError):
            versions(fresh.reopen(), "t")

    def test_crash_while_creating_versions_of_two_tables_leaves_both_consistent(self, fresh: Fresh) -> None:
        def act(catalog: DirectoryNamespace) -> None:
            entries = [entry(catalog, *each) for each in BATCH]
            catalog.batch_create_table_versions({"entries": entries})

        for _ in cut_after_each_write(fresh.make, act):
            after = fresh.reopen()
            assert assert_in_step(after, fresh.root, "t", staged_ok=True) == [1, 2, 3]
            assert assert_in_step(after, fresh.root, "u", staged_ok=True) == [1, 2]

    def test_crash_while_deleting_versions_leaves_rows_and_files_consistent(self, fresh: Fresh) -> None:
        def make() -> DirectoryNamespace:
            catalog = fresh.make()
            for number in (2, 3, 4):
                put_version(catalog, "t", number, stage(catalog, "t", body=b"x" * number))
            return catalog

        def act(catalog: DirectoryNamespace) -> None:
            ranges = [{"start_version": 1, "end_version": 3}]
            catalog.batch_delete_table_versions({"id": ["t"], "ranges": ranges})

        for _ in cut_after_each_write(make, act):
            after = fresh.reopen()
            assert versions(after, "t") == [3, 4]
            with refused(VERSION_NOT_FOUND):
                after.describe_table_version({"id": ["t"], "version": 2})
            assert assert_in_step(after, fresh.root, "t") == [3, 4]

    def test_crash_during_a_batch_commit_leaves_all_or_nothing(self, fresh: Fresh) -> None:
        for writes in cut_after_each_write(fresh.make_grown, commit_one_of_each):
            after = fresh.reopen()
            done = exists(after, "new")
            assert versions(after, "t") == ([2, 3] if done else [1, 2]), f"after {writes} writes"
            # The home directory of a root table is hidden right after the commit, by a file of its own.
            hidden = not exists(after, "u")
            assert hidden is done or (done and fresh.mode is COMPATIBILITY)
            assert done is (writes > 1), "the reserved file comes first, then the rows"
            assert_in_step(after, fresh.root, "t", staged_ok=True)
            if done and not hidden:
                after.deregister_table({"id": ["u"]})
            with pytest.raises(TableNotFoundError):
                after.deregister_table({"id": ["u" if done else "new"]})
            assert after.list_tables({"id": []}).tables == (["new", "t"] if done else ["t", "u"])
            if done and fresh.mode is COMPATIBILITY:
                after.register_table({"id": ["u"], "location": "u.lance"})
                assert versions(after, "u") == [1]


class TestRefusals:
    """The store refuses one write: a definite error means that nothing was committed."""

    @pytest.mark.parametrize("failure", [PermissionDeniedError, ServiceUnavailableError])
    @pytest.mark.parametrize("verb", ["create", "batch"])
    def test_refused_write_has_no_effect_or_an_unknown_outcome(
        self, fresh: Fresh, verb: str, failure: type[RelanceError]
    ) -> None:
        for writes in range(40):
            catalog = fresh.make_grown()
            life = make_failing(catalog, writes, failure)
            refusal: RelanceError | None = None
            try:
                if verb == "batch":
                    commit_one_of_each(catalog)
                else:
                    put_version(catalog, "t", 3, stage(catalog, "t", body=b"third"))
            except RelanceError as error:
                refusal = error
            if not life.failed:
                assert writes > 2
                return
            decided = 3 in versions(fresh.reopen(), "t")
            where = f"refused after {life.done}: {refusal!r}"
            assert decided or refusal is not None, where
            assert not decided or refusal is None or isinstance(refusal, OutcomeUnknownError), where
        raise AssertionError("it never ends")


class Fresh:
    """Roots with two tables, one after another."""

    def __init__(self, folder: Path, mode: dict[str, Any]) -> None:
        """Keep where the roots go."""
        self.mode = mode
        self._folder = folder
        self._count = 0

    @property
    def root(self) -> Path:
        return self._folder / str(self._count)

    def make(self) -> DirectoryNamespace:
        """Make the next root, whose tables have one version, and rows."""
        self._count += 1
        catalog = managed(self.root, self.mode)
        for name in ("t", "u"):
            create(catalog, name)
            versions(catalog, name)
        return catalog

    def make_grown(self) -> DirectoryNamespace:
        """Make a root whose first table has two versions."""
        catalog = self.make()
        opened(catalog, "t").insert(MORE_ROWS)
        return catalog

    def reopen(self) -> DirectoryNamespace:
        """Return another client of the root."""
        return plain(self.root, self.mode)


def commit_one_of_each(catalog: DirectoryNamespace) -> Any:
    """Declare one table, commit to another and delete a version of it, deregister a third."""
    manifest = stage(catalog, "t", body=b"third")
    return catalog.batch_commit_tables(
        {
            "operations": [
                {"declare_table": {"id": ["new"], "properties": {"owner": "me"}}},
                {"create_table_version": {"id": ["t"], "version": 3, "manifest_path": manifest}},
                {
                    "delete_table_versions": {
                        "id": ["t"],
                        "ranges": [{"start_version": 1, "end_version": 2}],
                    }
                },
                {"deregister_table": {"id": ["u"]}},
            ]
        }
    )


class TestBatchCommit:
    def test_batch_commit_combines_all_four_operations(self, fresh: Fresh) -> None:
        catalog = fresh.make_grown()
        declared, made, deleted, hidden = commit_one_of_each(catalog).results
        assert declared.declare_table.managed_versioning is True
        assert declared.declare_table.properties == {"owner": "me"}
        assert made.create_table_version.version.version == 3
        assert deleted.delete_table_versions.deleted_count == 1
        assert hidden.deregister_table.id == ["u"]
        assert catalog.list_tables({"id": []}).tables == ["new", "t"]
        assert catalog.describe_table({"id": ["new"]}).location == declared.declare_table.location
        assert assert_in_step(catalog, fresh.root, "t") == [2, 3]
        assert version_rows(fresh.root, "u") == []
        location = Path(hidden.deregister_table.location).name
        catalog.register_table({"id": ["u"], "location": location})
        assert assert_in_step(catalog, fresh.root, "u") == [1]
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["new"], mode="append")
        assert opened(catalog, "new").count_rows() == 3

    @pytest.mark.parametrize(
        ("operation", "code"),
        [
            ({"declare_table": {"id": ["t"]}}, INVALID_INPUT),
            ({"declare_table": {"id": ["u"]}}, TABLE_EXISTS),
            ({"declare_table": {"id": ["nowhere", "x"]}}, NAMESPACE_NOT_FOUND),
            ({"declare_table": {"id": ["x"], "location": "x.lance"}}, INVALID_INPUT),
            ({"deregister_table": {"id": ["missing"]}}, TABLE_NOT_FOUND),
            ({"deregister_table": {"id": ["t"]}}, INVALID_INPUT),
            ({"deregister_table": {"id": ["kept"]}}, INVALID_TABLE_STATE),
            (
                {"delete_table_versions": {"id": ["u"], "ranges": [{"start_version": 0, "end_version": -1}]}},
                19,
            ),
            ({"delete_table_versions": {"id": ["u"], "ranges": [], "branch": "b"}}, UNSUPPORTED),
            ({"create_table_version": {"id": ["u"], "version": 2, "manifest_path": "x"}}, INVALID_INPUT),
            ({}, INVALID_INPUT),
            ({"deregister_table": {"id": ["u"]}, "declare_table": {"id": ["x"]}}, INVALID_INPUT),
        ],
        ids=str,
    )
    def test_failing_operation_undoes_the_whole_batch_commit(
        self, operation: dict[str, Any], code: int, tmp_path: Path
    ) -> None:
        fresh = Fresh(tmp_path, COMPATIBILITY)
        catalog = fresh.make()
        create(catalog, "kept")
        catalog.protect(["kept"])
        path = stage(catalog, "t", body=b"second")
        directories = sorted(each.name for each in fresh.root.iterdir())
        first = {"create_table_version": {"id": ["t"], "version": 2, "manifest_path": path}}
        operations = [first, {"declare_table": {"id": ["new"]}}, operation]
        with refused(code):
            catalog.batch_commit_tables({"operations": operations})
        assert versions(catalog, "t") == [1]
        assert catalog.list_tables({"id": []}).tables == ["kept", "t", "u"]
        assert sorted(each.name for each in fresh.root.iterdir()) == directories

    def test_batch_commit_without_managed_versions_is_unsupported(self, root: Path) -> None:
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "table_version_management=true"),
            ({"manifest_enabled": "false"}, "manifest_enabled=true"),
        )
        for properties, needed in cases:
            catalog = DirectoryNamespace(root=str(root), **properties)
            with refused(UNSUPPORTED) as caught:
                catalog.batch_commit_tables({"operations": []})
            assert needed in str(caught.value)

    def test_batch_commit_without_operations_does_nothing(self, catalog: DirectoryNamespace) -> None:
        assert catalog.batch_commit_tables({"operations": []}).results == []


class TestLifecycle:
    """The rows of its versions go where their table goes."""

    def grow(self, catalog: DirectoryNamespace, *parts: str) -> None:
        """Make a table of three versions, with 3, 5 and 7 rows."""
        create(catalog, *parts)
        for _ in range(2):
            opened(catalog, *parts).insert(MORE_ROWS)

    def check_history(self, catalog: DirectoryNamespace, root: Path, *parts: str) -> None:
        """Check that pylance finds all versions, and can go on."""
        assert assert_in_step(catalog, root, *parts) == [1, 2, 3]
        assert [opened(catalog, *parts, version=each).count_rows() for each in (1, 2, 3)] == [3, 5, 7]
        opened(catalog, *parts).insert(MORE_ROWS)
        assert opened(catalog, *parts).count_rows() == 9

    def test_drop_and_undrop_keep_the_version_rows(self, root: Path, catalog: DirectoryNamespace) -> None:
        self.grow(catalog, "t")
        dropped = catalog.drop_table({"id": ["t"]}).properties
        assert dropped is not None
        assert version_rows(root, "t") == []
        assert version_rows(root, f"__dropped${dropped['deletion_id']}") == [1, 2, 3]
        with refused(TABLE_NOT_FOUND):
            versions(catalog, "t")
        catalog.undrop_table(["t"])
        self.check_history(catalog, root, "t")

    def test_undrop_under_another_name_keeps_the_version_rows(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        self.grow(catalog, "t")
        catalog.drop_table({"id": ["t"]})
        catalog.declare_table({"id": ["t"]})
        put_version(catalog, "t", 1, stage(catalog, "t", body=b"of the next generation"))
        catalog.undrop_table(["t"], new_id=["old"])
        self.check_history(catalog, root, "old")
        assert assert_in_step(catalog, root, "t") == [1]

    def test_rename_moves_the_version_rows(self, root: Path, catalog: DirectoryNamespace) -> None:
        catalog.create_namespace({"id": ["n"]})
        self.grow(catalog, "t")
        catalog.rename_table({"id": ["t"], "new_table_name": "u", "new_namespace_id": ["n"]})
        assert version_rows(root, "t") == []
        self.check_history(catalog, root, "n", "u")

    def test_unfinished_version_moves_with_its_table(self, tmp_path: Path, mode: dict[str, Any]) -> None:
        fresh = Fresh(tmp_path, mode)
        for writes in cut_after_each_write(fresh.make, lambda each: put_second(each, "t", 1)):
            after = fresh.reopen()
            after.rename_table({"id": ["t"], "new_table_name": "x"})
            after.drop_table({"id": ["x"]})
            after.undrop_table(["x"])
            assert versions(after, "x") == [1, 2]
            if writes == 1:
                break

    def test_deregister_completes_an_unfinished_version_first(
        self, tmp_path: Path, mode: dict[str, Any]
    ) -> None:
        fresh = Fresh(tmp_path, mode)
        for _ in cut_after_each_write(fresh.make, lambda each: put_second(each, "t", 1)):
            after = fresh.reopen()
            location = after.deregister_table({"id": ["t"]}).location
            assert location is not None
            after.register_table({"id": ["t"], "location": location})
            assert versions(after, "t") == [1, 2]

    def test_purge_removes_the_version_rows(self, root: Path, catalog: DirectoryNamespace) -> None:
        self.grow(catalog, "t")
        catalog.drop_table({"id": ["t"]})
        catalog.purge_table(["t"], force=True)
        assert "table_version" not in {each["object_type"] for each in manifest_rows(root).values()}
        create(catalog, "t", data=MORE_ROWS)
        assert assert_in_step(catalog, root, "t") == [1]

    def test_cascade_drop_and_undrop_keep_the_version_rows(
        self, root: Path, catalog: DirectoryNamespace
    ) -> None:
        catalog.create_namespace({"id": ["n"]})
        self.grow(catalog, "n", "t")
        catalog.drop_namespace({"id": ["n"], "behavior": "Cascade"})
        assert version_rows(root, "n$t") == []
        catalog.undrop_namespace(["n"])
        self.check_history(catalog, root, "n", "t")


CONFLICTS = (TableVersionAlreadyExistsError, ConcurrentModificationError, TableNotFoundError)


def put_past_the_catalog(directory: Path, version: int, body: bytes) -> None:
    """Put a version in its place, as clients do that do not know the catalog."""
    with (directory / "_versions" / f"{2**64 - 1 - version:020d}.manifest").open("xb") as file:
        file.write(body)


def body_at(directory: Path, version: int) -> bytes:
    """Return what the final manifest of a version says."""
    return (directory / "_versions" / f"{2**64 - 1 - version:020d}.manifest").read_bytes()


def put_staged(catalog: DirectoryNamespace, who: bytes, *tables: str) -> bool:
    """Create the second version of tables, all or none; tell whether that worked."""
    entries = [entry(catalog, table, 2, who) for table in tables]
    try:
        catalog.batch_create_table_versions({"entries": entries})
    except CONFLICTS:
        return False
    return True


@pytest.mark.deep
class TestInterleavings:
    """A client stands still before each of its writes while another one acts."""

    def test_only_one_of_two_writers_of_a_version_succeeds(self, fresh: Fresh) -> None:
        first: list[bool] = []
        second: list[bool] = []
        for _ in interrupted_at_each_write(
            fresh.make,
            lambda catalog: first.append(put_staged(catalog, b"first", "t")),
            lambda: second.append(put_staged(fresh.reopen(), b"second", "t")),
        ):
            assert [first.pop(), second.pop()].count(True) == 1
            assert versions(fresh.reopen(), "t") == [1, 2]

    def test_batch_comes_whole_or_not_at_all_beside_another_writer(self, fresh: Fresh) -> None:
        batch: list[bool] = []
        single: list[bool] = []
        for _ in interrupted_at_each_write(
            fresh.make,
            lambda catalog: batch.append(put_staged(catalog, b"batch", "t", "u")),
            lambda: single.append(put_staged(fresh.reopen(), b"single", "t")),
        ):
            whole = batch.pop()
            assert single.pop() is not whole
            after = fresh.reopen()
            assert versions(after, "u") == ([1, 2] if whole else [1])
            assert body_at(directory_of(after, "t"), 2) == (b"batch" if whole else b"single")

    def test_version_put_past_the_catalog_stays(self, fresh: Fresh) -> None:
        assert self.lost_versions(fresh) == []

    def test_without_the_create_only_write_such_a_version_is_lost(
        self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        substitute(monkeypatch, "managed_versions.put_final", _overwrites)
        assert self.lost_versions(fresh) != []

    @staticmethod
    def lost_versions(fresh: Fresh) -> list[int]:
        """Put a version past the catalog at each write of a commit; return the writes that replaced it."""
        ours: list[bool] = []
        past: list[bool] = []

        def put_past() -> None:
            try:
                put_past_the_catalog(directory_of(fresh.reopen(), "t"), 2, b"past")
            except FileExistsError:
                past.append(False)
            else:
                past.append(True)

        lost = []
        for number in interrupted_at_each_write(
            fresh.make, lambda catalog: ours.append(put_staged(catalog, b"ours", "t")), put_past
        ):
            told = (ours.pop(), past.pop())
            body = body_at(directory_of(fresh.reopen(), "t"), 2)
            if (told[1] and body != b"past") or (told[0] and body != b"ours"):
                lost.append(number)
        return lost

    def test_reader_beside_a_deleter_finds_what_is_listed(self, fresh: Fresh) -> None:
        ranges = [{"start_version": 1, "end_version": 2}]
        seen: list[list[int]] = []
        for _ in interrupted_at_each_write(
            fresh.make_grown,
            lambda catalog: catalog.batch_delete_table_versions({"id": ["t"], "ranges": ranges}),
            lambda: seen.append(versions(fresh.reopen(), "t")),
        ):
            assert seen.pop() in ([1, 2], [2])
            assert assert_in_step(fresh.reopen(), fresh.root, "t") == [2]


def test_managed_versions_work_on_an_object_store(moto_server: S3Server, moto_bucket: str) -> None:
    options: dict[str, Any] = {
        f"storage.{key}": value for key, value in moto_server.storage_options().items()
    }
    properties = {"root": f"s3://{moto_bucket}/lake", **options}
    catalog = DirectoryNamespace(table_version_management="true", **properties)
    for mode in ("create", "append", "overwrite"):
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode=mode)
    opened(catalog, "t").insert(MORE_ROWS)
    other = DirectoryNamespace(**properties)
    assert (opened(other, "t").count_rows(), versions(other, "t")) == (5, [1, 2, 3, 4])
    ranges = [{"start_version": 1, "end_version": 3}]
    assert other.batch_delete_table_versions({"id": ["t"], "ranges": ranges}).deleted_count == 2
    other.rename_table({"id": ["t"], "new_table_name": "u"})
    assert (opened(catalog, "u", version=3).count_rows(), versions(catalog, "u")) == (3, [3, 4])


@pytest.mark.deep
@pytest.mark.parametrize("how", MANIFEST_MODES)
def test_pylance_and_lancedb_never_abort_the_interpreter(how: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.managed_clients", str(tmp_path), how],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
