"""A server that gives the answers of a list, one after the other, and keeps what was asked."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Scripted(NamedTuple):
    """An answer.

    Attributes:
        status: Of HTTP.
        content: Its body.
        headers: Beside the length of the body.
    """

    status: int
    content: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]


class ScriptedServer(ThreadingHTTPServer):
    """The server; `tests/support/serving.py` runs it.

    Attributes:
        answers: Those that are left; when all are given, it answers 400.
        asked: The requests so far.
    """

    daemon_threads = True

    def __init__(self, *answers: Scripted) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append(Asked(self.command, self.path, headers))
        left = self.server.answers
        answer = left.pop(0) if left else Scripted(400)
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if "Content-Length" not in dict(answer.headers):
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else answer.content)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""
