"""What happens in one schedule? All of it follows from its seed.

A schedule is a list of waves. In each wave files land, then processes run at once, and some of them
are killed or stopped: at a crash point, or after a time. Nothing here touches a disk or a process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.support.crash_points import (
    INTAKE_POINTS,
    NOTIFICATION_POINTS,
    PLAN_POINTS,
    STREAM_POINTS,
)

STORES = ("local", "s3", "azure", "gcs")
ENGINES = ("local", "spark")
Kind = Literal["discover", "local", "spark"]
Target = Literal["discovery", "client", "supervisor", "driver", "python", "jvm"]
Mode = Literal["addNewColumns", "rescue"]
ARCHIVES = (".zip", ".tar.gz")
"""Endings of files that have members."""
COPIED = ".brotli.parquet"
"""Ending of Parquet files with a compression for which none is registered."""

SHARE_INGESTED = 0.4
"""Of waves in which the stream is ingested."""
SHARE_FOLLOWED = 0.3
"""Of schedules whose table follows its files."""
SHARE_REGISTERED = 0.15
"""Of schedules whose table registers Parquet files where they lie."""
SHARE_ARCHIVES = 0.15
"""Of new files, in schedules that register none."""
SHARE_COPIED = 0.3
"""Of Parquet files that cannot be registered, whatever their columns are."""
SHARE_SPARK = 0.25
"""Of ingestions that Spark carries, where both engines do: each starts a JVM of its own."""


@dataclass(frozen=True, slots=True)
class Landing:
    """One file that lands, or that is deleted.

    Attributes:
        key: Its name below the source, whose ending says what it is (`torture.stream.content`).
        version: From 0; more for a file that is overwritten.
        rows: Good records; none for a file that is deleted.
        columns: Further columns of its records.
        broken: Lines of it that are no record.
        is_deleted: It is taken away.
        events: How many notifications are sent of it: 0 for one that is lost.
    """

    key: str
    version: int
    rows: int = 0
    columns: tuple[str, ...] = ()
    broken: int = 0
    is_deleted: bool = False
    events: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """A signal that a process gets.

    Attributes:
        target: Which of the processes of a run.
        after: Seconds since the run was started; since the target was seen, for what a run starts.
        stopped: Seconds for which it is stopped (SIGSTOP) before it goes on; `None`: it is killed.
        is_killed_stopped: It does not go on, but is killed while it is stopped.
    """

    target: Target
    after: float
    stopped: float | None = None
    is_killed_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A process that is started.

    Attributes:
        kind: A discovery; or an ingestion, by the engine that carries its tasks.
        crash: Crash point at which it is to die, with its passage; empty for none.
        strikes: Signals that it gets.
    """

    kind: Kind
    crash: str = ""
    strikes: tuple[Strike, ...] = ()


@dataclass(frozen=True, slots=True)
class Wave:
    """Files that land, then processes that run at once.

    Attributes:
        landings: In the order in which they land.
        order: In which their notifications are sent: positions in `landings`.
        runs: What is started.
        loses_cache: The worker's disk is lost before: the local index of seen files.
        lands_meanwhile: The files land after the processes were started.
    """

    landings: tuple[Landing, ...]
    order: tuple[int, ...]
    runs: tuple[Run, ...]
    loses_cache: bool = False
    lands_meanwhile: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that happens to one stream.

    Attributes:
        seed: From which the rest follows.
        store: Where files land, and where the state is.
        is_notified: Whether files are found by notifications.
        is_table_in_store: Whether the table is in the store as well.
        options: Of the stream.
        waves: In their order.
    """

    seed: int
    store: str
    is_notified: bool
    is_table_in_store: bool
    options: dict[str, str]
    waves: tuple[Wave, ...]

    @property
    def allows_overwrites(self) -> bool:
        """Whether a file that is overwritten is ingested again."""
        return self.options.get("cloudFiles.allowOverwrites") == "true" or self.replaces

    @property
    def registers(self) -> bool:
        """Whether Parquet files become data files of the table, in whose folder they land."""
        return "cloudFiles.loadMode" in self.options

    @property
    def replaces(self) -> bool:
        """Whether the rows of a newer version replace those of the former ones."""
        return self.options.get("cloudFiles.onOverwrite") == "replace"

    @property
    def follows_deletes(self) -> bool:
        """Whether the rows of a deleted file are removed."""
        return self.options.get("cloudFiles.onDelete") == "delete"


@dataclass(slots=True)
class _World:
    """What has landed so far."""

    dice: random.Random
    files: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    columns: list[str] = field(default_factory=list)
    deletes: bool = False
    registers: bool = False

    def land(self, wave: int, *, is_notified: bool) -> list[Landing]:
        count = self.dice.choice((1, 1, 2, 2, 3, 4))
        return [self._one(wave, number, is_notified=is_notified) for number in range(count)]

    def _one(self, wave: int, number: int, *, is_notified: bool) -> Landing:
        dice = self.dice
        chance = dice.random()
        there = sorted(set(self.files) - self.gone)
        if there and self.deletes and chance < 0.12:
            key = dice.choice(there)
            self.gone.add(key)
            return Landing(key, self.files[key], is_deleted=True, events=0)
        if there and chance < 0.25 and not self.registers:
            key = dice.choice(there)
        else:
            folder = dice.choice(("", "a/", "b/c d/", f"day={wave}/"))
            key = f"{folder}{dice.choice('abcxyz')}{wave}-{number}{self._ending()}"
        self.files[key] = version = self.files.get(key, -1) + 1
        if dice.random() < 0.12 and len(self.columns) < 3:
            self.columns.append(f"c{len(self.columns)}")
        columns = tuple(each for each in self.columns if dice.random() < 0.6)
        is_broken = dice.random() < 0.12 and not self.registers
        broken = dice.choice((1, 2)) if is_broken else 0
        events = dice.choices((1, 2, 0), (7, 2, 1))[0] if is_notified else 0
        return Landing(key, version, dice.choice((0, 1, 2, 5)), columns, broken, events=events)

    def _ending(self) -> str:
        chance = self.dice.random()
        if self.registers:
            return COPIED if chance < SHARE_COPIED else ".parquet"
        return self.dice.choice(ARCHIVES) if chance < SHARE_ARCHIVES else ".json"


def generate(seed: int, store: str, engines: Sequence[str] = ENGINES) -> Schedule:
    """Make the schedule of a seed.

    Args:
        seed: A number.
        store: Where it plays.
        engines: Which of `ENGINES` its ingestions have.
    """
    dice = random.Random(f"{seed}/{store}")
    is_notified = store != "local" and dice.random() < 0.4
    registers = dice.random() < SHARE_REGISTERED
    world = _World(dice, deletes=dice.random() < 0.4 and not registers, registers=registers)
    count = dice.choice((3, 4, 4, 5))
    waves = tuple(_wave(world, number, engines, is_notified=is_notified) for number in range(count))
    options = _options(dice, ignores_missing=world.deletes)
    in_store = store != "local" and (dice.random() < 0.5 or registers)
    if registers:
        options = _registered(options)
    elif dice.random() < SHARE_FOLLOWED:
        options = _followed(options, deletes=world.deletes)
    return Schedule(seed, store, is_notified, in_store, options, waves)


def _registered(options: dict[str, str]) -> dict[str, str]:
    """Have the table register its files, which nothing may overwrite."""
    others = ("cloudFiles.allowOverwrites", "badRecordsPath")
    found = {name: value for name, value in options.items() if name not in others}
    return {**found, "cloudFiles.loadMode": "reference"}


def _followed(options: dict[str, str], *, deletes: bool) -> dict[str, str]:
    """Have the table follow its files; bad records of former versions would stay."""
    others = ("cloudFiles.allowOverwrites", "badRecordsPath", "ignoreMissingFiles")
    found = {name: value for name, value in options.items() if name not in others}
    found["cloudFiles.metadataColumns"] = "file_path AS source_file"
    found["cloudFiles.onOverwrite"] = "replace"
    if deletes:
        found |= {"cloudFiles.onDelete": "delete", "cloudFiles.maxDeletedShare": "1"}
    return found


def _options(dice: random.Random, *, ignores_missing: bool) -> dict[str, str]:
    options = {"cloudFiles.schemaEvolutionMode": dice.choice(("addNewColumns", "rescue"))}
    if dice.random() < 0.3:  # each micro-batch more costs as much as some discoveries
        options["cloudFiles.maxFilesPerTrigger"] = dice.choice(("1", "2", "3", "4"))
    if dice.random() < 0.3:
        options["cloudFiles.allowOverwrites"] = "true"
    if dice.random() < 0.3:
        options["badRecordsPath"] = "true"  # the place is put in where it is played
    if dice.random() < 0.2:
        options["cloudFiles.stateCompactInterval"] = "2"
    if ignores_missing:
        options["ignoreMissingFiles"] = "true"
    return options


def _wave(world: _World, number: int, engines: Sequence[str], *, is_notified: bool) -> Wave:
    dice = world.dice
    landings = world.land(number, is_notified=is_notified)
    order = list(range(len(landings)))
    if dice.random() < 0.5:
        dice.shuffle(order)
    if dice.random() < SHARE_INGESTED:
        runs = [_ingestion(dice, engines) for _ in range(1 + (dice.random() < 0.1))]
        runs += [_discovery(dice, is_notified=is_notified)] * (dice.random() < 0.5)
    else:
        runs = [_discovery(dice, is_notified=is_notified) for _ in range(dice.choice((1, 2, 3)))]
    return Wave(
        tuple(landings),
        tuple(order),
        tuple(runs),
        loses_cache=dice.random() < 0.1,
        lands_meanwhile=dice.random() < 0.2,
    )


def _passage(dice: random.Random, point: str) -> str:
    return f"{point}:{dice.choice((1, 1, 1, 1, 2))}"


def _discovery(dice: random.Random, *, is_notified: bool) -> Run:
    chance = dice.random()
    if chance < 0.55:
        points = INTAKE_POINTS + (NOTIFICATION_POINTS * 2 if is_notified else ())
        return Run("discover", dice.choice(points))
    after = dice.uniform(0.0, 0.4 if is_notified else 0.2)
    if chance < 0.85:
        return Run("discover", strikes=(Strike("discovery", after),))
    if chance < 0.95:
        stopped, killed = dice.uniform(0.05, 0.8), dice.random() < 0.6
        strike = Strike("discovery", after, stopped, is_killed_stopped=killed)
        return Run("discover", strikes=(strike,))
    return Run("discover")


def _ingestion(dice: random.Random, engines: Sequence[str]) -> Run:
    both = set(engines) == set(ENGINES)
    engine = "spark" if both and dice.random() < SHARE_SPARK else engines[0]
    return _spark(dice) if engine == "spark" else _local(dice)


def _spark(dice: random.Random) -> Run:
    if dice.random() < 0.5:
        points = (*INTAKE_POINTS, *PLAN_POINTS, *STREAM_POINTS, *STREAM_POINTS)
        return Run("spark", _passage(dice, dice.choice(points)))
    target: Target = dice.choice(("client", "supervisor", "driver", "jvm", "jvm", "python"))
    return Run("spark", strikes=(Strike(target, dice.uniform(0.0, 4.0)),))


def _local(dice: random.Random) -> Run:
    if dice.random() < 0.5:
        points = (*INTAKE_POINTS, *PLAN_POINTS, *STREAM_POINTS, *STREAM_POINTS)
        return Run("local", _passage(dice, dice.choice(points)))
    target: Target = dice.choice(("client", "supervisor", "driver", "driver", "driver"))
    after = dice.uniform(0.0, 2.5)
    if dice.random() < 0.8:
        return Run("local", strikes=(Strike(target, after),))
    stopped, killed = dice.uniform(0.1, 1.5), dice.random() < 0.5
    strike = Strike(target, after, stopped, is_killed_stopped=killed)
    return Run("local", strikes=(strike,))


@dataclass(slots=True)
class Landed:
    """A version of a file that has landed.

    Attributes:
        ids: Of its good records.
        columns: What each of them has besides.
        marks: Of its lines that are no record.
    """

    key: str
    version: int
    ids: list[str]
    columns: dict[str, str]
    marks: list[str]
