"""Tell failures that another try may help against, and what the answer of a cloud means.

Stores raise `OSError`s. An outage (no connection, no answer in time, a busy or failing service, a
disk that is full at the moment) ends by itself. A permission, a name, an address or a value that is
not right stays so until a person changes it. Expired credentials count among these: those that are
renewed by themselves never expire.

Say why a root serves nothing.

A disk that is not mounted, a bucket that is gone and a server that serves an empty folder look like
files that are gone. Whoever is about to give files up asks first.

A message says which request failed, on which object, why, and what to do. The text of a client is
never quoted: it may hold the request, and with it a credential. What follows from the kind of the
request and from the HTTP status is the same in every cloud and is here.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    RunFailedError,
    StateError,
    StateUnreachableError,
    is_panic,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError, ObjectStore, is_tree

Call = Literal["list", "head", "get", "put", "delete"]
"""The kinds of requests that a store counts."""

OUTCOMES: dict[Call, str] = {
    "list": "could not be listed",
    "head": "could not be inspected",
    "get": "could not be read",
    "put": "could not be written",
    "delete": "could not be deleted",
}
"""By kind of request: what did not work."""

DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
}
_LATE = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT}

Reason = tuple[type[OSError], str]
"""Why a request failed and what to do, with the class that programs react to."""

NO_IDENTITY_NOW = (
    "where credentials come from, such as the metadata service of this machine, did not answer. "
    "Try again. If this machine has no identity, name a connection or give it one."
)
"""Why a request could not be signed, and may be the next time."""

NO_ANSWER_IN_TIME: Reason = (TimeoutError, "the server did not answer in time. Try again.")


class ArchivedObjectError(OSError):
    """The object is in a storage class from which it has to be restored before it can be read."""


class BrokenOffError(Exception):
    """An answer ended before it was complete. The client does not repeat such a request."""


class IncompleteError(OSError):
    """An answer lacks what a file is known by; it is not repeated."""


def archived(what: str, storage_class: str) -> ArchivedObjectError:
    """Give the error of an object that is archived.

    Args:
        what: What could not be done, to what.
        storage_class: As the service calls it.
    """
    return ArchivedObjectError(
        f"{what}: it is archived (storage class {storage_class}), which no permission changes. "
        "Restore it in its store and run again when that is done, or leave it out with cloudfiles "
        "file skip. With cloudFiles.onArchivedFile=wait or skip no archived file is taken. Let "
        "lifecycle rules archive files only after they were ingested."
    )


@dataclass(frozen=True, slots=True)
class Service:
    """How messages name the parts of a service.

    Attributes:
        name: Of the service.
        container: What holds the objects.
        grant: What an identity needs: a role or a permission.
        correct: What to check when the container does not exist.
    """

    name: str
    container: str
    grant: str
    correct: str

    def no_container(self) -> Reason:
        """Give the reason of a request to a container that does not exist."""
        return FileNotFoundError, f"there is no such {self.container}. {self.correct}"

    def denied(self, code: str, needed: str) -> Reason:
        """Give the reason of a request that the identity may not make."""
        return PermissionError, (
            f"access is denied ({code}). Grant the identity {self.grant} {needed} on the "
            f"{self.container}."
        )

    def reason(self, status: int | None, code: str, needed: str) -> Reason:
        """Give the reason of an answer that is an error.

        Args:
            status: Of the answer.
            code: What the service calls the error.
            needed: The role or permission that the request takes.
        """
        if status == HTTPStatus.NOT_FOUND:
            return self.no_container()
        if status in DENIED:
            return self.denied(code, needed)
        if status in _LATE:
            return NO_ANSWER_IN_TIME
        if status in _BUSY:
            return ConnectionError, f"{self.name} is busy or failing ({code}). Try again later."
        return OSError, f"{self.name} refused the request ({code})."


def broken_off(where: str, kind: Call) -> ConnectionError:
    """Give the error of a request whose answers broke off, in several tries."""
    return ConnectionError(
        f"{where} {OUTCOMES[kind]}: the answer broke off. Try again; if that does not help, check "
        f"the network and the proxies between here and the server."
    )


_PASSING = frozenset({
    errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR,
    errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENFILE,
    errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.ENOTCONN, errno.ESTALE,
})  # fmt: skip
"""Failures of a disk or a mount that may be over the next time."""

_FULL = frozenset({errno.EDQUOT, errno.ENOSPC})


def is_transient(failure: OSError) -> bool:
    """Tell whether the same call may succeed later, without anybody changing anything.

    Clouds' stores raise `ConnectionError` or `TimeoutError` for what passes; what they raise else
    has no `errno` and stays.
    """
    # Python says of a file whose `lseek` failed that it has none, and not why.
    passing = ConnectionError | TimeoutError | io.UnsupportedOperation
    return isinstance(failure, passing) or is_passing(failure.errno)


def is_passing(number: int | None) -> bool:
    """Tell whether a failure of the operating system, by its number, may pass by itself."""
    return number in _PASSING


def is_full(failure: OSError) -> bool:
    """Tell whether a disk, or the part of it that somebody may have, is full."""
    return failure.errno in _FULL


def unexpected(failure: BaseException) -> CloudFilesError | None:
    """Give the error of ours for what the system or a library raised, and nobody has put in words.

    Returns:
        `None` for what is neither a failure of the system nor a panic of a library in Rust.
    """
    if is_panic(failure):
        return RunFailedError(f"A library has panicked: {failure}. Nothing is lost. Run again.")
    if not isinstance(failure, OSError):
        return None
    where = "A file or a store"
    if isinstance(failure.filename, str | bytes):
        where = _named(failure.filename)
    reason = (failure.strerror or str(failure)).rstrip(".")
    if is_transient(failure):
        return StateUnreachableError(f"{where} failed: {reason}. Nothing is lost. Run again.")
    return StateError(
        f"{where} cannot be used: {reason}. Correct its permissions, or what is there, and run "
        "again. Nothing is lost."
    )


def state_error(uri: str, failure: OSError) -> StateError:
    """Give the error of a state, or a log in it, that cannot be read or written."""
    reason = str(failure)
    if failure.filename is not None:
        reason = f"{failure.strerror} ({_named(failure.filename)})"
    place = printable_path(uri)
    if is_transient(failure):
        return StateUnreachableError(
            f"The checkpoint location {place} cannot be reached: {reason.rstrip('.')}. Nothing is "
            f"lost. {'Free space there, and run' if is_full(failure) else 'Run'} again."
        )
    return StateError(
        f"The checkpoint location {place} cannot be read or written: {reason.rstrip('.')}. Make it "
        "a folder that this user or identity may list, read, write and delete in, or choose "
        "another."
    )


def _named(path: str | bytes) -> str:
    """Format a path for people; names on a disk are UTF-8, whatever the locale."""
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    return printable_path(text)


@contextmanager
def reaching_state(store: ObjectStore) -> Iterator[None]:
    """Turn what the store of a state raises into a `StateError` that shows if a retry can help."""
    try:
        yield
    except OSError as failure:
        raise state_error(store.uri, failure) from failure


def read_if_there(store: ObjectStore, key: str) -> bytes | None:
    """Read an object of a state, or of a log; `None` where there is none.

    Raises:
        StateError: The store cannot be read.
    """
    with reaching_state(store):
        try:
            return store.get(key)
        except ObjectNotFoundError:
            return None


def absence(store: ObjectStore, *, holds: Callable[[str], bool] | None = None) -> str | None:
    """Say why files are not to be taken for deleted; `None` where the root is there.

    Args:
        store: The root.
        holds: The root must hold an object, too, for whose key this is true.

    Returns:
        A sentence without a full stop.
    """
    name = printable_path(store.uri)
    try:
        if not store.is_folder():
            place = "" if is_tree(store) else ": there is no such bucket or container"
            return f"The source {name} does not exist any more{place}"
        if holds is not None and not any(holds(each.path) for each in store.list(ordered=False)):
            return f"The source {name} is empty"
    except OSError as failure:
        return f"The source {name} cannot be listed any more ({str(failure).rstrip('.')})"
    return None
