"""Real object-store servers for the tests, started as subprocesses on the loopback interface.

Three servers live here (moto and MinIO for S3, Azurite for Azure Blob), each behind a context manager
that starts it on a free port, waits until it answers and stops it again, together with a counting
reverse proxy that records every HTTP request a client sends to an S3 server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from tests.support.paths import REPOSITORY
from tests.support.ports import free_port
from tests.support.services import ServiceUnavailable

HOST = "127.0.0.1"
REGION = "us-east-1"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 10.0
START_ATTEMPTS = 3
AZURE_API_VERSION = "2021-12-02"
# Headers that concern one connection only, and the length, which the proxy works out anew.
UNFORWARDED_HEADERS = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
TOOLS = REPOSITORY / ".tools"
# moto's threads compare an etag and write later, so two racing conditional writes can both succeed (seen in
# 5 of 885 rounds of eight writers). S3 decides one write of an object at a time; with the lock so does moto.
MOTO_SCRIPT = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

one_write_at_a_time = threading.RLock()

def serialized(handler):
    def handle(*args, **kwargs):
        with one_write_at_a_time:
            return handler(*args, **kwargs)
    return handle

for name in ("put_object", "copy_object", "delete_object", "_key_response_post"):
    setattr(S3Response, name, serialized(getattr(S3Response, name)))

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class ServerStartError(RuntimeError):
    """A server is installed but did not come up."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a running S3 server listens and the credentials it accepts."""

    endpoint: str
    access_key: str
    secret_key: str
    name: str

    def storage_options(self) -> dict[str, str]:
        """Return the options with which pylance and obstore reach this server."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "allow_http": "true",
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
        }

    def client(self) -> Any:
        """Return a boto3 S3 client that addresses buckets by path."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def make_bucket(self, prefix: str) -> str:
        """Create an empty bucket with a unique name and return the name."""
        bucket = _unique_name(prefix)
        self.client().create_bucket(Bucket=bucket)
        return bucket


@dataclass(frozen=True, slots=True)
class AzureServer:
    """Where a running Azure Blob server listens and the account it accepts."""

    endpoint: str
    account_name: str
    account_key: str
    name: str

    def storage_options(self) -> dict[str, str]:
        """Return the options with which pylance and obstore reach this server."""
        return {
            "account_name": self.account_name,
            "account_key": self.account_key,
            "endpoint": self.endpoint,
            "allow_http": "true",
        }

    def make_container(self, prefix: str) -> str:
        """Create an empty container with a unique name and return the name."""
        container = _unique_name(prefix)
        url = urlsplit(f"{self.endpoint}/{container}")
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": AZURE_API_VERSION}
        headers["Authorization"] = self._authorization(url.path, headers)
        connection = http.client.HTTPConnection(url.netloc, timeout=START_TIMEOUT_SECONDS)
        try:
            connection.request("PUT", f"{url.path}?restype=container", body=b"", headers=headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.CREATED:
            raise RuntimeError(f"{self.name} refused container {container}: {response.status} {answer!r}")
        return container

    def _authorization(self, path: str, headers: Mapping[str, str]) -> str:
        """Sign the creation of the container at a path with the account's shared key."""
        empty_standard_headers = "\n" * 12
        canonical_headers = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        resource = f"/{self.account_name}{path}\nrestype:container"
        text = f"PUT{empty_standard_headers}{canonical_headers}{resource}"
        digest = hmac.digest(base64.b64decode(self.account_key), text.encode(), hashlib.sha256)
        return f"SharedKey {self.account_name}:{base64.b64encode(digest).decode()}"


@contextmanager
def start_moto() -> Iterator[S3Server]:
    """Run a moto server, which accepts any credentials, for the duration of the block."""
    with tempfile.TemporaryDirectory(prefix="moto-") as folder:
        log = Path(folder, "log")
        with _process([sys.executable, "-c", MOTO_SCRIPT], log, {}, piped=True) as process:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise ServerStartError(f"moto did not start: {_tail(log)}")
            yield S3Server(f"http://{HOST}:{int(port)}", "testing", "testing", "moto")


@contextmanager
def start_minio() -> Iterator[S3Server]:
    """Run a MinIO server on an empty data folder for the duration of the block."""
    binary = _find_program("minio", TOOLS / "bin")
    user, password = "relance-test", secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="minio-") as folder:
        environment = {
            "HOME": folder,
            "MINIO_ROOT_USER": user,
            "MINIO_ROOT_PASSWORD": password,
            "MINIO_UPDATE": "off",
            "MINIO_BROWSER": "off",
        }

        def command(port: int) -> list[str]:
            flags = ["--address", f"{HOST}:{port}", "--console-address", f"{HOST}:{free_port()}"]
            return [binary, "server", *flags, "--certs-dir", f"{folder}/certs", f"{folder}/data"]

        with _listening_process("MinIO", command, folder, environment, "/minio/health/live") as port:
            yield S3Server(f"http://{HOST}:{port}", user, password, "minio")


@contextmanager
def start_azurite() -> Iterator[AzureServer]:
    """Run an Azurite blob server with one account for the duration of the block."""
    binary = _find_program("azurite-blob", TOOLS / "node_modules" / ".bin")
    _find_program("node")
    account, key = "relancetest", base64.b64encode(secrets.token_bytes(64)).decode()
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:

        def command(port: int) -> list[str]:
            flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
            where = ["--blobHost", HOST, "--blobPort", str(port), "--location", f"{folder}/data"]
            return [binary, *where, *flags]

        environment = {"AZURITE_ACCOUNTS": f"{account}:{key}"}
        with _listening_process("Azurite", command, folder, environment, "/") as port:
            yield AzureServer(f"http://{HOST}:{port}/{account}", account, key, "azurite")


class RequestCounter:
    """The requests that passed through a counting proxy, in the order in which they arrived."""

    def __init__(self, server: S3Server) -> None:
        """Start an empty count for the server that clients should talk to."""
        self.server = server
        self._lock = threading.Lock()
        self._requests: list[tuple[str, str]] = []

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Return a copy of the recorded (method, path with query) pairs."""
        with self._lock:
            return list(self._requests)

    def record(self, method: str, path: str) -> None:
        """Add one request to the count."""
        with self._lock:
            self._requests.append((method, path))

    def reset(self) -> None:
        """Forget every request recorded so far."""
        with self._lock:
            self._requests.clear()

    def count(self, method: str | None = None) -> int:
        """Return how many requests were recorded, of one method or of all."""
        return sum(1 for recorded, _ in self.requests if method is None or recorded == method)


@contextmanager
def count_requests(
    server: S3Server,
    *,
    delay: float = 0.0,
    mishap: Callable[[], tuple[Mishap | None, float]] = lambda: (None, 0.0),
    ignored: frozenset[str] = frozenset(),
) -> Iterator[RequestCounter]:
    """Run a counting proxy in front of an S3 server for the duration of the block.

    With a delay in seconds, each answer comes so much later, as from a store that is far away. `mishap` says
    what strikes the next request, and after how many seconds a copy of it arrives. The server never gets the
    `ignored` headers.
    """
    proxy = _ProxyServer(urlsplit(server.endpoint).netloc)
    counter = RequestCounter(replace(server, endpoint=f"http://{HOST}:{proxy.server_port}"))
    proxy.record = counter.record
    proxy.delay = delay
    proxy.mishap = mishap
    proxy.ignored = ignored
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield counter
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
        proxy.close_connections()


class Mishap(StrEnum):
    """What a network does to a request."""

    REFUSED = "refused"
    """The server is never asked, and the client is told to try later."""
    LOST = "lost"
    """The server carries it out, and the connection breaks before the response."""
    REPEATED = "repeated"
    """The server carries it out, and a copy that was under way arrives some time after the response."""


@contextmanager
def unreliable(server: S3Server, *, rate: float, latest: float, seed: int) -> Iterator[S3Server]:
    """Run a proxy in front of an S3 server that strikes this share of the requests with a mishap.

    The copy of a repeated request arrives up to `latest` seconds after the response.
    """
    chance = random.Random(seed)

    def mishap() -> tuple[Mishap | None, float]:
        struck = chance.random() < rate
        return chance.choice(list(Mishap)) if struck else None, chance.uniform(0, latest)

    with count_requests(server, mishap=mishap) as counter:
        yield counter.server


@contextmanager
def careless(server: S3Server) -> Iterator[S3Server]:
    """Run a proxy that makes an S3 server one that overwrites an object whatever its version, as some do."""
    with count_requests(server, ignored=frozenset({"if-match"})) as counter:
        yield counter.server


class _ProxyServer(ThreadingHTTPServer):
    """A threaded HTTP server that forwards every request to one upstream address."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str) -> None:
        """Listen on a free loopback port and forward to the given host and port."""
        super().__init__((HOST, 0), _ProxyHandler)
        self.upstream = upstream
        self.record: Callable[[str, str], None] = lambda method, path: None
        self.delay = 0.0
        self.mishap: Callable[[], tuple[Mishap | None, float]] = lambda: (None, 0.0)
        self.ignored: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember a client connection so that it can be closed with the proxy."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a client connection that has ended."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End the client connections that are kept alive."""
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client went away first

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet about clients that hang up, and report every other failure."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A request of a client, with the client's own headers and the real length of the body."""

    upstream: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def send(self) -> tuple[http.client.HTTPResponse, bytes]:
        """Send it to the server and return the response with its body."""
        connection = http.client.HTTPConnection(self.upstream)
        try:
            connection.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
            names = {name.lower() for name, _ in self.headers}
            for name, value in self.headers:
                if name.lower() not in UNFORWARDED_HEADERS:
                    connection.putheader(name, value)
            if self.body or names & {"content-length", "transfer-encoding"}:
                connection.putheader("Content-Length", str(len(self.body)))
            connection.endheaders(self.body)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def repeat(self) -> None:
        """Send it once more; whatever the server says, nobody waits for it."""
        with suppress(OSError, http.client.HTTPException):
            self.send()


class _ProxyHandler(BaseHTTPRequestHandler):
    """Forwards the requests of one client connection, Host header included, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _ProxyServer

    def forward(self) -> None:
        """Record one request, send it upstream and hand the answer back."""
        body = self._read_body()
        self.server.record(self.command, self.path)
        time.sleep(self.server.delay)
        mishap, later = self.server.mishap()
        if mishap is Mishap.REFUSED:
            self.send_error(http.HTTPStatus.SERVICE_UNAVAILABLE)
            return
        headers = tuple(pair for pair in self.headers.items() if pair[0].lower() not in self.server.ignored)
        request = _Forwarded(self.server.upstream, self.command, self.path, headers, body)
        try:
            response, answer = request.send()
        except (OSError, http.client.HTTPException) as error:
            self.send_error(http.HTTPStatus.BAD_GATEWAY, explain=repr(error))
            return
        if mishap is Mishap.LOST:
            self.close_connection = True
            return
        if mishap is Mishap.REPEATED:
            threading.Timer(later, request.repeat).start()
        self._send_answer(response, answer)

    # The names that http.server looks up.
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = forward  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # named so by http.server
        """Log nothing."""

    def _read_body(self) -> bytes:
        """Read the whole request body, whether it has a length or comes in chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_exactly(int(self.headers.get("Content-Length", "0")))
        chunks: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self._read_exactly(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers end with an empty line
        return b"".join(chunks)

    def _read_exactly(self, size: int) -> bytes:
        """Read a number of bytes, so that half a body of a client that hangs up is never forwarded."""
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionAbortedError(f"the client sent {len(data)} of {size} bytes")
        return data

    def _send_answer(self, response: http.client.HTTPResponse, answer: bytes) -> None:
        """Send the upstream answer to the client, keeping the length a HEAD request announces."""
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in UNFORWARDED_HEADERS:
                self.send_header(name, value)
        if self.command == "HEAD":
            length = response.getheader("Content-Length")
        else:
            length = None if response.status in (204, 304) else str(len(answer))
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer)


def _unique_name(prefix: str) -> str:
    """Return a bucket or container name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


def _find_program(name: str, *folders: Path) -> str:
    """Return the path of a program from the given folders or PATH."""
    for folder in folders:
        if found := shutil.which(name, path=str(folder)):
            return found
    if found := shutil.which(name):
        return found
    raise ServiceUnavailable(f"the program {name!r} is neither in .tools nor on PATH")


def _tail(log: Path) -> str:
    """Return the end of a server's log for an error message."""
    return log.read_text(errors="replace")[-2000:].strip()


@contextmanager
def _process(
    command: Sequence[str], log: Path, environment: dict[str, str], piped: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends, its messages in a log file, its input and output maybe on pipes."""
    with log.open("w") as messages:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else messages,
            stderr=messages,
            env=os.environ | environment,
            text=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """End a process, by force when it does not react."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@contextmanager
def _listening_process(
    name: str, command: Callable[[int], list[str]], folder: str, environment: dict[str, str], path: str
) -> Iterator[int]:
    """Run a server on a free port, trying another port when the first was taken in between."""
    log = Path(folder, "log")
    for _ in range(START_ATTEMPTS):
        port = free_port()
        with _process(command(port), log, environment) as process:
            if _wait_until_up(process, port, path):
                yield port
                return
    raise ServerStartError(f"{name} did not start: {_tail(log)}")


def _wait_until_up(process: subprocess.Popen[str], port: int, path: str) -> bool:
    """Return whether a process answers HTTP requests before it exits or the time is over."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(port, path):
            return process.poll() is None
        time.sleep(0.05)
    return False


def _answers(port: int, path: str) -> bool:
    """Return whether a server on a port answers a request without a server error."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
