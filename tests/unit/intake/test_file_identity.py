"""By what is a file known? Each identity finds what it says, once, and keeps to it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import airflow_cloudfiles
from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    IncompatibleStateError,
    ListingError,
    OptionError,
    StateConflictError,
    StateUnreachableError,
)
from airflow_cloudfiles.engine.files import FILE_IDENTITIES, START, FileEntry, FileIdentity
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.recorder import Contents
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.file_log import FileLog, decode_files, encode_files
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.packs import check_version
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import Fingerprint
from airflow_cloudfiles.engine.storage.content import PIECE_BYTES, content_of
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.interrupted import Interrupted
from tests.support.landing_zone import FailingStore, Fault, KilledError, LandingZone
from tests.support.laws import examples
from tests.support.memory_ledger import MemoryLedger

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
SCRIPT = Path(__file__).with_name("discoverer.py")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def zone(tmp_path: Path) -> LandingZone:
    return LandingZone(tmp_path / "in")


def opened(zone: LandingZone, identity: FileIdentity | None = None, **options: object) -> Intake:
    """The stream of a folder; its state is beside it."""
    return Intake.open(
        source=zone.uri,
        format="json",
        checkpoint_location=zone.uri.removesuffix("/in") + "/state",
        discovery=DiscoveryOptions(file_identity=identity, **options),  # type: ignore[arg-type]
    )


def discovered(zone: LandingZone, identity: FileIdentity | None = None) -> list[str]:
    """What one discovery records as new."""
    with closing(opened(zone, identity)) as intake:
        start = intake.head()
        intake.discover()
        return [file.path for file in intake.files.slice(start, intake.head())]


# ── the option ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overwrites", ["true", "false", None])
@pytest.mark.parametrize("identity", [*FILE_IDENTITIES, None])
def test_two_options_about_one_thing_agree_or_are_refused(
    overwrites: str | None, identity: FileIdentity | None
) -> None:
    given = {"cloudFiles.format": "json", "path": "/in"}
    if overwrites is not None:
        given["cloudFiles.allowOverwrites"] = overwrites
    if identity is not None:
        given["cloudFiles.fileIdentity"] = identity
    meant = {"true": "pathAndModificationTime", "false": "path", None: None}[overwrites]
    if meant and identity and meant != identity:
        with pytest.raises(OptionError, match=r"Remove cloudFiles\.allowOverwrites"):
            CloudFilesOptions.parse(given)
        return
    assert CloudFilesOptions.parse(given).discovery.identity == (identity or meant or "path")


@pytest.mark.parametrize("identity", FILE_IDENTITIES[1:])
def test_an_incremental_listing_cannot_see_overwrites(identity: FileIdentity) -> None:
    with pytest.raises(OptionError, match=f"fileIdentity={identity} and .*useIncrementalListing"):
        CloudFilesOptions.parse(
            {
                "cloudFiles.format": "json",
                "path": "/in",
                "cloudFiles.fileIdentity": identity,
                "cloudFiles.useIncrementalListing": "true",
            }
        )


# ── what is new ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("identity", "touched", "overwritten", "renamed"),
    [
        ("path", [], [], ["b"]),  # B103, B105
        ("pathAndModificationTime", ["a"], ["a"], ["b"]),  # B104
        ("pathAndVersion", ["a"], ["a"], ["b"]),  # a disk has no etag: its time is the version
        ("content", [], ["a"], []),
    ],
)
def test_on_a_disk(
    zone: LandingZone,
    identity: FileIdentity,
    touched: list[str],
    overwritten: list[str],
    renamed: list[str],
) -> None:
    zone.write("a", "1", modified=100)
    assert discovered(zone, identity) == ["a"]
    zone.write("a", "1", modified=200)
    assert discovered(zone, identity) == touched
    zone.write("a", "2", modified=200.000_001)  # of the same size, in the same second
    assert discovered(zone, identity) == overwritten
    zone.write("b", "1", modified=300)
    assert discovered(zone, identity) == renamed
    assert discovered(zone, identity) == []


class SameEtag(MemoryStore):
    """A store whose etags are made of the content, as S3's are without a KMS key."""

    def head(self, key: str) -> FileEntry | None:
        found = super().head(key)
        return None if found is None else self._with_etag(found)

    def list(self, *arguments: object, **options: object) -> Iterator[FileEntry]:
        found = super().list(*arguments, **options)  # type: ignore[arg-type]
        return map(self._with_etag, found)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        assert etag is None or etag == hashlib.md5(self.get(key)).hexdigest()
        return super().get_range(key, start, length)

    def _with_etag(self, file: FileEntry) -> FileEntry:
        etag = hashlib.md5(self.get(file.path)).hexdigest()
        return FileEntry(file.path, file.size, file.modification_time_us, etag)


@pytest.mark.parametrize(
    ("identity", "again"),
    [("path", 0), ("pathAndModificationTime", 1), ("pathAndVersion", 0), ("content", 0)],
)
def test_the_same_bytes_uploaded_again_where_the_etag_is_of_the_bytes(
    identity: FileIdentity, again: int
) -> None:
    source = SameEtag(f"memory://{uuid.uuid4().hex}/in")
    intake = Intake(
        source=source,
        state=MemoryStore(f"memory://{uuid.uuid4().hex}"),
        format="json",
        discovery=DiscoveryOptions(file_identity=identity),
        ledger=MemoryLedger(identity),
    )
    source.put("a", b"1")
    assert intake.discover().files == 1
    source.put("a", b"1")
    assert intake.discover().files == again
    source.put("a", b"2")
    assert intake.discover().files == (identity != "path")
    # An etag that comes back is another version than the one before it.
    source.put("a", b"1")
    assert intake.discover().files == (identity not in {"path", "content"})


def test_identities_by_path_follow_each_other(zone: LandingZone) -> None:
    zone.write("a", "1", modified=100)
    assert discovered(zone, "path") == ["a"]
    zone.write("b", "1", modified=100)
    assert discovered(zone, "pathAndVersion") == ["b"]  # another index, built from the same log
    zone.write("a", "2", modified=200)
    assert discovered(zone) == []
    assert discovered(zone, "pathAndVersion") == ["a"]
    assert discovered(zone, "pathAndModificationTime") == []
    metadata = read_metadata(open_store(zone.uri.removesuffix("/in") + "/state"))
    assert metadata is not None
    assert (metadata.format_version, metadata.file_identity) == (1, "path")


@pytest.mark.parametrize("identity", FILE_IDENTITIES[:-1])
def test_content_is_bound_to_the_state(zone: LandingZone, identity: FileIdentity) -> None:
    zone.write("a", "1")
    assert discovered(zone, "content") == ["a"]
    with pytest.raises(StateConflictError, match=r"Set cloudFiles\.fileIdentity=content, or"):
        opened(zone, identity)
    other = LandingZone(zone.folder.parent / "other" / "in")
    other.write("a", "1")
    assert discovered(other, identity) == ["a"]
    with pytest.raises(StateConflictError, match="does not say which contents"):
        opened(other, "content")


def test_versions_that_do_not_know_contents_refuse_the_state(zone: LandingZone) -> None:
    zone.write("a", "1")
    discovered(zone, "content")
    state = open_store(zone.uri.removesuffix("/in") + "/state")
    line = state.get(KEY).partition(b"\n")[0]
    assert line == b"v3"
    with pytest.raises(IncompatibleStateError):
        check_version(line, name="metadata", format_version=2)


# ── by content ──────────────────────────────────────────────────────────────────────────────────


def test_a_content_is_ingested_once_and_read_once_to_be_known(zone: LandingZone) -> None:
    for name in ("a", "b", "c/d"):
        zone.write(name, "same")
    zone.write("e", "other")
    with closing(opened(zone, "content")) as intake:
        found = intake.discover()
        assert (found.files, found.duplicates, found.sample) == (2, 2, ("a", "e"))
        assert found.to_json()["duplicate_files"] == 2
        asked = intake.source.requests["get"]
        assert asked == 4
        assert intake.discover().files == 0
        assert not intake.arrivals().unrecorded
        assert intake.source.requests["get"] == asked
    rows = cloud_files_state(zone.uri.removesuffix("/in") + "/state").read_all().to_pylist()
    assert [(row["path"].rpartition("/")[2], row["status"], row["batch_id"]) for row in rows] == [
        ("a", "discovered", None),
        ("e", "discovered", None),
        ("b", "duplicate", None),
        ("d", "duplicate", None),
    ]
    only = cloud_files_state(zone.uri.removesuffix("/in") + "/state", status=["duplicate"])
    assert only.read_all().num_rows == 2


def test_the_log_says_all_that_an_index_needs(
    zone: LandingZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.write("a", "same")
    zone.write("b", "same")
    discovered(zone, "content")
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "another disk"))
    zone.write("c", "same")
    zone.write("d", "new")
    assert discovered(zone, "content") == ["d"]
    files = FileLog(open_store(str(tmp_path / "state")))
    logged = [file for number in range(files.latest() + 1) for file in files.read(number).files]
    assert {file.path: file.content for file in logged} == {
        **dict.fromkeys(("a", "b", "c"), sha(b"same")),
        "d": sha(b"new"),
    }


def test_a_snapshot_of_the_index_has_contents_too(
    zone: LandingZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.write("a", "same")
    monkeypatch.setitem(snapshots.maybe_snapshot.__kwdefaults__, "worth_files", 1)
    discovered(zone, "content")
    read: list[int] = []
    monkeypatch.setattr(FileLog, "read", lambda _, number: read.append(number))
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "another disk"))
    with closing(opened(zone, "content")) as intake:
        assert intake._caught_up_ledger().entry_of_content(sha(b"same")) == 0
    assert read == []


class Late(MemoryStore):
    """A store whose files are all older than the first start."""

    def clock_us(self) -> int:
        return super().clock_us() + 10**12


def test_existing_files_are_not_read_and_their_content_is_new() -> None:
    source = Late(f"memory://{uuid.uuid4().hex}/in")
    intake = Intake(
        source=source,
        state=MemoryStore(f"memory://{uuid.uuid4().hex}"),
        format="json",
        discovery=DiscoveryOptions(file_identity="content", include_existing_files=False),
        ledger=MemoryLedger("content"),
    )
    source.put("a", b"same")
    assert intake.discover().existing == 1
    assert source.requests["get"] == 0
    source.put("b", b"same")
    source.put("c", b"same")
    found = intake.discover()
    assert (found.files, found.duplicates) == (1, 1)


def test_a_file_that_changes_while_it_is_read_is_recorded_as_it_is_then(zone: LandingZone) -> None:
    zone.write("a", "old", modified=100)
    store = open_store(zone.uri)
    entry = store.head("a")
    assert entry is not None
    zone.write("a", "newer", modified=200)
    (found,) = Contents(store).of([entry])
    assert (found.size, found.content) == (5, sha(b"newer"))
    zone.remove("a")
    assert Contents(store).of([entry]) == []


def test_a_file_that_is_always_overwritten_is_not_recorded(
    zone: LandingZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.write("a", "0", modified=100)
    store = open_store(zone.uri)
    get_range = store.get_range
    times: list[int] = []

    def overwriting(*arguments: object, **options: object) -> bytes:
        times.append(len(times))
        zone.write("a", str(times[-1]), modified=200 + times[-1])
        return get_range(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "get_range", overwriting)
    entry = store.head("a")
    assert entry is not None
    with pytest.raises(ListingError, match="overwritten 5 times"):
        Contents(store).of([entry])


def test_an_unreadable_file_is_named(zone: LandingZone, monkeypatch: pytest.MonkeyPatch) -> None:
    zone.write("a", "1")
    store = open_store(zone.uri)
    entry = store.head("a")
    assert entry is not None

    def refusing(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "get_range", refusing)
    with pytest.raises(ListingError, match=r"/in/a could not be read for its content"):
        Contents(store).of([entry])


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1])
def test_a_content_is_that_of_all_bytes(size: int) -> None:
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    store.put("a", b"x" * size)
    entry = store.head("a")
    assert entry is not None
    assert content_of(store, entry) == sha(b"x" * size)


def test_a_sha_256_that_the_store_has_computed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    store.put("a", b"x" * (PIECE_BYTES + 1))
    entry = store.head("a")
    assert entry is not None
    given = {"ChecksumSHA256": "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=", "ChecksumCRC32": "x"}
    monkeypatch.setattr(
        store, "fingerprint", lambda _: Fingerprint(entry, frozenset(given.items()))
    )
    asked = store.requests["get"]
    assert content_of(store, entry) == sha(b"abc")
    assert store.requests["get"] == asked
    given["ChecksumSHA256"] = "not base64"
    assert content_of(store, entry) == sha(b"x" * (PIECE_BYTES + 1))


def test_lines_with_and_without_content_are_read() -> None:
    files = (
        FileEntry("a\udcff", 1, 2, "e", sha(b"a")),
        FileEntry("b", 1, 2, "", sha(b"b")),
        FileEntry("c", 1, 2),
    )
    for some in (files, files[1:2], files[2:], files[1:]):
        assert decode_files(encode_files(some)) == some


# ── any history ─────────────────────────────────────────────────────────────────────────────────

PATHS = ["a", "b", "c/d"]
BODIES = [b"", b"1", b"2"]
ARRIVALS = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([*BODIES, None])), max_size=4)
FAULTS = st.dictionaries(st.integers(1, 4), st.sampled_from(Fault), max_size=2)
OTHERS = st.none() | st.tuples(st.integers(0, 1), FAULTS)
MEANWHILE = st.lists(st.tuples(ARRIVALS, OTHERS), max_size=3)
HISTORIES = st.lists(st.tuples(ARRIVALS, st.integers(0, 1), FAULTS, MEANWHILE), max_size=6)


class World:
    """A landing folder, a state, and two discoverers that know files by their content."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex
        self.source = MemoryStore(f"memory://{name}/in")
        self.state = MemoryStore(f"memory://{name}/state")
        self.ledgers = [MemoryLedger("content"), MemoryLedger("content")]

    def arrive(self, arrivals: Sequence[tuple[str, bytes | None]]) -> None:
        for path, body in arrivals:
            if body is None:
                self.source.delete(path)
            else:
                self.source.put(path, body)

    def intake(self, who: int, state: ObjectStore) -> Intake:
        return Intake(
            source=self.source,
            state=state,
            format="json",
            discovery=DiscoveryOptions(file_identity="content"),
            ledger=self.ledgers[who],
        )

    def discover(self, who: int, faults: dict[int, Fault], meanwhile: Sequence[object]) -> None:
        state = Interrupted(FailingStore(self.state, dict(faults)), list(meanwhile))  # type: ignore[arg-type]
        try:
            self.intake(who, state).discover()  # type: ignore[arg-type]
        except (StateUnreachableError, KilledError):
            self.ledgers[who] = MemoryLedger("content")


@pytest.mark.law
@settings(max_examples=examples(150), deadline=None)
@given(HISTORIES, st.integers(1, 3))
def test_any_history_ingests_each_content_once_and_misses_none(history, entry_files) -> None:
    world = World()

    def event(arrivals, other):
        def happen() -> None:
            world.arrive(arrivals)
            if other is not None:
                world.discover(*other, [])

        return happen

    with mock.patch.object(file_log, "MAX_ENTRY_FILES", entry_files):
        for arrivals, who, faults, meanwhile in history:
            world.arrive(arrivals)
            world.discover(who, faults, [event(*each) for each in meanwhile])
        world.discover(0, {}, [])
    check(world.intake(0, world.state))


def check(intake: Intake) -> None:
    """Each content is ingested once, none that is there is missing, and nothing is read again."""
    files = list(intake.files.slice(START, intake.head()))
    assert all(count == 1 for count in Counter(file.content for file in files).values())
    there = {content_of(intake.source, file) for file in intake.source.list()}
    assert there <= {file.content for file in files}
    asked = intake.source.requests["get"]
    assert intake.discover().files == 0
    assert intake.source.requests["get"] == asked


# ── real processes ──────────────────────────────────────────────────────────────────────────────


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(zone: LandingZone, tmp_path: Path) -> Start:
    """Start a real discovering process that knows files by their content."""

    def start_one(crash_at: str = "", files_per_entry: int = 5) -> subprocess.Popen[bytes]:
        arguments = [zone.uri, str(tmp_path / "state"), "2", str(files_per_entry), "content"]
        search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            env={**os.environ, CRASH_AT: crash_at, "PYTHONPATH": search},
            stdout=subprocess.DEVNULL,
        )

    return start_one


@pytest.mark.slow
@pytest.mark.parametrize(
    "crash_at",
    [
        "after-dedupe:2",
        "before-file-log-append:2",
        "after-file-log-append:1",
        "after-ledger-record:3",
    ],
)
def test_a_kill_at_any_step_ingests_each_content_once(
    zone: LandingZone, start: Start, crash_at: str
) -> None:  # B106
    for number in range(12):
        zone.write(f"{number:02}", f"content {number % 4}")
    assert start(crash_at).wait(600) == -signal.SIGKILL
    zone.remove("00")  # others have its content
    zone.write("late", "content 4")
    assert start().wait(600) == 0
    with closing(opened(zone, "content")) as intake:
        check(intake)
        assert len(list(intake.files.slice(START, intake.head()))) == 5


@pytest.mark.slow
def test_processes_at_once_ingest_each_content_once(zone: LandingZone, start: Start) -> None:
    for number in range(200):
        zone.write(f"{number:03}", f"content {number % 50}")
    processes = [start(files_per_entry=7) for _ in range(2)]
    dying = start("after-file-log-append:3", files_per_entry=7)
    for number in range(100):
        zone.write(f"late/{number}", f"content {number}")
    assert [each.wait(600) for each in processes] == [0, 0]
    assert dying.wait(600) in {0, -signal.SIGKILL}
    assert start().wait(600) == 0
    with closing(opened(zone, "content")) as intake:
        check(intake)
        assert len(list(intake.files.slice(START, intake.head()))) == 100
