"""How does a split travel as a row?

In a job the source emits what to read, and the sink reads it (`sink`). What is in a row may
come from a file, so a row is data: nothing in it is ever executed, and a column is a split only
because the job asked for it, never because of its name.

1. The job makes a token for each query and gives it to the source and to the sink as an option.
   Without one, the source emits rows and the sink writes rows, whatever their columns are called.
2. The source writes a split as JSON and signs it with the token (HMAC-SHA256).
3. The sink checks the signature, then parses the JSON into the classes it was made of, whose
   fields must have the types that they declare.

The token is in no row, no log and no state. Its option's name contains `token`, which makes Spark
redact it wherever it shows options.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import Any

import msgspec
from pyspark.sql.types import BinaryType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError, RunFailedError
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.reading.splits import Split

SPLIT_TOKEN = "cloudFiles.internal.splitToken"  # noqa: S105 - the name of an option
"""Option of source and sink: the source emits splits, the sink reads them, with this token."""
SPLIT_SCHEMA = StructType([StructField("split", BinaryType(), nullable=False)])
"""What the source emits in place of rows."""
_VERSION = b"cloudfiles-split-1"
_TOKEN_BYTES = 32


def new_token() -> str:
    """Make the token of one query."""
    return secrets.token_hex(_TOKEN_BYTES)


def check_token(token: str) -> str:
    """Return a token that `new_token` may have made.

    Raises:
        OptionError: It is another text, which someone might guess.
    """
    if len(token) == 2 * _TOKEN_BYTES and all(letter in "0123456789abcdef" for letter in token):
        return token
    raise OptionError(f"{SPLIT_TOKEN} is set by this package itself; remove it.")


def encode(split: Split, token: str) -> bytes:
    """Write a split as a signed row.

    Paths keep the bytes that are not UTF-8: JSON escapes their lone surrogates.
    """
    written = msgspec.to_builtins(split)
    options = written["context"]["options"]
    for secret in ("split_token", "token"):
        del options[secret]
    options["format_options"] = [options["format"], options["format_options"]]
    body = json.dumps(written, separators=(",", ":")).encode("ascii")
    return b" ".join((_VERSION, _signature(body, token), body))


def decode(row: bytes, token: str) -> Split:
    """Read what `encode` wrote with the same token.

    Raises:
        RunFailedError: The row was not written with this token, or holds something else. Nothing
            of it was used.
    """
    version, _, rest = row.partition(b" ")
    signature, _, body = rest.partition(b" ")
    if version != _VERSION or not hmac.compare_digest(signature, _signature(body, token)):
        raise RunFailedError(
            f"A row of {len(row)} bytes that should say which files to read was not written by the "
            "source of this query. Nothing was read or written for it. Run again; if it happens "
            "again, driver and executors may have different versions of this package."
        )
    try:
        return msgspec.convert(json.loads(body), Split, dec_hook=_format_options)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFailedError(
            f"The source of this query wrote a split that cannot be read: {error}. Install the "
            "same version of airflow-provider-cloudfiles on the driver and on the executors."
        ) from error


def _format_options(_kind: type, written: Any) -> FormatOptions:
    """The options of a format, in the class of that format."""
    name, options = written
    return msgspec.convert(options, FORMATS[name])


def _signature(body: bytes, token: str) -> bytes:
    return hmac.new(token.encode("ascii"), body, hashlib.sha256).hexdigest().encode("ascii")
