"""Describe the identity with which an SFTP server is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from airflow_cloudfiles.engine.storage.access import Access

MAX_CONNECTIONS = 2
"""Connections to one SFTP server that a process keeps where nothing else is said."""


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
