"""Rules for rows are options with names of the user's, and are read when a DAG is parsed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.row_rules import RowRule
from airflow_cloudfiles.engine.options.sink import SinkOptions, TaskSinkOptions
from airflow_cloudfiles.engine.source import source_of


def read(**given: str) -> TaskSinkOptions:
    return TaskSinkOptions.read({f"expect.{name}".lower(): text for name, text in given.items()})


def test_a_rule_has_a_name_a_predicate_and_an_action() -> None:
    found = read(
        **{
            "row.Positive": "amount > 0",
            "row.known": "a IN ('x')",
            "row.known.onViolation": "Drop",
        }
    )
    assert found.row_rules == (
        RowRule("known", "a IN ('x')", "drop"),
        RowRule("positive", "amount > 0", "warn"),
    )
    assert not found.has_expectations
    assert not found.quarantines_rows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"row.a": "b >"}, r"^expect\.row\.a 'b >' cannot be used: it ends too early\. A rule is"),
        ({"row.a": "b > 0; DROP TABLE t"}, "'; DROP TABLE t' is not understood"),
        ({"row.a": "leength(b) > 0"}, r"no function 'leength' here; did you mean length\."),
        ({"row.a": "b > current_date()"}, "whose value changes when a batch is read again"),
        ({"row.a": "b IN (SELECT 1)"}, r"\) is expected"),
        ({"row.a": "CAST(b AS INTERVAL) = 1"}, "'INTERVAL' is no type that CAST takes here"),
        ({"row.a": "CAST(b AS DECIMAL(39, 2)) = 1"}, "precision from 1 to 38"),
        ({"row.a": "length(b, c) > 1"}, "length takes 1 arguments, and has 2"),
        ({"row.a": "CASE b END"}, "WHEN is expected behind CASE"),
        ({"row.a": "(" * 99 + "b" + ")" * 99}, "nested too deeply"),
        ({"row.": "b > 0"}, "a rule has a name of letters, digits, _ and -"),
        ({"row.a b": "b > 0"}, "a rule has a name of letters"),
        (
            {"row.a": "b > 0", "row.a.onViolaton": "drop"},
            r"no option of a rule\. Did you mean expect\.row\.a\.onViolation\?",
        ),
        (
            {"row.a": "b > 0", "row.a.onViolation": "dropp"},
            r"must be one of warn, drop, fail, quarantine; got 'dropp'\. Did you mean drop\?",
        ),
        (
            {"row.positive": "b > 0", "row.positivee.onViolation": "drop"},
            r"a rule that is not given\. Did you mean expect\.row\.positive\.onViolation\?",
        ),
        ({"row.a": "b > 0", "quarantineTable": "/x"}, "needs a rule whose rows go there"),
    ],
)
def test_what_is_no_rule_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(**given)


def test_rows_of_a_merge_are_not_put_aside() -> None:
    given = {"expect.row.a": "b > 0", "expect.row.a.onviolation": "quarantine", "mergekeys": "a"}
    with pytest.raises(OptionError, match="does not go with mergeKeys"):
        SinkOptions.read(given)
    SinkOptions.read({**given, "expect.row.a.onviolation": "drop"})


def test_a_run_takes_rules_among_its_options_and_its_source_does_not_see_them() -> None:
    spec = JobSpec(
        kind="ingest",
        source="/in",
        format="json",
        checkpoint_location="/state",
        target="/table",
        run_id="r",
        options={"expect.row.Ok": "a > 0", "expect.row.ok.onViolation": "fail"},
    )
    assert [each.name for each in spec.table_options.row_rules] == ["ok"]
    assert not [name for name in spec.source_options() if "expect" in name]
    spec.parsed()


def test_a_rule_is_read_when_a_dag_is_parsed_unless_it_is_a_template() -> None:
    json = source_of("json")
    json.check_at_parse({"expect.row.a": "b > 0"}, ["expect.row.c"], "/in")
    json.check_at_parse({"expect.row.c.onViolation": "drop"}, ["expect.row.c"], "/in")
    with pytest.raises(OptionError, match="cannot be used"):
        json.check_at_parse({"expect.row.a": "b >> 0"}, [], "/in")


def test_a_delta_source_has_no_rules_for_rows() -> None:
    with pytest.raises(OptionError, match="expectations are for streams of files"):
        source_of("delta").check_at_parse({"expect.row.a": "b > 0"}, [], "/in")


@pytest.mark.slow
def test_reading_a_rule_imports_no_pyarrow_and_no_extension() -> None:
    code = (
        "import sys\n"
        "from airflow_cloudfiles.engine.options.sink import TaskSinkOptions\n"
        "TaskSinkOptions.read({'expect.row.a': 'b > 0 AND lower(c) LIKE \"x%\"'})\n"
        "print([n for n in sys.modules if n in ('pyarrow', 'deltalake') or '.extensions.' in n])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
