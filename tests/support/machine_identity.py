"""What gives the machines of a cluster their identity in AWS, as the agent of a container does.

Each machine has an address of its own (`AWS_CONTAINER_CREDENTIALS_FULL_URI`), where it gets
temporary credentials. They end so soon that clients ask for new ones before each request.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.serving import serving

_RENEWED_BEFORE = timedelta(minutes=10)
"""botocore waits for new credentials when those it has end within so long."""


class Identities(ThreadingHTTPServer):
    """Gives each machine the key `<machine>-<n>`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.numbers: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def environment(self, machine: str) -> dict[str, str]:
        """The environment of a machine that has its identity from here."""
        address = f"http://127.0.0.1:{self.server_address[1]}/{machine}"
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": address, "AWS_EC2_METADATA_DISABLED": "true"}

    def key_of(self, machine: str) -> str:
        """The key that a machine is given now."""
        return f"{machine}-{self.numbers[machine]}"

    def renew(self, machine: str) -> str:
        """Give a machine another key from now on; returns the one that ends."""
        ended = self.key_of(machine)
        self.numbers[machine] += 1
        return ended


@contextmanager
def identities() -> Iterator[Identities]:
    """Run the server for the length of a `with` block."""
    with serving(Identities()) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: Identities

    def do_GET(self) -> None:
        machine = self.path.strip("/")
        self.server.asked[machine] += 1
        ends = datetime.now(tz=UTC) + _RENEWED_BEFORE - timedelta(minutes=1)
        given = {
            "AccessKeyId": self.server.key_of(machine),
            "SecretAccessKey": f"secret-of-{machine}",
            "Token": f"token-of-{machine}",
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        content = json.dumps(given).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
