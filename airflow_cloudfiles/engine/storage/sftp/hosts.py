"""Is this the server that is meant?

As OpenSSH, a client goes on only where the key of the server is known: from the connection, or from
files of known hosts. Keys of the kinds that are known are asked for first. A login to a server that
is not known ends before a name or a password is sent, with the fingerprint of what was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncssh  # noqa: TID253 - for modules that import the client anyway
from asyncssh.public_key import (  # noqa: TID253 - as above
    get_default_certificate_algs,
    get_default_public_key_algs,
)

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.sftp.errors import ServerNotKnownError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.sftp.login import Login

_UNKNOWN = "is not known here"
_OTHER = "is not the one that is known here: the server was renewed, or another one poses as it"
_PORT = 22


class KnownServers:
    """The keys that a server may have.

    Args:
        login: The server, and where its keys are known from.

    Raises:
        OptionError: A key or a file of known hosts cannot be read.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._given = _given_key(login.access.host_key)
        self._files = asyncssh.SSHKnownHosts()
        if self._given is None:
            self._load()
        self.refusal: ServerNotKnownError | None = None
        """Why the login was ended, if the key of the server was the reason."""

    @property
    def keys(self) -> list[asyncssh.SSHKey]:
        """The keys that are known of the server."""
        if self._given is not None:
            return [self._given]
        return list(self._match(self._login.host, "", self._login.port)[0])

    def algorithms(self) -> list[str]:
        """Which kinds of keys the server is asked for; those that are known come first."""
        found = [name for key in self.keys for name in key.sig_algorithms]
        if self._given is None:
            found += get_default_certificate_algs()
        found += get_default_public_key_algs()
        return [name.decode("ascii") for name in dict.fromkeys(found)]

    def match(self, host: str, address: str, port: int | None) -> object:
        """What the client is to trust: host keys, keys of authorities, revoked keys."""
        if self._given is not None:
            return [self._given], [], []
        return self._match(host, address, port)

    def refuse(self, key: asyncssh.SSHKey) -> None:
        """Note why a key is refused."""
        login, is_known = self._login, bool(self.keys)
        names = " and ".join(map(str, login.known_hosts() or login.default_known_hosts()[:1]))
        where = "host_key of the connection" if login.access.host_key else names
        scan = f"ssh-keyscan -p {login.port} {login.host}"
        self.refusal = ServerNotKnownError(
            f"the host key of {login.server} ({key.get_algorithm()}, {key.get_fingerprint()}) "
            f"{_OTHER if is_known else _UNKNOWN} ({where}). Nothing was sent to it. Ask whoever "
            f"runs the server for the fingerprint. If it is this one, put what `{scan}` prints "
            f"{'in the place of the old key' if is_known else 'there'}, or give the key as "
            "host_key of the connection."
        )

    def _match(
        self, host: str, address: str, port: int | None
    ) -> tuple[list[asyncssh.SSHKey], ...]:
        other = None if port == _PORT else port
        return self._files.match(host, address, other)  # type: ignore[return-value]

    def _load(self) -> None:
        for path in self._login.known_hosts():
            try:
                self._files.load(path.read_text(encoding="utf-8", errors="replace"))
            except (OSError, ValueError):
                raise OptionError(
                    f"The file of known hosts {path} cannot be read, or has a line that is none. "
                    "Correct it, or name another one (known_hosts)."
                ) from None


def _given_key(text: str | None) -> asyncssh.SSHKey | None:
    """The key that a connection names: `ssh-ed25519 AAAA…`, or the data of an RSA key alone."""
    if not text:
        return None
    words = text.split()
    try:
        return asyncssh.import_public_key(
            f"ssh-rsa {words[0]}" if len(words) == 1 else " ".join(words[:2])
        )
    except (asyncssh.KeyImportError, ValueError):
        raise OptionError(
            "host_key is not the public key of a server. Write the kind and the data, as "
            "ssh-keyscan prints them behind the name: ssh-ed25519 AAAA…"
        ) from None
