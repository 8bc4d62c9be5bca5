"""Does it help to ask a store again?

Stores raise `OSError`s. An outage (no connection, no answer in time, a busy or failing service, a
disk that is full at the moment) ends by itself. A permission, a name, an address or a value that is
not right stays so until a person changes it. Expired credentials count among these: those that are
renewed by themselves never expire.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import StateError, StateUnreachableError
from airflow_cloudfiles.engine.files import printable_path

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.base import ObjectStore

_PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EDQUOT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ENOTCONN,
        errno.ESTALE,
    }
)
"""Failures of a disk or a mount that may be over the next time."""

_FULL = frozenset({errno.EDQUOT, errno.ENOSPC})


def is_transient(failure: OSError) -> bool:
    """Whether the same call may succeed later, without anybody changing anything.

    Clouds' stores raise `ConnectionError` or `TimeoutError` for what passes; what they raise else
    has no `errno` and stays.
    """
    return isinstance(failure, ConnectionError | TimeoutError) or failure.errno in _PASSING


def state_error(uri: str, failure: OSError) -> StateError:
    """Give the error of a state, or a log in it, that cannot be read or written."""
    reason = str(failure)
    if failure.filename is not None:
        reason = f"{failure.strerror} ({printable_path(os.fsdecode(failure.filename))})"
    place = printable_path(uri)
    if is_transient(failure):
        return StateUnreachableError(
            f"The checkpoint location {place} cannot be reached: {reason.rstrip('.')}. Nothing is "
            f"lost. {'Free space there, and run' if failure.errno in _FULL else 'Run'} again."
        )
    return StateError(
        f"The checkpoint location {place} cannot be read or written: {reason.rstrip('.')}. Make it "
        "a folder that this user or identity may list, read, write and delete in, or choose "
        "another."
    )


@contextmanager
def reaching_state(store: ObjectStore) -> Iterator[None]:
    """Turn what the store of a state raises into a `StateError` that shows if a retry can help."""
    try:
        yield
    except OSError as failure:
        raise state_error(store.uri, failure) from failure
