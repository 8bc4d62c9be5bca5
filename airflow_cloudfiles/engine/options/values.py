"""How is the value of an option written?

Texts become booleans, numbers, sizes, intervals and times here; what is none gets an error that
names the option, what was expected and what was given.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options import names as option_names
from airflow_cloudfiles.engine.shortened import cut

_Choice = TypeVar("_Choice", bound=str)
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


class Values:
    """Typed access to the given texts, with errors that name the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false, in any case."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"{name} must be true or false, got {cut(text)!r}.")
        return text.lower() == "true"

    def choice(self, name: str, choices: tuple[_Choice, ...], default: str) -> _Choice:
        """One of some words, compared without case."""
        text = self._given.get(name.lower(), default)
        for choice in choices:
            if choice.lower() == text.lower():
                return choice
        near = difflib.get_close_matches(text, choices, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise OptionError(f"{name} must be one of {', '.join(choices)}; got {cut(text)!r}.{hint}")

    def positive(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < 1:
            raise OptionError(f"{name} must be a whole number of at least 1, got {cut(text)!r}.")
        return int(text)

    def at_least_zero(self, name: str, default: int) -> int:
        """A whole number of at least 0."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,18}", text.strip()):
            raise OptionError(f"{name} must be a whole number of at least 0, got {cut(text)!r}.")
        return int(text)

    def raw(self, name: str) -> str | None:
        """A text as it is, also an empty one; `None` when the option is not given."""
        return self._given.get(name.lower())

    def optional_number(self, name: str) -> int | None:
        """A number that this package wrote itself."""
        text = self._given.get(name.lower())
        return int(text) if text else None

    def size(self, name: str, default: int | None) -> int | None:
        """Bytes of a size."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        size = parse_size(text)
        if not size:
            raise OptionError(
                f"{name} must be a size of at least one byte such as 10g, 512m or 1048576; "
                f"got {cut(text)!r}."
            )
        return size

    def text(self, name: str) -> str | None:
        """A text as it is; an empty one is none."""
        return self._given.get(name.lower()) or None

    def interval(self, name: str) -> float | None:
        """Seconds of an interval."""
        text = self._given.get(name.lower())
        if text is None:
            return None
        seconds = parse_interval(text)
        if not seconds:
            raise OptionError(
                f"{name} must be an interval of a fixed length such as '1 day', '6 hours' or "
                f"'90 minutes'; got {cut(text)!r}."
            )
        return seconds

    def time(self, name: str) -> int | None:
        """Microseconds since 1970 of a time."""
        text = self._given.get(name.lower())
        if text is None:
            return None
        time_us = parse_time(text)
        if time_us is None:
            raise OptionError(
                f"{name} must be a time such as 2026-01-31T08:00:00 (UTC) or "
                f"2026-01-31T08:00:00+01:00; got {cut(text)!r}."
            )
        return time_us

    def rewrites(self, name: str) -> tuple[tuple[str, str], ...]:
        """The pairs of a JSON object of texts."""
        text = self._given.get(name.lower())
        if text is None:
            return ()
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

    def format(self) -> str:
        """`cloudFiles.format`, in its documented spelling."""
        text = self._given.get("cloudfiles.format")
        if not text:
            raise OptionError(
                f"cloudFiles.format is required: one of {', '.join(option_names.FORMATS)}."
            )
        for name in option_names.FORMATS:
            if name.lower() == text.lower():
                return name
        near = difflib.get_close_matches(text, option_names.FORMATS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise OptionError(
            f"cloudFiles.format must be one of {', '.join(option_names.FORMATS)}; "
            f"got {cut(text)!r}.{hint}"
        )
