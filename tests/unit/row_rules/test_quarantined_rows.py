"""Rows that were put aside come back through the columns there are now, once, or are discarded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError, TargetNotDeltaError
from airflow_cloudfiles.engine.extensions.row_rules.quarantine import Quarantine, RowSelection
from airflow_cloudfiles.engine.extensions.upkeep import alter
from tests.support import laws
from tests.support.crash_points import QUARANTINE_POINTS, RELEASE_POINTS
from tests.support.ruled import ALL, Ruled

_SPAWNED = multiprocessing.get_context("spawn")


@pytest.fixture
def stream(tmp_path: Path) -> Ruled:
    """Rows a and e are in the target; b, c and d are aside, of two batches and three files."""
    found = Ruled(tmp_path)
    found.rules(positive="b > 0", positive__action="quarantine", known="b IS NOT NULL")
    found.drop("one", ("a", 1), ("b", -1))
    found.drop("two", ("c", None))
    found.run()
    found.drop("three", ("d", -3), ("e", 3))
    found.run()
    assert (found.ids(), found.aside()) == (list("ae"), list("bcd"))
    return found


def test_rows_are_listed_by_rule_batch_and_file(stream: Ruled) -> None:
    found = stream.opened.listed(ALL, sample=1)
    assert (found["rows"], found["pending_rows"], found["releasing_rows"]) == (3, 0, 0)
    assert found["by_rule"] == {"positive": 3, "known": 1}
    assert found["by_batch"] == {"0": 2, "1": 1}
    names = {Path(uri).name: count for uri, count in found["by_file"].items()}
    assert names == {"one.json": 1, "two.json": 1, "three.json": 1}
    [row] = found["sample"]
    assert json.loads(json.dumps(row))["_quarantine_rules"]


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (ALL, "bcd"),
        (RowSelection(batches=(0,)), "bc"),
        (RowSelection(rules=("Known",)), "c"),
        (RowSelection(files=("one.json", "three.json")), "bd"),
        (RowSelection(where="b < -1 OR b IS NULL"), "cd"),
        (RowSelection(where="b < 0", batches=(1,)), "d"),
        (RowSelection(rules=("nothing",)), ""),
    ],
    ids=str,
)
def test_what_is_meant_is_released_and_the_rest_stays(
    stream: Ruled, selection: RowSelection, ids: str
) -> None:
    found = stream.opened.release(selection)
    assert found.rows == len(ids)
    assert stream.ids() == sorted(["a", "e", *ids])
    assert stream.aside() == [each for each in "bcd" if each not in ids]
    assert stream.opened.release(selection).rows == 0
    assert stream.ids() == sorted(["a", "e", *ids])


def test_one_row_is_released_by_its_id(stream: Ruled) -> None:
    row = stream.opened.listed(RowSelection(rules=("known",)))["sample"][0]
    assert stream.opened.release(RowSelection(ids=(row["_quarantine_id"],))).rows == 1
    assert stream.ids() == ["a", "c", "e"]


def test_discarded_rows_are_in_no_table(stream: Ruled) -> None:
    found = stream.opened.discard(RowSelection(batches=(0,)))
    assert (found.rows, stream.ids(), stream.aside()) == (2, list("ae"), ["d"])
    assert stream.opened.discard(RowSelection(batches=(0,))).rows == 0


def test_rows_that_still_violate_a_rule_stay(stream: Ruled) -> None:
    check = {"expect.row.positive": "b > -2", "expect.row.positive.onViolation": "drop"}
    found = stream.opened.release(ALL, check=check)
    assert (found.rows, found.violating_rows) == (1, 2)
    assert (stream.ids(), stream.aside()) == (list("abe"), list("cd"))


def test_a_stream_goes_on_behind_a_release(stream: Ruled) -> None:
    stream.opened.release(ALL)
    stream.drop("four", ("f", 4), ("g", -4))
    stream.run()
    assert (stream.ids(), stream.aside()) == (list("abcdef"), ["g"])


def test_a_row_gets_null_in_columns_that_came_later_and_the_wider_type(tmp_path: Path) -> None:
    stream = Ruled(tmp_path, **{"cloudFiles.schemaHints": "id STRING, b INT, n DECIMAL(6,2)"})
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.drop("one", ("a", 1), ("b", -1), n="1.10")
    stream.run()
    write_deltalake(
        stream.target,
        pa.table({"id": ["x"], "b": pa.array([5], pa.int32()), "late": [1.5]}),
        mode="append",
        schema_mode="merge",
    )
    rows = DeltaTable(str(stream.target)).to_pyarrow_table()
    wider = rows.set_column(1, "b", rows["b"].cast(pa.int64()))
    write_deltalake(stream.target, wider, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TargetNotDeltaError, match="There is no quarantine table"):
        Quarantine(str(stream.target), str(tmp_path / "none"))
    stream.opened.release(ALL)
    row = stream.rows_by_id()["b"]
    assert (row["b"], row["n"], row["late"]) == (-1, Decimal("1.10"), None)
    assert stream.aside() == []


def test_what_has_no_column_goes_into_the_rescued_data(tmp_path: Path) -> None:
    hints = "id STRING, b BIGINT, extra DOUBLE, other STRUCT<x: INT>, day DATE, bytes BINARY"
    stream = Ruled(tmp_path, **{"cloudFiles.schemaHints": hints})
    stream.rules(positive="b > 0", positive__action="quarantine")
    stream.drop("one", ("a", 1), ("b", -1), extra=2.5, other={"x": 1})
    stream.drop("two", ("c", -1))
    stream.drop("three", ("d", "no number"), extra=1.5)
    odd = {"day": "+12345-01-31", "bytes": "AP8="}
    stream.drop("four", ("e", -1), extra=float("nan"), **odd)
    stream.run()
    assert stream.aside() == ["b", "c", "d", "e"]
    keep = DeltaTable(str(stream.target)).to_pyarrow_table()
    kept = keep.drop_columns(["extra", "other", "day", "bytes"])
    write_deltalake(stream.target, kept, mode="overwrite", schema_mode="overwrite")
    stream.opened.release(ALL)
    rows = stream.rows_by_id()
    assert rows["c"]["_rescued_data"] is None
    rescued = json.loads(rows["b"]["_rescued_data"])
    assert rescued.pop("_file_path").endswith("one.json")
    assert rescued == {"extra": 2.5, "other": {"x": 1}}
    rescued = json.loads(rows["d"]["_rescued_data"])
    assert rescued.pop("_file_path").endswith("three.json")
    assert rescued == {"extra": 1.5, "b": "no number"}
    rescued = json.loads(rows["e"]["_rescued_data"])
    assert rescued.pop("_file_path").endswith("four.json")
    assert rescued == {"extra": "NaN", "day": "12345-01-31", "bytes": "AP8="}


def test_without_a_rescued_data_column_nothing_is_lost(stream: Ruled) -> None:
    keep = DeltaTable(str(stream.target)).to_pyarrow_table().select(["id"])
    write_deltalake(stream.target, keep, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match=r"no column that takes b .* rescued data column"):
        stream.opened.release(RowSelection(files=("one.json",)))
    assert stream.ids() == list("ae")
    alter.add_column(str(stream.target), "b BIGINT", dry_run=False)
    done = stream.opened.release(RowSelection(files=("one.json",)))
    assert (done.rows, done.finished_releases, done.finished_rows) == (0, 1, 1)
    assert (stream.ids(), stream.aside()) == (list("abe"), list("cd"))


# Killed ------------------------------------------------------------------------------------------


def _run(folder: str, cache: str, point: str, rules: dict[str, str]) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    stream = Ruled(Path(folder))
    stream.rules(**rules)
    stream.run()


def _release(folder: str, point: str, action: str) -> None:
    os.environ[CRASH_AT] = point
    getattr(Ruled(Path(folder)).opened, action)(ALL)


def _killed(target: Any, *args: Any) -> None:
    process = _SPAWNED.Process(target=target, args=args)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


ASIDE = {"positive": "b > 0", "positive__action": "quarantine"}


THEN: dict[str, dict[str, str]] = {
    "same": ASIDE,
    "other rules": {"other": "b IS NULL OR b > 0", "other__action": "quarantine"},
    "dropped": {"positive": "b > 0", "positive__action": "drop"},
    "no rule": {},
}
"""What the rules are when the batch is read again."""
POINTS = (
    "after-data-files",
    *QUARANTINE_POINTS,
    "before-sink-commit:2",
    "after-sink-commit:2",
    "after-sink-record",
)
KILLED = [(point, then) for then in THEN for point in POINTS]
_ALWAYS = [
    *[("after-quarantine-commit", then) for then in THEN],
    ("before-sink-commit:2", "other rules"),
    ("after-sink-commit:2", "no rule"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "then"), laws.some(KILLED, 2, name="killed with rules", always=_ALWAYS)
)
def test_killed_anywhere_each_row_is_in_one_of_both_tables(
    tmp_path: Path, point: str, then: str
) -> None:
    stream = Ruled(tmp_path)
    stream.drop("one", ("a", 1), ("b", -1))
    stream.drop("two", ("c", None), ("d", 2))
    _killed(_run, str(tmp_path), str(tmp_path / "cache"), point, ASIDE)
    is_there = point.startswith("after-sink")
    assert stream.ids() == (list("ad") if is_there else [])
    if stream.ids():
        assert stream.aside() == list("bc")
    elif stream.aside():  # nobody takes what the next run may put elsewhere
        assert stream.opened.release(ALL).rows == 0
        assert stream.opened.listed(ALL)["pending_rows"] == 2
    stream.rules(**THEN[then])
    stream.run()
    stream.run()
    if is_there or then == "same":
        want = list("ad"), list("bc")
    elif then == "no rule":
        want = list("abcd"), []
    else:
        want = (list("acd"), ["b"]) if then == "other rules" else (list("ad"), [])
    assert (stream.ids(), stream.aside()) == want


_RELEASES = [(point, then) for point in RELEASE_POINTS for then in ("release", "discard")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "then"),
    laws.some(
        _RELEASES,
        1,
        name="killed release",
        always=[
            ("after-release-mark", "release"),
            ("after-sink-commit", "release"),
            ("after-release-mark", "discard"),
        ],
    ),
)
def test_a_killed_release_is_finished_once(
    stream: Ruled, tmp_path: Path, point: str, then: str
) -> None:
    is_there = point in {"after-sink-commit", "after-release-commit"}
    _killed(_release, str(tmp_path), point, "release")
    assert stream.ids() == (list("abcde") if is_there else list("ae"))
    assert stream.opened.listed(ALL)["releasing_rows"] == 3
    done = getattr(stream.opened, then)(ALL)
    assert (done.rows, done.finished_releases) == (0, 1)
    assert (stream.ids(), stream.aside()) == (list("abcde"), [])


@pytest.mark.slow
def test_a_killed_discard_has_happened_or_not(stream: Ruled, tmp_path: Path) -> None:
    _killed(_release, str(tmp_path), "after-discard", "discard")
    assert (stream.ids(), stream.aside()) == (list("ae"), [])


# In a shell ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_listed_released_and_discarded_in_a_shell(
    stream: Ruled, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        code = cli.main(["quarantine", *arguments, "--target", str(stream.target)])
        return code, capsys.readouterr().out

    code, text = run("list", "--sample", "1")
    assert code == 0
    assert "rows: 3" in text
    assert "positive     3" in text
    code, text = run("release")
    assert (code, stream.aside()) == (2, list("bcd"))
    code, text = run("release", "--rule", "known", "--json")
    assert (code, json.loads(text)["rows"], stream.ids()) == (0, 1, ["a", "c", "e"])
    check = ["--option", "expect.row.x=b > -2", "--option", "expect.row.x.onViolation=fail"]
    code, text = run("release", "--all", *check, "--json")
    assert (code, json.loads(text)["violating_rows"], stream.ids()) == (0, 1, list("abce"))
    code, text = run("discard", "--where", "b = -3", "--json")
    assert (code, json.loads(text)["rows"], stream.aside()) == (0, 1, [])


def test_a_where_that_does_not_fit_is_refused(stream: Ruled) -> None:
    with pytest.raises(OptionError, match="--where 'bb = 1' cannot be used: there is no column"):
        stream.opened.listed(RowSelection(where="bb = 1"))
