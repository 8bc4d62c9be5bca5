"""A micro-batch has the same files for ever."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateUnreachableError,
)
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, ReadLimit
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import FailingStore, Fault, KilledError
from tests.support.laws import examples

GIB = 2**30


@pytest.fixture
def store():
    return open_store(f"memory://{uuid.uuid4().hex}")


def file_log(store, *entries: list[int]) -> FileLog:
    """A file log whose files have these sizes."""
    files = FileLog(store)
    for number, sizes in enumerate(entries):
        named = (FileEntry(f"{number}-{at}", size, 0) for at, size in enumerate(sizes))
        files.append(number, FileBatch(tuple(named)))
    return files


def batches(store, files: FileLog, limit: ReadLimit) -> list[int]:
    """Plan until nothing is left; how many files each batch has."""
    start, counts = START, []
    while True:
        end = PlanLog(store).plan(files, start, limit, files.head())
        if end == start:
            return counts
        counts.append(len(list(files.slice(start, end))))
        start = end


def test_the_hard_limit_of_files_cuts_batches(store):  # B109
    files = file_log(store, [1] * 2500)
    assert batches(store, files, ReadLimit(max_files=1000)) == [1000, 1000, 500]


def test_batches_reach_over_entries(store):
    files = file_log(store, [1] * 700, [1] * 700, [1] * 100)
    assert batches(store, files, ReadLimit(max_files=1000)) == [1000, 500]


def test_the_file_that_reaches_the_soft_limit_is_the_last(store):  # B110
    files = file_log(store, [3 * GIB] * 10)
    assert batches(store, files, ReadLimit(max_bytes=10 * GIB)) == [4, 4, 2]


def test_files_that_were_there_before_the_first_start_are_passed_over(store):  # B88
    kinds = ["existing", "existing", "listing", "existing", "notification", "existing"]
    files = FileLog(store)
    for number, kind in enumerate(kinds):
        some = tuple(FileEntry(f"{kind} {number} {at}", 1, 0) for at in range(3))
        files.append(number, FileBatch(some, kind, "complete" if number == 1 else None))
    for limit, expected in ((ReadLimit(), [6]), (ReadLimit(max_files=4), [4, 2])):
        state = open_store(f"memory://{uuid.uuid4().hex}")
        assert batches(state, files, limit) == expected
    taken = [file.path.split()[0] for file in files.slice(START, files.head())]
    assert taken == ["listing"] * 3 + ["notification"] * 3


def test_a_batch_never_has_only_files_from_before_the_first_start(store):  # B88
    files = FileLog(store)
    files.append(0, FileBatch((FileEntry("a", 1, 0),), "existing"))
    files.append(1, FileBatch((), "existing", "complete"))
    assert batches(store, files, ReadLimit()) == []
    assert PlanLog(store).latest() is None


def test_one_file_is_always_taken(store):  # B111
    files = file_log(store, [50 * GIB, 1, 50 * GIB], [50 * GIB])
    assert batches(store, files, ReadLimit(max_bytes=10 * GIB)) == [1, 2, 1]


def test_the_first_limit_that_is_reached_counts(store):  # B112
    files = file_log(store, [1] * 5 + [100] * 5)
    assert batches(store, files, ReadLimit(max_files=4, max_bytes=150)) == [4, 3, 2, 1]


def test_empty_files_after_the_limit_go_to_the_next_batch(store):
    files = file_log(store, [10, 0, 0], [0, 10])
    assert batches(store, files, ReadLimit(max_bytes=10)) == [1, 4]


def test_without_limits_a_batch_takes_everything(store):
    files = file_log(store, [1, 2], [3], [4, 5, 6])
    assert batches(store, files, ReadLimit()) == [6]


def test_nothing_left_plans_nothing(store):
    plans = PlanLog(store)
    assert plans.plan(FileLog(store), START, ReadLimit(), START) == START
    assert plans.latest() is None
    assert plans.find(START) is None


def test_a_batch_ends_at_the_position_asked_for(store):
    files = file_log(store, [1] * 5, [1] * 5)
    plans = PlanLog(store)
    assert plans.plan(files, START, ReadLimit(), Offset(0, 3)) == Offset(0, 3)
    assert plans.plan(files, Offset(0, 3), ReadLimit(), Offset(1, 0)) == Offset(1, 0)
    assert plans.plan(files, Offset(1, 0), ReadLimit(), Offset(1, 0)) == Offset(1, 0)


def test_a_planned_batch_stays_as_it_is(store):
    files = file_log(store, [1] * 5)
    end = PlanLog(store).plan(files, START, ReadLimit(max_files=3), files.head())
    files.append(1, FileBatch((FileEntry("more", 1, 1),)))
    for limit in (ReadLimit(), ReadLimit(max_files=1), ReadLimit(max_bytes=1)):
        for up_to in (START, Offset(0, 1), files.head()):
            assert PlanLog(store).plan(files, START, limit, up_to) == end == Offset(0, 3)
    latest = PlanLog(store).latest()
    assert latest is not None
    assert (latest.number, latest.files, latest.bytes) == (0, 3, 3)


def test_every_plan_is_found_by_its_start(store):
    files = file_log(store, [1] * 7, [1] * 6)
    assert len(batches(store, files, ReadLimit(max_files=1))) == 13
    plans = PlanLog(store)
    for number, at in enumerate(
        [Offset(0, i) for i in range(7)] + [Offset(1, i) for i in range(6)]
    ):
        found = PlanLog(store).find(at)
        assert found is not None
        assert found == plans.find(at)
        assert found.number == number
    for at in (Offset(2, 0), Offset(0, 7), Offset(9, 9)):
        assert plans.find(at) is None


def test_of_two_planners_one_decides(store):
    files = file_log(store, [1] * 10)
    one, two = PlanLog(store), PlanLog(store)
    assert one.latest() is two.latest() is None
    first = one.plan(files, START, ReadLimit(max_files=3), files.head())
    assert two.plan(files, START, ReadLimit(max_files=7), files.head()) == first == Offset(0, 3)
    second = two.plan(files, first, ReadLimit(max_files=2), files.head())
    assert one.plan(files, first, ReadLimit(max_files=5), files.head()) == second == Offset(0, 5)


def test_a_start_off_the_chain_is_refused(store):
    files = file_log(store, [1] * 10)
    plans = PlanLog(store)
    with pytest.raises(CorruptedStateError, match="belong together"):
        plans.plan(files, Offset(0, 1), ReadLimit(), files.head())
    plans.plan(files, START, ReadLimit(max_files=5), files.head())
    for start in (Offset(0, 2), Offset(0, 6), Offset(1, 0), Offset(5, 0)):
        with pytest.raises(CorruptedStateError, match="belong together"):
            plans.plan(files, start, ReadLimit(), files.head())


def test_a_file_log_that_lost_its_end_is_noticed(store):
    files = file_log(store, [1], [1])
    PlanLog(store).plan(files, START, ReadLimit(), files.head())
    store.delete("_source/files/" + "0" * 19 + "1")
    shorter = FileLog(store)
    with pytest.raises(CorruptedStateError, match="ends at"):
        PlanLog(store).plan(shorter, Offset(2, 0), ReadLimit(), shorter.head())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (encode_entry({"id": "x", "start": 1}, b"", format_version=1), CorruptedStateError),
        (encode_entry({"id": "x"}, b"", format_version=2), IncompatibleStateError),
        (b"rubbish", CorruptedStateError),
    ],
)
def test_a_plan_that_cannot_be_read_stops_planning(store, content, error):
    files = file_log(store, [1])
    store.put("_source/plans/" + "0" * 20, content)
    with pytest.raises(error, match=r"_source/plans/0{20}"):
        PlanLog(store).plan(files, START, ReadLimit(), files.head())


steps = st.tuples(
    st.sampled_from(["one", "two"]),
    st.builds(
        ReadLimit,
        max_files=st.none() | st.integers(1, 4),
        max_bytes=st.none() | st.integers(1, 12),
    ),
    st.sampled_from([None, *Fault]),
)


@pytest.mark.law
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(steps, max_size=25),
)
def test_whatever_happens_each_file_is_in_one_batch_and_batches_do_not_change(entries, history):
    store = open_store(f"memory://{uuid.uuid4().hex}")
    files = file_log(store, *entries)
    at = {"one": START, "two": START}
    decided: dict[Offset, Offset] = {}
    for who, limit, fault in history:
        failing = FailingStore(store, {1: fault} if fault else {})
        try:
            end = PlanLog(failing).plan(files, at[who], limit, files.head())
        except (StateUnreachableError, KilledError):
            continue
        assert decided.setdefault(at[who], end) == end or at[who] == files.head()
        at[who] = end
    batches(store, files, ReadLimit(max_files=2))
    start, taken = START, []
    while (plan := PlanLog(store).find(start)) is not None:
        batch = list(files.slice(plan.start, plan.end))
        assert (plan.files, plan.bytes) == (len(batch), sum(file.size for file in batch))
        assert decided.get(start, plan.end) == plan.end
        taken += batch
        start = plan.end
    assert taken == list(files.slice(START, files.head()))
