"""An option is declared once, and everything about it follows."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.cloud_files import (
    GROUPS,
    CloudFilesOptions,
    documented,
    of_source,
)
from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.options.sink import OF_SINK, SinkOptions
from airflow_cloudfiles.engine.options.values import REFUSED, boolean, positive, text

CLASSES = (*GROUPS, *FORMATS.values(), SinkOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(OptionGroup):
    """Options of a test."""

    name: str = option("name", text, required="name is required.")
    count: int = option("howMany", positive, default=3, also=("number",))
    flag: bool | None = option("flag", boolean, default=None)
    secret: str | None = option("cloudFiles.internal.secret", text, default=None, secret=True)


def test_a_class_is_read_from_its_declarations() -> None:
    assert Sample.read({"name": "a"}) == Sample(name="a", count=3)
    given = {"name": "a", "howmany": "5", "flag": "TRUE", "other": "x"}
    assert Sample.read(given) == Sample(name="a", count=5, flag=True)


def test_an_empty_text_counts_only_for_kinds_that_have_one() -> None:
    with pytest.raises(OptionError, match="name is required"):
        Sample.read({"name": ""})
    with pytest.raises(OptionError, match="flag must be true or false, got ''"):
        Sample.read({"name": "a", "flag": ""})


def test_two_names_of_one_option_have_one_value() -> None:
    assert Sample.read({"name": "a", "number": "5"}).count == 5
    assert Sample.read({"name": "a", "number": "5", "howmany": "5 "}).count == 5
    with pytest.raises(OptionError, match="howMany='4' and number='5' are two names of one"):
        Sample.read({"name": "a", "number": "5", "howmany": "4"})
    with pytest.raises(OptionError, match="number must be a whole number"):
        Sample.read({"name": "a", "number": "x"})


def test_a_secret_is_not_in_the_representation() -> None:
    assert "hunter2" not in repr(Sample(name="a", secret="hunter2"))


@pytest.mark.parametrize("group", CLASSES, ids=lambda group: group.__name__)
def test_a_default_is_what_a_class_has_where_nothing_is_given(group: type[OptionGroup]) -> None:
    declared = options_of(group)
    for each in fields(group):  # type: ignore[arg-type]
        if each.name in declared and not declared[each.name].required:
            assert declared[each.name].default == each.default


@pytest.mark.parametrize("group", CLASSES, ids=lambda group: group.__name__)
def test_no_class_declares_a_name_twice(group: type[OptionGroup]) -> None:
    declared = (*options_of(group).values(), *group.WITHOUT_FIELD)
    names = [name.lower() for each in declared for name in each.names]
    assert len(names) == len({*names})


def test_an_option_is_either_of_the_source_or_of_formats_or_refused() -> None:
    own = {name.lower() for kind in FORMATS.values() for name in kind.names()}
    assert not own & of_source(GROUPS).keys()
    assert not {each.name.lower() for each in REFUSED} & (own | of_source(GROUPS).keys())


def test_internal_options_are_known_and_never_proposed() -> None:
    internal = {key for key, each in of_source(GROUPS).items() if each.is_internal}
    assert len(internal) == 8
    assert not internal & documented(GROUPS).keys()
    CloudFilesOptions.parse(
        {"cloudFiles.format": "text", "path": "/in", "cloudFiles.internal.upToEntry": "0"}
    )


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_source_s_options_are_refused_for_formats_without_them(format_name: str) -> None:
    given = {"cloudFiles.format": format_name, "path": "/in", "rowTag": "row"}
    if format_name != "xml":
        del given["rowTag"]
    for each in of_source(GROUPS).values():
        if each.formats and format_name not in each.formats:
            with pytest.raises(UnsupportedOptionError, match=f"not of {format_name}|for format"):
                CloudFilesOptions.parse({**given, each.name: "x"})


def test_a_task_takes_the_options_of_the_sink_that_are_about_its_table() -> None:
    assert OF_SINK == (
        "mergeSchema",
        "typeWidening",
        "typeWideningMaxBytes",
        "partitionBy",
        "overwriteSchema",
        "delta.columnMapping.mode",
        "delta.enableTypeWidening",
        "delta.appendOnly",
        "targetFileSize",
        "autoCompact",
        "autoCompactMinFiles",
        "mergeKeys",
        "mergeOrderBy",
        "mergeDeleteWhen",
        "mergeWhenMatched",
        "mergeWhenNotMatched",
        "mergeNullKeys",
        "expect.maxRescuedShare",
        "expect.maxCorruptShare",
        "expect.requiredColumns",
        "expect.minRows",
        "expect.maxRows",
        "expect.onViolation",
        "expect.quarantineTable",
    )


def test_encodings_are_compared_by_what_they_mean() -> None:
    for format_name in ("csv", "text"):
        given = {"cloudFiles.format": format_name, "path": "/in", "encoding": "latin1"}
        CloudFilesOptions.parse({**given, "charset": "ISO-8859-1"})
        with pytest.raises(OptionError, match="two names of one option"):
            CloudFilesOptions.parse({**given, "charset": "UTF-8"})
