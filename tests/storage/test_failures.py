"""Which of our errors a store's text is, with texts that stores and obstore really send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from relance import errors
from relance.locations import parse_root
from relance.storage.connect import connect
from relance.storage.failures import error_for_text

WRONG_REGION = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AuthorizationHeaderMalformed</Code><Message>'
    b"The authorization header is malformed; expecting eu-west-1</Message></Error>"
)


class _OtherRegion(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(400)
        self.send_header("Content-Length", str(len(WRONG_REGION)))
        self.end_headers()
        self.wfile.write(WRONG_REGION)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class names it
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _OtherRegion)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_bucket_in_another_region_names_the_setting(endpoint: str) -> None:
    keys = {"access_key_id": "some-access-key", "secret_access_key": "some-secret-key"}
    options = {"endpoint": endpoint, "allow_http": "true", **keys}
    with pytest.raises(errors.InvalidInputError, match="storage option region") as raised:
        connect(parse_root("s3://bucket/lake"), options).storage.list_level("")
    assert "RELANCE_STORAGE_REGION" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "Generic S3 error: Received redirect without LOCATION, this normally indicates an incorrectly "
            "configured region",
            errors.InvalidInputError,
            "region",
        ),
        (
            "Error performing GET http://h:9/b/k in 167.72µs - HTTP error: builder error",
            errors.InvalidInputError,
            "allow_http",
        ),
        ("request valid: InvalidUri(InvalidUri(InvalidFormat))", errors.InvalidInputError, "endpoint"),
        (
            "Error performing PUT http://169.254.169.254/latest/api/token in 3s - HTTP error: "
            "error sending request",
            errors.UnauthenticatedError,
            "access_key_id",
        ),
        (
            "Error performing GET http://metadata.google.internal/computeMetadata/v1/instance in 3s - error "
            "sending request",
            errors.UnauthenticatedError,
            "service_account",
        ),
        (
            "Error performing GET http://metadata-service:9/b/k in 3s - error sending request",
            errors.ServiceUnavailableError,
            "cannot reach the store",
        ),
    ],
)
def test_settings_errors_are_known_by_their_texts(
    text: str, kind: type[errors.RelanceError], said: str
) -> None:
    found = error_for_text(text, where="'k' in s3://b")
    assert type(found) is kind
    assert said in found.detail
