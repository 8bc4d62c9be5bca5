"""Rows that violate a rule are counted, and kept, dropped, put aside, or fail their batch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructType

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    ExpectationError,
    IncompatibleStateError,
    OptionError,
    SchemaMismatchError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
from airflow_cloudfiles.engine.job.counts import summary
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from airflow_cloudfiles.engine.job.target import check_target
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state import metadata, metadata_format, run_history
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.types import to_arrow
from tests.support import laws
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ruled import ALL, Ruled


@pytest.fixture
def stream(tmp_path: Path) -> Ruled:
    """Three files; two of five rows have no positive number."""
    found = Ruled(tmp_path)
    found.drop("one", ("a", 1), ("b", -1))
    found.drop("two", ("c", None), ("d", 2))
    found.drop("three", ("e", 3))
    return found


def counts(stream: Ruled, batch: int = 0) -> Mapping[str, int]:
    [found] = run_history.notes(str(stream.state), [batch])
    return found.counts


def test_a_row_is_kept_and_counted_unless_more_is_asked_for(stream: Ruled) -> None:
    stream.rules(positive="b > 0", small="b < 3")
    stream.run()
    assert stream.ids() == list("abcde")
    found = counts(stream)
    assert (found["rows"], found["violations.positive"], found["violations.small"]) == (5, 2, 2)
    assert "dropped_rows" not in found
    assert not stream.quarantine.exists()


def test_a_row_is_dropped_for_which_the_predicate_is_false_or_null(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="drop")
    stream.run()
    assert stream.ids() == list("ade")
    found = counts(stream)
    assert (found["rows"], found["dropped_rows"], found["violations.positive"]) == (3, 2, 2)


def test_a_batch_fails_with_its_files_how_many_rows_and_where_the_first_is(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="fail", small="b < 3", small__action="drop")
    with pytest.raises(ExpectationError) as caught:
        stream.run()
    assert not caught.value.is_retryable
    message = caught.value.message
    assert message.startswith(
        "Batch 0 has rows that are not allowed, and nothing of it was committed to "
        f"{stream.target}: 2 rows for which expect.row.positive='b > 0' is not true, in "
    )
    assert f"{stream.source}/one.json (1, the first is row 2)" in message
    assert f"{stream.source}/two.json (1, the first is row 1)" in message
    assert not list(stream.target.rglob("*.parquet"))
    stream.drop("one", ("a", 1))
    stream.drop("two", ("d", 2))
    stream.run()
    assert stream.ids() == list("ad")


def test_a_batch_that_the_table_has_is_not_refused(stream: Ruled) -> None:
    stream.run()
    stream.forget(0)
    stream.rules(positive="b > 0", positive__action="fail")
    stream.batch_again(0)
    assert stream.ids() == list("abcde")


def test_rows_are_put_aside_with_what_is_known_of_them(stream: Ruled) -> None:
    stream.rules(
        positive="b > 0",
        positive__action="quarantine",
        small="b IS NULL OR b < 3",
        known="id < 'c'",
    )
    stream.run()
    assert stream.ids() == list("ade")
    found = counts(stream)
    assert (found["rows"], found["quarantined_rows"], found["violations.positive"]) == (3, 2, 2)
    rows = {
        each["id"]: each
        for each in DeltaTable(str(stream.quarantine)).to_pyarrow_table().to_pylist()
    }
    assert {name: each["_quarantine_rules"] for name, each in rows.items()} == {
        "b": ["positive"],
        "c": ["known", "positive"],
    }
    assert rows["b"]["_quarantine_file"].endswith(f"{stream.source}/one.json")
    assert (rows["b"]["b"], rows["b"]["_quarantine_batch"], rows["c"]["b"]) == (-1, 0, None)
    assert len({each["_quarantine_id"] for each in rows.values()}) == 2
    assert DeltaTable(str(stream.target)).to_pyarrow_table().schema.names == [
        "id", "b", "_rescued_data",
    ]  # fmt: skip


def test_a_row_that_is_put_aside_by_one_rule_is_not_dropped_by_another(stream: Ruled) -> None:
    stream.rules(one="b > 0", one__action="drop", two="b > 0", two__action="quarantine")
    stream.run()
    assert (stream.ids(), stream.aside()) == (list("ade"), list("bc"))
    assert "dropped_rows" not in counts(stream)


def test_a_batch_without_a_violation_leaves_the_quarantine_table_alone(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.run()
    version = DeltaTable(str(stream.quarantine)).version()
    stream.drop("four", ("f", 4))
    stream.run()
    assert DeltaTable(str(stream.quarantine)).version() == version
    assert stream.ids() == list("adef")


def test_the_quarantine_table_grows_with_the_schema(stream: Ruled) -> None:
    stream.given["cloudFiles.schemaEvolutionMode"] = "addNewColumns"
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.run()
    stream.drop("four", ("f", -4), currency="EUR")
    stream.infer()
    with pytest.raises(Exception, match="currency"):
        stream.run()
    stream.run()
    rows = DeltaTable(str(stream.quarantine)).to_pyarrow_table().to_pylist()
    assert {each["id"]: each["currency"] for each in rows} == {"b": None, "c": None, "f": "EUR"}


def test_another_table_may_be_the_quarantine_table(stream: Ruled, tmp_path: Path) -> None:
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.sink["expect.quarantinetable"] = str(tmp_path / "aside")
    stream.run()
    assert stream.ids(tmp_path / "aside") == list("bc")
    assert not stream.quarantine.exists()


def test_rules_see_what_was_rescued_and_shares_are_of_the_rows_that_were_read(
    stream: Ruled,
) -> None:
    stream.given["cloudFiles.schemaEvolutionMode"] = "rescue"
    stream.drop("four", ("f", "no number"))
    stream.rules(whole="_rescued_data IS NULL", whole__action="quarantine")
    stream.sink |= {"expect.maxrescuedshare": "0.2", "expect.minrows": "6"}
    stream.run()
    assert stream.aside() == ["f"]


def test_rows_of_a_table_without_partition_of_its_own_names_are_refused(stream: Ruled) -> None:
    stream.drop("four", ("f", -1), _quarantine_file="x")
    stream.rules(positive="b > 0", positive__action="quarantine")
    with pytest.raises(SchemaMismatchError, match="column _quarantine_file, which the quarantine"):
        stream.run()


# Before a run ----------------------------------------------------------------------------------


def spec(stream: Ruled, **options: str) -> Any:
    stream.given = {**stream.given, **options}
    return stream.spec()


COLUMNS = to_arrow(StructType().add("id", StringType()).add("b", LongType()))


@pytest.mark.slow
def test_an_unknown_column_is_named_before_anything_is_read(stream: Ruled) -> None:
    with pytest.raises(OptionError, match=r"no column 'idd'; did you mean id\. The columns are id"):
        check_target(spec(stream, **{"expect.row.a": "idd IS NOT NULL"}), COLUMNS)
    with pytest.raises(OptionError, match="no column 'idd'"):
        launch(spec(stream), LocalPython(), on_log=print).wait()
    assert not stream.target.exists()


def test_a_table_that_is_no_quarantine_table_takes_no_rows(stream: Ruled, tmp_path: Path) -> None:
    other = Ruled(tmp_path / "other") if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    other.drop("one", ("a", 1))
    other.run()
    options = {
        "expect.row.a": "b > 0",
        "expect.row.a.onViolation": "quarantine",
        "expect.quarantineTable": str(other.target),
    }
    with pytest.raises(SchemaMismatchError, match="is partitioned by no column"):
        check_target(spec(stream, **options), COLUMNS)


def test_an_iceberg_table_has_no_quarantine_but_the_other_actions(tmp_path: Path) -> None:
    lake = LocalCatalog(tmp_path)
    stream = Ruled(tmp_path)
    stream.iceberg = lake.uri("t")
    stream.drop("one", ("a", 1), ("b", -1))
    stream.rules(positive="b > 0", positive__action="quarantine")
    with pytest.raises(OptionError, match="onViolation=quarantine of a rule is for Delta tables"):
        stream.run()
    stream.rules(positive="b > 0", positive__action="drop")
    stream.run()
    assert counts(stream)["dropped_rows"] == 1


def test_a_query_of_the_users_own_has_no_rules(tmp_path: Path) -> None:
    options = SinkOptions.read({"expect.row.a": "b > 0"})
    with pytest.raises(UnsupportedOptionError, match="is for runs that ingest files"):
        DeltaTargetTable(str(tmp_path)).writer(options, state=None)


# What a run says ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_has_what_each_rule_found_and_what_became_of_it(stream: Ruled) -> None:
    options = {
        "expect.row.positive": "b > 0",
        "expect.row.positive.onViolation": "quarantine",
        "expect.row.small": "b IS NULL OR b < 3",
        "expect.row.known": "id IS NOT NULL",
    }
    report = launch(spec(stream, **options), LocalPython(), on_log=print).wait()
    assert report["rows"] == 3
    assert report["violations"] == {"known": 0, "positive": 2, "small": 1}
    assert (report["quarantined_rows"], report["dropped_rows"]) == (2, 0)
    assert report["warnings"] == [
        "2 rows do not meet expect.row.positive (b > 0), and are quarantined.",
        "1 row does not meet expect.row.small (b IS NULL OR b < 3), and is kept.",
    ]
    summary = run_history.read_summary(open_store(str(stream.state)))
    assert summary is not None
    assert summary["violations"] == report["violations"]


def test_a_run_without_rules_says_nothing_of_them(stream: Ruled) -> None:
    stream.run()
    report = summary(stream.spec(), run_history.notes(str(stream.state), [0]))
    assert report["rows"] == 5
    assert not {"violations", "quarantined_rows", "dropped_rows"} & report.keys()
    assert not metadata.has_quarantine(open_store(str(stream.state)))


# The state ----------------------------------------------------------------------------------------


def test_an_older_version_refuses_a_state_with_a_quarantine_table(
    stream: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.run()
    monkeypatch.setattr(metadata_format, "FORMAT_VERSION", 4)
    with pytest.raises(IncompatibleStateError):
        metadata.read_metadata(open_store(str(stream.state)))


def test_a_stream_that_drops_rows_stays_readable_for_an_older_version(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="drop")
    stream.run()
    found = metadata.existing_metadata(open_store(str(stream.state)))
    assert found.format_version < 5


# A law --------------------------------------------------------------------------------------------

_ACTIONS = st.sampled_from(["warn", "drop", "quarantine"])
_PREDICATES = st.sampled_from(
    ["b > 0", "b < 2", "id LIKE '%1'", "b IN (1, 2)", "b IS NULL", "true"]
)
_RULES = st.dictionaries(st.sampled_from("xyz"), st.tuples(_PREDICATES, _ACTIONS), max_size=3)
_FILES = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-2, 3)), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


@pytest.mark.law
@pytest.mark.slow
@settings(max_examples=laws.examples(45), deadline=None)
@given(_FILES, _RULES)
def test_what_was_read_is_in_the_target_or_aside_or_dropped(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[int | None]],
    rules: dict[str, tuple[str, str]],
) -> None:
    folder = tmp_path_factory.mktemp("law")
    stream = Ruled(folder)
    read = []
    for number, values in enumerate(files):
        rows = [(f"{number}-{place}", value) for place, value in enumerate(values)]
        read += [name for name, _ in rows]
        stream.drop(str(number), *rows)
    stream.rules(
        **{name: text for name, (text, _) in rules.items()},
        **{f"{name}__action": action for name, (_, action) in rules.items()},
    )
    stream.run()
    found = counts(stream)
    there, aside = stream.ids(), stream.aside()
    assert not set(there) & set(aside)
    assert len(there) + len(aside) + found.get("dropped_rows", 0) == len(read)
    assert found["rows"] == len(there)
    assert found.get("quarantined_rows", 0) == len(aside)
    if aside:
        stream.opened.release(ALL)
        assert stream.aside() == []
        # As reading without the rules that put aside would have given them.
        plain = Ruled(folder / "plain") if (folder / "plain").mkdir() is None else stream
        shutil.copytree(stream.source, plain.source, dirs_exist_ok=True)
        plain.rules(
            **{name: text for name, (text, _) in rules.items()},
            **{f"{n}__action": a for n, (_, a) in rules.items() if a != "quarantine"},
        )
        plain.run()
        have, want = stream.rows_by_id(), plain.rows_by_id()
        assert {name: have[name] for name in want} == want
        assert len(have) == len(there) + len(aside)


# Files that are read again ------------------------------------------------------------------------


def test_a_replayed_file_leaves_no_former_row_aside(tmp_path: Path) -> None:
    stream = Ruled(tmp_path, **{"cloudFiles.metadataColumns": "file_path"})
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.drop("one", ("a", 1), ("b", -1))
    stream.drop("two", ("c", -2), ("e", 5))
    stream.run()
    assert (stream.ids(), stream.aside()) == (["a", "e"], ["b", "c"])
    stream.drop("one", ("a", 1), ("b", 2), ("d", -3))
    operate_on_files(
        str(stream.state), "replay", "one.json", target=str(stream.target), path_column="file_path"
    )
    stream.run()
    assert (stream.ids(), stream.aside()) == (["a", "b", "e"], ["c", "d"])
    stream.rules()
    operate_on_files(
        str(stream.state), "replay", "two.json", target=str(stream.target), path_column="file_path"
    )
    stream.run()
    assert (stream.ids(), stream.aside()) == (["a", "b", "c", "e"], ["d"])


def test_lost_batches_of_a_stream_that_quarantines_rows_are_not_replayed(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.run()
    shutil.rmtree(stream.target)
    stream.given |= {
        "expect.row.positive": "b > 0",
        "expect.row.positive.onViolation": "quarantine",
    }
    with pytest.raises(OptionError, match="cannot be replayed by its rules"):
        stream.replay(0)
    stream.given["expect.row.positive.onViolation"] = "drop"
    assert stream.replay(0)["rows"] == 3
    assert (stream.ids(), stream.aside()) == (list("ade"), list("bc"))


def test_a_state_that_has_lost_where_rows_are_aside_is_refused(stream: Ruled) -> None:
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.run()
    (stream.state / "_source/quarantine.json").unlink()
    stream.drop("four", ("f", 4))
    with pytest.raises(CorruptedStateError, match=r"quarantine\.json is gone"):
        stream.run()
