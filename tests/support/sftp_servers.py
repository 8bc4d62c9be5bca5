"""Real SFTP servers on this machine: OpenSSH's, and asyncssh's, whose faults a test decides."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from airflow_cloudfiles.engine.clouds.sftp import session
from airflow_cloudfiles.engine.clouds.sftp.access import SftpAccess
from airflow_cloudfiles.engine.clouds.sftp.store import SftpStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.waiting import ended, until

USER = "partner"
PASSWORD = "hunter2-of-the-partner"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


@dataclass
class Served:
    """A server.

    Attributes:
        folder: What it serves.
        access: How it is reached.
        location: URI of the folder.
    """

    folder: Path
    access: SftpAccess
    location: str


class Landed(SftpStore):
    """A folder on a server, in which a test puts files by the disk behind the server.

    Args:
        served: The server.
        below: A folder there.
    """

    def __init__(self, served: Served, below: str = "") -> None:
        super().__init__(f"{served.location.rstrip('/')}/{below}", served.access)
        self.disk = LocalStore(str(served.folder / below))

    def put(self, key: str, content: bytes) -> None:
        """Write a file as somebody else would; over another one, not in the same second."""
        path = Path(self.disk.local_path(key))
        before = int(path.stat().st_mtime) if path.is_file() else 0
        self.disk.put(key, content)
        if int(path.stat().st_mtime) <= before:
            os.utime(path, (before + 1, before + 1))


def _key(path: Path) -> asyncssh.SSHKey:
    """A key of its own, in a file, with the public one beside it."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(path)
    path.chmod(0o600)
    key.write_public_key(f"{path}.pub")
    return key


def public(key: asyncssh.SSHKey) -> str:
    """The text of a public key, without a comment."""
    return " ".join(key.export_public_key().decode().split()[:2])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def openssh(home: Path) -> Iterator[Served]:
    """Run OpenSSH's server for the user of this process, with a key."""
    folder, port = home / "served", free_port()
    folder.mkdir(parents=True)
    host, user = _key(home / "host"), _key(home / "user")
    (home / "authorized").write_text(public(user))
    privileges = Path("/run/sshd")  # what the server asks for where root starts it
    with contextlib.suppress(PermissionError):
        privileges.mkdir(parents=True, exist_ok=True)
    (home / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nPidFile none\n"
        f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n"
        "MaxStartups 100\n"
    )
    with (home / "log").open("wb") as log:
        server = subprocess.Popen([str(SSHD), "-D", "-e", "-f", home / "config"], stderr=log)
    try:
        until(lambda: "listening" in (home / "log").read_text(), 60, (home / "log").read_text)
        access = SftpAccess(
            host="127.0.0.1",
            port=port,
            user=getpass.getuser(),
            key_file=str(home / "user"),
            host_key=public(host),
        )
        yield Served(folder, access, f"sftp://127.0.0.1:{port}{folder}")
    finally:
        session.close_all()
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(60)
            raise


@dataclass
class Faults:
    """What the server does wrong.

    Attributes:
        cut_after: So many operations are answered, then connections end; `None` for never.
        cuts: How often they ended.
        fails: Operations (`read`, `rename`, …) that are answered with a failure.
        denies: Ends of the paths that nobody may list or read.
        kinds: What tells of what kind a file is: `mode`, as on Unix; `line`, of a listing alone;
            `nothing`; `no mode`, where permissions are not sent at all.
        connections: How many there are now.
        most: How many there were at once.
        logins: How many were let in.
    """

    cut_after: int | None = None
    cuts: int = 0
    fails: set[str] = field(default_factory=set)
    denies: set[str] = field(default_factory=set)
    kinds: str = "mode"
    connections: int = 0
    most: int = 0
    logins: int = 0


class _Login(asyncssh.SSHServer):
    def __init__(self, server: FaultyServer) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        faults = self._server.faults
        self._conn = conn
        self._server.open.add(conn)
        faults.connections += 1
        faults.most = max(faults.most, faults.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self._conn)
        self._server.faults.connections -= 1

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        is_right = (username, password) == (USER, PASSWORD)
        self._server.faults.logins += is_right
        return is_right


class FaultyServer:
    """asyncssh's server, in a thread; it shows a folder as its root."""

    def __init__(self, folder: Path, key: asyncssh.SSHKey) -> None:
        self.folder = folder
        self.faults = Faults()
        self.open: set[asyncssh.SSHServerConnection] = set()
        self.key = key
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def served(self) -> Served:
        """How it is reached."""
        access = SftpAccess(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            host_key=public(self.key),
        )
        return Served(self.folder, access, f"sftp://127.0.0.1:{self.port}/")

    def known(self) -> SftpAccess:
        """Access without the key of the host."""
        return replace(self.served.access, host_key=None)

    def start(self) -> None:
        """Listen; on the port of before, if there was one."""

        async def listen() -> asyncssh.SSHAcceptor:
            return await asyncssh.listen(
                "127.0.0.1",
                self.port,
                server_host_keys=[self.key],
                server_factory=lambda: _Login(self),
                sftp_factory=lambda chan: _Session(chan, self),
            )

        self._acceptor = self._run(listen())
        self.port = self._acceptor.get_port()

    def stop(self) -> None:
        """Listen no more, and end all connections."""

        async def end() -> None:
            self._acceptor.close()
            for each in list(self.open):  # first: since Python 3.12 the wait is for them, too
                each.abort()
            await self._acceptor.wait_closed()

        self._run(end())
        until(lambda: not self.open, 60)

    def close(self) -> None:
        """End the server for good."""
        try:
            self.stop()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            ended(self._thread, "a server of SFTP")
            self._loop.close()

    def passed(self, operation: str, path: bytes = b"") -> None:
        """Fail, or end the connections, if it is to be."""
        if any(path.endswith(end.encode()) for end in self.faults.denies):
            raise asyncssh.SFTPPermissionDenied("no")
        if operation in self.faults.fails:
            raise asyncssh.SFTPFailure("disk on fire")
        if self.faults.cut_after is None:
            return
        self.faults.cut_after -= 1
        if self.faults.cut_after < 0:
            self.faults.cuts += 1
            self.faults.cut_after = None
            for each in list(self.open):
                each.abort()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class _Session(asyncssh.SFTPServer):
    def __init__(self, chan: asyncssh.SSHServerChannel, server: FaultyServer) -> None:
        super().__init__(chan, chroot=str(server.folder).encode())
        self._server = server

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> Any:
        self._server.passed("open", path)
        return super().open(path, pflags, attrs)

    def read(self, *given: Any) -> Any:
        self._server.passed("read")
        return super().read(*given)

    def rename(self, *given: Any) -> Any:
        self._server.passed("rename")
        return super().rename(*given)

    def remove(self, path: bytes) -> Any:
        self._server.passed("remove")
        return super().remove(path)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        self._server.passed("scandir", path)
        async for each in super().scandir(path):
            super().format_longname(each)  # the mode is still there
            if self._server.faults.kinds in {"nothing", "no mode"}:
                each.longname = each.filename
            each.attrs = self._sent(each.attrs)
            yield each

    def stat(self, path: bytes) -> Any:
        return self._sent(asyncssh.SFTPAttrs.from_local(super().stat(path)))

    def lstat(self, path: bytes) -> Any:
        return self._sent(asyncssh.SFTPAttrs.from_local(super().lstat(path)))

    def fstat(self, file_obj: object) -> Any:
        return self._sent(asyncssh.SFTPAttrs.from_local(super().fstat(file_obj)))

    def _sent(self, attrs: asyncssh.SFTPAttrs) -> asyncssh.SFTPAttrs:
        """What is known of a file, without what this server does not tell."""
        kinds = self._server.faults.kinds
        if kinds != "mode":
            attrs.permissions = None if kinds == "no mode" else (attrs.permissions or 0) & 0o7777
        return attrs


@pytest.fixture(scope="session")
def openssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """OpenSSH's server, where it is installed."""
    if SSHD is None:
        pytest.skip("OpenSSH's server is not installed (Debian: openssh-server)")
    with openssh(tmp_path_factory.mktemp("openssh")) as served:
        yield served


@pytest.fixture(scope="session")
def asyncssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """asyncssh's server, without faults."""
    with faulty(tmp_path_factory.mktemp("asyncssh")) as server:
        yield server.served


@contextlib.contextmanager
def faulty(home: Path) -> Iterator[FaultyServer]:
    """Run asyncssh's server."""
    folder = home / "served"
    folder.mkdir(parents=True)
    server = FaultyServer(folder, asyncssh.generate_private_key("ssh-ed25519"))
    try:
        yield server
    finally:
        session.close_all()
        server.close()
