"""Use a folder on an SFTP server as a source.

A key is a path below the root, as on a local disk, and any bytes can be a name. A server gives size
and modification time of a file, the time in whole seconds; the two stand in for an etag. They are
taken from the open file, before and behind the bytes: so what was read is of one version, unless a
file was written anew in the same second with the same size, which no client of SFTP can see.

Nothing that only one of several can create is there, so no state and no table. What cleaning needs
is there: a file is first renamed to a hidden name beside it, which takes one version and no other,
looked at, and then removed or renamed to where it is moved. One that is not the version is put
back. Killed in between, the next call for this file puts it back.
"""

from __future__ import annotations

import contextlib
import stat
from concurrent.futures import Future
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow_cloudfiles.engine.clouds.sftp import session
from airflow_cloudfiles.engine.clouds.sftp.files import (
    Attributes,
    Names,
    SftpWalk,
    content_of,
    described,
    file_entry,
    names_in,
)
from airflow_cloudfiles.engine.clouds.sftp.login import FAILURES, GONE, Login, login_of, readable
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage import base
from airflow_cloudfiles.engine.storage.flat import TreeStore, hidden_name, key_below
from airflow_cloudfiles.engine.storage.outage import OUTCOMES, Call
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, refuse_source_only

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncssh

    from airflow_cloudfiles.engine.storage.access import Access

_Answer = TypeVar("_Answer")


class SftpStore(TreeStore):
    """An `ObjectStore` on an SFTP server, to read, list and clean.

    A pickle holds no credentials: where it is opened, the environment there decides.

    Args:
        uri: `sftp://host/path`, perhaps with a user and a port.
        access: How the server is reached; `None` leaves it to the environment.

    Raises:
        OptionError: The credentials are for another server.
    """

    tells_time = False
    """SFTP has no request for the time of the server."""

    def __init__(self, uri: str, access: Access | None = None) -> None:
        super().__init__(uri)
        self._server, path = bucket_and_path(self.uri)
        self._root = b"/" + base.key_bytes(path)
        self._login: Login = login_of(self.uri, access)

    def __reduce__(self) -> tuple[Any, ...]:
        return SftpStore, (self.uri,)

    def is_folder(self) -> bool:
        """Tell whether the root is a folder; it may be a symbolic link to one."""

        async def inspect(client: asyncssh.SFTPClient) -> Attributes:
            found = await client.stat(self._root)
            return await described(client, self._root, found, is_followed=True)

        try:
            return stat.S_ISDIR(self._ask("list", self.uri, inspect)[0])
        except FileNotFoundError:
            return False

    def _walk(self, wanted: base.ListRequest) -> SftpWalk:
        """Begin to list; links are not followed."""
        return SftpWalk(self._begin_to_list, printable_path(self.uri), wanted, self._requests)

    def head(self, key: str) -> FileEntry | None:
        """Inspect a file; `None` when there is none, also where there is a link."""
        path = self._path(key)
        self._requests.add("head")
        found = self._look(path, key)
        return file_entry(key, found) if found and stat.S_ISREG(found[0]) else None

    def clock_us(self) -> int:
        """Give a time that the clock of the server has passed, as far as this machine knows."""
        return (base.now_us() // 1_000_000 - base.SKEW_SECONDS) * 1_000_000

    def arrived_us(self, entry: FileEntry) -> int:
        """Give the modification time: a server tells no other, and writers may set this one."""
        return entry.modification_time_us

    def get(self, key: str) -> bytes:
        """Read a file."""
        return self._read(key, 0, None, None)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of a file."""
        base.check_range(start, length)
        return self._read(key, start, length, etag)

    def put(self, key: str, content: bytes) -> None:  # noqa: ARG002 - the protocol
        """Refuse: nothing is kept on an SFTP server."""
        self._refuse()

    def put_if_absent(self, key: str, content: bytes) -> bool:  # noqa: ARG002 - the protocol
        """Refuse: SFTP has no such write."""
        self._refuse()

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:  # noqa: ARG002 - the protocol
        """Refuse: SFTP has no such write."""
        self._refuse()

    def delete(self, key: str) -> None:
        """Remove a file, if there is one."""
        self._requests.add("delete")
        with contextlib.suppress(FileNotFoundError):
            self._remove(self._path(key), key)

    def delete_version(self, entry: FileEntry) -> None:
        """Remove a file if it still is a version."""
        self._requests.add("delete")
        path, hidden = self._path(entry.path), self._taken(entry)
        try:
            self._remove(hidden, entry.path)
        except OSError:
            self._put_back(hidden, path, entry.path)
            raise

    def move_version(self, entry: FileEntry, to: base.ObjectStore, key: str) -> bool:
        """Move a version of a file within the server, unless there is a file already.

        Args:
            entry: As in `delete_version`.
            to: Another root on the same server.
            key: Where the file is to be below it.

        Returns:
            Whether it was moved; false where something has the name.

        Raises:
            ObjectNotFoundError: There is no such file to move.
            ObjectChangedError: It is another version.
            LinkedObjectError: It is a symbolic link.
        """
        if not isinstance(to, SftpStore) or to._server != self._server:  # noqa: SLF001 - of this class, too
            msg = f"{to.uri} is not on the server of {self.uri}"
            raise ValueError(msg)
        to._requests.add("put")  # noqa: SLF001 - of this class, too
        path, target = self._path(entry.path), to._path(key)  # noqa: SLF001 - of this class, too
        if self._look(target, key) is not None:
            return False
        to._make_folders(target)  # noqa: SLF001 - of this class, too
        hidden = self._taken(entry)
        try:
            # A server refuses to rename to a name that is taken; and nobody else uses this one.
            self._rename(hidden, target, entry.path)
        except OSError:
            if self._look(hidden, entry.path) is None:  # it may be done, and its answer lost
                raise
            self._put_back(hidden, path, entry.path)
            if self._look(target, key) is None:
                raise
            return False
        return True

    def copy_version(
        self,
        entry: FileEntry,  # noqa: ARG002 - the protocol
        to: base.ObjectStore,  # noqa: ARG002 - as above
        key: str,  # noqa: ARG002 - as above
    ) -> bool:
        """Refuse: files are moved on a server (`move_version`), which copies nothing by itself."""
        raise UnsupportedOperation(
            f"{printable_path(self.uri)} is on an SFTP server, which copies no files."
        )

    def fingerprint(self, key: str) -> base.Fingerprint | None:
        """Inspect a file; one that a killed process had renamed is put back before."""
        path = self._path(key)
        self._put_back(hidden_name(path), path, key)
        found = self.head(key)
        return None if found is None else base.Fingerprint(found)

    def child_uri(self, key: str) -> str:
        """Give the URI of a file."""
        return f"{printable_path(self.uri)}/{printable_path(key)}"

    def key_of(self, uri: str) -> str | None:
        """Give the key of another location below this root, links as they are written."""
        return key_below(self.uri, uri)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────

    def _begin_to_list(self, folder: bytes) -> _FolderListing:
        """Begin to read a folder below the root; `None` comes for one that is gone."""

        async def read(client: asyncssh.SFTPClient) -> Names | None:
            try:
                return await names_in(client, self._below(folder).rstrip(b"/") or b"/")
            except GONE:
                if not folder:
                    raise
                return None

        where = self.uri if not folder else self.child_uri(base.key_text(folder.rstrip(b"/")))
        return _FolderListing(session.begin_to_ask(self._login, read), self, where)

    def _read(self, key: str, start: int, length: int | None, etag: str | None) -> bytes:
        """Read part of a file, or all of it, in one version."""
        path = self._path(key)
        self._requests.add("get")
        try:
            found = self._ask(
                "get",
                self.child_uri(key),
                lambda client: content_of(client, path, start, length, etag),
            )
        except FileNotFoundError as failure:
            raise base.ObjectNotFoundError(self.child_uri(key)) from failure
        if found is None:
            raise base.ObjectChangedError(self.child_uri(key))
        return found

    def _look(self, path: bytes, key: str) -> Attributes | None:
        """Look at what is under a path, a link itself; return `None` for nothing."""

        async def inspect(client: asyncssh.SFTPClient) -> Attributes:
            return await described(client, path, await client.lstat(path))

        try:
            return self._ask("head", self.child_uri(key), inspect)
        except FileNotFoundError:
            return None

    def _rename(self, path: bytes, target: bytes, key: str) -> None:
        """Rename what is under a path to a name that nothing has."""
        with self._translated("put", self.child_uri(key)):
            session.change(self._login, lambda client: client.rename(path, target))

    def _remove(self, path: bytes, key: str) -> None:
        with self._translated("delete", self.child_uri(key)):
            session.change(self._login, lambda client: client.remove(path))

    def _make_folders(self, path: bytes) -> None:
        """Make the folders above a path."""
        folder = path.rpartition(b"/")[0]

        async def make(client: asyncssh.SFTPClient) -> None:
            if not await client.isdir(folder):
                await client.makedirs(folder, exist_ok=True)

        with self._translated("put", self.child_uri("")):
            session.ask(self._login, make)

    def _taken(self, entry: FileEntry) -> bytes:
        """Rename a version to its hidden name, where nobody writes it anew; gives the name."""
        path = self._path(entry.path)
        hidden = hidden_name(path)
        self._put_back(hidden, path, entry.path)
        self._require_version(path, entry)
        try:
            self._rename(path, hidden, entry.path)
        except FileNotFoundError as failure:
            raise base.ObjectNotFoundError(self.child_uri(entry.path)) from failure
        crash_point("after-clean-rename")
        try:
            self._require_version(hidden, entry)
        except LookupError:
            self._put_back(hidden, path, entry.path)
            raise
        return hidden

    def _require_version(self, path: bytes, entry: FileEntry) -> None:
        """Refuse what is not a version: nothing, another one, a link to one."""
        uri, found = self.child_uri(entry.path), self._look(path, entry.path)
        if found is None:
            raise base.ObjectNotFoundError(uri)
        if stat.S_ISLNK(found[0]):
            raise base.LinkedObjectError(uri)
        if not stat.S_ISREG(found[0]) or not base.is_version(file_entry("", found), entry):
            raise base.ObjectChangedError(uri)

    def _put_back(self, hidden: bytes, path: bytes, key: str) -> None:
        """Give a file its name back that was taken, unless a newer one has it."""
        if self._look(hidden, key) is None:
            return
        if self._look(path, key) is None:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                self._rename(hidden, path, key)
        else:  # it was written anew, as if over the one that is hidden
            with contextlib.suppress(FileNotFoundError):
                self._remove(hidden, key)

    def _ask(self, kind: Call, uri: str, operation: session.Operation[_Answer]) -> _Answer:
        """Make a request that changes nothing, and translate its errors."""
        with self._translated(kind, uri):
            return session.ask(self._login, operation)

    @contextlib.contextmanager
    def _translated(self, kind: Call, uri: str) -> Iterator[None]:
        """Raise what the client raises as an error of a store."""
        try:
            yield
        except FAILURES as failure:
            raise self.explained(failure, kind, uri) from failure

    def explained(self, failure: BaseException, kind: Call, uri: str) -> OSError:
        """Give the error of a store for an error of the client."""
        login = self._login
        return readable(
            failure, f"{printable_path(uri)} {OUTCOMES[kind]}", login.server, login.user
        )

    def _refuse(self) -> NoReturn:
        refuse_source_only(self.uri)
        raise AssertionError

    def _below(self, key: bytes) -> bytes:
        return self._root.rstrip(b"/") + b"/" + key

    def _path(self, key: str) -> bytes:
        return self._below(base.key_bytes(base.check_key(key)))


class _FolderListing:
    """A folder that is being read.

    Args:
        begun: What is under way.
        store: Whose folder it is.
        uri: Of the folder.
    """

    def __init__(self, begun: Future[Any], store: SftpStore, uri: str) -> None:
        self._begun = begun
        self._store = store
        self._where = uri

    def cancel(self) -> None:
        """Ask for it no more."""
        self._begun.cancel()

    def result(self) -> Names | None:
        """Wait for the names; `None` when the folder is gone."""
        try:
            found: Names | None = self._begun.result()
        except FAILURES as failure:
            raise self._store.explained(failure, "list", self._where) from failure
        return found
