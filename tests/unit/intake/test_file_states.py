"""The state as a table of files: each version once, with what became of it."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles import cloud_files_metrics, cloud_files_state
from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError, StateError
from airflow_cloudfiles.engine.files import FileEntry, Offset, iso_time
from airflow_cloudfiles.engine.intake import file_states
from airflow_cloudfiles.engine.intake.file_state_columns import COLUMNS, rows
from airflow_cloudfiles.engine.intake.file_states import FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.sink_log import Decision, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage.fetched_ahead import PrefetchedStore
from tests.support.landing_zone import LandingZone
from tests.support.written_state import WrittenState


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    return WrittenState(f"file://{tmp_path}/state")


def table(written: WrittenState, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cloud_files_state(written.uri, **query).read_all().to_pylist()
    return found


def names(written: WrittenState, **query: Any) -> list[str]:
    return [row["path"].rpartition("/")[2] for row in table(written, **query)]


def test_a_new_state_is_an_empty_table_with_auto_loaders_columns_first(written):
    found = cloud_files_state(written.uri).read_all()
    assert found.num_rows == 0
    assert found.schema.names[:12] == [
        "path",
        "size",
        "create_time",
        "discovery_time",
        "processed_time",
        "commit_time",
        "archive_time",
        "archive_mode",
        "move_location",
        "source_id",
        "flow_name",
        "ingestion_state",
    ]
    assert found.schema.names == [column.name for column in COLUMNS]


def test_without_a_state_it_says_so_and_leaves_none(tmp_path):
    with pytest.raises(StateError, match="There is no state in"):
        cloud_files_state(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_file_is_discovered_then_planned_then_committed(written):  # B117
    before = datetime.now(UTC)
    written.discover("a.json", "b.json", time_us=7_000_000)
    for step in (lambda: None, lambda: written.plan(1), lambda: written.commit("run-1")):
        step()
        rows = table(written)
        assert [row["path"] for row in rows] == [
            "s3://lake/orders/a.json",
            "s3://lake/orders/b.json",
        ]
        assert rows[1]["status"] == "discovered"
        assert rows[1]["ingestion_state"] is rows[1]["processed_time"] is None
        if rows[0]["status"] != "committed":
            assert rows[0]["commit_time"] is rows[0]["run_id"] is rows[0]["batch_rows"] is None
            was = (rows[0]["status"], rows[0]["ingestion_state"])
            assert was in {("discovered", None), ("planned", "PROCESSING")}
    done = rows[0]
    assert (done["size"], done["etag"], done["found_by"]) == (6, "etag-7000000", "listing")
    assert done["create_time"] == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    times = [before, done["discovery_time"], done["processed_time"], done["commit_time"]]
    assert times == sorted(times)
    assert (done["ingestion_state"], done["batch_id"], done["run_id"]) == ("INGESTED", 0, "run-1")
    assert (done["table_version"], done["schema_version"]) == (10, 2)
    assert (done["batch_files"], done["batch_rows"], done["batch_rescued_rows"]) == (1, 10, 1)
    assert done["batch_corrupt_records"] is None  # which that report does not count
    assert (done["entry"], done["index"], rows[1]["index"]) == (0, 0, 1)
    assert done["source_id"] == "0"


FAR = st.booleans()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("discover"), st.integers(1, 4)),
        st.tuples(st.just("existing"), st.integers(0, 3)),
        st.tuples(st.just("plan"), st.integers(1, 5)),
        st.tuples(st.just("commit"), st.just(0)),
    ),
    max_size=30,
)


def carried_out(steps: list[tuple[str, int]]) -> WrittenState:
    """A state in memory, of which these steps were done that can be."""
    written = WrittenState(f"memory://{uuid.uuid4().hex}", "memory://source")
    planned = committed = count = 0
    for what, number in steps:
        if what in {"discover", "existing"}:
            found_by = "existing" if what == "existing" else "listing"
            names = [f"{count + at}.json" for at in range(number)]
            written.discover(*names, found_by=found_by)
            count += number
        elif what == "plan":
            planned += written.plan(number) is not None
        elif committed < planned:
            written.commit(f"run-{committed // 2}")
            committed += 1
    return written


@given(STEPS, FAR)
def test_each_version_is_there_once_and_the_counts_are_those_of_the_state(steps, far):
    written = carried_out(steps)
    logged = [
        (number, index)
        for number in range(written.files.latest() + 1)
        for index in range(written.files.summary(number).files)
    ]
    state = PrefetchedStore(written.state) if far else written.state
    with mock.patch.object(file_states, "open_store", return_value=state):
        rows = table(written)
        by_run = {run: table(written, run_id=run) for run in ("run-0", "run-1")}
    assert [(row["entry"], row["index"]) for row in rows] == logged
    standing = Counter(row["status"] for row in rows)
    plans = [written.plans.at(number) for number in range(count_of_plans(written))]
    for plan in plans:
        assert plan.files == sum(row["batch_id"] == plan.number for row in rows)
    outstanding = [row for row in rows if row["status"] in {"discovered", "planned"}]
    metrics = cloud_files_metrics(written.uri)
    assert metrics["numFilesOutstanding"] == str(len(outstanding))
    assert metrics["numBytesOutstanding"] == str(sum(row["size"] for row in outstanding))
    assert table(written, status="outstanding") == outstanding
    for status in ("existing", "discovered", "planned", "committed"):
        assert len(table(written, status=status)) == standing[status]
    for run, found in by_run.items():
        assert found == [row for row in rows if row["run_id"] == run]
    for plan in plans:
        found = table(written, batch_id=plan.number)
        assert found == [row for row in rows if row["batch_id"] == plan.number]


def count_of_plans(written: WrittenState) -> int:
    latest = written.plans.latest()
    return 0 if latest is None else latest.number + 1


@given(STEPS, st.integers(1, 4))
def test_tasks_share_the_files_without_gap_and_without_overlap(steps, parts):
    written = carried_out(steps)
    snapshot = StateSnapshot.take(written.uri)
    size = -(-max(snapshot.entries, 1) // parts)
    ranges = [range(at, min(at + size, snapshot.entries)) for at in range(0, size * parts, size)]
    found = [
        (group.entry.number, index, group.status, group.batch)
        for entries in ranges
        for group in FileStates(snapshot).groups(entries)
        for index in group.indexes
    ]
    assert found == [
        (group.entry.number, index, group.status, group.batch)
        for group in FileStates(snapshot).groups()
        for index in group.indexes
    ]


def test_versions_of_an_overwritten_file_are_rows_of_their_own(tmp_path):  # B104
    zone, state = LandingZone(tmp_path / "in"), str(tmp_path / "state")
    options = DiscoveryOptions(allow_overwrites=True)
    with closing(
        Intake.open(source=zone.uri, format="json", checkpoint_location=state, discovery=options)
    ) as intake:
        zone.write("a.json", "1", modified=100)
        zone.write("b.json", "1", modified=100)
        intake.discover()
        zone.write("a.json", "12", modified=200)
        intake.discover()
    rows = cloud_files_state(state, path="a.json").read_all().to_pylist()
    assert [(row["size"], row["create_time"].timestamp(), row["entry"]) for row in rows] == [
        (1, 100, 0),
        (2, 200, 1),
    ]
    assert {row["path"] for row in rows} == {f"{zone.uri}/a.json"}


def test_a_file_that_was_listed_again_is_there_once(tmp_path):  # B103
    zone, state = LandingZone(tmp_path / "in"), str(tmp_path / "state")
    with closing(Intake.open(source=zone.uri, format="json", checkpoint_location=state)) as intake:
        zone.write("a.json", "1")
        intake.discover()
        zone.write("a.json", "12")
        intake.discover()
    (row,) = cloud_files_state(state).read_all().to_pylist()
    assert (row["size"], row["status"]) == (1, "discovered")


NAMES = [
    "café 日本.json",
    "a b.json",
    "a%20b.json",
    "line\nbreak.json",
    "not\udcffutf8.json",
    "[x].json",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_found_by_what_the_table_calls_it(written, name):
    written.discover(*sorted(NAMES))
    shown = name.replace("\udcff", "\\xff")
    # A name with characters of a pattern is found as it is, unless it cannot be read as one.
    asked = shown.replace("\\", "\\\\")
    (row,) = table(written, path=asked)
    assert row["path"] == f"s3://lake/orders/{shown}"
    assert table(written, path=f"s3a://lake/orders/{asked}") == [row]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("2026", ["2026/1/a.json", "2026/1/b.csv", "2026/2/a.json"]),
        ("2026/", ["2026/1/a.json", "2026/1/b.csv", "2026/2/a.json"]),
        ("2026/1", ["2026/1/a.json", "2026/1/b.csv"]),
        ("202", []),
        ("a.json", ["a.json"]),
        ("*.json", ["2026/1/a.json", "2026/2/a.json", "2026x.json", "a.json"]),
        ("2026/*/a.json", ["2026/1/a.json", "2026/2/a.json"]),
        ("2026/{1,3}", ["2026/1/a.json", "2026/1/b.csv"]),
        ("*/a.json", []),
        (
            "s3://lake/orders",
            ["2026/1/a.json", "2026/1/b.csv", "2026/2/a.json", "2026x.json", "a.json"],
        ),
        ("s3n://lake/orders/2026/2/", ["2026/2/a.json"]),
    ],
)
def test_a_path_is_a_file_a_folder_or_a_pattern(written, path, found):
    written.discover("2026/1/a.json", "2026/1/b.csv", "2026/2/a.json", "2026x.json", "a.json")
    root = "s3://lake/orders/"
    assert [row["path"].removeprefix(root) for row in table(written, path=path)] == found


def test_paths_are_relative_to_the_folder_before_a_pattern(tmp_path):
    written = WrittenState(f"file://{tmp_path}/state", f"file://{tmp_path}/in/20*/x")
    written.discover("2026/x/a.json")
    (row,) = table(written, path=f"{tmp_path}/in/2026/x/a.json")
    assert row["path"] == f"file://{tmp_path}/in/2026/x/a.json"


def test_times_batches_and_runs_narrow_the_table_down(written):
    for name in "abc":
        written.discover(name)
    for run in ("one", "two"):
        written.plan(1)
        written.commit(run)
    rows = table(written)
    found, done = rows[1]["discovery_time"], rows[1]["commit_time"]
    assert names(written, discovered_since=found) == ["b", "c"]
    assert names(written, discovered_until=found) == ["a"]
    assert names(written, committed_since=done) == ["b"]
    assert names(written, committed_until=done) == ["a"]
    assert names(written, run_id="two") == names(written, batch_id=1) == ["b"]
    assert names(written, run_id="three") == names(written, run_id="one", status="planned") == []
    assert names(written, status=["discovered", "committed"], path="[bc]") == ["b", "c"]
    assert names(written, committed_since=done + timedelta(hours=1)) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"status": "done"}, "status must be one of existing, .*, got 'done'"),
        ({"discovered_since": datetime(2026, 1, 1)}, "discovered_since needs a time zone"),  # noqa: DTZ001
        ({"path": "s3://other/a"}, "not below the source of this state, s3://lake/orders"),
        ({"path": "s3://lake/orders2/a"}, "not below the source"),
        ({"path": "a["}, r"a\["),
    ],
)
def test_what_cannot_be_meant_is_refused(written, query, message):
    with pytest.raises(OptionError, match=message):
        cloud_files_state(written.uri, **query)


def test_a_batch_that_was_not_planned_is_refused_by_its_number(written):
    with pytest.raises(StateError, match=r"Batch 0 is not planned in .*: none is"):
        cloud_files_state(written.uri, batch_id=0)
    written.discover("a")
    written.plan()
    with pytest.raises(StateError, match=r"Batch 1 is not planned in .*: there are 0 to 0"):
        cloud_files_state(written.uri, batch_id=1)


@pytest.mark.parametrize(
    ("files", "counts", "state"),
    [
        (2, {"missing_files": 2}, "SKIPPED_MISSING"),
        (2, {"missing_files": 1}, None),
        (1, {"corrupt_files": 1}, "SKIPPED_CORRUPTED"),
        (2, {"corrupt_files": 2}, None),
        (1, {"superseded_files": 1}, None),
        (2, {"changed_files": 2}, "INGESTED"),
    ],
)
def test_what_was_skipped_is_not_called_ingested(written, files, counts, state):  # B115
    written.discover(*"ab"[:files])
    written.plan()
    written.commit(**counts)
    assert {(row["status"], row["ingestion_state"]) for row in table(written)} == {
        ("committed", state)
    }


def test_files_whose_loss_was_accepted_are_lost_until_they_are_replayed(written):
    for name in "abc":
        written.discover(name)
        written.plan()
        written.commit()
    first = table(written)[2]["commit_time"]
    decide(written, "acceptLoss", 1, 2, (1, 2))
    assert [row["status"] for row in table(written)] == ["committed", "lost", "lost"]
    assert table(written)[1]["ingestion_state"] is None
    assert names(written, status="lost") == ["b", "c"]
    decide(written, "replay", 2, 2, (2,))
    rows = table(written)
    assert [row["status"] for row in rows] == ["committed", "lost", "committed"]
    assert rows[2]["commit_time"] > first


def decide(
    written: WrittenState, kind: Any, first: int, last: int, batches: tuple[int, ...]
) -> None:
    log = SinkLog(written.state)
    log.decide(
        Decision(
            number=log.epoch, kind=kind, first=first, last=last, batches=batches, target="file:///t"
        )
    )
    end = written.plans.at(last).end
    log.add(SinkRecord(batch=last, table_id="t", version=90, end=end))


def test_a_plain_query_is_as_far_as_sparks_commit_log(written):  # B106
    for name in "abcd":
        written.discover(name)
        written.plan()
    for batch in range(3):
        written.commit_in_spark(batch)
    rows = table(written)
    assert [row["status"] for row in rows] == ["committed"] * 3 + ["planned"]
    assert {row["run_id"] for row in rows} == {None}
    times = [row["commit_time"] for row in rows]
    assert times[3] is None
    listed = {each.path: each.modification_time_us for each in written.state.list("commits/")}
    assert [time.timestamp() * 1e6 for time in times[:3]] == pytest.approx(
        [listed[f"commits/{batch}"] for batch in range(3)], abs=1
    )
    written.state.delete("commits/0")  # Spark keeps the newest hundred
    assert table(written)[0]["commit_time"] == rows[1]["processed_time"]


def test_a_query_with_other_batch_numbers_gets_no_times_of_other_batches(written):
    for name in "abc":
        written.discover(name)
        written.plan()
    SinkLog(written.state).add(SinkRecord(batch=1, version=7, read_by="query"))
    for batch, plan in ((1, 0), (2, 1)):
        written.commit_in_spark(batch, plan)
    rows = table(written)
    assert [row["status"] for row in rows] == ["committed", "committed", "planned"]
    assert [row["table_version"] for row in rows] == [None] * 3
    following = [row["processed_time"] for row in rows[1:]]
    assert [row["commit_time"] for row in rows] == [*following, None]


def test_where_notes_are_torn_or_gone_run_and_counts_are_those_of_the_records(written, caplog):
    for name, missing in (("a", 0), ("b", 1)):
        written.discover(name)
        written.plan()
        written.commit(is_noted=missing == 0, missing_files=missing)
    written.state.put("_source/batches/0", b'{"batch_id": 0, "table_version": 7, "is_new": true')
    told = ("status", "run_id", "batch_rows", "table_version", "schema_version", "ingestion_state")
    assert [[row[name] for name in told] for row in table(written)] == [
        ["committed", "run", 10, 10, 2, "INGESTED"],
        ["committed", "run", 10, 11, 2, "SKIPPED_MISSING"],
    ]
    assert "_source/batches/0 cannot be read" in caplog.text


def entry_of(log: str, number: int) -> str:
    return f"_source/{log}/{number:020}"


@pytest.mark.parametrize("log", ["files", "plans", "sink/0"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_state_is_an_error_that_names_what_is_damaged(written, log, damage):
    for name in "abc":
        written.discover(name)
        written.plan()
        written.commit()
    key = entry_of(log, 1)
    content = bytearray(written.state.get(key))
    if damage == "gone":
        written.state.delete(key)
    else:
        content[-9] ^= 1
        written.state.put(key, bytes(content if damage == "flipped" else content[:-9]))
    if (log, damage) == ("sink/0", "gone"):  # a kill can leave that: the next batch is recorded
        assert [row["status"] for row in table(written)] == ["committed"] * 3
        return
    with pytest.raises(CorruptedStateError, match=key):
        table(written)


def test_a_plan_log_that_ends_before_what_is_committed_is_refused(written):
    written.discover("a")
    written.plan()
    written.commit()
    written.state.delete(entry_of("plans", 0))
    with pytest.raises(CorruptedStateError, match="its plan log ends at"):
        table(written)


def test_a_batch_that_is_committed_in_part_is_refused(written):
    written.discover("a", "b")
    written.plan()
    SinkLog(written.state).add(SinkRecord(batch=0, end=Offset(0, 1)))
    with pytest.raises(CorruptedStateError, match="does not fit the rest of the state: batch 0"):
        table(written)


def test_nothing_is_changed_and_no_lock_is_asked_for(written):
    written.discover("a", "b")
    written.plan(1)
    written.commit()
    with RunLock(written.state):
        before = written.content()
        assert len(table(written)) == 2
        assert cloud_files_metrics(written.uri)["numFilesOutstanding"] == "1"
        assert written.content() == before


def test_a_reader_shows_the_state_as_it_was_when_it_was_asked_for(written):
    written.discover("a", "b", "c")
    written.plan(1)
    written.commit()
    written.plan(1)
    reader = cloud_files_state(written.uri)
    written.commit()
    written.plan()
    written.discover("d")
    rows = reader.read_all().to_pylist()
    assert [row["status"] for row in rows] == ["committed", "planned", "discovered"]
    assert [row["commit_time"] is None for row in rows] == [False, True, True]


def test_entries_are_read_when_their_rows_are_asked_for(written):
    for start in range(0, 30_000, 10_000):
        written.discover(*(f"{number:09}.json" for number in range(start, start + 10_000)))
    snapshot = StateSnapshot.take(written.uri)
    files = FileStates(snapshot)
    requests = files._state.requests
    groups = files.groups()
    counts = []
    for group in groups:
        assert len(group.files) == 10_000
        counts.append((files._state.requests - requests)["get"])
    # A look at the header, and the whole entry.
    assert counts == [2, 4, 6]


def test_names_of_the_source_are_accepted_for_its_state(written):
    written.discover("a")
    assert cloud_files_state(f"{written.uri}/sources/0").read_all().num_rows == 1


DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("days", "written_as"),
    [
        (-134_774, "1601-01-01T00:00:00+00:00"),
        (-719_162, "0001-01-01T00:00:00+00:00"),
        (-719_163, "+00000-12-31T00:00:00+00:00"),
        (-1_000_000, "-00768-02-04T00:00:00+00:00"),
        (2_932_896, "9999-12-31T00:00:00+00:00"),
        (2_932_897, "+10000-01-01T00:00:00+00:00"),
        (100_000_000, "+275760-09-13T00:00:00+00:00"),
    ],
)
def test_a_file_of_any_year_is_in_the_table(written, days, written_as, capsys):
    """The dates are those of `java.time` and of JavaScript's `Date`."""
    written.append(FileEntry("a.json", 1, days * DAY_US))
    [time] = cloud_files_state(written.uri).read_all()["create_time"].cast("int64").to_pylist()
    assert time == days * DAY_US
    [row] = rows(FileStates(StateSnapshot.take(written.uri)).groups())
    shown = row["create_time"]
    assert (shown if isinstance(shown, str) else shown.isoformat()) == written_as
    assert iso_time(days * DAY_US) == written_as
    for how in ([], ["--json"]):
        assert main(["state", "files", "--checkpoint-location", written.uri, *how]) == 0
    assert written_as in capsys.readouterr().out
