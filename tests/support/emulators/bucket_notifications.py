"""What fake-gcs-server lacks: the notifications of a bucket, and the service agent of a project.

A stand-in of ours for `notificationConfigs` and `serviceAccount` of the JSON API, written from its
reference; everything else goes on to the emulator. It shows that Google's client and our code agree
with that reference, not that Cloud Storage does what the reference says.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING

from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGS = re.compile(r"/storage/v1/b/([^/?]+)/notificationConfigs(?:/([^/?]+))?")
_TOPIC = re.compile(r"//pubsub\.googleapis\.com/projects/[^/]+/topics/[^/]+")
_AGENT = re.compile(r"/storage/v1/projects/([^/?]+)/serviceAccount")


class Front(ThreadingHTTPServer):
    """The server, and the notifications it was given by bucket."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.configs: dict[str, dict[str, dict]] = defaultdict(dict)
        self.numbers = count(1)
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"


def serve(upstream: str) -> Iterator[Front]:
    """Run it before an emulator."""
    with serving(Front(upstream)) as front:
        yield front


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if found := _CONFIGS.match(self.path):
            self._configs(found[1], found[2], body)
        elif found := _AGENT.match(self.path):
            email = f"service-{found[1]}@gs-project-accounts.iam.gserviceaccount.com"
            self._answer(200, {"email_address": email, "kind": "storage#serviceAccount"})
        else:
            self._pass_on(body)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _serve  # noqa: N815 - http.server's

    def _configs(self, bucket: str, number: str | None, body: bytes) -> None:
        configs = self.server.configs[bucket]
        if self.command == "POST":
            given = json.loads(body)
            assert _TOPIC.fullmatch(given["topic"])
            new = {
                **given,
                "id": str(next(self.server.numbers)),
                "kind": "storage#notification",
            }
            configs[new["id"]] = new
            self._answer(200, new)
        elif number is None:
            listed = {"kind": "storage#notifications", "items": list(configs.values())}
            self._answer(200, listed)
        elif number not in configs:
            self._answer(404, {"error": {"code": 404, "message": "no such notification"}})
        elif self.command == "DELETE":
            del configs[number]
            self._answer(204, None)
        else:
            self._answer(200, configs[number])

    def _pass_on(self, body: bytes) -> None:
        headers = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
        url = self.server.upstream + self.path
        request = urllib.request.Request(
            url, data=body or None, headers=headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                self._send(answer.status, answer.read())
        except urllib.error.HTTPError as failure:
            with failure:
                self._send(failure.code, failure.read())

    def _answer(self, status: int, value: object) -> None:
        self._send(status, b"" if value is None else json.dumps(value).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
