"""A proxy before a store that answers some requests by itself, as a store in trouble would.

A process of its own: `deltalake` (1.6) reads a history without letting other threads of its process
run, so a proxy among these would never answer it.
"""

from __future__ import annotations

import http.client
import multiprocessing
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import NamedTuple
from urllib.parse import unquote

CUT = 0
_FORKED = multiprocessing.get_context("forkserver")


class Answer(NamedTuple):
    """What to answer.

    Attributes:
        where: A pattern of what it is for: method and path.
        status: Of the answer; `CUT` passes the request on, and breaks its answer off.
        content: Of the answer.
        times: How many requests are answered so.
        after: How many are passed on before.
    """

    where: str
    status: int
    content: bytes
    times: int
    after: int = 0


class AnsweringProxy:
    """The proxy.

    Attributes:
        endpoint: Its address.
    """

    def __init__(self, port: int, control: Connection) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._control = control

    def answer(
        self, where: str, status: int, content: bytes, times: int, *, after: int = 0
    ) -> None:
        """Answer the next requests in whose method and path a pattern is found."""
        self._control.send(Answer(where, status, content, times, after))
        self._control.recv()

    def pass_all(self) -> int:
        """Answer nothing more; how many requests were answered since `answer`."""
        self._control.send(None)
        answered: int = self._control.recv()
        return answered


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.answered = 0
        self._left: Answer | None = None
        self._guard = threading.Lock()

    def set_answer(self, answer: Answer | None) -> int:
        """Set what to answer; how many requests were answered since the last call."""
        with self._guard:
            before, self.answered, self._left = self.answered, 0, answer
            return before

    def answer_to(self, asked: str) -> Answer | None:
        """Give the answer to a request, if it is not to be passed on."""
        with self._guard:
            found = self._left
            if found is None or found.times < 1 or re.search(found.where, asked) is None:
                return None
            if found.after > 0:
                self._left = found._replace(after=found.after - 1)
                return None
            self._left = found._replace(times=found.times - 1)
            self.answered += 1
            return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answer_to(f"{self.command} {unquote(self.path)}")
        if answer is not None and answer.status != CUT:
            return self._send(answer.status, {}, answer.content)
        there = http.client.HTTPConnection(self.server.upstream, timeout=60)
        there.request(self.command, self.path, body, dict(self.headers))
        found = there.getresponse()
        content = found.read()
        there.close()
        is_cut = answer is not None
        return self._send(found.status, dict(found.getheaders()), content, is_cut=is_cut)

    def _send(
        self, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False
    ) -> None:
        self.send_response_only(status)
        headers = {name.title(): value for name, value in headers.items()}
        size = headers.get("Content-Length", "0")
        size = size if self.command == "HEAD" else str(len(content) + is_cut)
        for name, value in {**headers, "Content-Length": size}.items():
            if name not in {"Connection", "Transfer-Encoding"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)
        self.close_connection |= is_cut

    def log_message(self, *_: object) -> None:
        """Say nothing."""


for _method in ("PUT", "POST", "HEAD", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler.do_GET)


def _serve(upstream: str, control: Connection) -> None:
    with _Server(upstream) as server:
        control.send(server.server_port)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        while True:
            try:
                control.send(server.set_answer(control.recv()))
            except EOFError:  # the test has ended
                return


@contextmanager
def answering_proxy(endpoint: str) -> Iterator[AnsweringProxy]:
    """Run a proxy before a store for the length of a `with` block."""
    ours, theirs = _FORKED.Pipe()
    process = _FORKED.Process(target=_serve, args=(endpoint.removeprefix("http://"), theirs))
    process.start()
    theirs.close()
    try:
        with ours:
            yield AnsweringProxy(ours.recv(), ours)
    finally:
        process.join(10)
        process.kill()
        process.join()
        process.close()
