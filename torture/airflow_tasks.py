"""What becomes of a stream whose Airflow task processes are killed?

One real Airflow (scheduler, DAG processor, API server, LocalExecutor), one DAG of a sensor and an
ingest, one stream on the local disk. In each round files land, the DAG runs, and the process that
runs the sensor or the ingest is killed at a random moment. In the end a run is left alone.
"""

from __future__ import annotations

import random
import re
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from demo.airflow_home import AirflowHome
from torture import stream
from torture.oracle import Oracle, bad_records, write_table
from torture.places import LocalPlace
from torture.play import History
from torture.processes import below, command, fork, is_killed, strike
from torture.schedule import Landing, Schedule
from torture.slot import lines
from torture.strikes import Hit

DAGS = Path(__file__).parent / "dags"
_DAG = "tortured"
_TASK = re.compile("airflow worker -- [0-9a-f]{8}-")  # of one try; the executor has none
_SECONDS = 900.0


def play_airflow(seed: int, kills: int, folder: Path) -> dict[str, Any]:
    """Kill so many task processes; returns the result as of a schedule."""
    began = time.monotonic()
    folder.mkdir(parents=True)
    place = LocalPlace(folder / "place")
    environment = {"TORTURE_ROOT": place.root}
    with AirflowHome(folder / "airflow", DAGS, environment) as home:
        home.wait(lambda: home.api.has_dag(_DAG), _SECONDS, _DAG)
        home.api.pause(_DAG, paused=False)
        tortured = _Tortured(home, place, random.Random(seed))
        tortured.play(kills)
    schedule = Schedule(seed, "local", False, True, {}, ())
    where = stream.of(schedule, place, folder)
    cache = {"CLOUDFILES_CACHE_DIR": str(folder / "airflow" / "cache")}
    faults = Oracle(
        schedule,
        tortured.history,
        rows=lines(fork(lambda: write_table(Path(where.target)), folder / "rows.json", {})),
        bad=bad_records(folder / "bad"),
        files=lines(fork(stream.work("state", where), folder / "files.json", cache)),
        source=where.source,
    ).ask()
    history = tortured.history
    return {
        "seed": seed,
        "store": "local",
        "faults": faults,
        "folder": str(folder) if faults else None,
        "hits": [asdict(each) for each in history.hits],
        "runs": history.runs,
        "endings": history.endings,
        "files": len(history.landed),
        "rows": sum(len(each.ids) for each in history.landed),
        "table_in_store": True,
        "seconds": round(time.monotonic() - began, 2),
    }


class _Tortured:
    """The rounds."""

    def __init__(self, home: AirflowHome, place: LocalPlace, dice: random.Random) -> None:
        self.history = History()
        self._home, self._place, self._dice = home, place, dice

    def play(self, kills: int) -> None:
        """Rounds until so many kills have hit, then one that is left alone."""
        number = 0
        while sum(hit.is_hit for hit in self.history.hits) < kills:
            if number >= 3 * kills:
                raise RuntimeError(f"{number} rounds, and not {kills} kills have hit.")
            self._round(number, is_struck=True)
            number += 1
        for more in range(5):
            if self._round(number + more, is_struck=False) == "success":
                return
        raise RuntimeError("Five runs that nobody disturbed have failed.")

    def _round(self, number: int, *, is_struck: bool) -> str:
        for each in range(self._dice.choice((1, 2, 3))):
            columns = ("c0",) if number > 2 and self._dice.random() < 0.3 else ()
            landed, content = stream.content(Landing(f"{number:03}-{each}.json", 0, 2, columns))
            self._place.put(f"in/{landed.key}", content)
            self.history.landed.append(landed)
        run_id = self._home.api.trigger(_DAG)
        if is_struck:
            self._strike(run_id)
        ended = self._home.wait(lambda: self._ended(run_id), _SECONDS, "the end of a run")
        self.history.runs["airflow"] = self.history.runs.get("airflow", 0) + 1
        key = f"airflow {ended}"
        self.history.endings[key] = self.history.endings.get(key, 0) + 1
        return ended

    def _ended(self, run_id: str) -> str | None:
        return self._home.api.run_ended(_DAG, run_id)

    def _strike(self, run_id: str) -> None:
        """Kill the process of one of the two tasks, at a random moment of its life."""
        task = self._dice.choice(("arrived", "ingest", "ingest", "ingest"))
        self._home.wait(lambda: self._is_running(run_id, task), _SECONDS, task)
        time.sleep(self._dice.uniform(0.0, 1.0 if task == "arrived" else 10.0))
        found = [pid for pid in self._home.pids() if _TASK.match(command(pid))]
        for pid in found:
            doing = "Spark has been started" if task == "ingest" and below(pid) else task
            hit = strike(pid, signal.SIGKILL) and is_killed(pid)
            self.history.hits.append(
                Hit("airflow", f"process of the task {task}", "kill", "at random", doing, hit)
            )

    def _is_running(self, run_id: str, task: str) -> bool:
        state = self._home.api.task(_DAG, run_id, task)["state"]
        if state in {"success", "failed", "skipped", "upstream_failed"}:
            return True  # it was quicker
        return state == "running"
