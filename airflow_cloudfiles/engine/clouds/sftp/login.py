"""Log in to an SFTP server, and say what a failure on the way to it means.

A credential goes to the server that it is for, and to no other: a connection names its host.
Without a connection the environment decides: the variables below, the agent, the keys in `~/.ssh`.

The server must be known before anything is sent to it, as OpenSSH asks for. Its key comes from the
connection or from files of known hosts; a key that is unknown, or another one, ends the login.

Whatever the client raises becomes an `OSError` with a sentence: what could not be done, where, and
what to do. The text of the server is not quoted: it is not ours to trust. SFTP tells few things
apart; what a server calls a failure and nothing more is taken for an outage, for to try once more
costs less than to give up.
"""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from airflow_cloudfiles.engine.clouds.sftp.access import SftpAccess, server_of
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping


GONE = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory)
"""What the server says of a path that leads nowhere."""

BROKEN_OFF = (
    asyncssh.ConnectionLost,
    asyncssh.SFTPConnectionLost,
    asyncssh.SFTPNoConnection,
    ConnectionError,
)
"""A connection ended in the middle; another one may do."""

FAILURES = (asyncssh.Error, OSError)
"""What the client raises."""

_DENIED = (asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect)


class ServerNotKnownError(PermissionError):
    """The key of the server is not one that this machine trusts."""


class NotKeptToError(OSError):
    """The server does not keep to the protocol."""


def readable(failure: BaseException, what: str, server: str, user: str) -> OSError:
    """Explain a failure.

    Args:
        failure: From the client.
        what: What could not be done, to what: `sftp://host/a could not be read`.
        server: Name of the server.
        user: Who is logged in.

    Returns:
        `PermissionError`, `FileNotFoundError`, `TimeoutError`, `ConnectionError` or a plain
        `OSError`.
    """
    if isinstance(failure, ServerNotKnownError | NotKeptToError):
        return type(failure)(f"{what}: {failure}")
    return (
        _of_path(failure, what, user)
        or _of_network(failure, what, server)
        or _of_way(failure, what, server, user)
        or _of_answer(failure, what, server)
    )


def _of_path(failure: BaseException, what: str, user: str) -> OSError | None:
    """Explain what a server says of a path; `None` for anything else."""
    if isinstance(failure, GONE):
        return FileNotFoundError(f"{what}: there is no such file or folder on the server.")
    if isinstance(failure, _DENIED):
        return PermissionError(
            f"{what}: the server denies the user {user} the permission. Grant it there."
        )
    return None


def _of_network(failure: BaseException, what: str, server: str) -> OSError | None:
    """Explain a failure below the protocol; `None` for another."""
    if isinstance(failure, TimeoutError):
        return TimeoutError(f"{what}: {server} did not answer in time. Try again.")
    if isinstance(failure, OSError):
        reason = failure.strerror or type(failure).__name__
        return ConnectionError(f"{what}: {server} cannot be reached ({reason}). Try again.")
    return None


def _of_way(failure: BaseException, what: str, server: str, user: str) -> OSError | None:
    """Explain a failure of the way to the server; `None` for another."""
    if isinstance(failure, asyncssh.PermissionDenied):
        return PermissionError(
            f"{what}: {server} does not let the user {user} in with this password or key. Correct "
            "user, password or key in the connection or the environment, or have the key added on "
            "the server."
        )
    if isinstance(failure, asyncssh.HostKeyNotVerifiable):
        return ServerNotKnownError(
            f"{what}: the key of {server} was revoked, or its certificate is not valid. Nothing "
            "was sent to it. Ask whoever runs the server."
        )
    if isinstance(failure, asyncssh.KeyExchangeFailed | asyncssh.ProtocolNotSupported):
        return OSError(
            f"{what}: {server} offers no algorithm or version that this client takes. The server "
            "has to be renewed."
        )
    if isinstance(failure, asyncssh.ChannelOpenError):
        return ConnectionError(
            f"{what}: {server} opens no SFTP session. Lower max_connections if it limits sessions, "
            "or have SFTP allowed there."
        )
    if isinstance(failure, (*BROKEN_OFF, asyncssh.DisconnectError)):
        return ConnectionError(
            f"{what}: the connection to {server} broke off, in several tries. Try again; if it "
            "limits connections, lower max_connections."
        )
    return None


def _of_answer(failure: BaseException, what: str, server: str) -> OSError:
    """Explain an answer that is an error, or no answer of SFTP at all."""
    if isinstance(failure, asyncssh.SFTPOpUnsupported):
        return OSError(f"{what}: {server} does not offer the operation.")
    if isinstance(failure, asyncssh.SFTPFailure | asyncssh.SFTPNoSpaceOnFilesystem):
        return ConnectionError(f"{what}: {server} failed and does not say why. Try again.")
    return OSError(f"{what}: {server} refused the request ({type(failure).__name__}).")


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
        """List the files of known hosts that are there."""
        if self.access.known_hosts is not None:
            return [Path(self.access.known_hosts).expanduser()]
        return [path for path in self.default_known_hosts() if path.is_file()]

    @staticmethod
    def default_known_hosts() -> tuple[Path, Path]:
        """Return the files of known hosts of OpenSSH: the user's, and the machine's."""
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
    """Find the name of this process's user, as ssh takes it."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    raise OptionError(
        "No user name is given for the SFTP server. Write sftp://user@host/folder, give the "
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
