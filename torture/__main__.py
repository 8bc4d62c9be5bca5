"""`make torture`: random schedules of arrivals, runs and kills, over every store.

Each schedule follows from its seed and store; what the operating system makes of it (which step a
kill at a random moment meets) does not. A schedule that fails is named with its seed, the faults,
the folder with all its logs, and the command that plays it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.job.java import find_java
from torture import report
from torture.airflow_tasks import play_airflow
from torture.processes import Child, be_subreaper, end_all_below, fork
from torture.schedule import ENGINES, STORES
from torture.slot import play_all

CHUNK = 50
"""Schedules between two starts of the emulators."""


def main() -> int:
    """Play what the arguments ask for."""
    given = _arguments()
    work = Path(given.work or tempfile.mkdtemp(prefix="torture-"))
    work.mkdir(parents=True, exist_ok=True)
    results = work / "results.jsonl"
    if not given.go_on:
        results.unlink(missing_ok=True)
    os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("CLOUDFILES_JVM_DIR", str(Path(sys.prefix) / "jvm"))
    for name in ("PYTHONDONTWRITEBYTECODE", "CLOUDFILES_CRASH_AT", "SPARK_REMOTE"):
        os.environ.pop(name, None)
    began = time.monotonic()
    be_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        _play(_chunks(given, results), given, work, results)
        if given.airflow_kills:
            folder = work / f"airflow-{given.seed}"
            result = play_airflow(given.seed, given.airflow_kills, folder)
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")
    finally:
        end_all_below()
    found = report.read(results)
    about = {"seconds": round(time.monotonic() - began), "commit": _commit(), "seed": given.seed}
    text = report.markdown(found, about)
    print(text)
    if given.report:
        report.write(Path(given.report), text)
    failed = [each for each in found if each["faults"]]
    for each in failed:
        _tell(each)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule (1)")
    parser.add_argument("--schedules", type=int, default=20, help="how many (20)")
    parser.add_argument("--stores", default="local", help=f"of {','.join(STORES)} (local)")
    parser.add_argument("--at-once", type=int, default=2, choices=(1, 2), help="schedules (2)")
    parser.add_argument("--minutes", type=float, help="begin no schedules later than this")
    parser.add_argument("--engine", choices=ENGINES, help="of all ingestions (both, in turn)")
    parser.add_argument("--airflow-kills", type=int, default=0, help="of task processes (0)")
    parser.add_argument("--work", help="folder for logs and results; default is a temporary one")
    parser.add_argument("--go-on", action="store_true", help="add to the results of the folder")
    parser.add_argument("--report", help="write the report there as Markdown")
    given = parser.parse_args()
    unknown = set(given.stores.split(",")) - set(STORES)
    if unknown:
        parser.error(f"--stores: {', '.join(sorted(unknown))} is none of {', '.join(STORES)}")
    return given


def _chunks(given: argparse.Namespace, results: Path) -> list[tuple[str, list[int]]]:
    """Which store has which seeds: those that follow the first, dealt out in turn."""
    stores = given.stores.split(",")
    done = {(each["store"], each["seed"]) for each in report.read(results)}
    by_store: dict[str, list[int]] = {each: [] for each in stores}
    for number in range(given.schedules):
        store, seed = stores[number % len(stores)], given.seed + number
        if (store, seed) not in done:
            by_store[store].append(seed)
    cut = [
        (store, seeds[start : start + CHUNK])
        for store, seeds in by_store.items()
        for start in range(0, len(seeds), CHUNK)
    ]
    return sorted(cut, key=lambda chunk: chunk[1][0])


def _play(
    chunks: list[tuple[str, list[int]]], given: argparse.Namespace, work: Path, results: Path
) -> None:
    """Play the chunks, some at once."""
    engines = (given.engine,) if given.engine else ENGINES
    until = time.monotonic() + 60 * (given.minutes or 1e9)
    playing: list[Child] = []
    while chunks or playing:
        playing = [each for each in playing if not each.has_ended()]
        while chunks and len(playing) < given.at_once and time.monotonic() < until:
            store, seeds = chunks.pop(0)
            folder = work / f"{store}-{seeds[0]}"

            def chunk(store: str = store, seeds: Any = seeds, folder: Path = folder) -> int:
                return play_all(store, seeds, folder, results, engines)

            folder.mkdir(parents=True, exist_ok=True)
            playing.append(fork(chunk, folder / "slot.log", {}))
        if time.monotonic() >= until:
            chunks = []
        time.sleep(0.1)


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _tell(failed: dict[str, Any]) -> None:
    print(
        f"\nFAILED: seed {failed['seed']} on {failed['store']}; everything is in {failed['folder']}"
    )
    for fault in failed["faults"]:
        print(f"  {fault}")
    print(
        f'  again: make torture ARGS="--seed {failed["seed"]} --schedules 1 '
        f'--stores {failed["store"]}"',
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
