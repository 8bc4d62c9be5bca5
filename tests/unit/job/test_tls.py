"""Why a server does not accept a connection, as real handshakes tell it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.connect.session import ROOTS, refusal
from tests.support.tls import Authority, TlsProxy


@pytest.fixture
def plain() -> Iterator[int]:
    """A server that answers whatever is said to it, in plain text."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1024)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "one")


@pytest.fixture
def secure(plain: int, authority: Authority) -> Iterator[int]:
    with TlsProxy(authority.context(), plain) as proxy:
        yield proxy.port


def test_an_authority_that_is_not_trusted_is_named(secure, authority, tmp_path, monkeypatch):
    monkeypatch.delenv(ROOTS, raising=False)
    found = refusal("localhost", secure, use_ssl=True)
    assert found is not None
    assert "not trusted" in found
    assert f"gRPC's own; set {ROOTS}" in found
    other = Authority(tmp_path / "other").file
    monkeypatch.setenv(ROOTS, str(other))
    assert f"those of {other}" in (refusal("localhost", secure, use_ssl=True) or "")
    monkeypatch.setenv(ROOTS, str(authority.file))
    assert refusal("localhost", secure, use_ssl=True) is None


def test_a_certificate_of_another_host_is_told(secure, authority, monkeypatch):
    monkeypatch.setenv(ROOTS, str(authority.file))
    found = refusal("127.0.0.1", secure, use_ssl=True) or ""
    assert "127.0.0.1" in found


def test_tls_on_one_side_only_is_told(plain, secure):
    assert "speaks TLS. Set use_ssl=true" in (refusal("localhost", secure, use_ssl=False) or "")
    assert "does not speak TLS" in (refusal("localhost", plain, use_ssl=True) or "")
    assert refusal("localhost", plain, use_ssl=False) is None


def test_a_file_of_authorities_that_cannot_be_read_is_named(secure, tmp_path, monkeypatch):
    for name, content in (("none", None), ("empty", "")):
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        monkeypatch.setenv(ROOTS, str(path))
        assert f"{ROOTS} names {path}" in (refusal("localhost", secure, use_ssl=True) or "")


def test_nobody_there_is_not_told_as_anything(plain):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    assert refusal("localhost", free, use_ssl=True) is None
    assert refusal("localhost", free, use_ssl=False) is None
