"""Options have names, types and documentation in Python, all of it from their declarations."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.builders import KINDS, OPTION, Options
from airflow_cloudfiles.engine.options.cloud_files import GROUPS, CloudFilesOptions, of_source
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.options.sink import SinkOptions

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.builders import OptionBuilder
    from airflow_cloudfiles.engine.options.declared import Option

METHODS = [(kind, name) for kind, builder in KINDS.items() for name in builder.names()]


def declared(builder: type[OptionBuilder], name: str) -> Option[Any]:
    found: Option[Any] = getattr(getattr(builder, name), OPTION)
    return found


def parsed(given: OptionBuilder) -> CloudFilesOptions:
    return CloudFilesOptions.parse(given, path="/in")


@pytest.mark.parametrize("name", FORMATS)
def test_a_source_has_a_method_for_each_option_of_its_format_and_for_no_other(name: str) -> None:
    [builder] = [kind for kind in KINDS.values() if kind().get("cloudFiles.format") == name]
    served = [
        each
        for each in of_source(GROUPS).values()
        if not each.is_internal and (not each.formats or name in each.formats)
    ]
    expected = {other for each in served for other in each.names} | {*FORMATS[name].names()}
    methods = [declared(builder, each) for each in builder.names()]
    found = {other for each in methods for other in each.names}
    assert found == expected - {"cloudFiles.format"}


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_method_tells_name_type_default_and_meaning(kind: str, name: str) -> None:
    method = getattr(KINDS[kind], name)
    head, _, meaning = method.__doc__.partition("\n\n")
    assert head.startswith(f"Set `{declared(KINDS[kind], name).name}`: ")
    assert "Default: " in head
    assert meaning
    assert "](" not in meaning
    assert method.__annotations__["value"]


def test_values_of_python_are_read_as_they_are_meant() -> None:
    found = parsed(
        Options.csv()
        .header(True)
        .max_files_per_trigger(5)
        .backfill_interval(timedelta(days=1, milliseconds=1500))
        .modified_after(datetime(2026, 1, 31, 8, tzinfo=UTC))
        .partition_columns(["day", "hour"])
        .path_rewrites({"s3://old": "s3://new"})
        .metadata_columns({"a, b": "file_path"})
        .schema_location(Path("/schemas"))
        .use_notifications(True)
    )
    assert found.max_files_per_trigger == 5
    assert found.discovery.backfill_interval_seconds == 86401.5
    assert found.discovery.modified_after_us == 1769846400 * 10**6
    assert found.partition_columns == ("day", "hour")
    assert found.discovery.path_rewrites == (("s3://old", "s3://new"),)
    assert [(each.name, each.field) for each in found.metadata_columns] == [("a, b", "file_path")]
    assert found.schema_location == "/schemas"
    sink = Options.sink().merge_keys(["id"]).merge_schema(True).expect_max_rescued_share(0.25)
    read = SinkOptions.read({name.lower(): text for name, text in sink.items()})
    assert (read.merge_keys, read.merge_schema, read.max_rescued_share) == (("id",), True, 0.25)


def test_texts_are_taken_as_they_are_also_templates() -> None:
    built = Options.json().backfill_interval("1 day").modified_after("{{ ds }}")
    assert built == {
        "cloudFiles.format": "json",
        "cloudFiles.backfillInterval": "1 day",
        "modifiedAfter": "{{ ds }}",
    }


def test_a_method_changes_nothing_of_what_it_is_called_on() -> None:
    base = Options.json().schema_hints("id INT")
    small, large = base.max_files_per_trigger(1), base.max_files_per_trigger(9)
    assert "cloudFiles.maxFilesPerTrigger" not in base
    assert [each["cloudFiles.maxFilesPerTrigger"] for each in (small, large)] == ["1", "9"]
    assert base == copy.deepcopy(base) == pickle.loads(pickle.dumps(base))
    assert base | Options.sink().merge_keys("id") == {**base, "mergeKeys": "id"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_file_per_trigger", "Did you mean max_files_per_trigger?"),
        ("maxFilesPerTrigger", "Did you mean max_files_per_trigger?"),
        ("row_tag", "It is one of Options.xml."),
        ("merge_keys", "It is one of Options.sink, Options.write."),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_or_where_it_is(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Options.json(), name)
    assert str(refused.value) == f"JsonSource has no option {name}. {hint}"
    assert not hasattr(Options.json(), "_repr_html_")


def test_a_wrong_value_is_refused_where_it_is_set() -> None:
    with pytest.raises(OptionError, match=r"cloudFiles\.maxFilesPerTrigger must be .* got 'many'"):
        Options.json().max_files_per_trigger("many")


def test_a_name_with_a_comma_is_refused_where_commas_separate_names() -> None:
    with pytest.raises(OptionError, match="partitionColumns cannot name 'a,b'"):
        Options.json().partition_columns(["a,b"])


def test_it_is_a_public_name_and_completion_finds_the_kinds() -> None:
    assert airflow_cloudfiles.Options is Options
    assert {*KINDS} <= {*dir(Options)}
    assert Options.json().names() == Options.json.names()
