"""Whatever byte of a state is damaged: the same result, or an error that names what is damaged.

A small state with an object of every kind is damaged object by object, byte by byte. Then all is
asked that a run asks of it. `EXAMPLES=all` tries every length and every bit.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing import state as listing
from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import HYPOTHESES, TrackRecord
from airflow_cloudfiles.engine.discovery.settling import UnsettledFile, keep_waiting
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.extensions.cleaning.one_file import (
    CleaningProgress,
    DueFile,
    read_cleaned,
    write_cleaned,
)
from airflow_cloudfiles.engine.extensions.event_log.reading import EventPosition, save_position
from airflow_cloudfiles.engine.extensions.inventory.base import ReportProgress, save_progress
from airflow_cloudfiles.engine.extensions.overview.runs import ingestion_summary
from airflow_cloudfiles.engine.files import FileEntry, Offset, ReadLimit
from airflow_cloudfiles.engine.intake.file_state_columns import cloud_files_state
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.changed import PACKED as PACKED_CHANGES
from airflow_cloudfiles.engine.intake.ledger.changed import (
    Change,
    PackedNote,
    claim_change,
    encode_notes,
    note_change,
    note_overwritten,
    note_read,
    note_refused,
    was_refused,
)
from airflow_cloudfiles.engine.intake.ledger.opening import mark_head
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder, record_overwritten
from airflow_cloudfiles.engine.intake.silence import LastArrival, note_notified, was_notified
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.schema.log_entry import add_name, names_of
from airflow_cloudfiles.engine.schema.proposals import (
    Proposal,
    ProposedChange,
    propose,
    waiting_proposal,
)
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.batch_states import (
    CleanedFiles,
    CleaningHistory,
    read_archived,
    write_archived,
)
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog, FoundBy
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import allow_packs
from airflow_cloudfiles.engine.state.operations import announce, announced
from airflow_cloudfiles.engine.state.packs import COPIES, Pack, encode_pack
from airflow_cloudfiles.engine.state.sink_log import Decision, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage.memory import MemoryStore, _spaces
from tests.support.damage import damages
from tests.support.memory_ledger import MemoryLedger
from tests.support.written_state import WrittenState

NAMES = [f"2026/0{number}/caf\u00e9 {number}.json" for number in range(1, 8)]
SCHEMA = StructType([StructField("a", StringType())])
TOLD = LastArrival(3, datetime(2026, 1, 1, tzinfo=UTC))
PROPOSED = Proposal(
    number=0,
    created="",
    source="in",
    by="d.t",
    changes=(ProposedChange("added", "b", None, "string", "in/a", ("1",)),),
    reason={"change": "newFields"},
    data_schema={"type": "struct", "fields": []},
    partition_schema={"type": "struct", "fields": []},
)
ARCHIVED = CleaningHistory(
    marks=(CleanedFiles(Offset(1, 0), datetime(2026, 1, 1, tzinfo=UTC), "MOVE", "s3://lake/done"),)
)
PLANNED = 5
"""How many batches are planned."""
MAY_GO = (
    "_reports/",
    "_runs/",
    "_source/archived",
    "_source/batches/",
    "_source/changed/",
    "_source/cleaned",
    "_source/events.json",
    "_source/head.json",
    "_source/inventory.json",
    "_source/left_query.json",
    "_source/left_runs/",
    "_source/listing.json",
    "_source/refused/",
    "_source/run.lock",
    "_source/silence/",
    "_source/summary.json",
)
"""What may be deleted at any time, as `docs/protocol.md` says. Then nothing fails."""
KINDS = (
    *MAY_GO,
    "_schemas/",
    "_source/files/",
    "_source/metadata.json",
    "_source/operations/",
    "_source/overwritten/",
    "_source/plans/",
    "_source/replays/",
    "_source/sink/",
    "_source/waiting/",
)
GONE = (
    ("archived", CleaningHistory()),
    ("cleaned", CleaningProgress()),
    ("refused", False),
    ("told", False),
)
"""What is found where such an object was deleted."""
INFORMS = ("spec", "report", "summary", "left run", "left query")
"""What nothing is decided by: where it is damaged or gone, it is not shown."""


class Source:
    """Files that are recorded but for the last one; the first one was overwritten since."""

    def __init__(self) -> None:
        self.uri = f"memory://{uuid.uuid4().hex}/in"
        self.store = MemoryStore(self.uri)
        for name in NAMES:
            self.store.put(name, b"{}")

    def entry(self, name: str) -> FileEntry:
        found = self.store.head(name)
        assert found is not None
        return FileEntry(found.path, found.size, found.modification_time_us, found.etag)


def whole_state(source: Source) -> dict[str, bytes]:
    """The objects of a state that has one of every kind."""
    uri = f"memory://{uuid.uuid4().hex}"
    written = WrittenState(uri, source.uri)
    state = written.state
    first = source.entry(NAMES[0])
    written.append(FileEntry(first.path, 1, 1, "older"))
    ways: tuple[FoundBy, ...] = ("listing", "backfill", "notification", "listing", "listing")
    for name, found_by in zip(NAMES[1:-1], ways, strict=True):
        written.append(source.entry(name), found_by=found_by)
    for _ in range(3):
        written.plan(max_files=1)
        written.commit(run_id="first")
    sink = SinkLog(state)
    assert sink.decide(
        Decision(number=0, kind="acceptLoss", first=2, last=2, batches=(2,), target="file:///t")
    )
    sink.add(SinkRecord(batch=2, table_id="t", version=40, end=Offset(3, 0), is_accepted=True))
    written.plan(max_files=1)
    written.commit(run_id="second")
    written.plan(max_files=1)
    SchemaLog(state, source.uri).append(
        0, data_schema=SCHEMA, partition_schema=StructType(), reason={"change": "inferred"}
    )
    propose(state, PROPOSED)
    announce(state, 1)
    add_name(state, source.uri, "s3://before/it/was/relocated")
    write_archived(state, ARCHIVED)
    write_cleaned(
        state,
        CleaningProgress(Offset(2, 0), 1, (DueFile(source.entry(NAMES[1]), datetime.now(UTC)),)),
    )
    note_refused(uri, [source.entry(NAMES[5])], {"new": 1})
    note_overwritten(state, first)
    note_notified(state, "d.t", TOLD)
    mark_head(state, written.files)
    listing.save_state(state, listing.ListingState(full_started=1.0, full_listed=6, filter="f"))
    _note_finds(state, source)
    _note_runs(state, source)
    _pack(state, "_source/files", "_source/plans", "_source/sink/0", "_source/batches")
    allow_packs(state)
    return {each.path: state.get(each.path) for each in state.list()}


def _note_finds(state: MemoryStore, source: Source) -> None:
    """What ways of finding files note that these options do not ask for."""
    save_progress(state, ReportProgress("report", "f", "listing", is_done=True))
    save_position(state, EventPosition("log", 7))
    found = source.entry(NAMES[2])
    keep_waiting(state, [UnsettledFile(found, 1, "notification")])
    change = Change(2, replace(found, etag="older"), found)
    note_change(state, change)
    assert claim_change(state, change)
    note_read(state, found)
    state.put(PACKED_CHANGES, encode_notes({f"{'0' * 32}-1.json": PackedNote(1, 2)}))


def _note_runs(state: MemoryStore, source: Source) -> None:
    spec = JobSpec(
        kind="ingest",
        source=source.uri,
        format="json",
        checkpoint_location=state.uri,
        run_id="r",
        target="/t",
        options={"cloudFiles.maxFilesPerTrigger": 1},
    )
    state.put(spec.spec_key, spec.sealed())
    report = {"kind": "ingest", "outcome": "succeeded", "files": 1, "ended": "2026-01-01"}
    run_history.write_report(state, spec.report_key, report)
    query = LeftQuery(user_id="u", session_id="s", server_session_id="e", query_id="q", run_id="r")
    run = left_query.LeftRun(run_id="r", before=0, last_entry=1, started="2026-01-01", query=query)
    left_query.write_run(state, run)
    state.put("_source/run.lock", b'{"pid": 1, "host": "h", "since": "2026"}\n')


def _pack(state: MemoryStore, *folders: str) -> None:
    """Put the two oldest objects of some folders into packs."""
    for folder in folders:
        keys = [
            each.path
            for each in state.list(f"{folder}/")
            if each.path.removeprefix(f"{folder}/").isdigit()
        ][:2]
        content = encode_pack(Pack(0, 1), [state.get(key) for key in keys])
        for copy in COPIES:
            state.put(f"{folder}/{Pack(0, 1).key(copy)}", content)
        for key in keys:
            state.delete(key)


def ask(state: MemoryStore, source: Source, options: DiscoveryOptions) -> dict[str, Any]:
    """What a run reads, decides and records."""
    intake = Intake(
        source=source.store, state=state, format="json", discovery=options, ledger=MemoryLedger()
    )
    with RunLock(state):
        intake.discover()
        intake.check()
    latest = intake.plans.latest()
    assert latest is not None
    if latest.number < PLANNED:
        intake.plans.plan(intake.files, latest.end, ReadLimit(max_files=1), intake.head())
    sink, files = SinkLog(state), intake.files
    schema = SchemaLog(state, source.uri).latest()
    table = cloud_files_state(state.uri).read_all().to_pylist()
    assert not options.allow_overwrites or list(state.list("_source/overwritten/")) == []
    return {
        "stream": intake.stream_id,
        "files": [files.read(number) for number in range(files.head().entry)],
        "plans": [intake.plans.at(number) for number in range(PLANNED + 1)],
        "committed": intake.committed(),
        "must have": sink.must_have(),
        "records": [sink.find_in_any(number) for number in range(PLANNED)],
        "given up": sink.given_up(),
        "schema": schema and schema.data_schema,
        "proposed": _but_for_its_time(waiting_proposal(state)),
        "announced": announced(state),
        "names": names_of(state),
        "archived": read_archived(state),
        "cleaned": read_cleaned(state),
        "told": was_notified(state, "d.t", TOLD),
        "refused": was_refused(state.uri, source.entry(NAMES[5])),
        "table": [(row["path"], row["status"], row["batch_id"]) for row in table],
        "spec": run_history.newest_ingest(state),
        "report": run_history.read_report(state, "r"),
        "summary": ingestion_summary(state),
        "left run": left_query.read_run(state, "r"),
        "left query": left_query.newest_query(state),
        "runs": [row["run_id"] for row in table],
    }


def _but_for_its_time(proposal: Proposal | None) -> Proposal | None:
    return proposal and replace(proposal, created="")


class Whole:
    """A state that is whole, and what is found in it."""

    def __init__(self, options: DiscoveryOptions) -> None:
        self.source, self.options = Source(), options
        self.objects = whole_state(self.source)
        self.expected = ask(self.state({}), self.source, options)

    def state(self, changed: dict[str, bytes | None]) -> MemoryStore:
        """A copy with some objects changed or, where there is `None`, left out."""
        name = uuid.uuid4().hex
        store = MemoryStore(f"memory://{name}")
        for key, content in {**self.objects, **changed}.items():
            if content is not None:
                store.put(key, content)
        return store

    def check(self, changed: dict[str, bytes | None], why: str) -> CloudFilesError | None:
        """Nothing else is found, but for what informs; or an error, and nothing after a restore."""
        state = self.state(changed)
        try:
            found = ask(state, self.source, self.options)
        except CloudFilesError as error:
            for key, content in self.objects.items():
                if key in changed:
                    state.put(key, content)
            assert ask(state, self.source, self.options) == self.expected, why
            return error
        finally:
            _spaces.pop(state.uri.removeprefix("memory://"), None)
        for what, value in self.expected.items():
            assert found[what] == value or _is_not_shown(what, found[what], value), (why, what)
        return None


def _is_not_shown(what: str, found: Any, value: Any) -> bool:
    """Whether something that only informs is left out, and nothing else is in its place."""
    if what == "runs":
        return all(each in {None, run} for each, run in zip(found, value, strict=True))
    return (what in INFORMS and found is None) or (what, found) in GONE


@pytest.fixture(scope="module")
def whole() -> Whole:
    """The state of a stream that ingests overwritten files again, which lists all each time."""
    return Whole(DiscoveryOptions(allow_overwrites=True))


@pytest.mark.law
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_object_is_healed_or_named(whole: Whole, kind: str) -> None:
    chance, keys = random.Random(), [key for key in whole.objects if key.startswith(kind)]
    assert keys
    for key in keys:
        for what, content in damages(whole.objects[key], chance=chance):
            error = whole.check({key: content}, f"{key} {what}")
            if kind in {"_reports/", "_runs/"}:
                assert error is not None  # another one's options are not these
            if error is not None:
                assert key.rpartition("/")[2] in str(error), (key, what, str(error))
                assert not isinstance(error, OptionError), (key, what, str(error))


def test_every_kind_of_object_is_damaged(whole: Whole) -> None:
    assert [key for key in whole.objects if not key.startswith(tuple(KINDS))] == []


def test_what_may_be_deleted_may_be_deleted(whole: Whole) -> None:
    for key in (key for key in whole.objects if key.startswith(MAY_GO)):
        assert whole.check({key: None}, key) is None, key
    gone = dict.fromkeys(key for key in whole.objects if key.startswith(MAY_GO))
    assert whole.check({**gone}, "all that may be deleted") is None


def test_a_pack_is_read_as_long_as_one_copy_is_whole(whole: Whole) -> None:
    packs = [key.removesuffix(".a") for key in whole.objects if key.endswith(".a")]
    assert len(packs) == 4
    for pack in packs:
        one, other = f"{pack}.a", f"{pack}.b"
        content = whole.objects[one]
        damaged = content[:-1] + bytes([content[-1] ^ 1])
        error = whole.check({one: damaged, other: None}, pack)
        assert (error is None) is ("batches" in pack), pack
        for copy in (one, other):
            assert whole.check({copy: damaged}, copy) is None
            assert whole.check({copy: None}, copy) is None


def test_a_large_entry_whose_header_alone_is_read_is_never_read_otherwise() -> None:
    whole = Whole(DiscoveryOptions(allow_overwrites=True))
    files = FileLog(whole.state({}))
    many = tuple(FileEntry(f"z/{number:060}", 9, 9, "") for number in range(1000))
    state = files.store
    number = files.latest() + 1
    assert files.append(number, FileBatch(many))
    key = f"_source/files/{number:020}"
    content = state.get(key)
    assert len(content) > 65536
    expected = sum(file.size for file in files.slice(Offset(number, 0), files.head()))
    for _, damaged in damages(content, share=len(content) // 50, chance=random.Random()):
        state.put(key, damaged)
        with pytest.raises(CloudFilesError, match=f"{number:020}"):
            list(FileLog(state).slice(Offset(number, 0), files.head()))
    state.put(key, content)
    again = FileLog(state).slice(Offset(number, 0), files.head())
    assert sum(file.size for file in again) == expected


@pytest.mark.law
def test_no_damage_to_what_listings_remember_hides_a_file() -> None:
    """An interrupted listing, of which only the part without the new file is still to be listed."""
    whole = Whole(DiscoveryOptions())
    state = whole.state({})
    fingerprint = Intake(source=whole.source.store, state=state, format="json")._filter
    rest = (KeyRange(NAMES[2], NAMES[4]),)
    for unfinished in (None, rest):
        remembered = listing.ListingState(
            full_started=time.time(),
            full_listed=6,
            evidence={name: TrackRecord(100, False) for name in HYPOTHESES},
            filter=fingerprint.fingerprint,
            witness=NAMES[1],
            unfinished=unfinished
            and listing.UnfinishedListing(
                time.time(), "listing", fingerprint.fingerprint, NAMES[1], unfinished
            ),
        )
        listing.save_state(state, remembered)
        content = state.get(listing.KEY)
        for what, damaged in damages(content, chance=random.Random()):
            assert whole.check({listing.KEY: damaged}, f"{listing.KEY} {what}") is None


def test_a_damaged_note_of_an_overwritten_file_has_all_files_listed(whole: Whole) -> None:
    """Also where files are announced, so that nothing lists them."""
    (key,) = [key for key in whole.objects if key.startswith("_source/overwritten/")]
    state, listed = whole.state({key: whole.objects[key].replace(b"2026", b"2025")}), []

    class Listing:
        def run(self, recorder: Any, *, full: bool) -> None:
            listed.append(full)

    recorder = LedgerRecorder(MemoryLedger(), FileLog(state), versions=True)
    wanted = FileFilter(whole.source.uri, None, whole.options, [])
    record_overwritten(state, whole.source.store, wanted, recorder, Listing())  # type: ignore[arg-type]
    assert listed == [True]
    assert list(state.list("_source/overwritten/")) == []
