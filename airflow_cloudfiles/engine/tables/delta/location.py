"""Say where a Delta table is, and how `deltalake` gets there.

A folder of this machine, or a place in a cloud. There the data files go through the `ObjectStore`
of the cloud and the log through `deltalake`, which has clients of its own: both are given the same
identity. The options of `deltalake` hold secrets, so it is made when it is needed and kept nowhere.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    SchemaMismatchError,
    TableNotFoundError,
)

from airflow_cloudfiles.engine.errors import (
    SinkError,
    TargetAccessError,
    TargetUnreachableError,
    UnsupportedOptionError,
    is_panic,
)
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.outage import is_passing, is_transient
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, local_path, refuse_source_only
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_CATALOG = re.compile(r"(?i)(uc|unity|glue|hive|hms|unitycatalog)://")
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")
"""`catalog.schema.table`; a folder of that name in the working directory is a path."""
_CUT = re.compile(r"[#?\x00-\x1f\x7f]")
_COLORS = re.compile("\x1b\\[[0-9;]*m")
_STACK = re.compile(r"\n\s+0: .*", re.DOTALL)
"""What the library appends to an error of its own for its authors."""
_MOST_TEXT = 600
_REFUSAL = re.compile(
    r"status code (?!408|409|416|429)4\d\d|lacked (the necessary privileges|valid authentication)"
    r"|os error (1|13|20|21|30)\b"  # not permitted, denied, not a directory, is one, read-only
)
"""What `deltalake` says when the place refused: it raises one class for everything."""
_NOT_BEGUN = re.compile(r"Unable to open file .+#\d+")
"""It could not even open the file that it gives the name of the next version."""
_OUTAGE = re.compile(
    # 416: it asked for the rest of an answer that was cut off at its very end.
    r"status code (408|409|416|429|5\d\d)|HTTP status (server error|client error \((408|409|429) )"
    r"|(?i:error sending request|error decoding response|connection (reset|closed|refused|abort)"
    r"|timed out|timeout|incomplete message|broken pipe|too many open files)"
    r"|LogSegment end version \d+ not the same"  # an entry that one look did not show
)
"""What it says when the place did not answer; its own tries have failed by then."""
_OS_ERROR = re.compile(r"os error (\d+)\b")
_SECRETS = (
    "_secret_access_key", "_session_token", "_account_key", "_sas_token", "_storage_token",
    "proxy_url",
)  # fmt: skip
"""How the names of options end whose values are secrets; a key of Google's is never in a text."""


@dataclass(frozen=True, slots=True)
class DeltaLocation:
    """Where a table is.

    Attributes:
        target: As it was given, for messages.
        uri: In its canonical form.
    """

    target: str
    uri: str

    @classmethod
    def of(cls, target: str) -> DeltaLocation:
        """Read a target.

        Raises:
            UnsupportedOptionError: A location that tables cannot be in.
            SinkError: Its name cannot be used.
        """
        location = cls.to_read(target)
        if location.uri.startswith("memory:"):
            raise UnsupportedOptionError(
                f"The target {target} cannot be written: a table must be on a local disk, S3, "
                "Azure Storage or Cloud Storage."
            )
        _check_name(location)
        return location

    @classmethod
    def to_read(cls, target: str) -> DeltaLocation:
        """Read a target that only this package's own reader opens: any name will do.

        Raises:
            UnsupportedOptionError: A location that this version cannot reach, or a table's name in
                a catalog.
        """
        _refuse_catalog(target)
        return cls(target, normalize_uri(target))

    @property
    def folder(self) -> str | None:
        """The folder on this machine, as Python names it; `None` for a place in a cloud.

        Names are UTF-8 on the disk, and for `deltalake`; Python's are in the locale's encoding.
        """
        if not self.uri.startswith("file:"):
            return None
        return os.fsdecode(key_bytes(local_path(self.uri)))

    @property
    def table_uri(self) -> str:
        """What `deltalake` calls the place."""
        return self.uri if self.folder is None else local_path(self.uri)

    def store(self) -> ObjectStore:
        """Open the store of the table's files."""
        refuse_source_only(self.uri)
        return open_store(self.uri)

    def storage_options(self) -> dict[str, str]:
        """Build the options that `deltalake` needs; they hold secrets, some of which expire soon.

        Raises:
            OptionError: The access is not for this place, or cannot be used.
            TargetUnreachableError: What gives credentials does not answer.
            TargetAccessError: It gives none.
        """
        if self.folder is not None:
            return {}
        bucket, _ = bucket_and_path(self.uri)
        vendor = BY_SCHEME[self.uri.partition(":")[0]]
        try:
            leaf = vendor.load("store", needed_for=self.uri)
            return cast("dict[str, str]", leaf.table_options(bucket))
        except OSError as error:
            lasts = not is_transient(error)
            raise self._failed("cannot be reached", str(error), lasts=lasts) from error

    @contextlib.contextmanager
    def translate_errors(self, what: str) -> Iterator[None]:
        """Put what `deltalake` raises into a sentence.

        What callers decide by passes: a commit that others won, a table that is not there.

        Args:
            what: What was being done: `cannot be opened`.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: The place refused us.
            SinkError: The table did not do what it was asked.
        """
        try:
            yield
        except (CommitFailedError, TableNotFoundError, SchemaMismatchError):
            raise
        except (DeltaError, OSError) as error:
            text = _without_secrets(str(error), self.storage_options())
            if isinstance(error, OSError) or _REFUSAL.search(text) or _is_outage(text):
                raise self._failed(what, text, lasts=self._lasts(what, error, text)) from None
            raise SinkError(f"The Delta table {self.target} {what}: {text}") from None
        except BaseException as error:
            if not is_panic(error):
                raise
            text = _without_secrets(str(error), self.storage_options())
            raise self._failed(what, f"deltalake has panicked ({text}).", lasts=False) from None

    @contextlib.contextmanager
    def translate_store_errors(self, what: str) -> Iterator[None]:
        """Put what a store or the local disk raises into a sentence.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: The place refused us.
        """
        try:
            yield
        except OSError as error:
            # On a disk, what has no number comes from a library that does not tell it.
            is_untold = self.folder is not None and error.errno is None
            lasts = not (is_untold or is_transient(error))
            raise self._failed(what, f"{error}.", lasts=lasts) from error

    def _lasts(self, what: str, error: Exception, reason: str) -> bool:
        """Tell whether another try would meet the same refusal.

        On a disk, only the next try can tell whether a commit was taken that the disk then failed,
        unless it is this package's own, whose error has a number.
        """
        if isinstance(error, OSError) and error.errno is not None:
            return not is_transient(error)
        if _REFUSAL.search(reason) is None:
            return False
        is_commit = self.folder is not None and what.startswith("may not have taken")
        return not is_commit or _NOT_BEGUN.search(reason) is not None

    def _failed(self, what: str, reason: str, *, lasts: bool) -> SinkError:
        failure = f"The Delta table {self.target} {what}: {reason}"
        if lasts:
            return TargetAccessError(
                f"{failure} Correct the location, and grant the identity in use permission to "
                "list, read, write and delete there."
            )
        return TargetUnreachableError(f"{failure} Run again when the location can be reached.")


def _is_outage(text: str) -> bool:
    """Tell whether the failure that `deltalake` reports may have passed by the next try."""
    numbers = map(int, _OS_ERROR.findall(text))
    return _OUTAGE.search(text) is not None or any(is_passing(number) for number in numbers)


def _refuse_catalog(target: str) -> None:
    """Refuse the name of a table in a catalog: a table is where its path says."""
    catalog = _CATALOG.match(target)
    if catalog is None and (_TABLE_NAME.fullmatch(target) is None or os.path.exists(target)):  # noqa: PTH110 - any text
        return
    what = f"in a catalog ({catalog[1].lower()})" if catalog else "in a catalog"
    raise UnsupportedOptionError(
        f"{target} is the name of a table {what}, and catalogs are not asked. Give the path of the "
        "table, such as s3://bucket/tables/name: for Unity Catalog and Glue that is the location "
        "which DESCRIBE DETAIL shows."
    )


def _check_name(location: DeltaLocation) -> None:
    """Refuse names that `deltalake`, which takes them for parts of a URL, would change."""
    found = None
    if _ESCAPE.search(location.uri):
        found = "a % followed by two hexadecimal digits"
    elif location.folder is None:
        path = bucket_and_path(location.uri)[1]
        if _CUT.search(path):
            found = "a #, a ? or a control character"
        elif path and any(part in {"", ".", ".."} for part in path.split("/")):
            found = "a doubled slash, a . or a .."
    if found:
        raise SinkError(
            f"The target {location.target!r} has {found} in its path, which the deltalake library "
            "does not take literally. Choose another path."
        )


def _without_secrets(text: str, options: dict[str, str]) -> str:
    """Return an error's text as one line, without the secrets it was given."""
    line = " ".join(_STACK.sub("", _COLORS.sub("", text)).replace("↳", "").split())
    for key, value in options.items():
        if key.endswith(_SECRETS):
            line = line.replace(value, "…")
    return line if len(line) <= _MOST_TEXT else line[:_MOST_TEXT] + "…"
