"""Why does a Spark Connect server not accept a connection that it should?

gRPC tries again and again and does not say what is wrong. A handshake of Python's own tells it, for
the three things that no waiting helps: a certificate that is not trusted, TLS where the server
has none, and none where it has.
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""Environment variable of gRPC: the file of the certificate authorities that are trusted."""
_SECONDS = 5.0


def refusal(host: str, port: int, *, use_ssl: bool) -> str | None:
    """Say what is wrong with the way to a server; `None` when it does not answer, or nothing is.

    Args:
        host: Of the server.
        port: Of the server.
        use_ssl: Whether the client speaks TLS.
    """
    try:
        context = _trusting() if use_ssl else _unchecked()
    except OSError as failure:
        return (
            f"cannot be trusted, because {ROOTS} names {os.environ.get(ROOTS)}, which has no "
            f"certificates: {failure}"
        )
    try:
        with (
            socket.create_connection((host, port), _SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            answers_tls = True
    except ssl.SSLCertVerificationError as error:
        trusted = os.environ.get(ROOTS)
        where = f"those of {trusted}" if trusted else "gRPC's own"
        return (
            f"has a certificate that is not trusted: {error.verify_message}. Trusted authorities "
            f"are {where}; set {ROOTS} to a file with the one that signed it"
        )
    except ssl.SSLError:
        answers_tls = False
    except OSError:
        return None
    if use_ssl and not answers_tls:
        return "does not speak TLS. Leave out use_ssl, or give the address of the proxy that does"
    if answers_tls and not use_ssl:
        return "speaks TLS. Set use_ssl=true"
    return None


def _trusting() -> ssl.SSLContext:
    """What gRPC trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(os.environ.get(ROOTS) or _bundled())
    return context


def _bundled() -> str:
    """The authorities that come with gRPC."""
    import grpc  # noqa: PLC0415

    return str(Path(grpc.__file__).parent / "_cython" / "_credentials" / "roots.pem")


def _unchecked() -> ssl.SSLContext:
    """To see whether there is TLS at all; nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
