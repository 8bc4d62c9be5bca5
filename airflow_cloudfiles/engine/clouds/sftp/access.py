"""Describe where an SFTP server is, and the identity with which it is reached."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import Access

MAX_CONNECTIONS = 2
"""Connections to one SFTP server that a process keeps where nothing else is said."""
_SERVER = re.compile(r"(?:([^/@:\s]+)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_SSH_PORT = 22
_PORTS = 2**16
_NO_LOCATION = (
    "A location that starts with sftp: is written sftp://host/folder, with a user (user@host) or a "
    "port (host:2222) if need be, and the one given is not. A password does not belong in it: it "
    "comes from a connection or from the environment."
)
"""Does not quote the location, which may hold a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftpAccess(Access):
    """How an SFTP server is reached.

    Without password and key, the agent and the keys in `~/.ssh` are tried.

    Attributes:
        host: The server that these credentials are for; a location on another one is refused.
        port: Of the server; `None` for the one of the location, else 22.
        user: `None` for the one of the location, else the name of this process's user.
        password: Of the user.
        key_file: Path of a private key.
        private_key: The text of a private key.
        passphrase: Of the private key.
        uses_own_keys: Whether the agent and the keys in `~/.ssh` are tried where neither password
            nor key is given.
        host_key: The server's public key, as `ssh-ed25519 AAAA…`; no file is looked at then.
        known_hosts: Path of a file of known hosts; `None` for those of OpenSSH.
        checks_host_key: Whether the server must be known. Without, anybody can pose as the server.
        max_connections: Connections that one process keeps to the server, at most.
    """

    vendor: ClassVar = "sftp"
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    key_file: str | None = None
    private_key: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    uses_own_keys: bool = True
    host_key: str | None = None
    known_hosts: str | None = None
    checks_host_key: bool = True
    max_connections: int = MAX_CONNECTIONS


def normalize(rest: str) -> str:
    """Write a folder on a server in its canonical form.

    Args:
        rest: What follows `sftp:`.

    Raises:
        OptionError: It is no such location.
    """
    authority, _, path = rest.removeprefix("//").partition("/")
    found = _SERVER.fullmatch(authority)
    if not rest.startswith("//") or found is None:
        raise OptionError(_NO_LOCATION)
    user, host, port = found.groups()
    if port and not 0 < int(port) < _PORTS:
        raise OptionError(_NO_LOCATION)
    server = (f"{user}@" if user else "") + host.lower()
    server += f":{int(port)}" if port and int(port) != _SSH_PORT else ""
    return f"sftp://{server}/{posixpath.normpath('/' + path).strip('/')}".rstrip("/")


def server_of(uri: str) -> tuple[str | None, str, int | None]:
    """Give the user, the host and the port of a canonical `sftp://` URI.

    Returns:
        `None` for the user and the port where the location names none. An address of IPv6 has no
        brackets.
    """
    found = _SERVER.fullmatch(uri.partition("://")[2].partition("/")[0])
    if found is None:
        raise OptionError(_NO_LOCATION)
    user, host, port = found.groups()
    return user, host.strip("[]"), int(port) if port else None
