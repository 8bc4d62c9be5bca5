"""A certificate authority of the tests' own, and a proxy that speaks TLS before a server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.waiting import ended


class Authority:
    """Signs certificates for `localhost`, or other names.

    Attributes:
        file: Its own certificate, for those who are to trust it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tests {folder.name}")])
        made = self._signed(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def context(self, *names: str, protocol: str = "h2") -> ssl.SSLContext:
        """What a server on `localhost`, or of other names, needs; for HTTP/2, if nothing else."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        made = self._signed(name, key).add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, names or ("localhost",))]),
            critical=False,
        )
        file = self._folder / "server.pem"
        file.write_bytes(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.set_alpn_protocols([protocol])
        return context

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )


class TlsProxy:
    """Speaks TLS on a free port of loopback, and plain text to a server behind it.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, context: ssl.SSLContext, upstream: int) -> None:
        self._context = context
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        ended(self._thread, "a proxy that speaks TLS")
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        far, ask = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            await asyncio.gather(_copy(near, ask), _copy(far, answer))
        finally:
            ask.close()
            answer.close()


async def _copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while received := await one.read(65536):
            other.write(received)
            await other.drain()
    other.close()
