"""Credentials that expire in the midst of a run: it fails for good, and nothing is lost or twice.

Source, state and table are in S3, behind a proxy that answers some requests of a run by itself.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ReadError,
    SinkError,
    SourceError,
    StateError,
)
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.emulators.aws import Aws
from tests.support.ingested import Ingested

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired</Message></Error>"
PLACES: dict[str, tuple[str, type[CloudFilesError]]] = {
    "listing the source": ("GET .*list-type=2.*prefix=in", SourceError),
    "reading a file": ("/in/c.json", ReadError),
    "planning": ("PUT .*/_source/plans/", StateError),
    "committing": ("PUT .*/_delta_log/", SinkError),
}
"""What of a run meets the answer: a part of its requests, and what that raises."""


class FarIngested(Ingested):
    """A stream in a bucket."""

    def __init__(self, root: str) -> None:
        self.source, self.state, self.target = (  # type: ignore[assignment]
            f"{root}/{name}" for name in ("in", "state", "table")
        )
        self.sink = {}
        self._token = split_rows.new_token()
        self.given = {"cloudFiles.maxFilesPerTrigger": "1"}

    def add(self, *names: str, **fields: Any) -> None:
        for name in names:
            content = json.dumps({"a": name, **fields}) + "\n"
            open_store(str(self.source)).put(f"{name}.json", content.encode())

    @property
    def table(self) -> DeltaTable:
        options = DeltaLocation.of(str(self.target)).storage_options()
        return DeltaTable(str(self.target), storage_options=options)


class Proxy:
    """Passes requests on, but for those that it answers by itself.

    Attributes:
        endpoint: Its address.
        answered: How many it has answered.
    """

    def __init__(self, upstream: str) -> None:
        self.answered = 0
        self._where, self._answer, self._times = "", (0, b""), 0
        proxy, guard = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with guard:
                    asked = f"{self.command} {unquote(self.path)}"
                    is_ours = proxy._times > 0 and re.search(proxy._where, asked) is not None
                    proxy._times -= is_ours
                    proxy.answered += is_ours
                if is_ours:
                    status, content = proxy._answer
                    return self._send(status, {}, content)
                there = http.client.HTTPConnection(upstream, timeout=60)
                there.request(self.command, self.path, body, dict(self.headers))
                found = there.getresponse()
                content = found.read()
                there.close()
                return self._send(found.status, dict(found.getheaders()), content)

            def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response_only(status)
                headers = {name.title(): value for name, value in headers.items()}
                size = headers.get("Content-Length", "0")
                size = size if self.command == "HEAD" else str(len(content))
                for name, value in {**headers, "Content-Length": size}.items():
                    if name not in {"Connection", "Transfer-Encoding"}:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        for method in ("PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.do_GET)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, where: str, status: int, content: bytes, times: int) -> None:
        """Answer the next requests in whose method and path a pattern is found."""
        self._where, self._answer, self._times = where, (status, content), times


@pytest.fixture
def far(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FarIngested, Proxy]]:
    """A stream of which one batch is committed, and the proxy before its bucket."""
    proxy = Proxy(aws.endpoint.removeprefix("http://"))
    for name, value in to_environment(aws.access_through(proxy.endpoint)).items():
        monkeypatch.setenv(name, value)
    stream = FarIngested(aws.bucket())
    stream.add("a", "b", "c")
    stream.run(batches=1)
    yield stream, proxy
    proxy.server.shutdown()
    proxy.server.server_close()


@pytest.mark.parametrize("place", PLACES)
def test_credentials_that_expire_in_a_run_fail_it_for_good_and_renewed_it_goes_on(
    far: tuple[FarIngested, Proxy], place: str
) -> None:
    stream, proxy = far
    where, kind = PLACES[place]
    proxy.answer(where, 400, EXPIRED, 1000)
    with pytest.raises(CloudFilesError, match=r"ExpiredToken|expired") as caught:
        stream.run()
    assert proxy.answered
    proxy.answer("", 0, b"", 0)
    assert isinstance(caught.value, kind), repr(caught.value)
    assert not caught.value.is_retryable
    stream.run()
    assert stream.rows() == ["a", "b", "c"]
