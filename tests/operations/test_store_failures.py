"""Failures of the store as errors: the right code, a useful message, the cause chained, and no secrets."""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from lance_namespace import CreateTableRequest
from lance_namespace.errors import LanceNamespaceError
from tests.support.codes import INTERNAL, INVALID_INPUT, PERMISSION_DENIED, SERVICE_UNAVAILABLE, UNSUPPORTED
from tests.support.modes import MODES
from tests.support.profiles import MINIO
from tests.support.roots import (
    ROWS,
    LocalPlace,
    S3Place,
    assert_gone,
    assert_whole,
    create,
    declare,
    deregister,
    describe,
    drop,
    exists_or_raise,
    ipc,
    names,
    refused,
    register,
    versions,
)
from tests.support.servers import HOST

from relance import DirectoryNamespace, Exists
from relance.cli.exits import Exit
from relance.cli.failures import failure_of
from relance.clock import to_millis
from relance.errors import InvalidInputError, ServiceUnavailableError, StorageError
from relance.lance_io import lance_errors
from relance.locations import LAYOUT_KEY

SECRET = "s3cr3t-Value/With+Odd=Characters"
ACCESS_KEY = "AKIDONOTSHOWTHISKEY"
IMPATIENT = {
    "storage.client_max_retries": "0",
    "storage.client_retry_timeout": "1",
    "storage.connect_timeout": "1s",
    "storage.timeout": "2s",
}

Call = Callable[[DirectoryNamespace], object]

READS: dict[str, Call] = {
    "list_tables": names,
    "table_exists": lambda catalog: exists_or_raise(catalog, "t"),
    "describe_table": lambda catalog: describe(catalog, "t"),
    "list_table_versions": lambda catalog: versions(catalog, "t"),
}
WRITES: dict[str, Call] = {
    "create_table": lambda catalog: create(catalog, "new"),
    "declare_table": lambda catalog: declare(catalog, "new"),
    "deregister_table": lambda catalog: deregister(catalog, "t"),
    "register_table": lambda catalog: register(catalog, "t"),
    "drop_table": lambda catalog: drop(catalog, "t"),
}
CALLS = READS | WRITES


def everything_said(error: BaseException) -> str:
    """Return all text that an error can show, its causes and their traces included."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None:
        chain.append(current)
        current = current.__cause__ or current.__context__
    shown = [text for each in chain for text in (str(each), repr(each), repr(each.args))]
    return "\n".join([*shown, *traceback.format_exception(error)])


def failing(kind: type[OSError], number: int) -> Callable[..., Any]:
    """Return a function that fails like a system call does."""

    def fail(*_: object, **__: object) -> None:
        raise kind(number, os.strerror(number))

    return fail


@pytest.fixture
def closed_port(moto: S3Place) -> S3Place:
    """A root behind an endpoint where nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    return replace(moto, server=replace(moto.server, endpoint=f"http://{HOST}:{port}"))


class TestLocalDisk:
    @pytest.fixture
    def catalog(self, local: LocalPlace) -> DirectoryNamespace:
        catalog = local.open()
        create(catalog, "t")
        return catalog

    @pytest.fixture
    def broken_disk(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Callable[[type[OSError], int], None]]:
        """Return a switch after which every look at the disk fails in the given way."""

        def break_it(kind: type[OSError], number: int) -> None:
            for function in ("scandir", "open", "link", "lstat", "unlink"):
                monkeypatch.setattr(os, function, failing(kind, number))

        yield break_it
        monkeypatch.undo()

    @pytest.mark.parametrize("call", CALLS)
    def test_permission_error_of_the_disk_raises_permission_denied(
        self,
        call: str,
        catalog: DirectoryNamespace,
        broken_disk: Callable[[type[OSError], int], None],
    ) -> None:
        broken_disk(PermissionError, errno.EACCES)
        with refused(PERMISSION_DENIED) as caught:
            CALLS[call](catalog)
        assert str(caught.value).startswith("Permission denied: ")
        assert isinstance(caught.value.__cause__, PermissionError)

    @pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN])
    def test_unresponsive_network_disk_raises_service_unavailable(
        self,
        number: int,
        catalog: DirectoryNamespace,
        broken_disk: Callable[[type[OSError], int], None],
    ) -> None:
        broken_disk(OSError, number)
        for call in READS.values():
            with refused(SERVICE_UNAVAILABLE) as caught:
                call(catalog)
            assert isinstance(caught.value.__cause__, OSError)

    @pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ELOOP])
    def test_other_disk_errors_raise_an_internal_error_with_the_cause(
        self,
        number: int,
        catalog: DirectoryNamespace,
        broken_disk: Callable[[type[OSError], int], None],
    ) -> None:
        broken_disk(OSError, number)
        for call in READS.values():
            with refused(INTERNAL) as caught:
                call(catalog)
            cause = caught.value.__cause__
            assert isinstance(cause, OSError)
            assert cause.errno == number
            assert os.strerror(number) in str(caught.value)

    def test_path_longer_than_the_disk_allows_raises_invalid_input_with_a_remedy(
        self, catalog: DirectoryNamespace, broken_disk: Callable[[type[OSError], int], None]
    ) -> None:
        broken_disk(OSError, errno.ENAMETOOLONG)
        for call in READS.values():
            with refused(INVALID_INPUT) as caught:
                call(catalog)
            assert isinstance(caught.value.__cause__, OSError)
            assert "choose a shorter root or name" in str(caught.value)

    def test_full_disk_leaves_nothing_declared(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patches:
            patches.setattr(os, "open", failing(OSError, errno.ENOSPC))
            with refused(INTERNAL) as caught:
                declare(catalog, "new")
        assert os.strerror(errno.ENOSPC) in str(caught.value)
        assert_gone(catalog, "new")
        declare(catalog, "new")
        assert names(catalog) == ["new", "t"]

    def test_catalog_works_again_after_disk_failures(
        self, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patches:
            for function in ("scandir", "open", "link", "lstat"):
                patches.setattr(os, function, failing(OSError, errno.EIO))
            for call in CALLS.values():
                with pytest.raises(LanceNamespaceError):
                    call(catalog)
        assert names(catalog) == ["t"]
        assert_whole(catalog, "t")
        create(catalog, "new")
        assert_whole(catalog, "new")

    def test_root_that_is_a_file_has_no_tables_and_is_left_alone(self, disk: LocalPlace) -> None:
        disk.folder.write_bytes(b"a file")
        catalog = disk.open()
        assert names(catalog) == []
        with pytest.raises(LanceNamespaceError):
            create(catalog, "t")
        with pytest.raises(LanceNamespaceError):
            declare(catalog, "t")
        assert disk.folder.read_bytes() == b"a file"

    @pytest.mark.deep
    def test_root_that_is_a_file_cannot_have_a_manifest_and_is_left_alone(
        self, compatibility: LocalPlace
    ) -> None:
        compatibility.folder.write_bytes(b"a file")
        for call in (names, lambda catalog: create(catalog, "t"), lambda catalog: declare(catalog, "t")):
            with pytest.raises(LanceNamespaceError, match="__manifest"):
                call(compatibility.open())
        assert compatibility.folder.read_bytes() == b"a file"


class TestS3:
    @pytest.mark.parametrize("call", CALLS)
    def test_unreachable_store_raises_service_unavailable(self, call: str, closed_port: S3Place) -> None:
        with refused(SERVICE_UNAVAILABLE) as caught:
            CALLS[call](closed_port.open(**IMPATIENT))
        assert "cannot reach the store" in str(caught.value)
        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize("server", ["moto", MINIO])
    @pytest.mark.parametrize("call", CALLS)
    def test_missing_bucket_is_named_with_a_hint(
        self, call: str, server: str, request: pytest.FixtureRequest
    ) -> None:
        place: S3Place = request.getfixturevalue(server)
        missing = replace(place, bucket=f"{place.bucket}-missing")
        with refused(INVALID_INPUT) as caught:
            CALLS[call](missing.open())
        assert missing.bucket in str(caught.value)
        assert "bucket" in str(caught.value)
        assert "create it" in str(caught.value)

    @pytest.mark.parametrize("call", CALLS)
    def test_wrong_credentials_raise_permission_denied(self, call: str, minio: S3Place) -> None:
        create(minio.open(), "t")
        before = minio.bucket_files()
        for wrong in (
            {"storage.secret_access_key": SECRET},
            {"storage.access_key_id": ACCESS_KEY, "storage.secret_access_key": SECRET},
        ):
            with refused(PERMISSION_DENIED) as caught:
                CALLS[call](minio.open(**wrong))
            assert caught.value.__cause__ is not None
            assert SECRET not in everything_said(caught.value)
            assert ACCESS_KEY not in everything_said(caught.value)
        assert minio.bucket_files() == before

    def test_wrong_credentials_in_a_request_raise_permission_denied_and_leave_nothing(
        self, minio: S3Place
    ) -> None:
        # Our own look is allowed, the writing of data is not.
        catalog = minio.open()
        with refused(PERMISSION_DENIED) as caught:
            create(catalog, "t", storage_options={"secret_access_key": SECRET})
        assert SECRET not in everything_said(caught.value)
        assert_gone(catalog, "t")
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_storage_options_of_a_request_are_validated_and_used(self, minio: S3Place) -> None:
        wrong = minio.open(vend_input_storage_options="false")
        with refused(INVALID_INPUT):
            create(wrong, "t", storage_options={"client_max_retries": "many"})
        assert minio.files() == {}
        secret = minio.server.secret_key
        create(wrong, "t", storage_options={"aws_secret_access_key": secret, "colour": "unknown to all"})
        assert names(minio.open()) == ["t"]

    def test_proxy_password_is_never_shown(self, moto: S3Place) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            proxy = f"http://user:{ACCESS_KEY}@{HOST}:{probe.getsockname()[1]}"
        catalog = moto.open(**IMPATIENT, **{"storage.proxy_url": proxy})
        for call in CALLS.values():
            with refused(SERVICE_UNAVAILABLE) as caught:
                call(catalog)
            assert ACCESS_KEY not in everything_said(caught.value)

    def test_password_in_an_endpoint_is_never_shown(self, closed_port: S3Place) -> None:
        endpoint = closed_port.server.endpoint.replace("://", f"://user:{ACCESS_KEY}@")
        catalog = closed_port.open(**IMPATIENT, **{"storage.endpoint": endpoint})
        for call in CALLS.values():
            with refused(SERVICE_UNAVAILABLE) as caught:
                call(catalog)
            assert ACCESS_KEY not in everything_said(caught.value)


class TestSecrets:
    @pytest.fixture
    def secretive(self, moto: S3Place) -> DirectoryNamespace:
        """A catalog on moto, which takes any credentials, with credentials that must not show."""
        return moto.open(
            **{
                "storage.access_key_id": ACCESS_KEY,
                "storage.secret_access_key": SECRET,
                "storage.session_token": f"{SECRET}-token",
            }
        )

    def test_catalog_and_response_reprs_show_no_secrets(self, secretive: DirectoryNamespace) -> None:
        answers: list[Any] = [create(secretive, "t"), declare(secretive, "u"), describe(secretive, "t")]
        for shown in (secretive, secretive.namespace_id(), *answers):
            for text in (repr(shown), str(shown), f"{shown}", f"{shown!r}"):
                assert SECRET not in text
                assert ACCESS_KEY not in text
        assert all(answer.storage_options["secret_access_key"] == SECRET for answer in answers)

    @pytest.mark.parametrize("option", ["service_account", "application_credentials", "service_account_key"])
    def test_inline_service_account_is_never_shown(self, option: str) -> None:
        account = {"type": "service_account", "private_key_id": ACCESS_KEY, "private_key": SECRET}
        for text in (json.dumps(account), json.dumps(account)[:-3]):
            with refused(INVALID_INPUT) as caught:
                names(DirectoryNamespace(clock=None, root="gs://bucket/lake", **{f"storage.{option}": text}))
            assert SECRET not in everything_said(caught.value)
            assert ACCESS_KEY not in everything_said(caught.value)

    def test_errors_raised_around_lance_hide_secrets_that_lance_quoted(self) -> None:
        cause = OSError(f"GET with {SECRET}")
        with pytest.raises(InvalidInputError) as caught, lance_errors("t", {"secret_access_key": SECRET}):
            raise InvalidInputError(f"t: {cause}") from cause
        assert SECRET not in everything_said(caught.value)

    def test_table_errors_show_no_secrets(self, secretive: DirectoryNamespace) -> None:
        create(secretive, "t")
        bad: list[Call] = [
            lambda catalog: create(catalog, "t"),
            lambda catalog: create(catalog, "a/b"),
            lambda catalog: describe(catalog, "missing"),
            lambda catalog: describe(catalog, "t", version=99),
            lambda catalog: describe(catalog, "t", tag="none"),
            lambda catalog: describe(catalog, "t", branch="none"),
            lambda catalog: register(catalog, "t", location="elsewhere"),
            lambda catalog: catalog.create_table(CreateTableRequest(id=["x"]), b"garbage"),
        ]
        for call in bad:
            with pytest.raises(LanceNamespaceError) as caught:
                call(secretive)
            assert SECRET not in everything_said(caught.value)
            assert ACCESS_KEY not in everything_said(caught.value)

    def test_logs_show_no_secrets(
        self,
        secretive: DirectoryNamespace,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            create(secretive, "t")
            declare(secretive, "u")
            names(secretive)
            drop(secretive, "t")
            with pytest.raises(LanceNamespaceError):
                describe(secretive, "missing")
        printed = capfd.readouterr()
        records = [each for each in caplog.records if each.name.startswith(("relance", "lance"))]
        ours = "\n".join(each.getMessage() for each in records)
        for text in (ours, printed.out, printed.err):
            assert SECRET not in text

    @pytest.mark.parametrize(
        "properties",
        [
            {"storage.secret_access_key": SECRET, "storage.aws_secret_access_key": f"{SECRET}2"},
            {"storage.secret_access_key": SECRET, "storage.allow_http": "perhaps"},
            {"storage.secret_access_key": SECRET, "storage.client_max_retries": "x"},
            {"storage.secret_access_key": SECRET, "colour": "red"},
            {"secret_access_key": SECRET},
            {"manifest_enabled": SECRET},
        ],
        ids=str,
    )
    def test_constructor_errors_show_no_secrets(self, properties: dict[str, Any]) -> None:
        with refused(INVALID_INPUT) as caught:
            DirectoryNamespace(root="s3://bucket/lake", **properties)
        if "manifest_enabled" not in properties:
            assert SECRET not in everything_said(caught.value)


class TestProperties:
    @pytest.mark.parametrize("key", ["access_key_id", "secret_access_key", "session_token", "region"])
    def test_storage_option_with_control_characters_is_refused_and_named(
        self, key: str, closed_port: S3Place
    ) -> None:
        # A key read from a file mostly ends in a line break.
        for ending in ("\n", "\r\n", "\0"):
            properties = {**IMPATIENT, f"storage.{key}": SECRET + ending}
            with refused(INVALID_INPUT) as caught:
                names(closed_port.open(**properties))
            assert key in str(caught.value)
            assert SECRET not in everything_said(caught.value)

    def test_unknown_storage_option_is_passed_on_and_a_similar_one_suggested(self) -> None:
        properties: dict[str, Any] = {"root": "s3://bucket/lake", "storage.regoin": SECRET}
        with pytest.warns(UserWarning, match="'regoin'.*'region'") as caught:
            DirectoryNamespace(**properties)
        assert SECRET not in str(caught[0].message)

    @pytest.mark.parametrize("root", ["lake", "file:///lake", "memory://lake"])
    def test_storage_options_for_a_local_or_memory_root_are_accepted(self, root: str) -> None:
        properties: dict[str, Any] = {"root": root, "storage.region": "x"}
        DirectoryNamespace(**properties)

    def test_unknown_property_is_refused_and_a_similar_one_suggested(self) -> None:
        with refused(INVALID_INPUT) as caught:
            DirectoryNamespace(root="lake", manifest_enable="false")
        assert "'manifest_enable'" in str(caught.value)
        assert "'manifest_enabled'" in str(caught.value)

    @pytest.mark.parametrize("value", ["true", "True", "1", "yes", True, None])
    def test_manifest_is_written_by_default_and_for_every_spelling_of_true(
        self, value: str | bool | None, compatibility: LocalPlace
    ) -> None:
        catalog = compatibility.open(**({} if value is None else {"manifest_enabled": value}))
        create(catalog, "t")
        assert_whole(catalog, "t")
        assert (compatibility.folder / "__manifest").is_dir()

    @pytest.mark.parametrize("value", ["false", "False", "0", "no", False])
    def test_manifest_is_disabled_by_every_spelling_of_false(
        self, value: str | bool, compatibility: LocalPlace
    ) -> None:
        catalog = compatibility.open(manifest_enabled=value, dir_listing_enabled="true")
        create(catalog, "t")
        assert_whole(catalog, "t")
        assert not (compatibility.folder / "__manifest").exists()

    @pytest.mark.parametrize("name", ["manifest_enabled", "table_version_tracking_enabled"])
    @pytest.mark.parametrize("value", ["", "maybe", "2"])
    def test_boolean_property_must_be_true_or_false(self, name: str, value: str) -> None:
        properties: dict[str, Any] = {"root": "lake", name: value}
        with refused(INVALID_INPUT) as caught:
            DirectoryNamespace(**properties)
        assert name in str(caught.value)

    def test_disabling_both_manifest_and_directory_listing_is_refused(self) -> None:
        with refused(INVALID_INPUT):
            DirectoryNamespace(root="lake", dir_listing_enabled="false", manifest_enabled="false")

    @pytest.mark.parametrize(
        "root",
        ["", " ", "s3://", "s3:///lake", "ftp://host/lake", "s3://bucket/a//b", "s3://bucket/../lake",
         "s3://bucket/a%20b", "s3://bucket/a#b", "s3://bucket/a?b", "file://host/lake", "memory://", "a\0b"],
        ids=ascii,
    )  # fmt: skip
    def test_invalid_root_is_refused(self, root: str) -> None:
        with refused(INVALID_INPUT):
            DirectoryNamespace(root=root)

    def test_missing_root_property_is_refused(self) -> None:
        with refused(INVALID_INPUT) as caught:
            DirectoryNamespace()
        assert "'root'" in str(caught.value)

    def test_native_manifest_tuning_properties_are_accepted(self, local: LocalPlace) -> None:
        catalog = local.open(inline_optimization_enabled="false", commit_retries="3")
        catalog.create_table(CreateTableRequest(id=["t"]), ipc(ROWS))
        assert_whole(catalog, "t")

    @pytest.mark.parametrize("name", ["credential_vendor.kind", "ops_metrics_enabled"])
    def test_native_properties_without_effect_are_unsupported(self, name: str) -> None:
        properties: dict[str, Any] = {"root": "lake", name: "true"}
        with refused(UNSUPPORTED) as caught:
            DirectoryNamespace(**properties)
        assert name in str(caught.value)


class TestSystemErrors:
    @pytest.mark.parametrize(
        ("number", "code", "to_do"),
        [
            (errno.ENOSPC, INTERNAL, "the disk is full"),
            (errno.EDQUOT, INTERNAL, "raise the quota"),
            (errno.EROFS, PERMISSION_DENIED, "remount it for writing"),
            (errno.EACCES, PERMISSION_DENIED, "grant access"),
            (errno.EIO, INTERNAL, "check it and the system log"),
            (errno.EMFILE, INTERNAL, "ulimit -n"),
        ],
    )
    def test_error_of_the_system_inside_lance_says_what_to_do(
        self, number: int, code: int, to_do: str
    ) -> None:
        texts = (
            f"LanceError(IO): Generic LocalFileSystem error: {os.strerror(number)} (os error {number})",
            f"[Errno {number}] {os.strerror(number)}: 'x'",
        )
        for text in texts:
            with refused(code) as caught, lance_errors("table id 't'", {}):
                raise OSError(text)
            assert to_do in str(caught.value)
            shown = failure_of(caught.value, lambda each: each)
            assert shown.exit_code is Exit.STORE
            assert "bug" not in shown.to_do

    def test_path_that_is_too_long_is_an_invalid_input(self) -> None:
        with refused(INVALID_INPUT) as caught, lance_errors("table id 't'", {}):
            raise OSError(f"[Errno {errno.ENAMETOOLONG}] {os.strerror(errno.ENAMETOOLONG)}: 'x'")
        assert "choose a shorter root or name" in str(caught.value)

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EMFILE])
    def test_command_line_never_calls_a_system_error_a_bug(self, number: int) -> None:
        for error in (OSError(number, os.strerror(number)), OSError(number, os.strerror(number), "out.json")):
            assert "bug" not in failure_of(error, lambda each: each).to_do


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "garbage": lambda file: file.write_bytes(b"garbage"),
    "login page": lambda file: file.write_bytes(b"<html><body>Log in</body>"),
    "half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
}


class TestDamagedFiles:
    @pytest.mark.parametrize("damage", DAMAGE)
    @pytest.mark.parametrize("folder", ["_versions", "data"])
    def test_damaged_file_of_a_table_is_an_error_of_the_disk(
        self, local: LocalPlace, folder: str, damage: str
    ) -> None:
        catalog = local.open()
        create(catalog, "t")
        (file,) = (each for each in (local.folder / "t.lance" / folder).iterdir() if each.suffix != ".json")
        DAMAGE[damage](file)
        with pytest.raises(StorageError, match="restore the file from a backup") as caught:
            catalog.query_table({"id": ["t"], "k": 5, "vector": {}})
        shown = failure_of(caught.value, lambda each: each)
        assert shown.exit_code is Exit.STORE
        assert "bug" not in shown.to_do


class _OddResponses(BaseHTTPRequestHandler):
    """Responds with bytes that no store sends, except for the flag if there is none."""

    odd: bytes
    has_flag = True

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if self.raw_requestline and self.parse_request():
            flag = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            self.wfile.write(self.odd if self.has_flag or LAYOUT_KEY not in self.path else flag)
        self.close_connection = True


ODD_RESPONSES = {
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<?xml version='1.0'?><ListBucketResult>",
    "half a document": b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n<ListBucketResult>",
    "login page": b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n<html><body>Log in</body>",
    "empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "wrong chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nfoo",
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
    "nothing": b"",
}


SHORT_BODIES: dict[str, Callable[[bytes], bytes]] = {
    "login page": lambda _: b"<html><body>Log in</body>",
    "empty": lambda _: b"",
    "half": lambda body: body[: len(body) // 2],
}


@dataclass
class Upstream:
    """A store, and what to do with what it sends for keys that contain `place`."""

    address: str
    place: str
    shorten: Callable[[bytes], bytes] | None = None


class _ShortBodies(BaseHTTPRequestHandler):
    """Forwards to a store, and shortens what it sends for some keys; the length fits the body."""

    protocol_version = "HTTP/1.1"
    upstream: Upstream

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # named so by http.server
        pass

    def _forward(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(self.upstream.address)
        connection.request(self.command, self.path, sent, dict(self.headers.items()))
        response = connection.getresponse()
        body = response.read()
        length = int(response.getheader("Content-Length") or 0)
        shorten = self.upstream.shorten if self.upstream.place in self.path else None
        if self.command == "GET" and shorten is not None and response.status < 300:
            body = shorten(body)
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length if self.command == "HEAD" else len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
        connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815  # named so by http.server


class TestShortBodies:
    """A proxy's page, or half an object, with a length that fits: Lance takes it for the file."""

    @pytest.mark.parametrize("place", ["_versions/", "/data/", ".relance-root"])
    @pytest.mark.parametrize("mode", MODES)
    def test_short_body_is_never_called_a_bug(self, moto: S3Place, mode: str, place: str) -> None:
        create(replace(moto, mode=MODES[mode]).open(manifest_upkeep="false"), "t")
        moto.put(
            LAYOUT_KEY, b'{"format": 2, "nested_markers": "none"}'
        )  # where the manifest alone counts, too
        upstream = Upstream(moto.server.endpoint.removeprefix("http://"), place)
        handler = type("Handler", (_ShortBodies,), {"upstream": upstream})
        with ThreadingHTTPServer((HOST, 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            endpoint = f"http://{HOST}:{server.server_port}"
            behind = replace(moto, mode=MODES[mode], server=replace(moto.server, endpoint=endpoint))
            calls: tuple[Call, ...] = (
                names,
                lambda each: describe(each, "t"),
                lambda each: each.count_table_rows({"id": ["t"]}),
                lambda each: each.query_table({"id": ["t"], "k": 5, "vector": {}}),
                lambda each: create(each, uuid4().hex),
                lambda each: drop(each, "t"),
            )
            failures: list[LanceNamespaceError] = []
            for shorten in SHORT_BODIES.values():
                for call in calls:
                    catalog = behind.open(manifest_upkeep="false", **IMPATIENT)
                    upstream.shorten = shorten
                    try:
                        call(catalog)
                    except LanceNamespaceError as error:
                        failures.append(error)
                    finally:
                        upstream.shorten = None
                    with suppress(LanceNamespaceError):
                        catalog.undrop_table(["t"])
            server.shutdown()
        assert failures
        for failure in failures:
            assert isinstance(failure, ServiceUnavailableError | StorageError), repr(failure)
            assert "check the endpoint" in str(failure)
            assert "bug" not in failure_of(failure, lambda each: each).to_do

    @pytest.mark.parametrize("shorten", SHORT_BODIES)
    @pytest.mark.parametrize("suffix", [".control", ".deleted"])
    def test_short_arbiter_or_marker_affects_its_table_alone(
        self, moto: S3Place, suffix: str, shorten: str
    ) -> None:
        place = replace(moto, mode=MODES["V1"])
        catalog = place.open()
        for name in ("good", "bad"):
            create(catalog, name)
        drop(catalog, "good")
        if suffix == ".control":
            drop(catalog, "bad")
        else:  # a drop of another client, whose marker alone says for how long it can be undone
            body = {"deleted_at_ms": to_millis(datetime.now(UTC)), "ttl_ms": 10**10}
            place.put("bad.deleted", json.dumps(body).encode())
        upstream = Upstream(moto.server.endpoint.removeprefix("http://"), f"/bad{suffix}")
        handler = type("Handler", (_ShortBodies,), {"upstream": upstream})
        with ThreadingHTTPServer((HOST, 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            endpoint = f"http://{HOST}:{server.server_port}"
            behind = replace(place, server=replace(moto.server, endpoint=endpoint)).open(**IMPATIENT)
            upstream.shorten = SHORT_BODIES[shorten]
            assert [each.id for each in behind.list_dropped_tables()] == [("good",)]
            for method in (behind.undrop_table, behind.table_status):
                with pytest.raises(StorageError, match="check the endpoint"):
                    method(["bad"])
            results = {each.id[0]: each for each in behind.purge_tables([["bad"], ["good"]], force=True)}
            assert results["good"].purged
            assert isinstance(results["bad"].error, StorageError)
            server.shutdown()
        assert isinstance(catalog.undrop_table(["bad"]), Exists)
        assert names(catalog) == ["bad"]


class TestOddResponses:
    @pytest.mark.parametrize("has_flag", [False, True], ids=["no flag", "flag"])
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("odd", ODD_RESPONSES)
    def test_damaged_response_raises_service_unavailable_with_a_remedy(
        self, odd: str, mode: str, has_flag: bool
    ) -> None:
        handler = type("Handler", (_OddResponses,), {"odd": ODD_RESPONSES[odd], "has_flag": has_flag})
        with ThreadingHTTPServer((HOST, 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            options = {
                "endpoint": f"http://{HOST}:{server.server_port}",
                "allow_http": "true",
                "region": "us-east-1",
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET,
            }
            properties = {f"storage.{key}": value for key, value in options.items()} | IMPATIENT
            catalog = DirectoryNamespace(clock=None, root="s3://bucket/lake", **MODES[mode], **properties)
            calls: tuple[Call, ...] = (
                names,
                lambda each: describe(each, "t"),
                lambda each: drop(each, "t"),
                lambda each: declare(each, "t"),
            )
            for call in calls:
                with refused(SERVICE_UNAVAILABLE) as caught:
                    call(catalog)
                assert "check the endpoint" in str(caught.value)
                assert "bug" not in failure_of(caught.value, lambda each: each).to_do
            server.shutdown()
