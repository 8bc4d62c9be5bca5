"""Read the values of options, and refuse the options that this version does not have.

A kind reads the text of an option: a boolean, a number, a size, an interval, a time. A text that is
none gets an error with the option, what was expected and what was given.

A documented option that is refused is declared once: its name, the reason with what to do instead,
and the values that change nothing and are accepted. What only one format refuses is with the
options of that format.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.messages import cut


@dataclass(frozen=True, slots=True)
class RefusedOption:
    """A documented option that is refused."""

    name: str
    """As users write it."""
    reason: str
    """Why, and what to do instead."""
    accepts: tuple[str, ...] = ()
    """Values, in lower case, that change nothing: these are accepted."""

    def refuse(self, value: str, format_name: str = "") -> None:
        """Raise, unless the value changes nothing.

        Args:
            value: What was given. It is in the error only where some values are accepted: it may
                be a secret.
            format_name: The format that refuses the option, if others have it.

        Raises:
            UnsupportedOptionError: It is refused.
        """
        if value.lower() in self.accepts:
            return
        given = f"{self.name}={cut(value)}" if self.accepts else self.name
        where = f" for format {format_name}" if format_name else ""
        raise UnsupportedOptionError(f"{given} is refused{where}: {self.reason}")


def _all(reason: str, *names: str) -> tuple[RefusedOption, ...]:
    return tuple(RefusedOption(name, reason) for name in names)


CREDENTIALS: Final = _all(
    "credentials never travel as options, which are rendered, logged and stored. Use an Airflow "
    "connection (conn_id), or the environment's own credential chain.",
    "cloudFiles.awsAccessKey",
    "cloudFiles.awsSecretKey",
    "cloudFiles.tenantId",
    "cloudFiles.clientId",
    "cloudFiles.clientSecret",
    "cloudFiles.connectionString",
    "cloudFiles.client",
    "cloudFiles.clientEmail",
    "cloudFiles.privateKey",
    "cloudFiles.privateKeyId",
)
"""Credentials: refused for good."""

IN_CONNECTION: Final = _all(
    "it belongs to the identity that is used. Give it in the extra field of the Airflow "
    "connection (conn_id), or in the environment's own credential chain.",
    "cloudFiles.roleArn",
    "cloudFiles.roleExternalId",
    "cloudFiles.roleSessionName",
    "cloudFiles.stsEndpoint",
)
"""Parts of an identity: they are in the connection."""

IN_SET_UP: Final = _all(
    "it is given once, when the queue is set up (`cloudfiles docs set-up-notifications`), not to "
    "the stream. Remove it.",
    "cloudFiles.resourceTag",
    "cloudFiles.resourceGroup",
    "cloudFiles.subscriptionId",
    "cloudFiles.restrictNotificationSetupToSameAWSAccountId",
)
"""Of the notification resources: they are given when these are set up."""

PLATFORM: Final = _all(
    "it belongs to Databricks' platform. Use an Airflow connection (conn_id), or the environment's "
    "own credential chain.",
    "databricks.serviceCredential",
    "cloudFiles.databricks.serviceCredential",
    "databricks.connection",
    "cloudFiles.databricks.connection",
)
"""Options of Databricks' own platform."""

NOT_READ: Final = (
    RefusedOption(
        "cloudFiles.readChangeFeed",
        "files have no change feed, and that of a Delta table is not read. Remove it. A table "
        "follows its files with cloudFiles.onOverwrite=replace and cloudFiles.onDelete=delete; "
        "what is appended to a Delta table is read with format delta.",
        ("false",),
    ),
    RefusedOption(
        "ignoredPathSegmentRegex",
        "which names are ignored is fixed, as in Spark: those that begin with a dot or an "
        "underscore. Choose files by pathGlobFilter and by a pattern in the path.",
    ),
    RefusedOption(
        "timeFormat",
        "there is no type TIME here, so no value is read by it. Remove it: a time of day is read "
        "as a STRING.",
    ),
)
"""Options of what is not read."""

REFUSED: Final = (*CREDENTIALS, *IN_CONNECTION, *IN_SET_UP, *PLATFORM, *NOT_READ)
"""All that are refused for every format."""

_BY_KEY: Final = {each.name.lower(): each for each in REFUSED}
_RESOURCE_TAG: Final = "cloudfiles.resourcetag"


def refused(key: str) -> RefusedOption | None:
    """Find what is refused under a name, in lower case; `cloudFiles.resourceTag` has any ending."""
    return _BY_KEY.get(_RESOURCE_TAG if key.startswith(_RESOURCE_TAG) else key)


GIB = 2**30
Value = TypeVar("Value")
Word = TypeVar("Word", bound=str)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SECONDS = {
    "millisecond": 0.001,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 7 * 86400,
}
_INTERVAL = re.compile(r"(?:interval\s+)?((?:\d+(?:\.\d+)?\s*[a-z]+\s*)+)")
_RATIO = re.compile(r"\d{0,3}(?:\.\d{1,17})?")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def parse_size(text: str) -> int | None:
    """Read a byte string as Spark writes it (`10g`, `512 MB`, `1048576`); `None` if it is none."""
    found = re.fullmatch(r"\s*(\d+)\s*([bkmgtp]?)(?:i?b)?\s*", text.lower())
    return int(found[1]) * _UNITS[found[2]] if found else None


def parse_interval(text: str) -> float | None:
    """Read an interval as Spark writes it (`1 day`, `interval 6 hours`, `1 hour 30 minutes`).

    Returns:
        Seconds; `None` when it is no interval of a fixed length (months and years are not).
    """
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None:
        return None
    total = 0.0
    for amount, unit in _PART.findall(found[1]):
        seconds = _SECONDS.get(unit.removesuffix("s"))
        if seconds is None:
            return None
        total += float(amount) * seconds
    return total


def parse_time(text: str) -> int | None:
    """Read a time in ISO 8601, in UTC where it names no zone; `None` if it is none.

    Returns:
        Microseconds since 1970-01-01 UTC.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 10**6 + since.microseconds


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[Value]):
    """One kind of values."""

    label: str
    """What the reference of options calls it."""
    read: Callable[[str, str], Value]
    """From the name of an option, for errors, and its text to its value."""
    ignores_empty: bool = False
    """Whether an empty text is taken as if the option were not given."""


def option_text(value: object) -> str:
    """Write the value of an option as Spark does: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_ends(name: str, text: str) -> str:
    """Refuse a location or name that a blank or a line end begins or ends.

    A mounted file or a template adds one easily; the location is another one then, where nothing
    ever is.

    Args:
        name: What it is of, as its user knows it.
        text: As it was given.

    Raises:
        OptionError: It has one.
    """
    if text != text.strip():
        raise OptionError(
            f"{name}: {text!r} begins or ends with a blank or a line end. Remove it. (A folder "
            f"whose name does end so is written with a slash behind it.)"
        )
    return text


def choice(words: tuple[Word, ...]) -> ValueKind[Word]:
    """Declare one of some words, compared without case."""

    def read(name: str, text: str) -> Word:
        for word in words:
            if word.lower() == text.lower():
                return word
        near = difflib.get_close_matches(text, words, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise OptionError(f"{name} must be one of {', '.join(words)}; got {cut(text)!r}.{hint}")

    return ValueKind(" / ".join(f"`{word}`" for word in words), read)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise OptionError(f"{name} must be true or false, got {cut(text)!r}.")
    return text.lower() == "true"


def _whole_number(least: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < least:
            raise OptionError(
                f"{name} must be a whole number of at least {least}, got {cut(text)!r}."
            )
        return int(text)

    return read


def _size(name: str, text: str) -> int:
    size = parse_size(text)
    if not size:
        raise OptionError(
            f"{name} must be a size of at least one byte such as 10g, 512m or 1048576; "
            f"got {cut(text)!r}."
        )
    return size


def _record_size(name: str, text: str) -> int:
    found = _size(name, text)
    if found > GIB:
        raise OptionError(f"{name} must be 1g at most, which is what a column holds; got {text!r}.")
    return found


def _interval(name: str, text: str) -> float:
    seconds = parse_interval(text)
    if not seconds:
        raise OptionError(
            f"{name} must be an interval of a fixed length such as '1 day', '6 hours' or "
            f"'90 minutes'; got {cut(text)!r}."
        )
    return seconds


def _time(name: str, text: str) -> int:
    time_us = parse_time(text)
    if time_us is None:
        raise OptionError(
            f"{name} must be a time such as 2026-01-31T08:00:00 (UTC) or "
            f"2026-01-31T08:00:00+01:00; got {cut(text)!r}."
        )
    return time_us


def _ratio(name: str, text: str) -> float:
    plain = text.strip()
    ratio = float(plain) if plain and _RATIO.fullmatch(plain) else 0.0
    if not 0 < ratio <= 1:
        raise OptionError(
            f"{name} must be a number above 0 and at most 1, such as 0.1; got {cut(text)!r}."
        )
    return ratio


def _share(name: str, text: str) -> float:
    plain = text.strip()
    share = float(plain) if plain and _RATIO.fullmatch(plain) else 2.0
    if share > 1:
        raise OptionError(f"{name} must be a number from 0 to 1, such as 0.1; got {cut(text)!r}.")
    return share


def _separator(name: str, text: str) -> str:
    if not text:
        raise OptionError(
            f"{name} must not be empty. Give what ends a record, or leave it out for line breaks."
        )
    return text


def _rewrites(name: str, text: str) -> tuple[tuple[str, str], ...]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        key and isinstance(value, str) and value for key, value in found.items()
    ):
        raise OptionError(
            f'{name} must be a JSON object from prefix to prefix, such as {{"s3://old/in": '
            f'"s3://new/in"}}; got {cut(text)!r}.'
        )
    return tuple(found.items())


def _names(_name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


boolean = ValueKind("true or false", _boolean)
"""True or false, in any case."""
positive = ValueKind("number", _whole_number(1))
"""A whole number of at least 1."""
at_least_zero = ValueKind("number", _whole_number(0))
"""A whole number of at least 0."""
internal_number = ValueKind("number", lambda _, text: int(text), ignores_empty=True)
"""A whole number that this package wrote itself."""
ratio = ValueKind("number", _ratio, ignores_empty=True)
"""A share above 0, at most 1."""
share = ValueKind("number", _share, ignores_empty=True)
"""A share from 0 to 1."""
size = ValueKind("size", _size)
"""Bytes, at least one, as Spark writes them."""
record_size = ValueKind("size", _record_size)
"""Bytes of one record, at most a gibibyte."""
interval = ValueKind("interval", _interval)
"""Seconds of a fixed length of time, as Spark writes it."""
time = ValueKind("time", _time)
"""Microseconds since 1970-01-01 UTC of a time in ISO 8601."""
text = ValueKind("text", lambda _, text: text, ignores_empty=True)
"""A text as it is; an empty one is none."""
place = ValueKind("text", check_ends, ignores_empty=True)
"""A location or the name of something, which no blank begins or ends; an empty one is none."""
any_text = ValueKind("text", lambda _, text: text)
"""A text as it is, also an empty one."""
separator = ValueKind("text", _separator)
"""What ends a record: a text that is not empty."""
names = ValueKind("names, separated by commas", _names)
"""Names of columns; an empty text names none."""
lines = ValueKind("lines", lambda _, text: tuple(filter(None, text.split("\n"))))
"""Texts, one a line."""
rewrites = ValueKind("JSON object", _rewrites)
"""The pairs of a JSON object of strings."""
