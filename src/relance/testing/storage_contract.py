"""What every storage backend must do. A backend's test class inherits it and supplies the fixture:

class TestMyStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> ObjectStorage: ...
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from relance.errors import (
    InvalidInputError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    RelanceError,
    UnsupportedOperationError,
)
from relance.storage.probe import probe
from relance.storage.protocol import (
    CLOCK_KEY,
    ObjectInfo,
    ObjectStorage,
    Replacement,
    TrashClaim,
    TrashReport,
    Version,
)


class StorageContract:
    """Behaviour shared by all backends; `storage` must be empty and is not shared between tests."""

    def test_created_object_reads_back_the_same(self, storage: ObjectStorage) -> None:
        version = storage.create("a.txt", b"one")
        assert storage.read("a.txt").body == b"one"
        assert storage.read("a.txt").version == version

    def test_empty_body_is_an_object(self, storage: ObjectStorage) -> None:
        storage.create("empty", b"")
        assert storage.read("empty").body == b""
        assert storage.head("empty").size == 0

    def test_create_on_a_taken_key_raises_and_changes_nothing(self, storage: ObjectStorage) -> None:
        storage.create("a", b"one")
        with pytest.raises(KeyExistsError):
            storage.create("a", b"two")
        assert storage.read("a").body == b"one"

    def test_read_and_head_of_a_missing_key_raise(self, storage: ObjectStorage) -> None:
        with pytest.raises(KeyNotFoundError):
            storage.read("nothing")
        with pytest.raises(KeyNotFoundError):
            storage.head("no/thing")

    def test_replace_with_the_expected_version_writes(self, storage: ObjectStorage) -> None:
        first = storage.create("a", b"one")
        second = storage.replace("a", b"two", expected=first)
        assert storage.read("a").body == b"two"
        assert storage.read("a").version == second
        assert second != first

    def test_replace_with_an_old_version_raises_and_changes_nothing(self, storage: ObjectStorage) -> None:
        first = storage.create("a", b"one")
        storage.replace("a", b"two", expected=first)
        with pytest.raises(KeyChangedError):
            storage.replace("a", b"three", expected=first)
        assert storage.read("a").body == b"two"

    def test_replace_of_a_deleted_key_raises_and_does_not_bring_it_back(self, storage: ObjectStorage) -> None:
        first = storage.create("a", b"one")
        storage.delete("a")
        with pytest.raises(KeyChangedError):
            storage.replace("a", b"two", expected=first)
        assert storage.which_exist(["a"]) == frozenset()

    def test_replace_many_gives_each_key_its_own_outcome(self, storage: ObjectStorage) -> None:
        versions = {key: storage.create(key, b"one") for key in ("a", "d/b", "changed", "gone")}
        storage.replace("changed", b"two", expected=versions["changed"])
        storage.delete("gone")
        outcomes = storage.replace_many(
            [
                Replacement("changed", b"new", versions["changed"]),
                Replacement("a", b"new", versions["a"]),
                Replacement("../a", b"new", versions["a"]),
                Replacement("gone", b"new", versions["gone"]),
                Replacement("no/such", b"new", versions["a"]),
                Replacement("d/b", b"newer", versions["d/b"]),
            ]
        )
        kinds = [type(each) for each in outcomes if isinstance(each, RelanceError)]
        assert kinds == [KeyChangedError, InvalidInputError, KeyChangedError, KeyChangedError]
        assert outcomes[1] == storage.read("a").version
        assert outcomes[5] == storage.read("d/b").version
        assert [storage.read(key).body for key in ("changed", "a", "d/b")] == [b"two", b"new", b"newer"]
        assert storage.which_exist(["gone", "no/such"]) == frozenset()
        assert storage.replace_many([]) == []

    def test_of_racing_replacers_of_many_keys_exactly_one_wins_each_key(self, storage: ObjectStorage) -> None:
        versions = {f"{number}": storage.create(f"{number}", b"start") for number in range(5)}

        def attempt(writer: int) -> list[Version | RelanceError]:
            keys = list(versions) if writer % 2 else list(reversed(versions))
            changes = [Replacement(key, f"{writer} {key}".encode(), versions[key]) for key in keys]
            outcomes = dict(zip(keys, storage.replace_many(changes), strict=True))
            return [outcomes[key] for key in versions]

        with ThreadPoolExecutor(3) as pool:
            attempts = list(pool.map(attempt, range(3)))
        for key, outcomes in zip(versions, zip(*attempts, strict=True), strict=True):
            (winner,) = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, RelanceError)]
            assert {type(each) for each in outcomes if isinstance(each, RelanceError)} == {KeyChangedError}
            assert storage.read(key).body == f"{winner} {key}".encode()

    def test_delete_is_repeatable(self, storage: ObjectStorage) -> None:
        storage.create("d/a", b"one")
        storage.delete("d/a")
        storage.delete("d/a")
        storage.delete("never/was")
        assert storage.list_level("").directories == ()

    def test_delete_many_removes_all_and_forgives_missing_keys(self, storage: ObjectStorage) -> None:
        keys = [f"d/{index:04d}" for index in range(25)]
        for key in keys:
            storage.create(key, b"x")
        storage.create("other", b"x")
        storage.delete_many(["d/missing", *keys])
        assert [info.key for info in storage.list_recursive("")] == ["other"]
        storage.delete_many([])

    def test_delete_below_removes_everything_there_and_nothing_else(self, storage: ObjectStorage) -> None:
        for key in ("t/a/b", "t/a/c/d", "t/e", "tt/f", "u"):
            storage.create(key, b"xy")
        looks: list[None] = []
        batches = list(storage.delete_below("t", before_batch=lambda: looks.append(None), largest_batch=2))
        assert sum(batch.files for batch in batches) == 3
        assert sum(batch.bytes for batch in batches) == 6
        assert len(looks) == len(batches) >= 2
        assert {info.key for info in storage.list_recursive("")} == {"tt/f", "u"}
        assert storage.list_level("").directories == ("tt",)
        assert list(storage.delete_below("t", before_batch=lambda: None, largest_batch=9)) == []

    def test_delete_below_stops_when_it_is_told_to(self, storage: ObjectStorage) -> None:
        for index in range(3):
            storage.create(f"t/{index}", b"x")

        def stop() -> None:
            raise InvalidInputError("enough")

        with pytest.raises(InvalidInputError):
            list(storage.delete_below("t", before_batch=stop, largest_batch=1))
        assert len(list(storage.list_recursive("t"))) == 3

    def test_remove_directories_removes_one_completely_or_leaves_it(self, storage: ObjectStorage) -> None:
        keys = {"t/a/b", "t/c", "tt/d", "u"}
        for key in keys:
            storage.create(key, b"x")
        asked: list[str] = []

        def refuse(prefix: str) -> bool:
            asked.append(prefix)
            return False

        def removed(claims: dict[str, TrashClaim], still_owned: Callable[[str], bool]) -> list[str]:
            groups = storage.remove_directories(claims, still_owned=still_owned)
            return [prefix for group in groups for prefix in group]

        assert removed({"t": TrashClaim("why", None)}, refuse) == []
        assert {info.key for info in storage.list_recursive("")} == keys
        newest = max(info.modified for info in storage.list_recursive("t") if info.modified)
        young = TrashClaim("why", newest - timedelta(seconds=1))
        assert removed({"t": young}, lambda prefix: True) == []
        assert {info.key for info in storage.list_recursive("")} == keys
        claims = {"nothing": TrashClaim("", None), "t": TrashClaim("why", newest)}
        gone = removed(claims, lambda prefix: True)
        assert gone == asked, "a store that renames a directory asks, and any other leaves it"
        left = {info.key for info in storage.list_recursive("")}
        assert left == ({"tt/d", "u"} if gone else keys)
        assert storage.recover_trash(lambda prefix, record: True) == TrashReport()

    def test_what_is_written_after_a_reservation_is_written_as_ever(self, storage: ObjectStorage) -> None:
        version = storage.create("a", b"1")
        with storage.reserve(2):
            storage.create("t/b", b"2")
            with pytest.raises(KeyExistsError):
                storage.create("t/b", b"3")
            storage.delete("t/b")
            storage.replace("a", b"4", expected=version)
            storage.create("c", b"5")
        found = {info.key: info.size for info in storage.list_recursive("")}
        assert found == {"a": 1, "c": 1}
        assert (storage.read("a").body, storage.read("c").body) == (b"4", b"5")

    def test_prune_leaves_every_object_alone(self, storage: ObjectStorage) -> None:
        for key in ("t/a/b", "t/c", "u"):
            storage.create(key, b"x")
        for prefix in ("t", "t/a", "nothing", "u"):
            storage.prune(prefix)
        storage.prune("t/a", "t", "u")
        storage.prune()
        assert {info.key for info in storage.list_recursive("")} == {"t/a/b", "t/c", "u"}

    def test_head_tells_size_and_age(self, storage: ObjectStorage) -> None:
        storage.create("a", b"12345")
        info = storage.head("a")
        assert (info.key, info.size) == ("a", 5)
        assert info.modified is not None
        assert abs(datetime.now(UTC) - info.modified) < timedelta(minutes=5)

    def test_read_shows_the_time_and_e_tag_of_a_listing(self, storage: ObjectStorage) -> None:
        version = storage.create("d/a", b"one")
        storage.replace("d/a", b"three", expected=version)
        (listed,) = storage.list_recursive("")
        assert listed.modified is not None
        assert listed.e_tag is not None
        found = storage.read("d/a")
        assert ObjectInfo("d/a", len(found.body), found.modified, found.e_tag) == listed
        assert storage.list_level("d").files == (listed,)
        assert storage.head("d/a") == listed

    def test_e_tag_changes_with_the_body(self, storage: ObjectStorage) -> None:
        version = storage.create("a", b"one")
        before = storage.read("a")
        storage.replace("a", b"two", expected=version)
        assert storage.read("a").e_tag != before.e_tag

    def test_store_shows_its_own_time(self, storage: ObjectStorage) -> None:
        start = datetime.now(UTC)
        first = storage.now()
        storage.create("a", b"x")
        modified = storage.head("a").modified
        assert modified is not None
        last = storage.now()
        assert first <= modified <= last
        # Object stores show whole seconds, disks the time of the last timer interrupt.
        assert start - timedelta(seconds=1) <= first <= datetime.now(UTC)
        assert {info.key for info in storage.list_recursive("")} <= {"a", CLOCK_KEY}

    @pytest.mark.parametrize("share", [True, False])
    def test_copy_leaves_two_objects_with_the_same_body(self, storage: ObjectStorage, share: bool) -> None:
        version = storage.create("t/a", b"one")
        storage.create("t/empty", b"")
        storage.copy("t/a", "u/v/a", share=share)
        storage.copy("t/empty", "u/empty", share=share)
        found = {info.key: info.size for info in storage.list_recursive("")}
        assert found == {"t/a": 3, "t/empty": 0, "u/v/a": 3, "u/empty": 0}
        storage.replace("t/a", b"changed", expected=version)
        storage.delete("t/empty")
        assert (storage.read("u/v/a").body, storage.read("u/empty").body) == (b"one", b"")

    @pytest.mark.parametrize("share", [True, False])
    def test_copy_of_a_missing_object_raises_and_writes_nothing(
        self, storage: ObjectStorage, share: bool
    ) -> None:
        storage.create("d/a", b"one")
        for missing in ("nothing", "no/such", "d"):
            with pytest.raises(KeyNotFoundError):
                storage.copy(missing, "target", share=share)
        for keys in (("../a", "target"), ("d/a", "../target")):
            with pytest.raises(InvalidInputError):
                storage.copy(*keys, share=share)
        assert [info.key for info in storage.list_recursive("")] == ["d/a"]

    @pytest.mark.parametrize("share", [True, False])
    def test_copy_to_a_taken_key_raises_where_the_store_can_tell(
        self, storage: ObjectStorage, share: bool
    ) -> None:
        storage.create("a", b"one")
        storage.create("b", b"two")
        try:
            storage.copy("a", "b", share=share)
        except KeyExistsError:
            assert storage.read("b").body == b"two"
        else:
            assert storage.name.startswith("s3://")

    def test_list_after_continues_anywhere_in_byte_order(self, storage: ObjectStorage) -> None:
        keys = ["n.control", "n.deleted", "n.lance-x", "n.lance/_versions/1", "n.lance/a", "n.lance0", "é/a"]
        for key in reversed(keys):
            storage.create(key, key.encode())
        if not storage.lists_in_order:
            with pytest.raises(UnsupportedOperationError):
                storage.list_after("n.c")
            return
        listed = {info.key: info for info in storage.list_recursive("")}
        for start in ("", "n", "n.c", "n.control", "n.lance", "n.lance/b", "n.lance0", "z", "é", "ü"):
            page = storage.list_after(start)
            assert [info.key for info in page.objects] == [
                key for key in keys if key.encode() > start.encode()
            ]
            assert all(info == listed[info.key] for info in page.objects)
            assert page.is_last
        with pytest.raises(InvalidInputError):
            storage.list_after("../n")

    def test_list_level_shows_files_with_sizes_and_directories_once(self, storage: ObjectStorage) -> None:
        storage.create("t.lance/data/1", b"x")
        storage.create("t.lance/data/2", b"x")
        storage.create("t.deleted", b"12345")
        level = storage.list_level("")
        assert level.directories == ("t.lance",)
        assert [(info.key, info.size) for info in level.files] == [("t.deleted", 5)]
        assert storage.list_level("t.lance").directories == ("data",)
        assert [info.key for info in storage.list_level("t.lance/data/").files] == [
            "t.lance/data/1",
            "t.lance/data/2",
        ]

    def test_listing_nothing_is_empty(self, storage: ObjectStorage) -> None:
        assert storage.list_level("").directories == ()
        assert storage.list_level("no/such").files == ()
        assert list(storage.list_recursive("no")) == []

    def test_a_prefix_is_a_directory_and_not_a_start_of_a_name(self, storage: ObjectStorage) -> None:
        storage.create("ab/x", b"x")
        storage.create("abc/x", b"x")
        assert [info.key for info in storage.list_recursive("ab")] == ["ab/x"]
        assert [info.key for info in storage.list_level("ab").files] == ["ab/x"]

    def test_list_recursive_yields_everything_below(self, storage: ObjectStorage) -> None:
        keys = {"t/a", "t/b/c", "t/b/d/e", "u"}
        for key in keys:
            storage.create(key, b"xy")
        assert {info.key for info in storage.list_recursive("")} == keys
        assert {info.key for info in storage.list_recursive("t")} == keys - {"u"}

    def test_which_exist_answers_for_files_and_directories(self, storage: ObjectStorage) -> None:
        for key in ("a/_versions/1", "a/.reserved", "b/.reserved", "b.c/x", "z"):
            storage.create(key, b"x")
        asked = ["a/_versions/", "b/_versions/", "a/.reserved", "b/.reserved", "c/", "z", "z/", "b", "b/"]
        assert storage.which_exist(asked) == {"a/_versions/", "a/.reserved", "b/.reserved", "z", "b/"}
        assert storage.which_exist([]) == frozenset()

    @pytest.mark.parametrize("name", ["tablé", "a b", "it's", "日本", "a+b", "a:b", "a&b=c", "x.lance"])
    def test_names_with_special_characters_are_kept(self, storage: ObjectStorage, name: str) -> None:
        storage.create(f"{name}/f", b"x")
        storage.create(f"{name}.deleted", b"x")
        assert storage.list_level("").directories == (name,)
        assert [info.key for info in storage.list_level("").files] == [f"{name}.deleted"]
        assert storage.which_exist([f"{name}/f", f"{name}/"]) == {f"{name}/f", f"{name}/"}
        storage.delete_many([f"{name}/f", f"{name}.deleted"])
        assert list(storage.list_recursive("")) == []

    @pytest.mark.parametrize("key", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a"])
    def test_keys_that_leave_the_root_are_refused(self, storage: ObjectStorage, key: str) -> None:
        with pytest.raises(InvalidInputError):
            storage.create(key, b"x")
        with pytest.raises(InvalidInputError):
            storage.read(key)
        with pytest.raises(InvalidInputError):
            storage.delete(key)

    def test_of_racing_creators_exactly_one_wins(self, storage: ObjectStorage) -> None:
        def attempt(index: int) -> bool:
            try:
                storage.create("race", f"writer {index}".encode())
            except KeyExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(attempt, range(16)))
        assert outcomes.count(True) == 1, outcomes
        assert storage.read("race").body == f"writer {outcomes.index(True)}".encode()

    def test_of_racing_replacers_exactly_one_wins_each_round(self, storage: ObjectStorage) -> None:
        version = storage.create("race", b"start")

        def attempt(index: int, expected: Version) -> Version | None:
            try:
                return storage.replace("race", f"{expected} {index}".encode(), expected=expected)
            except KeyChangedError:
                return None

        with ThreadPoolExecutor(8) as pool:
            for _ in range(5):
                outcomes = list(pool.map(attempt, range(8), [version] * 8))
                winners = [outcome for outcome in outcomes if outcome is not None]
                assert len(winners) == 1, outcomes
                version = winners[0]

    def test_the_probe_sees_both_conditions_honoured_and_leaves_nothing(self, storage: ObjectStorage) -> None:
        seen = probe(storage)
        assert seen.create_only
        assert seen.replace
        assert list(storage.list_recursive("")) == []
