"""An inventory report gives each file once, and is refused where it cannot be believed."""

from __future__ import annotations

import errno
import json
import sys
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import load_state, save_state
from airflow_cloudfiles.engine.errors import InventoryError, ListingError, OptionError
from airflow_cloudfiles.engine.extensions.inventory import base, data_files, reading
from airflow_cloudfiles.engine.extensions.inventory.base import load_progress
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import memory
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.inventories import KINDS, Row, write_report
from tests.support.memory_ledger import MemoryLedger

NOW = datetime.now(tz=UTC)
STARTED = NOW - timedelta(days=2)
OLD = STARTED - timedelta(days=3)
ODD = [
    "a b.json",
    "a+b.json",
    "a%2Fb.json",
    "day=2026-01-01/x=y&z.json",
    "ünï/日本 \U0001f600.json",
    'a"b,c.json',
]


class Place:
    """A source and its reports, in one process's memory, with any times."""

    def __init__(self, monkeypatch) -> None:
        self.bucket = f"b{uuid.uuid4().hex}"
        self.source = MemoryStore(f"memory://{self.bucket}/in")
        self.reports = MemoryStore(f"memory://{self.bucket}-reports")
        self.state = MemoryStore(f"memory://{self.bucket}-state")
        self.ledger = MemoryLedger()
        self._monkeypatch = monkeypatch

    def put(self, key: str, when: datetime = OLD, content: bytes = b"{}\n") -> None:
        with self._monkeypatch.context() as patched:
            patched.setattr(memory, "now_us", lambda: _us(when))
            self.source.put(key, content)

    def rows(self) -> list[Row]:
        """What a report says of all that is there."""
        whole = MemoryStore(f"memory://{self.bucket}")
        return [
            Row(each.path, each.size, each.modification_time_us, each.etag) for each in whole.list()
        ]

    def report(self, kind: str = "s3 csv", rows=None, *, started=STARTED, **more) -> str:
        rows = self.rows() if rows is None else rows
        more = {"bucket": self.bucket, **more}
        key = write_report(self.reports, kind, rows, started=started, **more)
        return self.reports.child_uri(key)

    def open(self, location: str | None = None, **options) -> Intake:
        options = {"inventory": location or self.reports.uri, **options}
        return Intake(
            source=self.source,
            state=self.state,
            format="json",
            discovery=DiscoveryOptions(**options),
            ledger=self.ledger,
        )

    def discover(self, location: str | None = None, **options):
        return self.open(location, **options).discover()

    def recorded(self) -> list[str]:
        intake = Intake(source=self.source, state=self.state, format="json", ledger=MemoryLedger())
        return sorted(file.path for file in intake.files.slice(START, intake.head()))


def _us(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000


@pytest.fixture
def place(monkeypatch):
    return Place(monkeypatch)


# ── what a report gives ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_of_each_cloud_gives_what_a_listing_gives(place, kind):
    for key in ODD:
        place.put(key)
    place.put("_hidden/x.json")
    whole = MemoryStore(f"memory://{place.bucket}")
    whole.put("beside/x.json", b"1")
    place.report(kind, [*place.rows(), Row("in/folder/", 0), Row("in/", 0)], files=3)
    found = place.discover()
    assert place.recorded() == sorted(ODD)
    entries = place.open().files.read(0).files
    by_listing = {each.path: each for each in place.source.list()}
    assert all(each == by_listing[each.path] for each in entries)
    assert found.inventory.completed_by == "full listing"
    assert found.to_json()["inventory"]["data_files"] == 3
    assert place.discover().files == 0
    assert place.recorded() == sorted(ODD)


def test_a_csv_of_cloud_storage_without_names_of_columns_has_those_of_its_manifest(place):
    place.put("a.json")
    place.report("gcs csv", header=False)
    place.discover()
    assert place.recorded() == ["a.json"]


@pytest.mark.parametrize("kind", ["s3 csv", "s3 parquet", "s3 orc"])
def test_past_versions_and_delete_markers_are_no_files(place, kind):
    def row(key, version, latest, gone=False):
        more = {"VersionId": version, "IsLatest": latest, "IsDeleteMarker": gone}
        if kind == "s3 csv":
            more = {name: str(each).lower() for name, each in more.items()}
        return Row(f"in/{key}", time_us=_us(OLD), more=more)

    rows = [row("a", "v1", False), row("a", "v2", True), row("b", "v1", True, True)]
    rows += [row("c", "", True)]
    place.report(kind, rows, columns=["VersionId", "IsLatest", "IsDeleteMarker"])
    place.discover()
    assert place.recorded() == ["a", "c"]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("azure csv", "Snapshot", "2026-01-01T00:00:00Z"),
        ("azure csv", "Deleted", "true"),
        ("azure csv", "hdi_isfolder", "true"),
        ("azure parquet", "hdi_isfolder", True),
        ("gcs csv", "timeDeleted", "2026-01-01 00:00:00 UTC"),
    ],
)
def test_snapshots_folders_and_what_is_deleted_are_no_files(place, kind, name, value):
    other = False if value is True else ""
    rows = [
        Row("in/a", time_us=_us(OLD), more={name: other}),
        Row("in/b", time_us=_us(OLD), more={name: value}),
    ]
    place.report(kind, rows, columns=[name])
    place.discover()
    assert place.recorded() == ["a"]


def test_the_options_filter_what_a_report_names(place):
    for key in ("2026/a.json", "2026/b.csv", "2025/a.json"):
        place.put(key)
    place.report()
    place.discover(path_glob_filter="*.json", modified_after_us=_us(OLD) - 1)
    assert place.recorded() == ["2025/a.json", "2026/a.json"]


def test_reports_below_the_source_are_not_ingested(place):
    place.put("a.json")
    place.reports = MemoryStore(f"memory://{place.bucket}")
    location = place.report(folder="in/reports")
    place.discover(location)
    place.discover(location)
    assert place.recorded() == ["a.json"]


# ── which report is read ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_folder_the_newest_report_is_read_that_is_finished(place, kind):
    place.put("a.json")
    place.report(kind, started=STARTED - timedelta(days=1))
    place.put("b.json")
    place.report(kind)
    unfinished = {"s3": {"checksum": False}, "azure": {"status": "Pending"}}
    late = unfinished.get(kind.split()[0], {"report_shards_file_names": None})
    place.report(kind, [], started=NOW - timedelta(days=1), **late)
    place.discover()
    assert place.recorded() == ["a.json", "b.json"]


def test_a_manifest_may_be_named_itself(place):
    place.put("a.json")
    older = place.report(started=STARTED - timedelta(days=1))
    place.put("b.json", STARTED)
    place.report()
    found = place.discover(older)
    assert found.inventory.uri == older


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("s3 csv", {"started": NOW - timedelta(days=15)}, "cloudFiles.inventoryMaxAge"),
        ("s3 csv", {"bucket": "another"}, "of the bucket 'another'"),
        ("gcs csv", {"bucket": "another"}, "of the bucket 'another'"),
        ("azure csv", {"prefixes": ["another/"]}, "does not take in all"),
        ("s3 csv", {"version": "2031-01-01"}, "of version '2031-01-01'"),
        ("azure csv", {"version": "2.0"}, "of version '2.0'"),
        ("s3 csv", {"checksum": "0" * 32}, "does not match its checksum file"),
        ("azure parquet", {"checksum": False}, "checksum file is missing"),
        ("azure csv", {"status": "PartiallySucceeded"}, "status is 'PartiallySucceeded'"),
        ("azure csv", {"status": None}, "status is None"),
        ("s3 csv", {"fileFormat": "Avro"}, "format is 'Avro'"),
        ("s3 csv", {"fileSchema": "Bucket, Key, LastModifiedDate"}, "no column with the size"),
        ("s3 csv", {"fileSchema": "Key, Size, LastModifiedDate, VersionId"}, "has versions"),
        ("s3 csv", {"creationTimestamp": None}, "(KeyError: 'creationTimestamp')"),
        ("s3 csv", {"creationTimestamp": "soon"}, "not understood"),
        ("gcs csv", {"shard_count": 4}, "names 1 data files of 4"),
        ("gcs csv", {"records_processed": 9}, "says 9 rows, and its data files have 1"),
        ("gcs csv", {"report_config": None}, "none of the fields"),
    ],
)
def test_a_report_that_cannot_be_believed_is_refused_with_what_to_do(place, kind, changes, words):
    place.put("a.json")
    with pytest.raises(InventoryError) as refused:
        place.discover(place.report(kind, **changes))
    assert words in refused.value.message
    assert "Or remove cloudFiles.inventory" in refused.value.message


def test_a_report_of_another_cloud_is_refused():
    from airflow_cloudfiles.engine.extensions.inventory.base import ReportSource, parse_manifest

    source = ReportSource.of("gs://bucket/in", "")
    with pytest.raises(InventoryError, match="report of S3, and the source is in Cloud Storage"):
        parse_manifest(b'{"sourceBucket": "bucket"}', "gs://r/manifest.json", source, None)


def test_a_report_of_another_account_is_refused(place):
    from airflow_cloudfiles.engine.extensions.inventory.base import ReportSource, parse_manifest

    name = place.report("azure csv").removeprefix(place.reports.uri + "/")
    checksum = place.reports.get(name.removesuffix(".json") + ".checksum")
    source = ReportSource.of(f"abfss://{place.bucket}@other.dfs.core.windows.net/in", "")
    with pytest.raises(InventoryError, match="account 'account', not of 'other'"):
        parse_manifest(place.reports.get(name), name, source, checksum)


def test_reports_on_a_disk_are_refused(place, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InventoryError, match="not in an object store"):
        place.discover(str(tmp_path))


def test_no_report_at_all_is_an_error_that_says_what_to_name(place):
    with pytest.raises(InventoryError, match="no object's name ends with manifest"):
        place.discover()
    with pytest.raises(InventoryError, match="does not exist"):
        place.discover(f"{place.reports.uri}/manifest.json")


def damaged(place: Place, how: str) -> None:
    (key,) = (each.path for each in place.reports.list() if "/data/" in each.path)
    content = place.reports.get(key)
    if how == "missing":
        place.reports.delete(key)
    elif how == "cut":
        place.reports.put(key, content[:-9])
    else:
        place.reports.put(key, content[:20] + b"?" + content[21:])


@pytest.mark.parametrize(
    ("how", "words"),
    [("missing", "is missing"), ("cut", "bytes, not"), ("changed", "match its checksum")],
)
@pytest.mark.parametrize("kind", ["s3 csv", "s3 orc", "s3 parquet"])
def test_of_a_report_that_is_not_whole_nothing_is_recorded(place, kind, how, words):
    place.put("a.json")
    place.report(kind)
    damaged(place, how)
    with pytest.raises(InventoryError, match=words):
        place.discover()
    assert place.recorded() == []


@pytest.mark.parametrize("kind", ["azure csv", "azure parquet"])
def test_bytes_that_cannot_be_understood_are_an_error_that_names_the_file(place, kind):
    place.report(kind, [Row("in/a")])
    (key,) = (each.path for each in place.reports.list() if "rule_0" in each.path)
    length = len(place.reports.get(key))
    place.reports.put(key, b"\xff" * length)
    with pytest.raises(InventoryError, match=r"rule_0\..* is refused: this data file cannot"):
        place.discover()


def test_a_report_of_a_part_of_the_source_is_refused(place):
    for key in ("2024/a", "2025/a", "2026/a"):
        place.put(key)
    for kept in ("2024", "2025", "2026", "none"):
        location = place.report(rows=[row for row in place.rows() if kept in row.key])
        with pytest.raises(InventoryError, match=r"it lacks memory:.* which is older"):
            place.discover(location)


def test_a_store_that_does_not_answer_is_worth_another_try(place, monkeypatch):
    place.put("a.json")
    place.report()

    read = MemoryStore.get_range

    def fails(store, key, *args, **more):
        if "/data/" in key:
            raise ConnectionError("reset")
        return read(store, key, *args, **more)

    monkeypatch.setattr(MemoryStore, "get_range", fails)
    with pytest.raises(ListingError, match="Run again") as failed:
        place.discover()
    assert failed.value.is_retryable


def test_a_columnar_report_where_pyarrow_is_missing_names_the_extra(place, monkeypatch):
    place.put("a.json")
    location = place.report("s3 orc")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, data_files._COLUMNAR, raising=False)
    with pytest.raises(OptionError, match=r"needs the package pyarrow.*\[delta\]"):
        place.discover(location)
    place.discover(place.report("s3 csv", started=STARTED + timedelta(minutes=1)))
    assert place.recorded() == ["a.json"]


def test_a_temporary_folder_that_is_full_is_named(place, monkeypatch):
    place.put("a.json")
    place.report()

    def full(_self, number, _path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_files.DataFiles, "_fetch", full)
    with pytest.raises(ListingError, match="set TMPDIR"):
        place.discover()


# ── what completes a report ─────────────────────────────────────────────────────────────────────


def test_what_came_after_the_report_is_found_by_one_full_listing(place):
    place.put("b.json")
    place.report()
    place.put("a.json", NOW)
    calls = place.source.requests["list"]
    assert place.discover().inventory.completed_by == "full listing"
    assert place.source.requests["list"] - calls == 2, "the edges only"
    assert place.recorded() == ["b.json"]
    found = place.discover()
    assert (found.inventory, found.listing.kind) == (None, "full")
    assert place.recorded() == ["a.json", "b.json"]


def numbered(count: int) -> list[str]:
    return [f"2026/{number:06}.json" for number in range(count)]


def test_an_incremental_listing_begins_before_all_that_the_report_may_lack(place):
    old, recent = numbered(3000)[:2000], numbered(3000)[2000:]
    for key in old:
        place.put(key)
    for key in recent:
        place.put(key, STARTED - timedelta(hours=1))
    rows = place.rows()
    lacking = [row for at, row in enumerate(rows) if at < 2000 or at % 2]
    place.put("1999/late.json", STARTED - timedelta(hours=1))  # comes first, is in no report yet
    place.report(rows=[*lacking, Row("in/1998/late.json", time_us=_us(STARTED))], files=2)
    place.put("1998/late.json", STARTED)
    found = place.discover(use_incremental_listing="true")
    assert found.listing.kind == "incremental"
    assert found.listing.list_calls < 5
    assert place.recorded() == sorted([*old, *recent, "1998/late.json"])
    assert place.discover(use_incremental_listing="true").files == 0


@pytest.mark.parametrize(
    ("days", "by"), [(4, "notifications"), (3, "notifications"), (2, "full listing")]
)
def test_a_log_of_events_completes_a_report_if_it_is_a_day_older(place, days, by):
    place.put("a.json")
    place.report()  # two days ago
    intake = place.open()
    since_us = _us(NOW - timedelta(days=days, seconds=1))
    recorder = intake._recorder(place.ledger)
    found = intake._inventory.run(
        recorder, intake._listing, queue="events:1", announced_since_us=lambda: since_us
    )
    assert (found.completed_by, found.new) == (by, 1)
    assert (load_state(place.state).full_started > 0) == (by == "notifications")


@pytest.mark.parametrize(
    ("since", "started", "by"),
    [
        (3, 2, "notifications"),
        (2, 2, "full listing"),  # less than a day before the report was begun
        (9, 8, "full listing"),  # a queue keeps messages for a week
        (None, 2, "full listing"),
    ],
)
def test_a_queue_completes_a_report_only_if_it_cannot_have_lost_anything(place, since, started, by):
    place.put("a.json", NOW - timedelta(days=12))
    place.report(started=NOW - timedelta(days=started))
    since_us = None if since is None else _us(NOW - timedelta(days=since, seconds=1))
    intake = place.open(use_notifications=True, queue_name="q", notifications_since_us=since_us)
    found = intake._inventory.run(intake._recorder(place.ledger), intake._listing, queue="q")
    assert found.completed_by == by
    assert load_state(place.state).has_notifications == (by == "notifications")
    assert intake._is_listing_due(intake._announced(), place.ledger) == (by == "full listing")


def test_a_backfill_reads_each_report_once_and_then_waits_for_the_next(place):
    for key in numbered(1200):
        place.put(key)
    options = {"use_incremental_listing": "true", "backfill_interval_seconds": 0.001}
    place.report()
    assert place.discover(**options).inventory.completed_by == "incremental listing"
    place.put("1999/late.json", STARTED + timedelta(hours=1))
    assert place.discover(**options).inventory is None, "no newer report"
    place.report(started=STARTED + timedelta(days=1, hours=2))
    found = place.discover(**options)
    assert (found.by, found.inventory.completed_by) == ({"backfill": 1}, "later reports")
    assert found.listing is not None
    assert "1999/late.json" in place.recorded()


def test_sensors_are_told_that_a_report_waits(place):
    place.report(rows=[])
    intake = place.open()
    assert intake.arrivals().unrecorded
    intake.discover()
    assert not intake.arrivals()


def test_existing_files_of_a_report_are_never_ingested(place):
    place.put("a.json")
    place.report()
    options = {"include_existing_files": False}
    intake = place.open(**options)
    assert intake.discover().existing == 1
    place.put("b.json", datetime.now(tz=UTC) + timedelta(seconds=5))
    assert intake.discover().files == 1


def test_a_file_that_is_gone_meanwhile_is_left_to_the_reader(place):  # B96
    place.put("a.json")
    place.report()
    place.source.delete("a.json")
    place.discover()
    assert place.recorded() == ["a.json"]


# ── interrupted ─────────────────────────────────────────────────────────────────────────────────


def test_a_report_that_was_interrupted_goes_on_behind_the_files_that_were_read(place, monkeypatch):
    for key in numbered(40):
        place.put(key)
    place.report(files=4)
    read = data_files.DataFiles._fetch
    fetched = []

    def fetch(self, number, path):
        if number == 2 and not fetched.count(2):
            fetched.append(2)
            raise ConnectionError("reset")
        fetched.append(number)
        return read(self, number, path)

    monkeypatch.setattr(data_files.DataFiles, "_fetch", fetch)
    monkeypatch.setattr(data_files, "_THREADS", 1)
    with pytest.raises(ListingError):
        place.discover()
    assert sorted(load_progress(place.state).read) == [0, 1]
    assert place.open().arrivals().unrecorded
    place.discover()
    assert place.recorded() == numbered(40)
    assert fetched == [0, 1, 2, 2, 3]
    assert load_progress(place.state).is_done


def test_an_incremental_listing_that_was_killed_in_the_midst_is_made_up_for_by_a_full_one(
    place, monkeypatch
):
    for key in numbered(1200):
        place.put(key)
    place.report()
    late = numbered(1300)[1200:]
    for key in late:
        place.put(key, STARTED)
    run = DirectoryListing.run

    def killed(self, recorder, **more):
        """What several readers leave: the last files recorded, others before them not."""
        save_state(place.state, load_state(place.state).in_doubt())
        recorder.record([place.source.head(late[-1])], "listing")
        raise KeyboardInterrupt

    monkeypatch.setattr(DirectoryListing, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        place.discover(use_incremental_listing="true")
    monkeypatch.setattr(DirectoryListing, "run", run)
    assert place.discover(use_incremental_listing="true").listing.kind == "full"
    assert place.recorded() == numbered(1300)


def test_other_filters_read_the_report_from_its_start(place, monkeypatch):
    for key in ("a.json", "b.csv"):
        place.put(key)
    place.report()
    saved = []

    def killed(point):
        if point == "before-inventory-done":
            saved.append(load_progress(place.state))
            raise KeyboardInterrupt

    monkeypatch.setattr(reading, "crash_point", killed)
    with pytest.raises(KeyboardInterrupt):
        place.discover(path_glob_filter="*.json")
    monkeypatch.undo()
    assert saved[0].is_unfinished
    place.discover()
    assert place.recorded() == ["a.json", "b.csv"]


def test_damaged_progress_is_passed_over(place, caplog):
    place.put("a.json")
    place.report()
    place.state.put(base.KEY, b"{}")
    place.discover()
    assert place.recorded() == ["a.json"]
    assert "cannot be read" in caplog.text


def test_memory_is_bounded_by_batches(place, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_FILES", 7)
    for key in numbered(20):
        place.put(key)
    place.report("s3 parquet", files=2)
    place.discover()
    sizes = [place.open().files.summary(number).files for number in range(4)]
    assert sizes == [7, 3, 7, 3]


# ── options ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inventoryMaxAge": "1 day"}, "cloudFiles.inventory is not"),
        ({"notificationsSince": "2026-01-01"}, "cloudFiles.inventory is not"),
        ({"inventory": "s3://r", "notificationsSince": "2026-01-01"}, "useNotifications is not"),
        ({"inventory": "s3://r", "allowOverwrites": "true"}, "ingested twice"),
        ({"inventory": "s3://r", "fileIdentity": "content"}, "ingested twice"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, words):
    with pytest.raises(OptionError, match=words):
        DiscoveryOptions.read({f"cloudfiles.{name.lower()}": each for name, each in given.items()})


def test_the_manifest_is_what_the_clouds_document(place):
    """The writer of these tests writes the fields of the documented examples."""
    manifest = json.loads(
        place.reports.get(place.report("s3 csv").removeprefix(place.reports.uri + "/"))
    )
    assert set(manifest) == {
        *("sourceBucket", "destinationBucket", "version", "creationTimestamp", "fileFormat"),
        *("fileSchema", "files"),
    }
