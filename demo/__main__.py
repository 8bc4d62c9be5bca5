"""`python -m demo`: play the story in a throw-away folder; exit with 0 when all was as promised."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from demo.airflow_home import AirflowHome
from demo.ending import tell
from demo.flights import Flights
from demo.narrator import say, show, title
from demo.story import DAG_ID, Story

DAG_FILE = Path(__file__).parent.parent / "dags_examples" / f"{DAG_ID}.py"


def main() -> int:
    """Play the demo."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("KEEP", "0") not in {"", "0"},  # make demo KEEP=1
        help="leave Airflow running at the end, and the folder",
    )
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="cloudfiles-demo-"))
    try:
        return _play(folder, keep=keep)
    except (RuntimeError, TimeoutError) as error:
        title("The demo broke off")
        show(*str(error).splitlines())
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        if keep:
            say(f"left for you to look at: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _play(folder: Path, *, keep: bool) -> int:
    """Start Airflow, play, tell; returns the exit code."""
    root = folder / "flights"
    (root / "landing").mkdir(parents=True)
    dags = folder / "dags"
    dags.mkdir()
    shutil.copy(DAG_FILE, dags)
    title("0. A real Airflow starts in a throw-away folder")
    say(f"everything is in {folder}")
    env = {"AIRFLOW_VAR_FLIGHTS_ROOT": str(root), "FLIGHTS_POKE_SECONDS": "2"}
    with AirflowHome(folder / "airflow", dags, env) as airflow:
        say(f"Airflow is up: scheduler, DAG processor and API server ({airflow.url})")
        flights = Flights.load()
        say(f"{sum(map(len, flights.days.values())):,} flights of {len(flights.days)} days read")
        story = Story(airflow, root, flights)
        watch = story.play()
        kept = tell(story, watch)
        title("To look around: make demo KEEP=1 leaves Airflow running and prints its URL")
        if keep:
            _wait_for_ctrl_c(airflow)
        say("stopping Airflow")
    say("all as promised" if kept else "NOT as promised, see above")
    return 0 if kept else 1


def _wait_for_ctrl_c(airflow: AirflowHome) -> None:
    """Keep Airflow running until the user has seen enough."""
    say(f"Airflow is at {airflow.url} (no password; this machine only). ctrl-C ends it.")
    say("Drop more files into the landing folder: the DAG waits for them.")
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        say("ctrl-C")


if __name__ == "__main__":
    sys.exit(main())
