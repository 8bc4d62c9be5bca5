"""What does a failure of an SFTP server, or of the way to it, mean?

Whatever the client raises becomes an `OSError` with a sentence: what could not be done, where, and
what to do. The text of the server is not quoted: it is not ours to trust. SFTP tells few things
apart; what a server calls a failure and nothing more is taken for an outage, for to try once more
costs less than to give up.
"""

from __future__ import annotations

import asyncssh  # noqa: TID253 - for modules that import the client anyway

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
