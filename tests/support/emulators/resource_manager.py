"""What stands in for Azure Resource Manager: storage accounts and their event subscriptions.

No emulator speaks it. This one is ours, written from its reference: it serves HTTPS, wants a token
that the managed identity beside it gave (App Service's protocol), keeps event subscriptions, and
makes them in two steps, as Event Grid does. It shows that our requests and Azure's client libraries
agree with the reference, not that Azure does what the reference says.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUBSCRIPTION = "00000000-0000-0000-0000-0000000000aa"
GROUP = "lake"
TOKEN = "token-of-the-tests"

_ACCOUNT = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/[^/]+"
)
_EVENTS = re.compile(
    _ACCOUNT.pattern + r"/providers/Microsoft\.EventGrid/eventSubscriptions/[A-Za-z0-9-]{3,64}"
)


class Azure(ThreadingHTTPServer):
    """Resource Manager."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.endpoint = f"https://127.0.0.1:{self.server_address[1]}"
        self.accounts: dict[str, dict] = {}
        self.events: dict[str, dict] = {}
        self.denied: set[str] = set()
        """Methods that this identity may not use."""
        self.requests: list[tuple[str, str]] = []

    def add_account(self, name: str, *, tier: str = "Standard") -> None:
        """Let a storage account be there."""
        account = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
        account += f"/providers/Microsoft.Storage/storageAccounts/{name}"
        self.accounts[account] = {"id": account, "name": name, "sku": {"tier": tier}}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, value: object = None) -> None:
        content = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, {"error": {"code": code, "message": f"{code}."}})

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Handler(_Answers):
    server: Azure

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        resource = unquote(parts.path)
        version = parse_qs(parts.query).get("api-version")
        self.server.requests.append((self.command, resource))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(401, "InvalidAuthenticationToken")
        elif self.command in self.server.denied:
            self.refuse(403, "AuthorizationFailed")
        elif not version:
            self.refuse(400, "MissingApiVersionParameter")
        elif _EVENTS.fullmatch(resource):
            self._events(resource, body)
        elif _ACCOUNT.fullmatch(resource) and self.command == "GET":
            found = self.server.accounts.get(resource)
            self.answer(200, found) if found else self.refuse(404, "ResourceNotFound")
        else:
            self.refuse(404, "InvalidResourceType")

    do_GET = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's

    def _events(self, resource: str, body: bytes) -> None:
        events = self.server.events
        if self.command == "PUT":
            properties = json.loads(body)["properties"]
            target = properties["destination"]["properties"]["resourceId"]
            if target not in self.server.accounts:
                self.refuse(400, "InvalidRequest")
                return
            events[resource] = {
                "id": resource,
                "name": resource.rpartition("/")[2],
                "properties": {**properties, "provisioningState": "Succeeded", "topic": target},
            }
            self.answer(201, _as_creating(events[resource]))
        elif resource not in events:
            self.refuse(404, "ResourceNotFound") if self.command == "GET" else self.answer(204)
        elif self.command == "DELETE":
            del events[resource]
            self.answer(202)
        else:
            self.answer(200, events[resource])


def _as_creating(event: dict) -> dict:
    return {**event, "properties": {**event["properties"], "provisioningState": "Creating"}}


class _Identity(_Answers):
    def do_GET(self) -> None:
        expires = str(int(time.time()) + 3600)
        resource = parse_qs(urlsplit(self.path).query)["resource"][0]
        token = {"access_token": TOKEN, "expires_on": expires, "resource": resource}
        self.answer(200, {**token, "token_type": "Bearer"})


def _make_certificate(path: Path) -> None:
    """Write a key and a certificate of 127.0.0.1 that this process trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    """Run it with an identity, and tell Azure's client libraries of both in the environment."""
    pytest.importorskip("cryptography", reason="no certificate can be made")
    certificate = folder / "certificate.pem"
    _make_certificate(certificate)
    identity = ThreadingHTTPServer(("127.0.0.1", 0), _Identity)
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    address = f"http://127.0.0.1:{identity.server_address[1]}/msi/token"
    monkeypatch.setenv("IDENTITY_ENDPOINT", address)
    monkeypatch.setenv("IDENTITY_HEADER", "of-the-tests")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    azure = Azure(certificate)
    monkeypatch.setenv("CLOUDFILES_AZURE_MANAGEMENT_URL", azure.endpoint)
    with serving(identity), serving(azure):
        yield azure
