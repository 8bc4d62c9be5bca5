"""What is wrong with a task's arguments is found when the DAG is parsed, or before any file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.errors import (
    OptionError,
    SchemaHintError,
    StateConflictError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.hooks.arguments import StreamArguments, check_at_parse, check_batch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


def _stream(**changes: object) -> StreamArguments:
    given = {"source": "/in", "format": "json", "checkpoint_location": "/state", **changes}
    return StreamArguments(**given)  # type: ignore[arg-type]


def test_a_misspelt_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownOptionError, match=r"cloudFiles\.maxFilesPerTrigger"):
        check_at_parse(source="/in", format="json", options={"cloudFiles.maxFilePerTrigger": 5})


def test_a_misspelt_format_is_refused_with_the_nearest_name() -> None:
    for options in ({}, None):
        with pytest.raises(OptionError, match="Did you mean json"):
            check_at_parse(source="/in", format="jsn", options=options)


def test_a_misspelt_option_of_the_sink_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownOptionError, match="Did you mean typeWideningMaxBytes"):
        check_at_parse(source="/in", format="json", options={"typeWideningMaxByte": "1g"})


def test_an_option_that_a_format_needs_may_come_from_a_template() -> None:
    with pytest.raises(OptionError, match="rowTag is required"):
        check_at_parse(source="/in", format="xml", options=None)
    check_at_parse(source="/in", format="xml", options={"RowTag": "{{ params.row }}"})


@pytest.mark.parametrize(
    ("hints", "told"),
    [
        ("price DECMAL(18,2)", "at character 7.*did you mean DECIMAL"),
        ("price DECIMAL(40,2)", "precision is 1 to 38"),
        ("user.id BIGINT, user.id INT", "names user.id twice, at characters 1 and 17"),
        ("id BIGINT name STRING", "a comma or the end"),
    ],
)
def test_hints_that_cannot_be_read_are_refused(hints: str, told: str) -> None:
    with pytest.raises(SchemaHintError, match=told):
        check_at_parse(source="/in", format="csv", options={"CLOUDFILES.schemahints": hints})


def test_hints_wait_for_what_decides_about_them() -> None:
    for hints in ("{{ params.hints }}", "id INT, {{ params.more }}", "a INT, A STRING", ""):
        check_at_parse(source="/in", format="json", options={"cloudFiles.schemaHints": hints})


@pytest.mark.parametrize("name", ["cloudFiles.SchemaHint", "CLOUDFILES.schemahint", "SchemaHint"])
def test_an_unknown_option_is_shown_as_it_was_written(name: str) -> None:
    with pytest.raises(UnknownOptionError) as refused:
        check_at_parse(source="/in", format="json", options={name: "a INT"})
    assert f"Unknown option '{name}'. Did you mean cloudFiles.schemaHints" in str(refused.value)
    assert "docs/" not in str(refused.value)


def test_bad_records_go_to_a_location_like_the_others() -> None:
    stream = _stream(options={"BadRecordsPath": "bad", "mode": "PERMISSIVE"})
    located = stream.located(lambda location: f"s3://lake/{location.strip('/')}")
    assert located.options == {"BadRecordsPath": "s3://lake/bad", "mode": "PERMISSIVE"}
    assert located.own_locations() == ["s3://lake/bad"]


def test_a_templated_value_waits_for_its_rendering() -> None:
    check_at_parse(
        source="{{ var.value.landing }}",
        format="json",
        options={"cloudFiles.maxFilesPerTrigger": "{{ params.most }}", "mergeSchema": "false"},
    )


@pytest.mark.parametrize("options", [None, "{{ params.options }}", object()])
def test_options_known_only_at_run_time_are_left_for_then(options: object) -> None:
    check_at_parse(source="/in", format="json", options=options)


@pytest.mark.parametrize("value", ["AKIA", "{{ conn.aws.password }}"])
def test_credentials_are_refused_before_they_could_be_rendered(value: str) -> None:
    with pytest.raises(UnsupportedOptionError, match="conn_id") as refused:
        check_at_parse(source="/in", format="json", options={"cloudFiles.awsSecretKey": value})
    assert value not in str(refused.value)


def test_booleans_and_numbers_reach_the_engine_as_spark_spells_them() -> None:
    stream = _stream(
        options={"cloudFiles.inferColumnTypes": True, "cloudFiles.maxFilesPerTrigger": 7}
    )
    assert stream.engine_options() == {
        "cloudFiles.inferColumnTypes": "true",
        "cloudFiles.maxFilesPerTrigger": "7",
    }


def test_an_option_may_repeat_an_argument_but_not_contradict_it() -> None:
    assert _stream(options={"cloudFiles.format": "json"}).engine_options() == {}
    with pytest.raises(OptionError, match="schema_location"):
        _stream(options={"cloudFiles.schemaLocation": "/elsewhere"}).engine_options()


@pytest.mark.parametrize("nothing", [None, "", "None", "  "])
def test_no_batch_means_everything_outstanding(nothing: object) -> None:
    assert check_batch(nothing, "/state") is None


def test_a_batch_may_come_through_a_template() -> None:
    batch = {"checkpoint_location": "/state", "first_entry": 0, "last_entry": 3}
    assert check_batch(str(batch), "/state") == batch


def test_a_batch_of_the_same_checkpoint_spelt_otherwise_is_accepted(tmp_path: Path) -> None:
    batch = {"checkpoint_location": f"{tmp_path}/", "first_entry": 0, "last_entry": 3}
    assert check_batch(batch, tmp_path.as_uri()) == batch


def test_a_batch_of_another_checkpoint_is_refused_naming_both() -> None:
    batch = {"checkpoint_location": "/state/a", "first_entry": 0, "last_entry": 3}
    with pytest.raises(StateConflictError, match=r"/state/a.*\n?.*/state/b"):
        check_batch(batch, "/state/b")


@pytest.mark.parametrize("foreign", [["a.json"], {"files": 3}, "a.json", 7])
def test_what_no_sensor_returned_is_refused(foreign: object) -> None:
    with pytest.raises(OptionError, match=r"sensor\.output"):
        check_batch(foreign, "/state")
