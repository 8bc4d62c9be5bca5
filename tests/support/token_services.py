"""The services of Microsoft and Google that give tokens, behind a proxy that stands for the net.

Clients go through the proxy to `https://<their own host>`, whose certificate is of an authority of
the tests. So every address that the clients have built in is really asked. A token says how it was
got, and has a number, so that a renewed one is another one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tests.support.serving import serving
from tests.support.tls import Authority

ENTRA = "login.microsoftonline.com"
BLOBS = "account.blob.core.windows.net"
IDP = "idp.acme.com"
HOSTS = (
    ENTRA, BLOBS, IDP, "oauth2.googleapis.com", "sts.googleapis.com", "storage.googleapis.com",
    "iamcredentials.googleapis.com", "cloudresourcemanager.googleapis.com",
)  # fmt: skip
_ACCOUNT = re.compile(r"/serviceAccounts/([^:]+):generateAccessToken")


class Asked(NamedTuple):
    """A request that came."""

    host: str
    path: str
    headers: dict[str, str]


class TokenServices(ThreadingHTTPServer):
    """The proxy, with the services behind it.

    Attributes:
        asked: What has come.
        seconds: How long a token lasts.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        authority = Authority(folder / "authority")
        self.context = authority.context(*HOSTS, protocol="http/1.1")
        self.asked: list[Asked] = []
        self.seconds = 3600
        self._numbers = itertools.count(1)
        self.address = f"http://127.0.0.1:{self.server_port}"
        bundle = str(authority.file)
        self.environment = {
            "HTTPS_PROXY": self.address,
            "NO_PROXY": "127.0.0.1,localhost",
            "REQUESTS_CA_BUNDLE": bundle,
            "SSL_CERT_FILE": bundle,
        }

    def sent_to(self, host: str) -> list[Asked]:
        """Give the requests that a host got."""
        return [each for each in self.asked if each.host == host]

    def answer(self, host: str, path: str, form: dict[str, str], by: str) -> dict[str, Any] | None:
        """Answer a request; `None` for what is not there."""
        number = next(self._numbers)
        if path.endswith("openid-configuration"):
            base = f"https://{ENTRA}{path.removesuffix('/v2.0/.well-known/openid-configuration')}"
            names = ("token_endpoint", "authorization_endpoint", "issuer")
            return dict.fromkeys(names, f"{base}/oauth2/v2.0/token")
        if found := _ACCOUNT.search(path):
            ends = datetime.now(UTC) + timedelta(seconds=self.seconds)
            by = by.removeprefix("Bearer ")
            token = f"{found[1]}-by-{by}-{'+'.join(form.get('delegates') or ())}-{number}"
            return {"accessToken": token, "expireTime": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
        secret = form.get("client_secret") or form.get("client_assertion")
        given = {
            ENTRA: f"entra-{path.split('/')[1]}-{form.get('client_id')}-{secret}",
            IDP: f"idp-{form.get('client_id')}-{secret}",
            "sts.googleapis.com": f"federated-{form.get('subject_token')}",
            "oauth2.googleapis.com": "key",
        }.get(host)
        return None if given is None else self._token(f"{given}-{number}")

    def _token(self, token: str) -> dict[str, Any]:
        return {
            "access_token": token,
            "expires_in": self.seconds,
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }


@contextmanager
def token_services(folder: Path) -> Iterator[TokenServices]:
    """Run the services for the length of a `with` block."""
    with serving(TokenServices(folder)) as server:
        yield server


class _Connection(BaseHTTPRequestHandler):
    server: TokenServices
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_CONNECT(self) -> None:
        """Be the host that is asked for."""
        self.host = self.path.partition(":")[0]
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self._secure()
        self.close_connection = False

    def _secure(self) -> None:
        """Read and write what is encrypted from now on."""
        self.request = self.connection
        self.setup()

    def finish(self) -> None:
        """Close what is encrypted, too; the server knows only the socket that came."""
        super().finish()
        self.connection.close()

    def do_GET(self) -> None:
        """Answer a request."""
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append(Asked(self.host, self.path, headers))
        is_json = "json" in self.headers.get("Content-Type", "")
        form = json.loads(sent) if is_json and sent else _fields(sent)
        by = self.headers.get("Authorization", "")
        found = self.server.answer(self.host, self.path, form, by)
        content = json.dumps(found or {}).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_POST = do_HEAD = do_GET  # noqa: N815 - the names that the server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _fields(form: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(form).items()}
