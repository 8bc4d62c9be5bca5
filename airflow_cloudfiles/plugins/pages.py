"""How is a page written?

With Jinja, which Airflow brings, from the templates in this package; everything that is put into a
page is escaped, and so is each character that would turn or hide what stands beside it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_cloudfiles.engine.messages import counted, plural, printable

ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#017cee" '
    'stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="M7 15a4 4 0 1 1 '
    '.9-7.9A5.5 5.5 0 0 1 18.4 8 3.5 3.5 0 0 1 18 15"/><path d="M12.5 11v9m-3-3 3 3 3-3"/></svg>'
)
"""A cloud, and an arrow down."""
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_MINUTE: Final = 60


def page(template: str, **values: object) -> str:
    """Write a page."""
    return _environment().get_template(template).render(now=datetime.now(tz=UTC), **values)


def size(count: float) -> str:
    """A number of bytes, to three digits."""
    value, unit = float(count), 0
    while value >= _THOUSAND and unit < len(_UNITS) - 1:
        value, unit = value / _THOUSAND, unit + 1
    return f"{value:,.0f} {plural(count, 'byte')}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def time(value: str | datetime | None) -> str:
    """A time in UTC, to the second; a dash for none."""
    if not value:
        return "-"
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(value: str | None, now: datetime) -> str:
    """How long ago a time is, in its largest unit."""
    if not value:
        return "-"
    seconds = max(0.0, (now - datetime.fromisoformat(value)).total_seconds())
    for noun, length in (("day", 86_400), ("hour", 3600), ("minute", _MINUTE)):
        if seconds >= length:
            return counted(int(seconds // length), noun)
    return counted(int(seconds), "second")


def within(path: str, source: str) -> str:
    """The URI of a file, from its source on where it is below it."""
    start = source if "://" in source else f"file://{source}"
    return path.removeprefix(f"{start.rstrip('/')}/")


def _visible(value: object) -> object:
    """What is put into a page; a filter's own markup stays as it is."""
    return printable(value, but="\n") if type(value) is str else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("airflow_cloudfiles.plugins"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": size,
        "counted": counted,
        "plural": plural,
        "time": time,
        "age": age,
        "within": within,
        "in_path": lambda text: quote(str(text), safe=""),
    }
    return made
