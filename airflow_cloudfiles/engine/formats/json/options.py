"""What do the options of JSON mean for those who read it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.json.converters import JsonScalarRules
from airflow_cloudfiles.engine.formats.json.tokens import Grammar
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import SPARK, NumberRule
from airflow_cloudfiles.engine.options.formats.json import JsonOptions

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


def json_options(options: CloudFilesOptions | None) -> JsonOptions:
    """The options of JSON; the defaults where there are none."""
    own = None if options is None else options.format_options
    return own if isinstance(own, JsonOptions) else JsonOptions()


def grammar_of(options: JsonOptions) -> Grammar:
    """What is taken for JSON."""
    return Grammar(
        comments=options.allow_comments,
        single_quotes=options.allow_single_quotes,
        unquoted_names=options.allow_unquoted_field_names,
        leading_zeros=options.allow_numeric_leading_zeros,
        any_escape=options.allow_backslash_escaping_any_character,
        control_characters=options.allow_unquoted_control_chars,
        not_finite=options.allow_non_numeric_numbers,
    )


def scalar_rules(
    options: JsonOptions, numbers: NumberRule = SPARK, *, exact: bool = True
) -> JsonScalarRules:
    """How leaves are written; default patterns are left to the casts that are made for them.

    Raises:
        OptionError: A pattern, zone or locale that is none.
    """
    patterns = TimePatterns.of(options, exact=exact)
    return JsonScalarRules(
        patterns=None if patterns.are_default else patterns,
        not_finite=options.allow_non_numeric_numbers,
        locale=patterns.locale,
        numbers=numbers,
        exact=exact,
    )
