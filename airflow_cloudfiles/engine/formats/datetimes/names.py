"""What are the months called in the languages of the option `locale`?

The names are those of the Unicode locale data in Java 17, which Spark's formatters use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError


@dataclass(frozen=True)
class Locale:
    """How a language writes dates and numbers.

    Attributes:
        tag: Its name, for instance `de-DE`.
        full: Full names of the months within a date, separated by blanks.
        short: Abbreviated names, likewise.
        halves: Names of morning and afternoon.
        group: Separates thousands.
        decimal: Separates the fraction.
    """

    tag: str
    full: str
    short: str
    halves: tuple[str, str]
    group: str
    decimal: str

    @cached_property
    def months(self) -> dict[str, int]:
        """Numbers of the months by full name, in lower case."""
        return _numbered(self.full)

    @cached_property
    def short_months(self) -> dict[str, int]:
        """Numbers of the months by abbreviated name, in lower case."""
        return _numbered(self.short)


def _numbered(names: str) -> dict[str, int]:
    return {name.lower(): number for number, name in enumerate(names.split(), start=1)}


_TABLE: Final = """\
en-US|AM|PM|,|.
January February March April May June July August September October November December
Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec
en-GB|am|pm|,|.
January February March April May June July August September October November December
Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec
de-DE|AM|PM|.|,
Januar Februar März April Mai Juni Juli August September Oktober November Dezember
Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.
fr-FR|AM|PM|\u202f|,
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.
es-ES|a.\u00a0m.|p.\u00a0m.|.|,
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
ene feb mar abr may jun jul ago sept oct nov dic
it-IT|AM|PM|.|,
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
gen feb mar apr mag giu lug ago set ott nov dic
nl-NL|a.m.|p.m.|.|,
januari februari maart april mei juni juli augustus september oktober november december
jan. feb. mrt. apr. mei jun. jul. aug. sep. okt. nov. dec.
pt-BR|AM|PM|.|,
janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
jan. fev. mar. abr. mai. jun. jul. ago. set. out. nov. dez.
pl-PL|AM|PM|\u00a0|,
stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
sty lut mar kwi maj cze lip sie wrz paź lis gru
sv-SE|fm|em|\u00a0|,
januari februari mars april maj juni juli augusti september oktober november december
jan. feb. mars apr. maj juni juli aug. sep. okt. nov. dec.
da-DK|AM|PM|.|,
januar februar marts april maj juni juli august september oktober november december
jan. feb. mar. apr. maj jun. jul. aug. sep. okt. nov. dec.
cs-CZ|dop.|odp.|\u00a0|,
ledna února března dubna května června července srpna září října listopadu prosince
led úno bře dub kvě čvn čvc srp zář říj lis pro"""
"""A language in three lines: its tag, morning, afternoon and its separators of thousands and of the
fraction; the full names of its months; the abbreviated ones."""


def _locales(lines: list[str]) -> Iterator[Locale]:
    for marks, full, short in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        tag, morning, afternoon, group, decimal = marks.split("|")
        yield Locale(tag, full, short, (morning, afternoon), group, decimal)


_LOCALES: Final = tuple(_locales(_TABLE.split("\n")))
_BY_TAG: Final = {each.tag.lower(): each for each in _LOCALES}
_BY_LANGUAGE: Final = {each.tag.partition("-")[0]: each for each in reversed(_LOCALES)}
ENGLISH: Final = _LOCALES[0]


_JAVA_NAMES: Final = {"us": "en-us", "locale.us": "en-us"}
"""The documented default of the option, which is the name of a constant of Java."""


def find_locale(tag: str) -> Locale:
    """Find the locale of an option's value, such as `de-DE`, `de_DE` or `de`.

    Raises:
        OptionError: It is none of those that are known here.
    """
    name = tag.strip().lower().replace("_", "-")
    found = _BY_TAG.get(_JAVA_NAMES.get(name, name)) or _BY_LANGUAGE.get(name)
    if found is None:
        known = ", ".join(each.tag for each in _LOCALES)
        raise OptionError(f"locale={tag!r} is not known here. Give one of {known}.")
    return found
