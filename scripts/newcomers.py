"""`make newcomers`: do what four newcomers do, step by step, and write how long each step takes.

Each has nothing but the wheel and what the pages say; the code of the quickstart is taken from its
page, and what it says it prints is compared. A step that does not do what it is to do ends it all.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from demo.airflow_api import AirflowApi  # noqa: E402 - the checkout is no package

PAGE: Final = ROOT / "docs" / "reference" / "newcomers.md"
MARK: Final = "<!-- what `make newcomers` writes -->\n"
_QUICKSTART: Final = ROOT / "docs" / "quickstart.md"
_PORT: Final = 8080
_WAIT_SECONDS: Final = 300.0
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Newcomers:
    """What is made on the way.

    Attributes:
        folder: For everything.
        rows: Of the page: who, what, and how many seconds it took.
    """

    folder: Path
    rows: list[tuple[str, str, float]] = field(default_factory=list)

    @property
    def bin(self) -> Path:
        """Where the programs of the environment are."""
        return self.folder / "venv" / "bin"

    @contextmanager
    def step(self, who: str, what: str) -> Iterator[None]:
        """Time a step."""
        print(f"{who}: {what} ...", flush=True)
        began = time.monotonic()
        yield
        self.rows.append((who, what, time.monotonic() - began))

    def run(self, *command: str | Path, fails: bool = False, text: str | None = None) -> str:
        """Run a command and give what it prints.

        Raises:
            RuntimeError: It ends otherwise than it is to.
        """
        shown = [str(each) for each in command]
        done = subprocess.run(
            shown, cwd=self.folder, input=text, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if (done.returncode != 0) is not fails:
            raise RuntimeError(f"{' '.join(shown)} ended with {done.returncode}:\n{said}")
        return said

    def cloudfiles(self, *arguments: str, fails: bool = False) -> str:
        """Run the command of this package."""
        return self.run(self.bin / "cloudfiles", *arguments, fails=fails)


def has(said: str, *wanted: str) -> None:
    """Require that something was said.

    Raises:
        RuntimeError: It was not.
    """
    missing = [each for each in wanted if each not in said]
    if missing:
        raise RuntimeError(f"{missing} is missing in:\n{said}")


def with_the_wheel(made: Newcomers) -> None:
    """Build the wheel, install it in an environment of its own, read its documentation."""
    who = "With the wheel"
    with made.step(who, "`make dist`"):
        made.run("make", "-C", ROOT, "dist", "ARGS=--wheel")
    [wheel] = (ROOT / "dist").glob("*.whl")
    shutil.copy(wheel, made.folder)
    with made.step(who, "a new environment, and `pip install` with the extras `spark` and `delta`"):
        made.run(sys.executable, "-m", "venv", made.folder / "venv")
        _install(made, wheel, "spark,delta")
    with made.step(who, "`cloudfiles docs CF501`"):
        has(made.cloudfiles("docs", "CF501"), "UnknownFieldException")


def _install(made: Newcomers, wheel: Path, extras: str) -> None:
    constraints = ROOT / "requirements" / "constraints.txt"
    made.run(made.bin / "pip", "install", "--quiet", "-c", constraints, f"{wheel}[{extras}]")


def at_a_shell(made: Newcomers) -> None:
    """Ingest without Spark, mistype an option, meet a new field, look how the stream is."""
    who = "At a shell"
    root = made.folder / "shell"
    (root / "landing").mkdir(parents=True)
    (root / "landing" / "1.json").write_text('{"id": 1}\n{"id": 2}\n', encoding="utf-8")
    state = ("--checkpoint-location", str(root / "state"))
    places = ("--source", str(root / "landing"), *state, "--target", str(root / "table"))
    ingest = ("ingest", "--engine", "local", "--format", "json", *places)
    with made.step(who, "`cloudfiles`, which lists the commands"):
        has(made.cloudfiles(), "ingest", "status")
    with made.step(who, "a typo in an option: the nearest one is named"):
        said = made.cloudfiles(*ingest, "--option", "cloudFiles.maxFilePerTrigger=1", fails=True)
        has(said, "cloudFiles.maxFilesPerTrigger")
    with made.step(who, "`cloudfiles ingest --engine local`"):
        has(made.cloudfiles(*ingest), "2 rows")
    (root / "landing" / "2.json").write_text('{"id": 3, "currency": "CHF"}\n', encoding="utf-8")
    with made.step(who, "a new field: the run fails once, and says so"):
        has(made.cloudfiles(*ingest, fails=True), "UNKNOWN_FIELD_EXCEPTION", "currency")
    with made.step(who, "the same command again"):
        has(made.cloudfiles(*ingest), "1 row")
    with made.step(who, "`cloudfiles status`, `state files` and `schema list`"):
        has(made.cloudfiles("status", *state), "ok")
        has(made.cloudfiles("state", "files", *state), "1.json", "2.json")
        has(made.cloudfiles("schema", "list", *state), "currency")


def in_python(made: Newcomers, root: Path) -> None:
    """Run the Python of the quickstart, and compare what it prints."""
    who = "In PySpark"
    blocks = _blocks(root)
    code = [text for kind, text in blocks if kind == "python" and "airflow.sdk" not in text]
    printed = [text for kind, text in blocks if kind == "text"]
    with made.step(who, "the quickstart: a table, a new field, the table again"):
        said = made.run(made.bin / "python", "-", text="\n".join(code))
        has(said, *(each.strip() for each in printed))


def _blocks(root: Path) -> list[tuple[str, str]]:
    """Give the blocks of the quickstart, in a folder of its own."""
    page = _QUICKSTART.read_text(encoding="utf-8").replace("/tmp/quickstart", str(root))  # noqa: S108
    return _BLOCK.findall(page)


def in_airflow(made: Newcomers, root: Path) -> None:
    """Go on with Airflow, as the quickstart does, and have a new field heal by a retry."""
    who = "In Airflow"
    [wheel] = made.folder.glob("*.whl")
    with made.step(who, "`pip install` with the extra `airflow`, beside them"):
        _install(made, wheel, "airflow,spark,delta")
    home = root / "airflow"
    (home / "dags").mkdir(parents=True)
    [dag] = [text for kind, text in _blocks(root) if kind == "python" and "airflow.sdk" in text]
    (home / "dags" / "quickstart.py").write_text(dag, encoding="utf-8")
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{made.bin}{os.pathsep}{os.environ['PATH']}",
    }
    log = root / "standalone.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [made.bin / "airflow", "standalone"], env=env, stdout=file, stderr=file, process_group=0
        )
    try:
        _with_a_running_airflow(made, who, home, root)
    except Exception:
        print(*log.read_text(encoding="utf-8").splitlines()[-30:], sep="\n")
        raise
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _with_a_running_airflow(made: Newcomers, who: str, home: Path, root: Path) -> None:
    passwords = home / "simple_auth_manager_passwords.json.generated"
    with made.step(who, "`airflow standalone`, until the DAG is there"):
        _wait_for(passwords.exists)
        user = ("admin", str(json.loads(passwords.read_text(encoding="utf-8"))["admin"]))
        api = AirflowApi(f"http://127.0.0.1:{_PORT}", user)
        _wait_for(lambda: api.has_dag("quickstart"))
    name = f"currency_{secrets.token_hex(2)}"
    record = json.dumps({"id": 4, name: "EUR"})
    with made.step(who, "a file with a new field: the task fails once, its retry succeeds"):
        (root / "landing" / "wednesday.json").write_text(f"{record}\n", encoding="utf-8")
        api.pause("quickstart", paused=False)
        [run] = _wait_for(lambda: api.runs("quickstart"))[:1]
        ended = _wait_for(lambda: api.run_ended("quickstart", run["dag_run_id"]))
        api.pause("quickstart", paused=True)
        tries = [each["state"] for each in api.tries("quickstart", run["dag_run_id"], "ingest")]
        if (ended, tries) != ("success", ["failed", "success"]):
            raise RuntimeError(f"The run ended with {ended}, its task with {tries}")
        said = made.cloudfiles("schema", "list", "--checkpoint-location", str(root / "checkpoint"))
        has(said, name)


def _wait_for(look: Callable[[], Any]) -> Any:
    """Wait until a look gives something; a server that is not up yet gives nothing."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            found = look()
        except OSError:
            found = None
        if found:
            return found
        if time.monotonic() > until:
            raise RuntimeError(f"Nothing after {_WAIT_SECONDS:.0f} seconds")
        time.sleep(0.5)


def write(made: Newcomers) -> None:
    """Write the steps into the page, behind its mark."""
    before, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise RuntimeError(f"{PAGE.name} lacks its mark: {MARK}")
    on = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {on}, packages in pip's cache.",
        "",
        "| who | step | seconds |",
        "| --- | --- | --- |",
        *(f"| {who} | {what} | {seconds:.1f} |" for who, what, seconds in made.rows),
    ]
    PAGE.write_text(before + mark + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Do it all, in a folder that is removed."""
    made = Newcomers(Path(tempfile.mkdtemp(prefix="cloudfiles-newcomers-")))
    try:
        root = made.folder / "quickstart"
        with_the_wheel(made)
        at_a_shell(made)
        in_python(made, root)
        in_airflow(made, root)
    finally:
        shutil.rmtree(made.folder, ignore_errors=True)
    write(made)


if __name__ == "__main__":
    main()
