"""Reach an Iceberg table, so that what is written to a local disk survives a power failure.

`iceberg://<catalog>/<namespace>/<table>`. What the catalog is (SQL, REST, Glue, Hive ...) and how
it and its storage are reached is configured by pyiceberg's own means, `.pyiceberg.yaml` or
`PYICEBERG_CATALOG__<NAME>__*` in the environment: credentials pass neither options nor the state.

pyiceberg writes a table's files without syncing them, and the catalog's database syncs itself:
after a power failure it may name metadata that never reached the disk, and the table is gone. Here
each file, its name and its folders are synced before the catalog learns of it.
"""

from __future__ import annotations

import functools
import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    WaitingForLockException,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.utils.config import Config

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SinkError,
    TargetAccessError,
    TargetUnreachableError,
    UnsupportedTableError,
)
from airflow_cloudfiles.engine.storage.local import make_folders, sync_folder
from airflow_cloudfiles.engine.storage.outage import is_transient
from airflow_cloudfiles.engine.storage.uri import iceberg_name

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import OutputStream
    from pyiceberg.table import Table


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's own reading and writing, but durable on local disks."""

    def new_output(self, location: str) -> PyArrowFile:
        """Open a file that is to be written."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _LocalOutput(location, path, self.fs_by_scheme(scheme, None))


class _LocalOutput(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - pyiceberg's
        path = Path(self._path)
        make_folders(os.fsencode(path.parent))
        return cast("OutputStream", _SyncedFile(path, "wb" if overwrite else "xb"))


class _SyncedFile(io.FileIO):
    """Is on the disk, with its name, when it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        os.fsync(self.fileno())
        super().close()
        sync_folder(os.fsencode(Path(str(self.name)).parent))

    def write(self, content: Any, /) -> int:
        """Write all of it: a plain file may take a part only."""
        left = memoryview(content).cast("B")
        size = left.nbytes
        while left.nbytes:
            left = left[super().write(left) or 0 :]
        return size


FORMAT_VERSION = 2
"""The version of Iceberg's table format that is written."""
NO_RETRIES = {"commit.retry.num-retries": "0"}
_DURABLE = f"{__name__}.{DurableFileIO.__name__}"
_MOST_TEXT = 300
_REFUSED = (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError)
_PASSING = (
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    WaitingForLockException,
)
_PASS = (CommitFailedException, NoSuchTableError, TableAlreadyExistsError, CloudFilesError)
"""What callers decide by."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IcebergLocation:
    """Which table is meant.

    Attributes:
        uri: As it was given, in its canonical form.
        catalog: Name of the catalog, as pyiceberg's configuration has it.
        identifier: Levels of the namespace, and the name of the table.
    """

    uri: str
    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def of(cls, target: str) -> IcebergLocation:
        """Read a target.

        Raises:
            OptionError: It is not the URI of a table.
        """
        catalog, identifier = iceberg_name(target)
        return cls(target, catalog, identifier)

    def open_catalog(self) -> Catalog:
        """Open the catalog, once per process.

        Raises:
            OptionError: It is not configured, or its client is not installed.
        """
        return _catalog(self.catalog, os.getpid())

    def load(self) -> Table | None:
        """Load the newest version of the table; `None` where there is no table.

        Raises:
            OptionError: Its catalog is not configured.
            TargetUnreachableError: Its catalog or its storage failed.
            TargetAccessError: They refused us.
            UnsupportedTableError: Its format version is not written.
        """
        with self.translate_errors("cannot be opened"):
            try:
                table = self.open_catalog().load_table(self.identifier)
            except NoSuchTableError:
                return None
        if table.metadata.format_version != FORMAT_VERSION:
            raise UnsupportedTableError(
                f"{self.uri} has Iceberg's format version {table.metadata.format_version}; version "
                f"{FORMAT_VERSION} is what can be written. Upgrade an older table (format-version="
                f"{FORMAT_VERSION}), or choose another target."
            )
        return without_retries(table)

    @contextmanager
    def translate_errors(self, what: str) -> Iterator[None]:
        """Put what pyiceberg and its clients raise into a sentence.

        What callers decide by passes: a commit that others won, a table that is (not) there.
        """
        try:
            yield
        except _PASS:
            raise
        except Exception as failure:
            translated = self._translated(what, failure)
            if translated is None:
                raise
            raise translated from failure

    def _translated(self, what: str, failure: Exception) -> CloudFilesError | None:
        reason = _reason(failure)
        if isinstance(failure, NoSuchNamespaceError):
            name = ".".join(self.identifier[:-1])
            return SinkError(
                f"The catalog {self.catalog} has no namespace {name}, which {self.uri} is to be "
                "in. Create it."
            )
        if isinstance(failure, _PASSING) or _is_outage(failure):
            return TargetUnreachableError(
                f"{self.uri} {what}: {reason}. The catalog or the storage of the table does not "
                "answer for the moment. Nothing is lost. Run again."
            )
        if isinstance(failure, (*_REFUSED, PermissionError)):
            return TargetAccessError(
                f"{self.uri} {what}: {reason}. Give this identity access to the catalog and to the "
                "storage of the table (pyiceberg's configuration has the credentials)."
            )
        if isinstance(failure, (RESTError, OSError)):
            return SinkError(
                f"{self.uri} {what}: {reason}. Check the configuration of the catalog "
                f"{self.catalog} and the location of the table."
            )
        return None


def without_retries(table: Table) -> Table:
    """Keep pyiceberg from retrying the table's commits; nothing is stored.

    Its retries append to a newer version of the table without looking at what that has: a batch
    that another process has committed meanwhile would be in the table twice.
    """
    properties = {**table.metadata.properties, **NO_RETRIES}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


@functools.lru_cache(maxsize=8)
def _catalog(name: str, _process: int) -> Catalog:
    """Open a catalog, for one process: its connections must not be shared with a fork."""
    configured = Config().get_catalog_config(name)
    if configured is None:
        raise OptionError(
            f"pyiceberg knows no catalog {name}. Configure it where the tasks run, in "
            f"~/.pyiceberg.yaml or by environment variables such as PYICEBERG_CATALOG__"
            f"{name.upper()}__URI."
        )
    try:
        # As it is now: pyiceberg itself reads the environment once, when it is imported.
        return load_catalog(name, **{PY_IO_IMPL: _DURABLE, **cast("dict[str, str]", configured)})
    except (ValueError, NotInstalledError, ModuleNotFoundError) as failure:
        # One of pyiceberg's messages ends with all properties, credentials among them.
        reason = _reason(failure).partition(" with the following properties")[0]
        raise OptionError(
            f"The catalog {name} of pyiceberg's configuration cannot be used: {reason}. "
            "Correct its configuration, or install pyiceberg's extra for it."
        ) from None


def _is_outage(failure: Exception) -> bool:
    """Tell whether a failure may pass; by name where a catalog's client need not be installed."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(failure).__mro__}
    if names & _OUTAGES:
        return not names & _LASTING
    return isinstance(failure, OSError) and is_transient(failure)


_OUTAGES = {
    "sqlalchemy.exc.OperationalError",
    "sqlalchemy.exc.TimeoutError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "requests.exceptions.ChunkedEncodingError",
    "botocore.exceptions.HTTPClientError",
    "botocore.exceptions.ConnectionError",
}
_LASTING = {"requests.exceptions.SSLError", "botocore.exceptions.SSLError"}


def _reason(failure: Exception) -> str:
    """Return the first line of a failure: further ones may have statements and their values."""
    # SQLAlchemy puts the driver's error first; the driver's own text is shorter.
    origin: Any = getattr(failure, "orig", None) or failure
    lines = str(origin).splitlines() or [type(failure).__name__]
    return lines[0][:_MOST_TEXT].rstrip(". ")
