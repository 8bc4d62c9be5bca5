"""What holds for discovery holds wherever files land, and however they are found."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.discovery.queues import notifications as notifications_module
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake import intake as intake_module
from airflow_cloudfiles.engine.storage.base import is_tree
from airflow_cloudfiles.triggers.cloud_files import judged
from tests.support.discovery.ways import WAYS, landing, recorded, try_some_ways

pytest_generate_tests = try_some_ways

# Names that something between a bucket and us might decode, encode, trim or split.
ODD = (
    "a b.json",
    "a+b.json",
    "a%2Bb.json",
    "a%20b/c=d.json",
    "day=2026-11-21/é.json",
    "日本/語.json",
    "🦊.json",
    "quote'\"&<>;.json",
)
ODD_IN_CLOUDS = ("x//y.json",)


@pytest.fixture
def place(request, tmp_path):
    """A new place of one of the kinds that this run tries."""
    return landing(request.param, tmp_path, request.getfixturevalue)


@pytest.fixture
def notified(request, tmp_path):
    """The same, of those that tell a queue."""
    return landing(request.param, tmp_path, request.getfixturevalue)


@pytest.mark.parametrize("place", WAYS, indirect=True)
def test_every_file_is_recorded_once_whatever_its_name(place, tmp_path):
    names = ODD if is_tree(place.store) else (*ODD, *ODD_IN_CLOUDS)
    for name in names:
        place.put(name, name.encode())
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        found = intake.discover()
        assert found.files == len(names)
        assert sorted(recorded(intake)) == sorted(names)
        for file in intake.files.slice(START, intake.head()):
            assert place.store.get(file.path) == file.path.encode()
            assert file.size == len(file.path.encode())
        assert intake.discover().files == 0


def test_later_files_are_added_and_earlier_ones_are_not_repeated(place, tmp_path):
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        for round_ in range(3):
            place.put(f"day={round_}/b.json")
            place.put(f"day={round_}/a.json")
            assert intake.discover().files == 2
        assert len(recorded(intake)) == len(set(recorded(intake))) == 6


def test_nothing_is_new_for_a_worker_with_an_empty_disk(place, tmp_path, monkeypatch):
    place.put("a.json")
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        intake.discover()
    place.tell("a.json")
    place.put("b.json")
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "another disk"))
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        assert intake.discover().files == 1
        assert recorded(intake) == ["a.json", "b.json"]


def test_an_overwritten_file_is_ingested_again_only_if_asked_for(place, tmp_path):  # B103, B104
    place.put("a.json", b"1")
    with contextlib.closing(place.open(tmp_path / "once")) as intake:
        intake.discover()
    with contextlib.closing(place.open(tmp_path / "again", allow_overwrites=True)) as intake:
        place.tell("a.json", b"1")
        intake.discover()
        before = recorded(intake).count("a.json")
    place.put("a.json", b"22")
    with contextlib.closing(place.open(tmp_path / "again", allow_overwrites=True)) as intake:
        intake.discover()
        assert recorded(intake).count("a.json") == before + 1
    place.tell("a.json", b"22")
    with contextlib.closing(place.open(tmp_path / "once")) as intake:
        intake.discover()
        assert recorded(intake) == ["a.json"]


def test_what_is_hidden_or_ours_is_left_out(place, tmp_path):  # B91
    is_far = place.source.startswith("sftp:")  # where no state can be
    state = tmp_path / "state" if is_far else f"{place.source}/checkpoint"
    for name in ("_SUCCESS", ".part.json", "_tmp/a.json", "table/part-0.parquet", "in.json"):
        place.put(name)
    with contextlib.closing(place.open(state, exclude=[f"{place.source}/table"])) as intake:
        intake.discover()
        intake.discover()
        assert recorded(intake) == ["in.json"]


def test_names_and_folders_are_chosen_by_patterns(place, tmp_path):  # B89, B90
    for name in ("eu/a.json", "eu/a.csv", "us/a.json", "asia/a.json", "a.json"):
        place.put(name)
    pattern = f"{place.source}/{{eu,us}}/"
    opened = place.open(tmp_path / "state", source=pattern, path_glob_filter="*.json")
    with contextlib.closing(opened) as intake:
        intake.discover()
        assert sorted(recorded(intake)) == ["eu/a.json", "us/a.json"]


def test_files_are_chosen_by_modification_time(place, tmp_path):  # B92
    place.put("a.json")
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    for name, bounds, wanted in (
        ("after", {"modified_after_us": now - hour}, 1),
        ("not after", {"modified_after_us": now + hour}, 0),
        ("before", {"modified_before_us": now + hour}, 1),
        ("not before", {"modified_before_us": now - hour}, 0),
    ):
        options = {key: int(time.timestamp() * 1e6) for key, time in bounds.items()}
        place.tell("a.json")
        with contextlib.closing(place.open(tmp_path / name, **options)) as intake:
            assert intake.discover().files == wanted, name


def test_files_of_before_the_first_start_can_be_left_out(place, tmp_path):  # B88
    place.put("old/1.json")
    place.put("old/2.json")
    place.let_time_pass()
    with contextlib.closing(place.open(tmp_path / "state", include_existing_files=False)) as intake:
        found = intake.discover()
        assert (found.files, found.existing) == (0, 2)
        place.put("new/1.json")
        place.tell("old/1.json")
        assert intake.discover().files == 1
    place.put("new/2.json")
    with contextlib.closing(place.open(tmp_path / "state", include_existing_files=True)) as intake:
        assert intake.discover().files == 1
        assert sorted(recorded(intake)) == ["new/1.json", "new/2.json"]
        assert intake.outstanding().files == 2


def test_discoverers_at_once_record_each_file_once(place, tmp_path):
    names = [f"{number:03}.json" for number in range(24)]
    for name in names:
        place.put(name)
    failures = []

    def discover() -> None:
        try:
            with contextlib.closing(place.open(tmp_path / "state")) as intake:
                for _ in range(3):
                    intake.discover()
        except Exception as failure:  # noqa: BLE001 - told to the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=discover) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        assert sorted(recorded(intake)) == names


def test_the_state_can_live_beside_the_files(place, tmp_path, monkeypatch):
    state = place.source.removesuffix("in") + "state"
    place.put("a.json")
    if state.startswith("sftp:"):
        with pytest.raises(UnsupportedOptionError, match="can be a source only"):
            place.open(state)
        return
    with contextlib.closing(place.open(state)) as intake:
        assert intake.discover().files == 1
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "another disk"))
    place.put("b.json")
    place.tell("a.json")
    with contextlib.closing(place.open(state)) as intake:
        assert intake.discover().files == 1
        assert recorded(intake) == ["a.json", "b.json"]


def test_an_arrival_fires_until_it_is_recorded_and_reports_nothing_more(place, tmp_path):
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        intake.discover()
        assert not intake.has_arrivals()
        place.put("a.json")
        assert intake.has_arrivals()
        assert intake.has_arrivals()
        assert recorded(intake) == []
        assert intake.discover().files == 1
        assert intake.has_arrivals()  # recorded, not ingested


def test_what_arrives_after_a_run_that_failed_fires(notified, tmp_path):  # B145
    with contextlib.closing(notified.open(tmp_path / "state")) as intake:
        intake.discover()
        fires, memory = judged(intake.arrivals(), None)
        assert not fires
        notified.put("a.json")
        fires, memory = judged(intake.arrivals(), memory)
        assert fires
        fires, memory = judged(intake.arrivals(), memory)
        assert not fires  # the run has failed before it looked
        notified.put("b.json")
        assert judged(intake.arrivals(), memory)[0]
        assert intake.discover().files == 2


def test_switching_the_way_loses_and_repeats_nothing(notified, tmp_path):  # B100
    state = tmp_path / "state"
    rounds = (False, True, False, True)
    for number, by_queue in enumerate(rounds):
        notified.put(f"{number}-told.json")
        notified.lose(f"{9 - number}-lost.json")
        opened = (
            notified.open(state)
            if by_queue
            else notified.open(state, use_notifications=False, queue_url=None)
        )
        with contextlib.closing(opened) as intake:
            intake.discover()
            assert len(recorded(intake)) == len(set(recorded(intake))) == 2 * (number + 1)


def test_what_no_queue_was_notified_of_is_found_when_there_is_a_new_one(aws, tmp_path, request):
    place = landing("s3 notified", tmp_path, request.getfixturevalue)
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        intake.discover()
    place.lose("a.json")  # between the tear-down of one queue and the set-up of another
    with contextlib.closing(place.open(tmp_path / "state", queue_url=aws.queue())) as intake:
        assert intake.arrivals().unrecorded
        assert intake.discover().files == 1
        assert intake.discover().listing is None


def test_a_lost_event_is_found_by_a_backfill_and_counted(notified, tmp_path):  # B97
    with contextlib.closing(notified.open(tmp_path / "state")) as intake:
        notified.put("a.json")
        intake.discover()
        notified.lose("b.json")
        notified.put("c.json")
        assert intake.discover().files == 1
    opened = notified.open(tmp_path / "state", backfill_interval_seconds=0.001)
    with contextlib.closing(opened) as intake:
        found = intake.discover()
        assert (found.files, found.by) == (1, {"backfill": 1})
        assert sorted(recorded(intake)) == ["a.json", "b.json", "c.json"]


def test_events_that_come_twice_and_late_are_harmless(notified, tmp_path):  # B93
    for name in ("b.json", "a.json", "b.json", "a.json"):
        notified.put(name)
    notified.tell("a.json")
    with contextlib.closing(notified.open(tmp_path / "state")) as intake:
        intake.discover()
        notified.tell("b.json")
        found = intake.discover()
        assert found.files == 0
        assert sorted(recorded(intake)) == ["a.json", "b.json"]
        assert found.notifications is not None
        assert found.notifications.deleted == found.notifications.received > 0


def test_after_a_run_that_was_killed_while_draining_listings_are_full(
    notified, tmp_path, monkeypatch
):  # B100
    """What notifications made known does not tell where the folder grows."""
    state = tmp_path / "state"
    notified.put("day=1/a.json")

    def kill(point):
        if point == "after-notification-record":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.closing(notified.open(state)) as intake:
        patched.setattr(notifications_module, "crash_point", kill)
        with pytest.raises(KeyboardInterrupt):
            intake.discover()
    listed = {"use_notifications": False, "use_incremental_listing": "true"}
    with contextlib.closing(notified.open(state, **listed)) as intake:
        kinds = [intake.discover().listing.kind for _ in range(2)]
    assert kinds == ["full", "incremental"]
    with contextlib.closing(notified.open(state)) as intake:
        assert intake.discover().listing is not None
        assert intake.discover().listing is None


def test_a_part_of_the_source_can_be_asked_for_on_the_same_state(place, tmp_path):
    for name in ("day=1/a.json", "day=2/a.json", "day=2/b.json", "day=20/a.json", "c.json"):
        place.put(name)
    state = tmp_path / "state"
    with contextlib.closing(place.open(state, modified_after_us=2**60)) as intake:
        intake.discover()  # the stream itself begins later
    parts = ("day=2", "day=1/", "day=2", "*/b.json", "")
    for part, new in zip(parts, (2, 1, 0, 0, 2), strict=True):
        source = f"{place.source}/{part}".rstrip("/")
        with contextlib.closing(
            place.open(state, source=source, use_notifications=False, queue_url=None)
        ) as intake:
            assert intake.discover().files == new, part
    assert sorted(recorded(intake)) == sorted(
        ("day=1/a.json", "day=2/a.json", "day=2/b.json", "day=20/a.json", "c.json")
    )


def test_a_part_leaves_the_notifications_to_the_stream(notified, tmp_path, monkeypatch):
    state = tmp_path / "state"
    notified.put("day=1/a.json")
    with contextlib.closing(notified.open(state)) as intake:
        intake.discover()
    notified.lose("day=2/a.json")
    part = notified.open(state, source=f"{notified.source}/day=2")
    whole = notified.open(state)

    def meanwhile(point):
        """The stream has listed everything again when another file lands."""
        if point == "after-listing":
            monkeypatch.setattr(intake_module, "crash_point", lambda _: None)
            whole.discover()
            notified.put("day=1/b.json")

    monkeypatch.setattr(intake_module, "crash_point", meanwhile)
    with contextlib.closing(part), contextlib.closing(whole):
        assert part.arrivals().unrecorded
        assert part.discover().files == 1
        assert not part.arrivals().unrecorded
        assert whole.discover().sample == ("day=1/b.json",)


def test_a_part_does_not_decide_what_was_there_before_the_first_start(place, tmp_path):  # B88
    for name in ("day=1/a.json", "day=2/a.json"):
        place.put(name)
    place.let_time_pass()
    first = {"include_existing_files": False}
    with contextlib.closing(place.open(tmp_path / "state", **first)) as whole:
        part = place.open(tmp_path / "state", source=f"{place.source}/day=2", **first)
        with contextlib.closing(part):
            part.discover()
        assert whole.discover().files == 0
        place.put("day=1/b.json")
        assert whole.discover().files == 1
