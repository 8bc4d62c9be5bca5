"""Which options CSV obeys, and which it refuses and why."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from tests.support.formats.csv_files import options


def parsed(**others: object) -> CsvOptions:
    found = options(**others).format_options
    assert isinstance(found, CsvOptions)
    return found


def test_every_option_has_an_effect_on_what_is_parsed() -> None:
    default = parsed()
    given = {
        "sep": ";",
        "delimiter": ";",
        "quote": "'",
        "escape": '"',
        "charToEscapeQuoteEscaping": "#",
        "comment": "#",
        "header": "false",
        "skipRows": "2",
        "multiLine": "true",
        "encoding": "UTF-16",
        "charset": "UTF-16",
        "lineSep": ";;",
        "nullValue": "NA",
        "emptyValue": "E",
        "nanValue": "nan",
        "positiveInf": "inf",
        "negativeInf": "-inf",
        "dateFormat": "yyyy",
        "timestampFormat": "yyyy",
        "timestampNTZFormat": "yyyy",
        "timeZone": "Europe/Paris",
        "locale": "de",
        "preferDate": "false",
        "prefersDecimal": "true",
        "ignoreLeadingWhiteSpace": "true",
        "ignoreTrailingWhiteSpace": "true",
        "maxColumns": "3",
        "maxCharsPerColumn": "3",
        "maxRecordBytes": "1m",
        "unescapedQuoteHandling": "stop_at_closing_quote",
    }
    for name, value in given.items():
        assert parsed(**{name: value}) != default, name
    # Accepted as documented: Auto Loader ignores the one, and the other is what it does.
    assert parsed(enforceSchema="false", mergeSchema="true", maxCharsPerColumn="-1") == default
    assert {*given, "enforceSchema"} == {*CsvOptions.names()}
    assert CsvOptions.refused()["mergeschema"].accepts == ("true",)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("inferSchema", "true", "cloudFiles.inferColumnTypes=true"),
        ("samplingRatio", "0.5", "sampleSize"),
        ("parserCaseSensitive", "false", "readerCaseSensitive"),
        ("enableDateTimeParsingFallback", "true", "pattern"),
        ("inputBufferSize", "1", "no such buffer"),
        ("singleVariantColumn", "v", "has columns"),
        ("mergeSchema", "false", "merged"),
        ("unescapedQuoteHandling", "SKIP_VALUE", "drops"),
        ("unescapedQuoteHandling", "BACK_TO_DELIMITER", "drops"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(name: str, value: str, says: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"{name}.*{says}"):
        parsed(**{name: value})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"quote": "''"}, "quote must be one character"),
        ({"sep": "\\"}, "single backslash"),
        ({"sep": ""}, "must not be empty"),
        ({"encoding": "utf-9"}, "Did you mean UTF-8"),
        ({"sep": "\\q"}, "unknown escape"),
        ({"sep": "\n"}, "line break"),
        ({"sep": '"'}, "contradict"),
        ({"sep": ",", "delimiter": ";"}, "two names"),
        ({"encoding": "UTF-9"}, "no encoding of text"),
        ({"encoding": "base64"}, "no encoding of text"),
        ({"lineSep": ""}, "one or two characters"),
        ({"lineSep": "abc"}, "one or two characters"),
        ({"lineSep": ","}, "contradict"),
        ({"lineSep": "\r\n", "multiLine": "true"}, "contradict"),
        ({"header": "maybe"}, "header must be true or false"),
        ({"maxColumns": "0"}, "maxColumns"),
        ({"maxCharsPerColumn": "-2"}, "maxCharsPerColumn"),
        ({"skipRows": "-1"}, "skipRows"),
        ({"unescapedQuoteHandling": "STOP"}, "must be one of"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parsed(**given)


def test_separators_are_written_as_for_spark() -> None:
    for written, read in [("\\t", "\t"), ("\\\\", "\\"), ("||", "||"), ("\\u0001", "\x01")]:
        assert parsed(sep=written).sep == read
    assert parsed(quote="").quote == parsed(quote="\\u0000").quote == ""


def test_only_lines_of_utf_8_are_read_in_parts() -> None:
    assert parsed().can_split()
    assert parsed(lineSep=";").can_split()
    assert not parsed(lineSep="\r\n").can_split()
    assert not parsed(multiLine=True).can_split()
    assert not parsed(encoding="ISO-8859-1").can_split()
    assert parsed(encoding="utf8").can_split()
