"""Share few connections to one SFTP server among threads, and make sure that it is the one meant.

One event loop a process, in a thread of its own, keeps the connections; whoever needs an answer
waits for it. Requests share connections: a further one is opened when those that are there are
busy, up to the limit. One that nobody has used for a while is closed, for servers limit how many
there may be. After a fork, the child has none of its parent's.

What only asks is repeated over another connection when the first one breaks off. What changes
something is not: whoever asked for it finds out what became of it.

As OpenSSH, a client goes on only where the key of the server is known: from the connection, or from
files of known hosts. Keys of the kinds that are known are asked for first. A login to a server that
is not known ends before a name or a password is sent, with the fingerprint of what was there.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from airflow_cloudfiles.engine.clouds.sftp.login import BROKEN_OFF, Login, ServerNotKnownError
from airflow_cloudfiles.engine.errors import OptionError

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
        """List which kinds of keys the server is asked for; those that are known come first."""
        found = [name for key in self.keys for name in key.sig_algorithms]
        if self._given is None:
            found += get_default_certificate_algs()
        found += get_default_public_key_algs()
        return [name.decode("ascii") for name in dict.fromkeys(found)]

    def match(self, host: str, address: str, port: int | None) -> object:
        """Find what the client is to trust: host keys, keys of authorities, revoked keys."""
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
                    f"The file of known hosts {path} cannot be read, or has a malformed line. "
                    "Correct it, or name another one (known_hosts)."
                ) from None


def _given_key(text: str | None) -> asyncssh.SSHKey | None:
    """Parse the key of a connection: `ssh-ed25519 AAAA…`, or the data of an RSA key alone."""
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


_Answer = TypeVar("_Answer")
Operation = Callable[[asyncssh.SFTPClient], Awaitable[_Answer]]

TRIES: Final = 4
"""How often an operation is tried whose connection breaks off."""
IN_FLIGHT: Final = 16
"""Operations at once over one connection; each may have a file open on the server."""
_BUSY: Final = 4
"""A connection with so many operations is busy: another one is opened if there may be more."""
_FIRST_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS: Final = 20
_LOGIN_SECONDS: Final = 30
_ALIVE_SECONDS: Final = 15
"""A server that is silent for so long is asked whether it is there; three times, then it is not."""
_ANSWER_SECONDS: Final = 1800
"""Many large pieces over a slow line take long; that the server is gone shows sooner."""
_IDLE_SECONDS = 20.0
_GOODBYE_SECONDS: Final = 2


class _Client(asyncssh.SSHClient):
    """Ends a login to a server that is not known."""

    def __init__(self, known: KnownServers) -> None:
        self._known = known

    def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:  # noqa: ARG002 - the protocol
        """Refuse the key; it is asked only for keys that are not known."""
        self._known.refuse(key)
        return False


class _Connection:
    """One connection with one SFTP session."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._opening = asyncio.ensure_future(self._open())
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self.users = 0
        self.idle_since = 0.0
        self.is_broken = False

    async def run(self, operation: Operation[_Answer]) -> _Answer:
        """Do something; a connection that breaks off is used no more."""
        try:
            _, client = await asyncio.shield(self._opening)
        except asyncio.CancelledError:  # of one who waits; others may go on
            raise
        except BaseException:
            self.is_broken = True
            raise
        async with self._slots:
            try:
                return await asyncio.wait_for(operation(client), _ANSWER_SECONDS)
            except (*BROKEN_OFF, asyncssh.DisconnectError, TimeoutError):
                self.is_broken = True
                raise

    async def close(self) -> None:
        """End the session; what is said at the end does not matter."""
        self._opening.cancel()
        await asyncio.wait([self._opening])
        if self._opening.cancelled() or self._opening.exception() is not None:
            return
        connection, client = self._opening.result()
        with contextlib.suppress(asyncssh.Error, OSError):
            client.exit()
            connection.close()
            await asyncio.wait_for(connection.wait_closed(), _GOODBYE_SECONDS)

    async def _open(self) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        login, known = self._login, KnownServers(self._login)
        if login.access.checks_host_key:
            trust = {"known_hosts": known.match, "server_host_key_algs": known.algorithms()}
        else:
            trust = {"known_hosts": None}
        try:
            connection = await asyncssh.connect(
                login.host,
                login.port,
                client_factory=lambda: _Client(known),
                config=None,
                username=login.user,
                connect_timeout=_CONNECT_SECONDS,
                login_timeout=_LOGIN_SECONDS,
                keepalive_interval=_ALIVE_SECONDS,
                **trust,
                **_credentials(login),
            )
        except asyncssh.HostKeyNotVerifiable as failure:
            if known.refusal is None:
                raise
            raise known.refusal from failure
        try:
            return connection, await connection.start_sftp_client()
        except BaseException:
            connection.close()
            raise


def _credentials(login: Login) -> dict[str, Any]:
    """Collect what the client proves with who it is; no message has any of it."""
    access = login.access
    keys: list[Any] = []
    try:
        if access.private_key:
            keys.append(asyncssh.import_private_key(access.private_key, access.passphrase))
        if access.key_file:
            path = os.path.expanduser(access.key_file)  # noqa: PTH111 - asyncssh takes a text
            keys.append(asyncssh.read_private_key(path, access.passphrase))
    except (OSError, ValueError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        what = f"key file {access.key_file}" if access.key_file else "private key"
        raise OptionError(
            f"The {what} for {login.server} cannot be read on this machine, is no private key, or "
            "is encrypted with another passphrase. Correct it in the connection or the environment."
        ) from None
    if keys or access.password:
        return {"client_keys": keys or None, "password": access.password, "agent_path": None}
    if not access.uses_own_keys:
        return {"client_keys": None, "agent_path": None}
    return {"passphrase": access.passphrase}


class _Server:
    """The connections to one server; used in the event loop only."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._open: list[_Connection] = []

    async def run(self, operation: Operation[_Answer], *, once: bool) -> _Answer:
        """Do something, over another connection if one breaks off."""
        is_begun = False

        async def begin(client: asyncssh.SFTPClient) -> _Answer:
            nonlocal is_begun
            is_begun = True
            return await operation(client)

        for number in range(1, TRIES + 1):
            connection = self._choose()
            connection.users += 1
            try:
                return await connection.run(begin)
            except (*BROKEN_OFF, asyncssh.ChannelOpenError):
                if number == TRIES or (once and is_begun):
                    raise
            finally:
                connection.users -= 1
                self._release(connection)
            await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2 ** (number - 1))
        raise AssertionError

    async def close(self) -> None:
        """Close all connections."""
        connections, self._open = self._open, []
        for each in connections:
            await each.close()

    def _choose(self) -> _Connection:
        """Choose the connection that has least to do, or open another one if all have much."""
        least = min(self._open, key=lambda each: each.users, default=None)
        is_enough = len(self._open) >= self._login.access.max_connections
        if least is not None and (least.users < _BUSY or is_enough):
            return least
        connection = _Connection(self._login)
        self._open.append(connection)
        return connection

    def _release(self, connection: _Connection) -> None:
        """Drop what is broken, and close later what nobody uses."""
        if connection.is_broken:
            if connection in self._open:
                self._open.remove(connection)
            if not connection.users:
                _keep(asyncio.ensure_future(connection.close()))
        elif not connection.users:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            loop.call_at(loop.time() + _IDLE_SECONDS, self._close_idle, connection, loop.time())

    def _close_idle(self, connection: _Connection, since: float) -> None:
        is_idle = not connection.users and connection.idle_since <= since
        if is_idle and connection in self._open:
            self._open.remove(connection)
            _keep(asyncio.ensure_future(connection.close()))


# It tells each login and each session; whoever wants that sets the level before.
if logging.getLogger("asyncssh").level == logging.NOTSET:
    logging.getLogger("asyncssh").setLevel(logging.WARNING)

_closing: set[asyncio.Future[None]] = set()


def _keep(closing: asyncio.Future[None]) -> None:
    """Hold a task that nobody waits for until it has ended."""
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


_CLOSED = "The connections of this process have been closed"


class _Loop:
    """The event loop of a process, in a thread of its own."""

    def __init__(self) -> None:
        self._servers: dict[Login, _Server] = {}
        self._ending = threading.Lock()
        self._is_ended = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="cloudfiles-sftp", daemon=True)
        self._thread.start()

    def submit(self, login: Login, operation: Operation[_Answer], *, once: bool) -> Future[_Answer]:
        """Begin something in the loop; gives its future."""

        async def begin() -> _Answer:
            server = self._servers.setdefault(login, _Server(login))
            try:
                return await server.run(operation, once=once)
            except asyncio.CancelledError:
                if self._is_ended:
                    raise ConnectionAbortedError(_CLOSED) from None
                raise

        with self._ending:  # what a loop that has ended is given is never done
            if self._is_ended:
                raise ConnectionAbortedError(_CLOSED)
            return asyncio.run_coroutine_threadsafe(begin(), self._loop)

    def close(self) -> None:
        """Close all connections, and end the thread; whoever still waits gets an error."""

        async def close_all() -> None:
            for server in self._servers.values():
                await server.close()
            await asyncio.gather(*_closing, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(close_all(), self._loop).result(5)
        with self._ending:
            self._is_ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # A thread that waits for one of these would wait for ever, and so would the end of Python.
        for left in (tasks := asyncio.all_tasks(self._loop)):
            left.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


_lock = threading.Lock()
_loops: dict[int, _Loop] = {}
"""By process: its loop. Those of parents stay as they are: their sockets are not this process's."""


def _own_loop() -> _Loop:
    with _lock:
        found = _loops.get(os.getpid())
        if found is None:
            found = _loops[os.getpid()] = _Loop()
        return found


def _forked() -> None:
    """Take a new lock: a thread that the child does not have may hold the old one."""
    global _lock  # noqa: PLW0603 - one a process
    _lock = threading.Lock()


def close_all() -> None:
    """Close the connections of this process; the next operation opens others."""
    with _lock:
        found = _loops.pop(os.getpid(), None)
    if found is not None:
        found.close()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_all)


def ask(login: Login, operation: Operation[_Answer]) -> _Answer:
    """Do what changes nothing; it is repeated when its connection breaks off."""
    return _own_loop().submit(login, operation, once=False).result()


def begin_to_ask(login: Login, operation: Operation[_Answer]) -> Future[_Answer]:
    """Begin what changes nothing."""
    return _own_loop().submit(login, operation, once=False)


def change(login: Login, operation: Operation[_Answer]) -> _Answer:
    """Do what changes something, once: an answer that is lost may mean that it is done."""
    return _own_loop().submit(login, operation, once=True).result()
