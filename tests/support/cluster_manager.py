"""What YARN and Kubernetes are to a task: a `spark-submit` whose driver outlives it.

Nothing of them can be started here. The script stands in for `spark-submit` in cluster deploy mode:
it starts the program as a process of nobody's, and waits for its end. The driver itself is real.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_cloudfiles.engine.job.spec import BESIDE

_SUBMIT = """\
#!{python}
import os, pathlib, subprocess, sys, time

[at] = [number for number, word in enumerate(sys.argv) if word.endswith("__main__.py")]
program, state, run_id, *function = sys.argv[at:]
folder = pathlib.Path({folder!r})
with (folder / "submitted").open("a") as submitted:
    submitted.write(run_id + "\\n")
driver = {driver!r} or [sys.executable, program]
marks = [str(folder / f"{{run_id}}.{{each}}") for each in ("pid", "end")]
alone = 'pid="$1"; end="$2"; shift 2; echo $$ > "$pid"; "$@"; echo $? > "$end"'
spark = {{"PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell"}}
# The folder of the task is on another machine.
given = {{name: text for name, text in os.environ.items() if name != {beside!r}}}
with (folder / "driver.log").open("a") as log:
    subprocess.run(
        ["setsid", "-f", "sh", "-c", alone, "driver", *marks, *driver, state, run_id, *function],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={{**given, **spark}}, check=True,
    )
print("The driver of", run_id, "was submitted", flush=True)
while not (folder / f"{{run_id}}.end").exists():
    time.sleep(0.05)
"""


class ClusterManager:
    """A folder with a `spark-submit`, for `PATH`.

    Args:
        folder: Where it is made.
        driver: The command of a driver, without its two arguments; by default the program that is
            submitted.
    """

    def __init__(self, folder: Path, driver: list[str] | None = None) -> None:
        folder.mkdir()
        self.folder = folder
        self.binary = folder / "spark-submit"
        text = _SUBMIT.format(
            python=sys.executable, folder=str(folder), driver=driver, beside=BESIDE
        )
        self.binary.write_text(text, encoding="utf-8")
        self.binary.chmod(0o755)

    @property
    def submitted(self) -> list[str]:
        """The ids of the runs that were submitted, in order."""
        path = self.folder / "submitted"
        return path.read_text().split() if path.exists() else []

    @property
    def log(self) -> str:
        """What the drivers have printed."""
        path = self.folder / "driver.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, run_id: str) -> None:
        """Kill a driver and all that it has started, as the loss of its machine does."""
        os.killpg(int((self.folder / f"{run_id}.pid").read_text()), 9)
