"""What a run says to Airflow's stats, through those of Airflow, to a receiver of statsd lines."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.hooks.observability.metrics import emit_run, stream_tag
from tests.support.airflow_stats import CAN_BE_CONFIGURED, Receiver, received

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.skipif(not CAN_BE_CONFIGURED, reason="only with stats of Airflow 3.3"),
]

TAGS = "dag_id=orders,task_id=load,stream=lake/orders/state"
REPORT: dict[str, Any] = {
    "files": 3,
    "bytes": 60,
    "rows": 9,
    "rescued_rows": 1,
    "corrupt_records": 2,
    "replaced_rows": 4,
    "outcome": "succeeded",
    "durations": {"total_seconds": 1.5},
    "metrics": {"numFilesOutstanding": "2", "numBytesOutstanding": "7"},
    "oldest_outstanding": None,
    "report_uri": "s3://lake/orders/state/_reports/r.json",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """What Airflow's stats send in this process."""
    with received() as found:
        yield found


def _ti(**changes: object) -> Any:
    return SimpleNamespace(**{"dag_id": "orders", "task_id": "load", "map_index": -1, **changes})


def test_a_run_emits_each_metric_with_tags_and_under_the_name_of_its_task(
    receiver: Receiver,
) -> None:
    emit_run(_ti(), REPORT, schema_changes=1)
    values = {
        "files": "3|c",
        "bytes": "60|c",
        "rows": "9|c",
        "rescued_rows": "1|c",
        "corrupt_records": "2|c",
        "replaced_rows": "4|c",
        "schema_changes": "1|c",
        "outstanding_files": "2|g",
        "outstanding_bytes": "7|g",
        "oldest_outstanding_seconds": "0|g",
        "run_duration": "1500|ms",
    }
    of_run = {"run_duration": ",outcome=succeeded"}
    tagged = [f"cloudfiles.{k},{TAGS}{of_run.get(k, '')}:{v}" for k, v in values.items()]
    own = [f"cloudfiles.orders.load.{name}:{value}" for name, value in values.items()]
    assert sorted(receiver.lines) == sorted(tagged + own)


def test_names_of_tasks_are_left_out_where_airflow_leaves_them_out(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__LEGACY_NAMES_ON", "False")
    emit_run(_ti(), REPORT, schema_changes=0)
    assert len(receiver.lines) == 11
    assert all(TAGS in line for line in receiver.lines)


def test_the_runs_of_a_mapped_task_and_of_a_task_in_a_group_keep_apart(receiver: Receiver) -> None:
    emit_run(_ti(task_id="eu.load", map_index=2), {"files": 1}, schema_changes=0)
    assert "cloudfiles.orders.eu_load.2.files:1|c" in receiver.lines
    assert "cloudfiles.files,dag_id=orders,task_id=eu.load,map_index=2:1|c" in receiver.lines


def test_the_age_of_what_is_left_grows(receiver: Receiver) -> None:
    since = datetime.now(tz=UTC) - timedelta(hours=1)
    emit_run(_ti(), {"oldest_outstanding": since.isoformat()}, schema_changes=0)
    [line] = [each for each in receiver.lines if "orders.load.oldest" in each]
    assert 3600 <= float(line.rpartition(":")[2].removesuffix("|g")) < 3700


def test_a_receiver_that_fails_fails_no_run(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.is_broken = True
    with caplog.at_level(logging.WARNING):
        emit_run(_ti(), REPORT, schema_changes=0)
        emit_run(_ti(), {"files": "many"}, schema_changes=0)
    assert caplog.text.count("could not be emitted") == 2


def test_an_airflow_without_known_stats_fails_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("airflow.sdk.observability.stats", "airflow.observability.stats"):
        monkeypatch.setitem(sys.modules, place, None)
    monkeypatch.setitem(sys.modules, "airflow.stats", None)
    emit_run(_ti(), REPORT, schema_changes=0)
    assert "The metrics of the run could not be emitted." in caplog.text
    assert "airflow.stats" in caplog.text


@pytest.mark.parametrize(
    ("location", "tag"),
    [
        ("s3://lake/orders/state", "lake/orders/state"),
        ("file:///data/day=1/a,b", "data/day_1/a_b"),
        ("abfss://c@acme.dfs.core.windows.net/s", "c_acme.dfs.core.windows.net/s"),
    ],
)
def test_the_tag_of_a_stream_has_no_character_that_ends_a_tag(location: str, tag: str) -> None:
    assert stream_tag(location) == tag
