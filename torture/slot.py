"""How are the schedules of one store played, one after the other?

One process for some schedules of a store: it imports everything, starts the emulators, and forks a
process for each schedule. That forks all else, so nothing a client has opened is ever shared.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.storage.access import to_environment
from torture import stream
from torture.oracle import Oracle, bad_records, registered, write_table
from torture.places import Store, running_store
from torture.play import Player
from torture.processes import Child, be_subreaper, fork, reap_strays
from torture.schedule import generate

PRELOADED = (
    "airflow_cloudfiles.cli",
    "airflow_cloudfiles.engine.intake.intake",
    "airflow_cloudfiles.engine.job.launch",
    "airflow_cloudfiles.engine.intake.ledger.rocksdb",
    "airflow_cloudfiles.engine.storage.local",
)
OF_STORES = {
    "s3": ("airflow_cloudfiles.engine.clouds.aws.store",),
    "azure": ("airflow_cloudfiles.engine.clouds.azure.store",),
    "gcs": ("airflow_cloudfiles.engine.clouds.gcp.store", "google.cloud.storage"),
}
SCHEDULE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where schedules play.

    Attributes:
        name: Of the store.
        store: It, running.
        work: Folder of the slot.
        environment: Of the processes of the package.
        engines: Which carry the tasks of its ingestions.
    """

    name: str
    store: Store
    work: Path
    environment: Mapping[str, str]
    engines: Sequence[str]


def play_all(
    store: str, seeds: list[int], work: Path, results: Path, engines: Sequence[str]
) -> int:
    """Play schedules; each leaves one line in the results.

    Returns:
        0, whatever they came to.
    """
    be_subreaper()
    for name in (*PRELOADED, *OF_STORES.get(store, ())):
        importlib.import_module(name)
    work.mkdir(parents=True, exist_ok=True)
    with running_store(store, work) as running:
        setting = Setting(store, running, work, _environment(running, work), engines)
        for seed in seeds:
            log = work / f"{store}-{seed}.log"
            line = work / "result.json"
            child = fork(_work(setting, seed, line), log, {})
            code = child.wait(SCHEDULE_SECONDS)
            reap_strays()
            _keep(line, results, (store, seed), code, log)
    return 0


def _environment(store: Store, work: Path) -> dict[str, str]:
    access = {} if store.access is None else to_environment(store.access)
    return {
        **access,
        "CLOUDFILES_CACHE_DIR": str(work / "cache"),
        "PYSPARK_PYTHON": sys.executable,
    }


def _work(setting: Setting, seed: int, line: Path) -> Callable[[], int]:
    def play() -> int:
        be_subreaper()
        line.write_text(json.dumps(play_one(setting, seed)) + "\n")
        return 0

    return play


def play_one(setting: Setting, seed: int) -> dict[str, Any]:
    """Play one schedule and ask the oracle; the folder is kept where something is wrong."""
    began = time.monotonic()
    store, environment = setting.name, setting.environment
    folder = setting.work / f"{store}-{seed}"
    schedule = generate(seed, store, setting.engines)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place = setting.store.place(folder, is_notified=schedule.is_notified)
    player = Player(schedule, place, folder, environment, setting.engines)
    files_of_table = 0
    try:
        player.play()
        faults, files_of_table = _ask(player, place, folder, environment)
    except Exception as error:  # noqa: BLE001 - whatever it is, the schedule has failed
        traceback.print_exc()
        faults = [f"{type(error).__name__}: {error}"]
    if not faults:
        place.clear()
        shutil.rmtree(folder)
    return {
        "seed": seed,
        "store": store,
        "notified": schedule.is_notified,
        "table_in_store": schedule.is_table_in_store,
        "options": sorted(schedule.options),
        "faults": faults,
        "folder": str(folder) if faults else None,
        "hits": [asdict(each) for each in player.history.hits],
        "runs": player.history.runs,
        "endings": player.history.endings,
        "healed": player.history.healed,
        "files": len(player.history.landed),
        "registered": files_of_table,
        "deleted": len(player.history.deleted),
        "rows": sum(len(each.ids) for each in player.history.landed),
        "seconds": round(time.monotonic() - began, 2),
    }


def _ask(
    player: Player, place: Any, folder: Path, environment: Mapping[str, str]
) -> tuple[list[str], int]:
    """Look what is wrong, and how many files of the source are data files of the table."""
    history, where = player.history, player.stream
    said = lines(fork(stream.work("state", where), folder / "files.json", environment))
    in_store = where.target.startswith(place.root)
    table = place.fetch("table/", folder / "fetched") if in_store else folder / "table"
    rows = lines(fork(lambda: write_table(table), folder / "rows.json", {}))
    bad = bad_records(place.fetch("bad/", folder / "bad"))
    oracle = Oracle(player.schedule, history, rows=rows, bad=bad, files=said, source=where.source)
    return oracle.ask(), registered(table)


def lines(child: Child) -> list[dict[str, Any]]:
    """What a process writes: JSON Lines."""
    code = child.wait(120)
    text = child.log.read_text(errors="replace")
    if code:
        raise RuntimeError(f"{child.log.name} ended with {code}: {text[-2000:]}")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _keep(line: Path, results: Path, which: tuple[str, int], code: int, log: Path) -> None:
    """Add a result; one of a schedule whose process ended without one is a failure, too."""
    if code == 0 and line.exists():
        text = line.read_text()
    else:
        tail = log.read_text(errors="replace")[-2000:]
        fault = f"the schedule itself ended with {code}: {tail}"
        store, seed = which
        result = {"seed": seed, "store": store, "faults": [fault], "hits": [], "folder": str(log)}
        text = json.dumps(result) + "\n"
    line.unlink(missing_ok=True)
    with results.open("a") as file:
        file.write(text)
    if not json.loads(text)["faults"]:
        log.unlink(missing_ok=True)
