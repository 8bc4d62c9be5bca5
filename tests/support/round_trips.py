"""How many requests does a run wait for, one after the other?

A proxy before an object store that answers late, as a far one does, and remembers when each request
began and ended. Requests that overlap cost one round trip together.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.serving import serving
from tests.support.waiting import PATIENCE_SECONDS

LATENCY_SECONDS = 0.2
"""More than what two threads that begin together are apart, on a busy machine."""
_FORMS = {
    "LIST": re.compile(r"list-type=|comp=list|/o\?(?!.*alt=media)"),
    "HEAD": re.compile(r"^/storage/v1/b/[^/]+/o/[^?]+\?(?!.*alt=media)"),
}
"""What a GET is that lists in S3, in Azure or in Google Cloud Storage, or inspects there."""
_UPLOADED = re.compile(rb'"name": *"([^"]+)"')
"""The name of what is uploaded to Google Cloud Storage, in the body."""
_NOT_PASSED_ON = {"transfer-encoding", "connection", "keep-alive"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: Of HTTP; `LIST` where it lists, `HEAD` where it inspects, `QUEUE` where it is one to
            SQS.
        key: What is asked for; of SQS, the operation.
        began: By the monotonic clock, in seconds.
        ended: The same.
    """

    method: str
    key: str
    began: float
    ended: float


class RoundTrips:
    """The proxy.

    Attributes:
        endpoint: Its address.
        requests: What it was asked for, and has answered.
        is_open: Cleared, it answers nothing until it is set again.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.requests: list[Request] = []
        self.is_open = threading.Event()
        self.is_open.set()

    def chain(self, *, of: str) -> list[Request]:
        """The longest chain of requests of which each began when the one before it had ended.

        Args:
            of: What their keys contain. Locks are left out, since nobody waits for their beats.
        """
        found: list[Request] = []
        for each in sorted(self.requests, key=lambda request: request.ended):
            is_counted = of in each.key and not each.key.endswith(".lock")
            if is_counted and (not found or each.began >= found[-1].ended):
                found.append(each)
        return found


def _asked(request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, str]:
    """Tell what is done, and to what."""
    operation = request.headers.get("X-Amz-Target", "")
    if operation.startswith("AmazonSQS."):
        return "QUEUE", operation
    named = _UPLOADED.search(body) if "uploadType=" in request.path else None
    if named is not None:
        return "PUT", f"{unquote(request.path)}/{named[1].decode()}"
    forms = _FORMS.items() if request.command == "GET" else ()
    method = next((name for name, form in forms if form.search(request.path)), request.command)
    return method, unquote(request.path)


@contextlib.contextmanager
def round_trips(upstream: str) -> Iterator[RoundTrips]:
    """Put the proxy before a store."""
    target = urlsplit(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def _pass_on(self) -> None:
            began = time.monotonic()
            time.sleep(LATENCY_SECONDS)
            found.is_open.wait(PATIENCE_SECONDS)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(str(target.hostname), target.port)
            with contextlib.closing(connection):
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
            with contextlib.suppress(ConnectionError):  # who asked may have been killed since
                self._answer(answer, content)
            found.requests.append(Request(*_asked(self, body), began, time.monotonic()))

        def _answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _NOT_PASSED_ON | {"content-length"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            if answer.status != http.HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = RoundTrips(server.server_address[1])
    with serving(server):
        try:
            yield found
        finally:
            found.is_open.set()
