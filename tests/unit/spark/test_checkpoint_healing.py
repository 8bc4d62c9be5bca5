"""Spark's checkpoint, damaged in any way, is rebuilt so that no batch is left out, or is refused.

The checkpoint is one that Spark 4.3 has written: four batches, all of them committed.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateLockedError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.spark import checkpoint_healing
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.support.damage import damages

GOLDEN = Path(__file__).parents[2] / "golden" / "spark_checkpoint_4"
BATCHES = 4
FILES = [
    "metadata",
    *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(BATCHES)),
]
WAYS = ("gone", "empty", "half", "zeros", "garbage", "checksum", "checksum cut")


def damage(folder: Path, name: str, way: str) -> None:
    """What a power failure, or somebody, does to a file; its checksum stays as it was."""
    path = folder / name
    checksum = path.with_name(f".{path.name}.crc")
    content = path.read_bytes() if path.exists() else b""
    if way == "gone":
        path.unlink(missing_ok=True)
        checksum.unlink(missing_ok=True)
    elif way == "checksum":
        checksum.write_bytes(b"crc\0\0\0\x02\0" + b"\x01\x02\x03\x04")
    elif way == "checksum cut":
        checksum.write_bytes(b"crc\0\0\0\x02\0\x01")
    else:
        half = content[: len(content) // 2]
        new = {"empty": b"", "half": half, "zeros": bytes(len(content)), "garbage": b"\xffgarbage"}
        path.write_bytes(new[way])


def next_batch(spark: ObjectStore) -> int:
    """Start as Spark does (`MicroBatchExecution.populateStartOffsets`): the batch it runs next.

    Raises:
        AssertionError: Spark would not start.
    """
    offsets = spark_checkpoint.numbers(spark, "offsets")
    commits = spark_checkpoint.numbers(spark, "commits")
    there = spark.head("metadata") is not None
    assert spark_checkpoint.query_id(spark)[1] or not there, "metadata cannot be read"
    if commits:
        assert spark_checkpoint.is_committed(spark, commits[-1]), "newest commit cannot be read"
    if not offsets:
        assert not commits, "batch 0 is committed already"
        return 0
    for batch in offsets[-1:] + ([offsets[-1] - 1] if offsets[-1] else []):
        found = spark_checkpoint.read_offsets(spark, batch)
        assert found is not None, f"offsets of {batch} cannot be read"
        plan = PlanLog(spark).get(batch)
        assert plan is not None
        assert found.ours == plan.end, "a batch would have other files"
    if commits and commits[-1] == offsets[-1]:
        return offsets[-1] + 1
    assert not commits or commits[-1] < offsets[-1], "a batch would be committed twice"
    return offsets[-1]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A checkpoint location that Spark has written to."""
    folder = tmp_path / "state"
    shutil.copytree(GOLDEN, folder)
    return folder


def heal(folder: Path, sources: int = 1) -> ObjectStore:
    store = open_store(str(folder))
    checkpoint_healing.heal(store, store, sources=sources)
    return store


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: content for name, content in found.items() if not name.endswith(".lock")}


def test_what_spark_has_written_is_whole_and_stays_as_it_is(state: Path) -> None:
    before = contents(state)
    assert next_batch(heal(state)) == BATCHES
    assert contents(state) == before
    for batch in range(BATCHES):
        found = spark_checkpoint.read_offsets(open_store(str(state)), batch)
        assert found is not None
        assert (found.sources, found.ours) == (1, PlanLog(open_store(str(state))).at(batch).end)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_one_damaged_file_costs_one_batch_at_most(
    state: Path, name: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(state, name, way)
    with caplog.at_level(logging.WARNING):
        store = heal(state)
    # A commit that is lost: its batch is run again. Offsets that are: the plan log has them.
    assert next_batch(store) == (BATCHES - 1 if name == f"commits/{BATCHES - 1}" else BATCHES)
    needed = {"metadata", "offsets/2", "offsets/3", "commits/3"}
    is_seen = name in needed and not (name.startswith("commits") and way == "gone")
    assert len(caplog.records) == is_seen
    assert not is_seen or name in caplog.text
    assert next_batch(heal(state)) == next_batch(store), "healing twice changes nothing"


@pytest.mark.parametrize(
    ("folders", "runs_next"),
    [(["offsets"], 4), (["commits"], 3), (["offsets", "commits"], 0), (["offsets", "metadata"], 4)],
)
def test_folders_that_are_gone(state: Path, folders: list[str], runs_next: int) -> None:
    for name in folders:
        path = state / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert next_batch(heal(state)) == runs_next


@pytest.mark.law
@given(
    hits=st.lists(st.tuples(st.sampled_from(FILES), st.sampled_from(WAYS)), max_size=9),
    committed=st.integers(0, BATCHES),
)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_however_it_is_damaged_no_batch_is_left_out(
    tmp_path: Path, hits: list[tuple[str, str]], committed: int
) -> None:
    folder = tmp_path / "any"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GOLDEN, folder)
    for batch in range(committed, BATCHES):  # killed before Spark had committed so many
        damage(folder, f"commits/{batch}", "gone")
        if batch > committed:
            damage(folder, f"offsets/{batch}", "gone")
    for name, way in hits:
        if (folder / name).exists():
            damage(folder, name, way)
    assert next_batch(heal(folder)) <= committed


def test_the_settings_of_the_query_are_kept(state: Path) -> None:
    damage(state, "offsets/3", "half")
    store = heal(state)
    rebuilt, other = (spark_checkpoint.read_offsets(store, batch) for batch in (3, 2))
    assert rebuilt is not None
    assert other is not None
    assert rebuilt.settings == other.settings


@pytest.mark.parametrize("cut", [10, 44])
def test_the_id_of_the_query_is_kept_where_it_can_be_read(state: Path, cut: int) -> None:
    before = json.loads((state / "metadata").read_bytes())["id"]
    (state / "metadata").write_bytes((state / "metadata").read_bytes()[:cut])
    heal(state)
    after = json.loads((state / "metadata").read_bytes())["id"]
    assert len(after) == len(before)
    assert (after == before) is (cut == 44)


def test_what_cannot_be_proved_is_refused_by_name_and_left_alone(state: Path) -> None:
    damage(state, "offsets/3", "half")
    before = contents(state)
    with pytest.raises(CorruptedStateError, match=r"offsets/3 is cut off.*several sources") as some:
        heal(state, sources=2)
    assert not some.value.is_retryable
    (state / "state/0/0").mkdir(parents=True)
    (state / "state/0/0/1.delta").write_bytes(b"")
    with pytest.raises(CorruptedStateError, match="state of its own"):
        heal(state)
    shutil.rmtree(state / "state")
    assert contents(state) == before
    with pytest.raises(CorruptedStateError, match="in another location"):
        checkpoint_healing.heal(open_store(str(state)), None, sources=1)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('v1\n{}\n{"entry":0,"index":9}', "not what the plan log has"),
        ('v1\n{}\n{"topic":{"0":5}}', "form that is not known"),
        ('v1\n{}\n{"entry":0,"index":3}\n{"topic":1}', "several sources"),
        ("v2\n{}\n{}", "form that is not known"),
    ],
)
def test_a_checkpoint_of_another_life_or_query_is_refused(
    state: Path, lines: str, why: str
) -> None:
    damage(state, "offsets/3", "gone")
    damage(state, "commits/3", "empty")
    damage(state, "offsets/2", "gone")
    (state / "offsets/2").write_text(lines)
    with pytest.raises(CorruptedStateError, match=why):
        heal(state)


def test_a_plan_log_that_ends_before_the_checkpoint_is_no_help(state: Path) -> None:
    shutil.rmtree(state / "offsets")
    (state / "_source/plans" / f"{3:020}").unlink()
    with pytest.raises(CorruptedStateError, match="the plan log has no batch 3"):
        heal(state)


def test_a_damaged_checkpoint_that_is_in_use_is_left_to_its_run(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_healing, "LOCK_PATIENCE_SECONDS", 0.0)
    damage(state, "offsets/3", "empty")
    with RunLock(open_store(str(state))), pytest.raises(StateLockedError):
        heal(state)


@pytest.mark.parametrize("way", ["gone", "empty", "half", "garbage"])
def test_who_only_looks_at_a_damaged_checkpoint_is_told_what_will_be_rebuilt(
    state: Path, way: str
) -> None:
    store = open_store(str(state))
    expected = position(store).end
    assert expected == Offset(1, 0)
    damage(state, "offsets/3", way)
    assert position(store).end == expected


@pytest.mark.law
@pytest.mark.parametrize("folder", ["metadata", "offsets", "commits"])
def test_whatever_byte_of_a_checkpoint_is_damaged_no_batch_is_left_out(
    state: Path, tmp_path: Path, folder: str
) -> None:
    kept, chance = tmp_path / "kept", random.Random()
    shutil.copytree(state, kept)
    names = [path for path in sorted(kept.rglob("*")) if path.is_file()]
    for path in (
        each
        for each in names
        if folder in {each.parent.name, each.name.removeprefix(".").removesuffix(".crc")}
    ):
        content = path.read_bytes()
        for what, damaged in damages(content, share=len(content) // 8 + 1, chance=chance):
            shutil.rmtree(state)
            shutil.copytree(kept, state)
            (state / path.relative_to(kept)).write_bytes(damaged)
            try:
                number = next_batch(heal(state))
            except CorruptedStateError:  # by name, and not changed
                continue
            assert BATCHES - 2 <= number <= BATCHES, (path.name, what)
            end = position(open_store(str(state))).end
            assert end in {plan_end(state, batch) for batch in range(BATCHES)}, (path.name, what)


@pytest.mark.law
def test_offsets_without_a_checksum_that_are_not_planned_are_refused(state: Path) -> None:
    """As in an object store, where Hadoop writes no checksums."""
    plans = PlanLog(open_store(str(state)))
    start = plan_end(state, BATCHES - 2)
    line = json.dumps(plan_end(state, BATCHES - 1).to_json())
    for _, damaged in damages(line.encode(), share=1, chance=random.Random()):
        found = spark_checkpoint.offset_of(damaged.decode("utf-8", "replace"))
        if found in {None, plan_end(state, BATCHES - 1)}:
            continue
        assert found is not None
        with pytest.raises(CorruptedStateError, match="Spark's checkpoint asks for a batch"):
            plans.check(start, found)
    plans.check(start, plan_end(state, BATCHES - 1))


def plan_end(folder: Path, batch: int) -> Offset:
    return PlanLog(open_store(str(folder))).at(batch).end
