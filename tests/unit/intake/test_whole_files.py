"""A file that is still being written waits until it is whole, however it is found."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.discovery.settling import PREFIX, load_waiting
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import START, FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.crash_points import WAITING_POINTS
from tests.support.landing_zone import LandingZone
from tests.support.laws import examples
from tests.support.memory_ledger import MemoryLedger

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
MINUTE = 60.0


class ClockedStore(MemoryStore):
    """A store whose clock is not that of the machine: tests set it."""

    now_us = 1_000_000_000_000_000

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.times: dict[str, int] = {}

    def clock_us(self) -> int:
        return self.now_us

    def put(self, key: str, content: bytes) -> None:
        super().put(key, content)
        self.times[key] = self.now_us

    def _at(self, entry: FileEntry) -> FileEntry:
        time_us = self.times[entry.path]
        return FileEntry(entry.path, entry.size, time_us, entry.etag)

    def list(self, *args, **kwargs):
        return map(self._at, super().list(*args, **kwargs))

    def head(self, key: str) -> FileEntry | None:
        found = super().head(key)
        return None if found is None else self._at(found)

    def pass_time(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


class Stream:
    """A source with a clock of its own, and its state."""

    def __init__(self, **options) -> None:
        name = uuid.uuid4().hex
        self.source = ClockedStore(f"memory://{name}/in")
        self.state = MemoryStore(f"memory://{name}/state")
        self.ledger = MemoryLedger()
        self.options = DiscoveryOptions(**options)

    def open(self, **options) -> Intake:
        return Intake(
            source=self.source,
            state=self.state,
            format="json",
            ledger=self.ledger,
            discovery=DiscoveryOptions(**options) if options else self.options,
        )

    def discover(self, **how):
        return self.open().discover(**how)

    def recorded(self) -> dict[str, int]:
        """The sizes of the recorded files; each is recorded once."""
        intake = self.open()
        files = list(intake.files.slice(START, intake.head()))
        assert max(Counter(file.path for file in files).values(), default=1) == 1
        return {file.path: file.size for file in files if file.path}


@pytest.fixture
def zone(tmp_path):
    return LandingZone(tmp_path / "in")


@pytest.fixture
def opened(zone, tmp_path):
    with contextlib.ExitStack() as stack:

        def open_one(**options) -> Intake:
            intake = Intake.open(
                source=zone.uri,
                format="json",
                checkpoint_location=str(tmp_path / "state"),
                discovery=DiscoveryOptions(**options),
            )
            return stack.enter_context(contextlib.closing(intake))

        yield open_one


def names(intake: Intake) -> list[str]:
    return [file.path for file in intake.files.slice(START, intake.head())]


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_names_of_unfinished_files_are_left_alone_on_a_disk_until_they_are_renamed(zone, opened):
    for name in ("a.json.part", "b.FILEPART", "~$c.json", "d.tmp", "deep/e.crdownload", "f.json~"):
        zone.write(name)
    zone.write("whole.json")
    found = opened().discover()
    assert names(opened()) == ["whole.json"]
    assert found.listing is not None
    assert found.listing.rejected == {"in inProgressNames": 6}
    (zone.folder / "a.json.part").rename(zone.folder / "a.json")
    opened().discover()
    assert names(opened()) == ["whole.json", "a.json"]


def test_which_names_are_left_alone_is_an_option(zone, opened):
    for name in ("a.tmp", "b.writing", "c.json"):
        zone.write(name)
    opened(in_progress_names=("*.Writing",)).discover()
    assert names(opened()) == ["a.tmp", "c.json"]
    opened(in_progress_names=()).discover()
    assert sorted(names(opened())) == ["a.tmp", "b.writing", "c.json"]


def test_an_object_store_leaves_them_alone_too():
    """A server for SFTP in front of it writes them (AWS Transfer, Azure's), and renames by copy."""
    stream = Stream()
    for name in ("a.json.filepart", "b.part", "c.tmp", "whole.json", "empty_$folder$"):
        stream.source.put(name, b"")
    found = stream.discover()
    assert found.sample == ("whole.json",)
    assert found.listing.rejected == {"in inProgressNames": 3, "hidden name": 1}


def test_the_option_is_a_list_of_names_and_empty_for_none():
    def parsed(text: str):
        given = {"cloudFiles.format": "json", "cloudFiles.inProgressNames": text}
        return CloudFilesOptions.parse(given, path="/in").discovery.in_progress_names

    assert parsed("*.a, *.b") == ("*.a", "*.b")
    assert parsed("") == ()


# ── age ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("listing", ["auto", "true", "false"])
def test_a_file_is_taken_when_it_has_been_still_for_so_long(listing):
    stream = Stream(min_file_age_seconds=MINUTE, use_incremental_listing=listing)
    stream.source.put("a", b"1")
    found = stream.discover()
    assert (found.files, found.waiting.files) == (0, 1)
    assert found.waiting.settles_in_seconds == pytest.approx(60, abs=5)
    stream.source.pass_time(59)
    stream.source.put("a", b"22")
    stream.source.put("b", b"1")
    assert stream.discover().files == 0
    stream.source.pass_time(60)
    assert stream.discover().files == 2
    assert stream.recorded() == {"a": 2, "b": 1}
    assert not list(stream.state.list(PREFIX))


def test_an_incremental_listing_does_not_pass_a_file_that_waits():
    stream = Stream(min_file_age_seconds=MINUTE, use_incremental_listing="true")
    for number in range(5):
        stream.source.put(f"2026/{number:04}", b"1")
    stream.source.pass_time(600)
    stream.discover()
    stream.source.put("2026/0005", b"1")
    stream.source.pass_time(30)
    stream.source.put("2026/0006", b"1")
    stream.source.times["2026/0006"] -= 600_000_000
    assert stream.discover().files == 1  # 0006, behind which the next listing begins
    stream.source.pass_time(31)
    found = stream.discover()
    assert found.listing.kind == "incremental"
    assert "2026/0005" in stream.recorded()


def test_a_file_from_the_future_is_taken_when_it_has_not_changed_for_so_long():
    stream = Stream(min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    stream.source.times["a"] += 10**12
    found = stream.discover()
    assert (found.files, round(found.waiting.settles_in_seconds)) == (0, MINUTE)
    stream.source.pass_time(30)
    stream.source.put("a", b"22")
    stream.source.times["a"] += 10**12
    assert stream.discover().files == 0
    stream.source.pass_time(50)
    assert stream.discover().files == 0
    stream.source.pass_time(20)
    assert stream.discover().files == 1


def test_a_file_that_waits_at_the_first_start_is_no_existing_one():
    stream = Stream(min_file_age_seconds=MINUTE, include_existing_files=False)
    stream.source.put("old", b"1")
    stream.source.pass_time(100)
    stream.source.put("young", b"1")
    stream.source.pass_time(1)
    found = stream.discover()
    assert (found.files, found.existing, found.waiting.files) == (0, 1, 1)
    stream.source.pass_time(100)
    assert stream.discover().files == 1


def test_a_file_that_is_gone_waits_no_longer_and_one_that_came_back_does():
    stream = Stream(min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    stream.discover()
    stream.source.delete("a")
    stream.source.pass_time(61)
    found = stream.discover()
    assert (found.files, found.waiting.files) == (0, 0)
    assert not list(stream.state.list(PREFIX))
    stream.source.put("a", b"1")
    assert stream.discover().waiting.files == 1


def test_a_file_that_waits_is_taken_at_once_when_the_option_is_removed():
    stream = Stream(min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    stream.discover()
    stream.options = DiscoveryOptions()
    assert stream.discover().files == 1


def test_a_damaged_note_costs_a_full_listing_and_no_file(caplog):
    stream = Stream(min_file_age_seconds=MINUTE, use_incremental_listing="true")
    stream.source.put("a/1", b"1")
    stream.source.put("z", b"1")
    stream.source.times["z"] -= 10**12
    stream.discover()
    (note,) = stream.state.list(PREFIX)
    stream.state.put(note.path, b"{}")
    stream.source.pass_time(61)
    assert stream.discover().files == 1
    assert "does not say which files wait" in caplog.text


def test_a_check_does_not_fire_for_a_file_that_waits_and_does_when_it_has_settled():
    stream = Stream(min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    for _ in range(3):
        seen = stream.open().arrivals()
        assert not seen
        assert seen.waiting.files == 1
    assert len(list(stream.state.list(PREFIX))) == 1
    stream.source.pass_time(61)
    assert stream.open().arrivals().unrecorded


def test_the_log_says_what_waits_and_for_how_long(caplog):
    stream = Stream(min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    with caplog.at_level(logging.INFO):
        found = stream.discover()
    assert "1 file not taken yet: 1 for cloudFiles.minFileAge (a). The first is old" in caplog.text
    assert found.to_json()["waiting_files"] == 1
    assert found.to_json()["waiting"]["reasons"] == {"minFileAge": 1}


def test_nothing_is_asked_of_the_store_where_nothing_waits():
    stream = Stream()
    stream.source.put("a", b"1")
    before = Counter(stream.source.requests)
    stream.discover()
    assert stream.source.requests - before == Counter(list=1)


# ── markers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "marker", "hidden"),
    [
        ("{name}.done", "in/a.json.done", False),
        ("ok-{name}", "in/ok-a.json", False),
        (".{name}.ready", "in/.a.json.ready", True),
        ("_SUCCESS", "in/_SUCCESS", True),
        ("READY", "in/READY", False),
        ("_SUCCESS", "_SUCCESS", True),
    ],
)
def test_a_file_is_taken_when_its_marker_is_there_and_a_marker_never_is(pattern, marker, hidden):
    stream = Stream(completion_marker=pattern)
    stream.source.put("in/a.json", b"1")
    stream.source.put("other/b.json", b"1")
    found = stream.discover()
    assert (found.files, found.waiting.reasons) == (0, {"completionMarker": 2})
    assert not stream.open().arrivals()
    stream.source.put(marker, b"")
    assert stream.open().arrivals()
    found = stream.discover()
    wanted = ["in/a.json"] if marker.startswith("in/") else ["in/a.json", "other/b.json"]
    assert sorted(stream.recorded()) == wanted
    assert stream.discover().files == 0
    assert hidden or found.listing.rejected == {"completionMarker": 1}


def test_markers_that_a_listing_has_passed_cost_no_request():
    stream = Stream(completion_marker="{name}.done")
    for number in range(50):
        stream.source.put(f"{number:03}", b"1")
        if number % 2:
            stream.source.put(f"{number:03}.done", b"")
    before = stream.source.requests["head"]
    assert stream.discover().files == 25
    assert stream.source.requests["head"] - before <= 1


def test_a_file_without_its_marker_at_the_first_start_is_no_existing_one():
    stream = Stream(completion_marker="{name}.done", include_existing_files=False)
    for name in ("old", "old.done", "late"):
        stream.source.put(name, b"1")
    stream.source.pass_time(100)
    assert stream.discover().existing == 1
    stream.source.put("late.done", b"")
    assert stream.discover().files == 1


def test_a_marker_of_the_version_before_does_not_do_where_versions_are_files():
    stream = Stream(completion_marker="{name}.done", allow_overwrites=True)
    stream.source.put("a", b"1")
    stream.source.put("a.done", b"")
    assert stream.discover().files == 1
    stream.source.pass_time(10)
    stream.source.put("a", b"22")
    assert stream.discover().files == 0
    stream.source.put("a.done", b"")
    assert stream.discover().files == 1


def test_a_file_may_have_to_wait_for_both():
    stream = Stream(completion_marker="{name}.done", min_file_age_seconds=MINUTE)
    stream.source.put("a", b"1")
    stream.source.pass_time(61)
    assert stream.discover().waiting.reasons == {"completionMarker": 1}
    stream.source.put("a.done", b"")
    assert stream.discover().files == 1


@pytest.mark.parametrize("text", ["{name}", "a/{name}", "{name}{name}.done", "{key}.done"])
def test_a_marker_that_cannot_be_one_is_refused(text):
    given = {"cloudFiles.format": "json", "cloudFiles.completionMarker": text}
    with pytest.raises(OptionError, match="completionMarker must be a file name such as"):
        CloudFilesOptions.parse(given, path="/in")


def test_markers_and_incremental_listings_contradict_each_other():
    given = {
        "cloudFiles.format": "json",
        "cloudFiles.completionMarker": "{name}.done",
        "cloudFiles.useIncrementalListing": "true",
    }
    with pytest.raises(OptionError, match="Leave useIncrementalListing out"):
        CloudFilesOptions.parse(given, path="/in")


# ── kills, and any order of events ───────────────────────────────────────────────────────────────

_DISCOVER = """
import sys
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
options = DiscoveryOptions(min_file_age_seconds=float(sys.argv[3]))
Intake.open(source=sys.argv[1], format="json", checkpoint_location=sys.argv[2],
            discovery=options).discover()
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", WAITING_POINTS)
def test_a_file_that_waits_is_taken_once_whatever_is_killed(zone, opened, tmp_path, point):
    zone.write("old", modified=1_000_000)
    zone.write("young")

    def killed(age: str) -> None:
        command = [sys.executable, "-c", _DISCOVER, zone.uri, str(tmp_path / "state"), age]
        environment = {**os.environ, "PYTHONPATH": PACKAGE_FOLDER, CRASH_AT: point}
        subprocess.run(command, env=environment, check=False, capture_output=True)

    killed("3600")
    opened(min_file_age_seconds=3600).discover()
    zone.touch("young", 2_000_000)
    killed("3600")
    opened(min_file_age_seconds=3600).discover()
    assert sorted(names(opened())) == ["old", "young"]
    assert opened(min_file_age_seconds=3600).discover().waiting.files == 0
    assert not load_waiting(open_store(str(tmp_path / "state")))


KEYS = ("a", "b/c", "b/d", "e")
steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(KEYS)),
    st.tuples(st.just("rename"), st.sampled_from(KEYS)),
    st.tuples(st.just("mark"), st.sampled_from(KEYS)),
    st.tuples(st.just("discover"), st.sampled_from(["auto", "true", "full"])),
    st.tuples(st.just("check"), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("other disk"), st.none()),
)


class Writers:
    """Programs that write, rename and mark; each file gets a hundred bytes and is whole then."""

    def __init__(self, marker: str | None, *, waits: bool) -> None:
        self.stream = Stream(
            completion_marker=marker,
            min_file_age_seconds=MINUTE if waits else None,
            in_progress_names=("*.part",),
        )
        self.marker = marker
        self.whole: set[str] = set()

    def write(self, key: str) -> None:
        """Write the next bytes, under the name that the protocol of the writer says."""
        if key in self.whole:
            return
        name = key if self.marker or self.stream.options.waits else f"{key}.part"
        found = self.stream.source.head(name)
        size = 0 if found is None else found.size
        if size < 100:
            self.stream.source.put(name, b"x" * (size + 50))

    def rename(self, key: str) -> None:
        found = self.stream.source.head(f"{key}.part")
        if found is not None and found.size == 100 and key not in self.whole:
            self.stream.source.put(key, b"x" * 100)
            self.stream.source.delete(f"{key}.part")
            self.whole.add(key)

    def mark(self, key: str) -> None:
        found = self.stream.source.head(key)
        if self.marker and found is not None and found.size == 100:
            self.stream.source.put(self.marker.replace("{name}", key), b"")
            self.whole.add(key)

    def finish(self) -> None:
        for key in KEYS:
            for _ in range(2):
                self.write(key)
            self.rename(key)
            self.mark(key)
        self.stream.source.pass_time(61)
        self.stream.discover()

    def take(self, step: tuple[str, object]) -> None:
        """Do one step."""
        what, value = step
        stream = self.stream
        if what in {"write", "rename", "mark"}:
            getattr(self, what)(value)
        elif what == "discover" and value == "full":
            stream.discover(full=True)
        elif what == "discover":
            incremental = "auto" if self.marker else str(value)
            waits, names = stream.options.min_file_age_seconds, stream.options.in_progress_names
            stream.open(
                use_incremental_listing=incremental,
                completion_marker=self.marker,
                min_file_age_seconds=waits,
                in_progress_names=names,
            ).discover()
        elif what == "check":
            stream.open().arrivals()
        elif what == "wait" and not self._is_slow(int(str(value))):
            stream.source.pass_time(int(str(value)))
        elif what == "other disk":
            stream.ledger = MemoryLedger()

    def _is_slow(self, seconds: int) -> bool:
        """Whether a writer would pause for longer than a file has to be still."""
        source = self.stream.source
        if self.marker or not self.stream.options.waits:
            return False
        ends = [source.times[entry.path] for entry in source.list() if entry.size < 100]
        return any(source.now_us + seconds * 10**6 - end >= 60 * 10**6 for end in ends)


@pytest.mark.law
@settings(max_examples=examples(150))
@given(
    st.lists(steps, max_size=40),
    st.sampled_from([(None, True), (None, False), ("{name}.done", True), ("{name}.done", False)]),
)
def test_any_order_of_writes_renames_markers_and_discoveries_gives_each_file_once_and_whole(
    todo, protocol
):
    marker, waits = protocol
    writers = Writers(marker, waits=waits)
    for step in todo:
        writers.take(step)
    writers.finish()
    assert writers.stream.recorded() == dict.fromkeys(KEYS, 100)
    assert writers.stream.discover().files == 0
