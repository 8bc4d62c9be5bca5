"""A stand-in for the API server of Kubernetes: it takes objects, and runs nothing.

What Spark makes of a configuration and of pod templates is what it asks this server for. That a
real cluster would run such a pod is not shown.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.serving import serving


class KubernetesApi(ThreadingHTTPServer):
    """The server, and the objects that it was asked to make."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.master = f"k8s://http://127.0.0.1:{self.server_address[1]}"
        self.objects: list[dict[str, Any]] = []

    def made(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind."""
        return [each for each in self.objects if each.get("kind") == kind]


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Run the server for the length of a `with` block."""
    with serving(KubernetesApi()) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: KubernetesApi

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        made: dict[str, Any] = json.loads(text)
        made.setdefault("metadata", {}).update(uid=str(uuid.uuid4()), resourceVersion="1")
        if not made["metadata"].get("name"):
            made["metadata"]["name"] = urlsplit(self.path).path.rpartition("/")[2]
        self.server.objects.append(made)
        self._answer(201 if self.command == "POST" else 200, made)

    do_PUT = do_PATCH = do_POST  # noqa: N815 - http.server's names

    def do_GET(self) -> None:
        kind = urlsplit(self.path).path.rpartition("/")[2].rstrip("s").title()
        empty = {"apiVersion": "v1", "kind": f"{kind}List", "metadata": {"resourceVersion": "1"}}
        self._answer(200, {**empty, "items": []})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
