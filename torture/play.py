"""How is one schedule played?

Files land, processes run at once and are struck, wave after wave; then everything that was stopped
has gone on, and runs without disturbance bring the stream to its end. What then lies in the
place is for the oracle.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture import stream
from torture.places import CloudPlace, Place
from torture.processes import Child, fork
from torture.schedule import Landed, Landing, Run, Schedule, Wave
from torture.strikes import Hit, Striker

WAVE_SECONDS = 600.0
"""A wave that takes longer hangs, which is a failure."""
HEALING_RUNS = 15
_POLL_SECONDS = 0.003


class HangsError(Exception):
    """A process did not come to its end."""


@dataclass(slots=True)
class History:
    """What has happened.

    Attributes:
        landed: All versions of all files.
        deleted: Files that were taken away at the end.
        hits: Signals that were sent, and whether they hit.
        runs: How many processes were started, by kind.
        endings: How they ended, by kind and exit code.
        healed: What the undisturbed runs at the end said.
    """

    landed: list[Landed] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    hits: list[Hit] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    endings: dict[str, int] = field(default_factory=dict)
    healed: list[str] = field(default_factory=list)


class Player:
    """Plays a schedule.

    Args:
        schedule: What happens.
        place: Where.
        folder: For logs, caches and crash orders.
        environment: Of the processes of the package.
        engines: Which carry the tasks of the undisturbed runs, in turn.
    """

    def __init__(
        self,
        schedule: Schedule,
        place: Place,
        folder: Path,
        environment: Mapping[str, str],
        engines: Sequence[str],
    ) -> None:
        self.schedule = schedule
        self.history = History()
        self._place, self._folder, self._engines = place, folder, engines
        self._environment = environment
        self.stream = stream.of(schedule, place, folder)
        self._steps = (folder / "steps.log").open("a")
        self._began = time.monotonic()

    def play(self) -> History:
        """Play all waves, then heal."""
        for number, wave in enumerate(self.schedule.waves):
            self.say(f"wave {number}")
            self._wave(wave)
        end = f"end.{self.stream.format}"
        self._land([Landing(end, 0, rows=2)], [0], is_notified=False)
        self.heal()
        return self.history

    def say(self, what: str) -> None:
        """Note a step."""
        self._steps.write(f"{time.monotonic() - self._began:9.3f} {what}\n")
        self._steps.flush()

    def _wave(self, wave: Wave) -> None:
        if wave.loses_cache:
            self.say("the local index is lost")
            shutil.rmtree(self._environment["CLOUDFILES_CACHE_DIR"], ignore_errors=True)
        if not wave.lands_meanwhile:
            self._land(wave.landings, wave.order)
        strikers = [self._start(run) for run in wave.runs]
        if wave.lands_meanwhile:
            self._land(wave.landings, wave.order)
        self._follow(strikers)
        for each in strikers:
            self.history.hits += each.hits()
            for hit in each.hits():
                self.say(f"{hit}")

    def _land(self, landings: Any, order: Any, *, is_notified: bool = True) -> None:
        sent = []
        for each in landings:
            key = f"{stream.landing_folder(self.schedule)}/{each.key}"
            if each.is_deleted:
                self._place.delete(key)
                self.history.deleted.add(each.key)
                self.say(f"deleted {each.key}")
                sent.append((key, 0, "", 0))
                continue
            landed, content = stream.content(each)
            version = self._place.put(key, content)
            self.history.landed.append(landed)
            sent.append((key, len(content), version, each.events))
            self.say(f"landed {each}")
        if not self.schedule.is_notified or not is_notified:
            return
        assert isinstance(self._place, CloudPlace)
        for position in order:
            key, size, version, events = sent[position]
            for _ in range(events):
                self._place.notify(key, size, version)

    def _start(self, run: Run) -> Striker:
        number = sum(self.history.runs.values())
        self.history.runs[run.kind] = self.history.runs.get(run.kind, 0) + 1
        order = self._folder / f"crash-{number}"
        environment: dict[str, str | None] = {**self._environment}
        if run.kind == "discover":
            environment["CLOUDFILES_CRASH_AT"] = run.crash or None
        else:
            environment["CLOUDFILES_CRASH_AT"] = f"@{order}"
        if run.crash and run.kind != "discover":
            order.write_text(run.crash)
        log = self._folder / f"run-{number}-{run.kind}.log"
        child = fork(stream.work(run.kind, self.stream), log, environment)
        self.say(f"started {number}: {run}")
        return Striker(run, child, order)

    def _follow(self, strikers: list[Striker]) -> None:
        until = time.monotonic() + WAVE_SECONDS
        while sum([each.step() for each in strikers]) < len(strikers):
            if time.monotonic() > until:
                for each in strikers:
                    each.give_up()
                names = [each.child.log.name for each in strikers if each.child.status is None]
                raise HangsError(f"{names} did not end in {WAVE_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
        for each in strikers:
            code = each.child.status
            key = f"{each.run.kind} {code}"
            self.history.endings[key] = self.history.endings.get(key, 0) + 1
            self.say(f"ended {each.child.log.name}: {code}")

    def heal(self) -> None:
        """Run undisturbed until everything is done; the first listing is whole."""
        for number in range(HEALING_RUNS):
            if self._undisturbed(f"full-{number}", stream.work("full", self.stream)) == 0:
                break
        for number in range(HEALING_RUNS):
            kind = self._engines[number % len(self._engines)]
            if self._undisturbed(f"heal-{number}", stream.work(kind, self.stream)) == 0:
                return
            time.sleep(min(number * 0.3, 3.0))
        raise HangsError(f"{HEALING_RUNS} undisturbed runs failed: {self.history.healed[-1]}")

    def _undisturbed(self, name: str, work: Any) -> int:
        log = self._folder / f"{name}.log"
        child: Child = fork(work, log, self._environment)
        code = child.wait(WAVE_SECONDS)
        if code:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            self.history.healed.append(f"{name}: {code}: {''.join(tail)}")
            self.say(f"healing {self.history.healed[-1]}")
        return code


def report_of(child: Child) -> dict[str, Any]:
    """What a process has written as JSON."""
    text = child.log.read_text(errors="replace")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def end(pid: int) -> None:
    """Kill a process group that is ours."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
