"""Several Unix users use one root: what Relance makes there is for all who may write the root."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.modes import MODES
from tests.support.paths import REPOSITORY
from tests.support.roots import create, local_place, names

from relance import DirectoryNamespace
from relance.errors import KeyExistsError, PermissionDeniedError
from relance.storage.disk_files import lock_file, locked
from relance.storage.local_disk import LocalDiskStorage

ANNE, BERT, GROUP, OTHER_GROUP = 54101, 54102, 54100, 54199
"""Users and groups that need not exist in a database."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a folder that every user can reach, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="relance-shared-"))
    made.chmod(0o755)
    (made / "lake").mkdir()
    os.chown(made / "lake", ANNE, GROUP)
    yield made / "lake"
    shutil.rmtree(made)


@contextmanager
def _acting_as(user: int, *, umask: int = 0o022) -> Iterator[None]:
    """Have all threads of this process act as a user, who is also in the group."""
    groups, mask = os.getgroups(), os.umask(umask)
    os.setgroups([GROUP])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.umask(mask)


def _use(storage: LocalDiskStorage) -> None:
    """Make every lock and a file, and use those that another user made."""
    storage.now()
    for number in range(200):
        storage.delete(f"absent{number}")
    with suppress(KeyExistsError):
        storage.create("folder/of/both", b"0")
    with storage.reserve(2):
        storage.create(f"folder/of/{os.geteuid()}", b"x")
    storage.recover_trash(lambda *_: True)


@needs_root
@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["umask 022", "umask 077"])
@pytest.mark.parametrize("mode", [0o2775, 0o775, 0o777], ids=oct)
def test_users_who_may_write_a_root_write_and_lock_the_same_keys(root: Path, mode: int, umask: int) -> None:
    root.chmod(mode)
    for user in (ANNE, BERT):
        with _acting_as(user, umask=umask):
            _use(LocalDiskStorage(str(root)))
    for number, user in enumerate((ANNE, BERT, ANNE)):
        with _acting_as(user, umask=umask):
            storage = LocalDiskStorage(str(root))
            known = storage.read("folder/of/both")
            assert known.body == str(number).encode()
            storage.replace("folder/of/both", str(number + 1).encode(), expected=known.version)
    with _acting_as(BERT, umask=umask):
        LocalDiskStorage(str(root)).delete(f"folder/of/{ANNE}")


@needs_root
def test_root_with_the_sticky_bit_keeps_each_users_files_from_the_others(root: Path) -> None:
    root.chmod(0o1777)
    for user in (ANNE, BERT):
        with _acting_as(user):
            _use(LocalDiskStorage(str(root)))
    with _acting_as(BERT), pytest.raises(PermissionDeniedError):
        LocalDiskStorage(str(root)).delete(f"folder/of/{ANNE}")
    assert (root / "folder" / "of").stat().st_mode & stat.S_ISVTX


@needs_root
@pytest.mark.parametrize("mode", [0o2775, 0o777], ids=oct)
def test_users_who_start_at_the_same_moment_do_not_get_in_each_others_way(root: Path, mode: int) -> None:
    for number in range(20):
        lake = root / str(number)
        lake.mkdir()
        os.chown(lake, ANNE, GROUP)
        lake.chmod(mode)
        start = time.monotonic() + 0.02
        children = []
        for user in (ANNE, BERT):
            child = os.fork()
            if not child:
                with suppress(BaseException), _acting_as(user):
                    time.sleep(max(0.0, start - time.monotonic()))
                    _use(LocalDiskStorage(str(lake)))
                    os._exit(0)
                os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0], number


@needs_root
@pytest.mark.parametrize("umask", [0o002, 0o022], ids=oct)
@pytest.mark.parametrize("catalog_mode", MODES)
@pytest.mark.parametrize("mode", [0o2775, 0o777], ids=oct)
def test_two_users_share_a_catalog(
    root: Path, tmp_path: Path, mode: int, catalog_mode: str, umask: int
) -> None:
    def change(where: str, name: str, *, made: bool = True) -> list[str]:
        catalog = local_place(Path(where), MODES[catalog_mode]).open()
        if not made:
            create(catalog, name)
        catalog.drop_table({"id": [name]})
        catalog.undrop_table([name])
        return names(catalog)

    def purge(where: str, name: str) -> int:
        catalog = local_place(Path(where), MODES[catalog_mode]).open()
        catalog.drop_table({"id": [name]})
        return catalog.purge_table([name], force=True).files

    # The interpreter may lie where only root may read: so everything is loaded before.
    change(str(tmp_path / "lake"), "t", made=False)
    purge(str(tmp_path / "lake"), "t")
    root.chmod(mode)
    for user, other in ((ANNE, BERT), (BERT, ANNE)):
        with _acting_as(user, umask=umask):
            change(str(root), f"t{user}", made=False)
        with _acting_as(other, umask=umask):
            change(str(root), f"t{user}")
        with _acting_as(user, umask=umask):
            change(str(root), f"t{user}")
    with _acting_as(BERT, umask=umask):
        assert purge(str(root), f"t{ANNE}") > 0
    with _acting_as(ANNE, umask=umask):
        assert change(str(root), f"t{BERT}") == [f"t{BERT}"]


@needs_root
@pytest.mark.parametrize("catalog_mode", ["V2", "compatibility"])
def test_manifest_that_another_user_did_not_share_refuses_changes_before_any_effect(
    root: Path, tmp_path: Path, catalog_mode: str
) -> None:
    def open_at(where: Path) -> DirectoryNamespace:
        return local_place(where, MODES[catalog_mode]).open(manifest_upkeep="false")

    create(open_at(tmp_path / "warm"), "t")  # the interpreter may lie where only root may read
    root.chmod(0o2775)
    with _acting_as(ANNE):
        create(open_at(root), "t")
        for folder in (root / "__manifest", *(root / "__manifest").iterdir()):
            if folder.is_dir():
                folder.chmod(0o755)  # as a client makes them that is not Relance
    before = sorted(root.glob("*"))
    with _acting_as(BERT):
        catalog = open_at(root)
        assert names(catalog) == ["t"]
        for call in (
            lambda: catalog.drop_table({"id": ["t"]}),
            lambda: catalog.deregister_table({"id": ["t"]}),
            lambda: create(catalog, "new"),
        ):
            with pytest.raises(PermissionDeniedError, match="have its owner grant access"):
                call()
        assert names(catalog) == ["t"]
    assert sorted(root.glob("*")) == before


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o700], ids=oct)
def test_nothing_becomes_writable_for_others_than_the_root_is(root: Path, mode: int) -> None:
    root.chmod(mode)
    with _acting_as(ANNE):
        _use(LocalDiskStorage(str(root)))
    modes = {path: path.lstat().st_mode for path in root.rglob("*")}
    assert modes
    assert not [path for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH)]


@needs_root
def test_users_own_group_gets_no_right_that_only_the_roots_group_has(root: Path) -> None:
    os.chown(root, ANNE, OTHER_GROUP)  # a group that she is not in
    root.chmod(0o775)
    with _acting_as(ANNE):
        _use(LocalDiskStorage(str(root)))
    assert not [path for path in root.rglob("*") if path.lstat().st_mode & stat.S_IWGRP]


def test_umask_of_the_process_is_never_changed(tmp_path: Path) -> None:
    for source in (REPOSITORY / "src").rglob("*.py"):
        assert "umask(" not in source.read_text(), "files that other threads make would get the wrong mode"
    catalog = DirectoryNamespace(root=str(tmp_path / "lake"))
    create(catalog, "t")
    catalog.export_table(["t"], str(tmp_path / "t.parquet"))
    (tmp_path / "other").touch()
    assert (tmp_path / "t.parquet").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_lock_is_released_although_a_process_was_forked_meanwhile(tmp_path: Path) -> None:
    with locked(lock_file(str(tmp_path), "locks", "0")):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    try:
        at_once = subprocess.run(["flock", "-n", str(tmp_path / "locks" / "0"), "true"], check=False)
        assert at_once.returncode == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
