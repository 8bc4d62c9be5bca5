"""Which names of options are known, and how is any other refused?

Derived from the declarations: of the source's options (`cloud_files.py`, `discovery.py`), of each
format (`formats`), of the sink (`sink.py`), and of what is refused (`refusals.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from airflow_cloudfiles.engine.errors import UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.declared import Option, OptionGroup, options_of
from airflow_cloudfiles.engine.options.formats.registry import FORMATS, formats_by_option
from airflow_cloudfiles.engine.options.refusals import REFUSED, refused
from airflow_cloudfiles.engine.options.sink import OF_SINK

Groups = tuple[type[OptionGroup], ...]
"""The dataclasses that declare the options of a source."""

_BARE: Final = "cloudfiles."


@cache
def of_source(groups: Groups) -> Mapping[str, Option[Any]]:
    """The options of a source, whatever its format, by each of their names in lower case."""
    return {
        name.lower(): each
        for group in groups
        for each in (*options_of(group).values(), *group.WITHOUT_FIELD)
        for name in each.names
    }


@cache
def documented(groups: Groups) -> Mapping[str, str]:
    """Every name a user may have meant, by its lower-case form."""
    public = (each for each in of_source(groups).values() if not each.is_internal)
    names = (
        *(name for each in FORMATS.values() for name in each.names()),
        *(one.name for each in FORMATS.values() for one in each.REFUSED),
        *(name for each in public for name in each.names),
        *(each.name for each in REFUSED),
    )
    return {name.lower(): name for name in names}


def usable(groups: Groups) -> list[str]:
    """Name the options that a stream into a table can have, whatever its format, in order."""
    public = (each.name for each in of_source(groups).values() if not each.is_internal)
    of_formats = (name for each in FORMATS.values() for name in each.names())
    return sorted({*public, *of_formats, *OF_SINK}, key=str.lower)


def check_names(
    given: Mapping[str, str],
    typed: Mapping[str, str],
    groups: Groups,
    format_name: str,
    *,
    validate: bool,
) -> None:
    """Refuse every key that this version does not obey, each with what to do instead.

    Args:
        given: The strings of options, by their names in lower case.
        typed: The names as they were typed, by their lower-case form.
        groups: The dataclasses that declare the options of a source.
        format_name: The format of the source.
        validate: Whether keys that nobody documents are refused too (B101). Documented ones that
            would change what is read always are.

    Raises:
        UnknownOptionError: A key nobody documents; the text names the nearest ones.
        UnsupportedOptionError: A documented key or value this version does not offer.
    """
    own = FORMATS[format_name].refused()
    for key, value in given.items():
        if key in own:
            own[key].refuse(value, format_name)
        elif _is_served(key, groups, format_name):
            continue
        elif (one := refused(key)) is not None:
            one.refuse(value)
        elif validate:
            raise UnknownOptionError(_unknown(key, typed.get(key, key), groups))


def _is_served(key: str, groups: Groups, format_name: str) -> bool:
    """Whether a source of this format obeys an option.

    Raises:
        UnsupportedOptionError: Only sources of other formats do.
    """
    common = of_source(groups).get(key)
    formats = formats_by_option().get(key, ()) if common is None else common.formats
    if formats and format_name not in formats:
        raise UnsupportedOptionError(
            f"{documented(groups)[key]} is an option of format {', '.join(formats)}, not of "
            f"{format_name}. Remove it."
        )
    return common is not None or bool(formats)


def _unknown(key: str, typed: str, groups: Groups) -> str:
    """Say that a key, as it was typed, is unknown, and which one was probably meant."""
    sink = {name.lower(): name for name in OF_SINK}
    if key in sink:
        return f"{sink[key]} is an option of the Delta sink: give it to writeStream."
    known = {**documented(groups), **sink}
    options = {name.removeprefix(_BARE): option for name, option in known.items()}
    near = difflib.get_close_matches(key.removeprefix(_BARE), options, n=2, cutoff=0.6)
    hint = f" Did you mean {' or '.join(options[name] for name in near)}?" if near else ""
    return (
        f"Unknown option {cut(typed)!r}.{hint} `cloudfiles docs options` lists them; "
        "cloudFiles.validateOptions=false accepts unknown ones."
    )
