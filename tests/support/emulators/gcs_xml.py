"""Cloud Storage with writes through its XML API, which `deltalake` uses.

fake-gcs-server reads through that API, but refuses to write, and lists from the start whatever it
is asked. A small server before it turns such a write, with its condition, into one of the JSON API,
cuts such a listing, and passes everything else on as it is. What is tested that way is how tables
are written, not that Google's servers take these requests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import uuid
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support.emulators.gcp import Gcs
from tests.support.emulators.processes import Server, free_port, listens, running

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY = re.compile(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_CONDITION = "x-goog-if-generation-match"
_NOT_PASSED_ON = {"connection", "host", "transfer-encoding", "content-length", "date", "server"}


def _if_later(entry: re.Match[bytes], after: bytes) -> bytes:
    return entry.group() if unescape(entry.group(1).decode()).encode() > after else b""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port = upstream_port = 0

    def do_GET(self) -> None:
        self._pass_on(self.command, self.path, self._body(), self._headers())

    do_HEAD = do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 - http.server's names

    def do_PUT(self) -> None:
        bucket, _, key = urlsplit(self.path).path[1:].partition("/")
        if bucket in {"upload", "storage"}:  # the JSON API's own
            self.do_GET()
            return
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart"  # else it forgets conditions
        if _CONDITION in self.headers:
            path += f"&ifGenerationMatch={self.headers[_CONDITION]}"
        mark = uuid.uuid4().hex
        parts = (
            f"--{mark}\r\nContent-Type: application/json\r\n\r\n".encode(),
            json.dumps({"name": unquote(key)}).encode(),
            f"\r\n--{mark}\r\nContent-Type: application/octet-stream\r\n\r\n".encode(),
            self._body(),
            f"\r\n--{mark}--\r\n".encode(),
        )
        kind = {"Content-Type": f"multipart/related; boundary={mark}"}
        self._pass_on("POST", path, b"".join(parts), kind, is_write=True)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _headers(self) -> dict[str, str]:
        return {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}

    def _pass_on(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        *,
        is_write: bool = False,
    ) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=30)
        try:
            connection.request(method, path, body, {**headers, "Content-Length": str(len(body))})
            answer = connection.getresponse()
            self._answer(answer, answer.read(), is_write=is_write)
        finally:
            connection.close()

    def _answer(self, answer: http.client.HTTPResponse, content: bytes, *, is_write: bool) -> None:
        if after := parse_qs(urlsplit(self.path).query).get("start-after"):
            content = _ENTRY.sub(lambda found: _if_later(found, after[0].encode()), content)
        self.send_response(answer.status)
        upstream, here = f":{self.upstream_port}/", f":{self.port}/"
        for name, value in answer.getheaders():
            if name.lower() not in _NOT_PASSED_ON:
                # The address where a resumable upload goes on must be this one, too.
                self.send_header(name, value.replace(upstream, here))
        if is_write and answer.status == http.client.OK:
            self.send_header("ETag", f'"{json.loads(content)["generation"]}"')
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def gcs_xml_running(gcs: Gcs, log: Path) -> Iterator[Gcs]:
    """Run this server before an emulator."""
    port = free_port()
    # Another process: some calls of deltalake keep this one's interpreter until they are answered.
    command = [sys.executable, __file__, str(port), str(gcs.port)]
    root = str(Path(__file__).parents[3])
    with running(Server(command, lambda: listens(port), log, environment={"PYTHONPATH": root})):
        yield Gcs(port)


@pytest.fixture(scope="session")
def gcs_xml(gcs: Gcs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """Cloud Storage that `deltalake` can write to."""
    with gcs_xml_running(gcs, tmp_path_factory.mktemp("gcs_xml") / "log") as front:
        yield front


if __name__ == "__main__":
    _Handler.port, _Handler.upstream_port = (int(argument) for argument in sys.argv[1:3])
    ThreadingHTTPServer(("127.0.0.1", _Handler.port), _Handler).serve_forever()
