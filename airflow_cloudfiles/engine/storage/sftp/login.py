"""As whom, with what, and to which server does a client log in?

A credential goes to the server that it is for, and to no other: a connection names its host.
Without a connection the environment decides: the variables below, the agent, the keys in `~/.ssh`.

The server must be known before anything is sent to it, as OpenSSH asks for. Its key comes from the
connection or from files of known hosts; a key that is unknown, or another one, ends the login.
"""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import SftpAccess, of_kind
from airflow_cloudfiles.engine.storage.uri import server_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.storage.access import Access

_PREFIX = "CLOUDFILES_SFTP_"
_PORT = 22
_TEXTS = {
    "HOST": "host",
    "USER": "user",
    "PASSWORD": "password",
    "KEY_FILE": "key_file",
    "KEY_PASSPHRASE": "passphrase",
    "HOST_KEY": "host_key",
    "KNOWN_HOSTS": "known_hosts",
}
"""What the environment may say, and the field of `SftpAccess` that it is."""
_MOST_CONNECTIONS = f"{_PREFIX}MAX_CONNECTIONS"


@dataclass(frozen=True, slots=True)
class Login:
    """One server, and how it is logged in to.

    Attributes:
        host: Name or address of the server.
        port: Of the server.
        user: Who logs in.
        access: With what.
    """

    host: str
    port: int
    user: str
    access: SftpAccess

    @property
    def server(self) -> str:
        """The server, as files of known hosts write it."""
        return self.host if self.port == _PORT else f"[{self.host}]:{self.port}"

    def known_hosts(self) -> list[Path]:
        """The files of known hosts that are there."""
        if self.access.known_hosts is not None:
            return [Path(self.access.known_hosts).expanduser()]
        return [path for path in self.default_known_hosts() if path.is_file()]

    @staticmethod
    def default_known_hosts() -> tuple[Path, Path]:
        """The files of known hosts of OpenSSH: the user's, and the machine's."""
        return Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts")


def login_of(uri: str, access: Access | None) -> Login:
    """Decide how the server of a location is logged in to; nothing is contacted.

    Args:
        uri: Canonical URI of a location.
        access: From a connection; `None`, or one of a cloud, leaves it to the environment.

    Raises:
        OptionError: The credentials are for another server, or the environment says what cannot be.
    """
    user, host, port = server_of(uri)
    found: SftpAccess = of_kind(SftpAccess, access) or from_variables(os.environ)
    _refuse_other_server(found, user, host, port)
    if found.max_connections < 1:
        raise OptionError(
            f"max_connections is {found.max_connections}, and must be 1 at least. Correct it in "
            f"the connection, or in {_MOST_CONNECTIONS}."
        )
    return Login(host, port or found.port or _PORT, user or found.user or _own_name(), found)


def from_variables(environment: Mapping[str, str]) -> SftpAccess:
    """Read what the environment says about SFTP servers.

    Raises:
        OptionError: It says what cannot be.
    """
    texts = {field: environment.get(_PREFIX + name) or None for name, field in _TEXTS.items()}
    found = replace(SftpAccess(), **texts)  # type: ignore[arg-type] # each of them is a text
    if (found.password or found.host_key) and not found.host:
        raise OptionError(
            f"{_PREFIX}PASSWORD and {_PREFIX}HOST_KEY are of one server. Name it in {_PREFIX}HOST, "
            "so that no other one gets the password."
        )
    number = environment.get(_MOST_CONNECTIONS)
    if not number:
        return found
    if not number.isascii() or not number.isdigit():
        raise OptionError(f"{_MOST_CONNECTIONS} must be a number of connections, such as 2.")
    return replace(found, max_connections=int(number))


def _own_name() -> str:
    """The name of this process's user, as ssh takes it."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    raise OptionError(
        "Nobody says as whom to log in to the SFTP server. Write sftp://user@host/folder, give the "
        f"connection a login, or set {_PREFIX}USER."
    )


def _refuse_other_server(access: SftpAccess, user: str | None, host: str, port: int | None) -> None:
    """Refuse to send credentials to a server, or for a user, that they are not for."""
    pairs = (
        ("host", access.host and access.host.lower().strip("[]"), host),
        ("port", access.port, port or access.port),
        ("user", access.user, user or access.user),
    )
    for what, theirs, ours in pairs:
        if theirs and theirs != ours:
            raise OptionError(
                f"The location names the {what} {ours}, and the credentials (of a connection or of "
                f"{_PREFIX}*) are for the {what} {theirs}. They are sent to no other. Write the "
                f"location as sftp://{access.host or host}/…, or give another connection."
            )
