"""A gate before a store: it holds requests until a test lets them go, and knows who asks.

An HTTP server that passes everything on as it is. With it, a test kills a process while its request
is under way, and not some milliseconds after that.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.support.serving import serving
from tests.support.waiting import PATIENCE_SECONDS

_KEY_ID = re.compile(r"Credential=([^/]+)/")
_HOP = {"connection", "transfer-encoding", "content-length", "host", "expect"}
_OF_ANSWER = _HOP | {"date", "server"}
_BEGINNING = 400
_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks.

    Attributes:
        method: Of HTTP.
        path: With the query.
        who: The id of the key that it is signed with, where it is AWS.
        beginning: Of what it sends.
    """

    method: str
    path: str
    who: str
    beginning: bytes = b""

    def reads(self, part: str) -> bool:
        """Whether it reads an object with this in its key."""
        return self.method == "GET" and part in unquote(self.path)

    @property
    def writes_data(self) -> bool:
        """Whether it writes a data file of a table: log and state name such files, too."""
        named = unquote(self.path) + self.beginning.decode("latin-1")
        is_of_log = "/_delta_log/" in named or "state/" in named
        return self.method in {"PUT", "POST"} and "table/part-" in named and not is_of_log


@dataclass(slots=True)
class Hold:
    """A request that is held: the first that fits."""

    fits: Callable[[Request], bool]
    answered: bool
    """Whether the store has done what was asked, and only the answer is held."""
    request: Request | None = None
    came: threading.Event = field(default_factory=threading.Event)
    goes: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> Request:
        """Wait until a request is held, and give it."""
        assert self.came.wait(PATIENCE_SECONDS), "no request came that was to be held"
        assert self.request is not None
        return self.request

    def release(self) -> None:
        """Let it go on."""
        self.goes.set()


class Gate(ThreadingHTTPServer):
    """The gate before the store that listens on a port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream_port = upstream_port
        self.port = self.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.expired: set[str] = set()
        """Ids of keys that have ended: they write nothing. A read may be signed before the end."""
        self.refused: list[Request] = []
        self.seen: list[Request] = []
        self._holds: list[Hold] = []
        self._met: list[Hold] = []
        self._lock = threading.Lock()

    def hold(self, fits: Callable[[Request], bool], *, answered: bool = False) -> Hold:
        """Hold the next request that fits; with `answered`, its answer."""
        found = Hold(fits, answered)
        with self._lock:
            self._holds.append(found)
        return found

    def take_hold(self, request: Request) -> Hold | None:
        """Note a request, and give what holds it."""
        with self._lock:
            self.seen.append(request)
            for each in self._holds:
                if each.fits(request):
                    self._holds.remove(each)
                    self._met.append(each)
                    each.request = request
                    return each
        return None

    def release_all(self, *, but: Hold | None = None) -> None:
        """Let everything go on, and hold nothing more but one."""
        with self._lock:
            for each in self._met:
                if each is not but:
                    each.release()
            self._holds = [each for each in self._holds if each is but]

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients are killed in the midst of their requests."""


@contextmanager
def gate_before(upstream_port: int) -> Iterator[Gate]:
    """Run a gate for the length of a `with` block."""
    with serving(Gate(upstream_port)) as gate:
        try:
            yield gate
        finally:
            gate.release_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gate
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        found = _KEY_ID.search(self.headers.get("Authorization", ""))
        body = self._body()
        asked = Request(self.command, self.path, found[1] if found else "", body[:_BEGINNING])
        if asked.who in self.server.expired and asked.method != "GET":
            self.server.refused.append(asked)
            self._answer(http.client.FORBIDDEN, [("Content-Type", "application/xml")], _EXPIRED)
            return
        hold = self.server.take_hold(asked)
        if hold is not None and not hold.answered:
            self._hold(hold)
        status, headers, content = self._pass_on(body)
        if hold is not None and hold.answered:
            self._hold(hold)
        with suppress(OSError):  # who asked may be gone by now
            self._answer(status, headers, content)

    do_HEAD = do_POST = do_DELETE = do_PATCH = do_PUT = do_GET  # noqa: N815 - http.server's names

    def _hold(self, hold: Hold) -> None:
        hold.came.set()
        hold.goes.wait(PATIENCE_SECONDS)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream_port, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        headers["Content-Length"] = str(len(body))
        try:
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        length = str(len(content))
        there, here = f":{self.server.upstream_port}/", f":{self.server.port}/"
        for name, value in headers:
            if name.lower() not in _OF_ANSWER:
                # The address where an upload goes on must be this one, too.
                self.send_header(name, value.replace(there, here))
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
