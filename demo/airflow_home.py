"""A real Airflow in a throw-away home: scheduler, DAG processor and API server on sqlite.

The demo and the tests share it. Everything listens on 127.0.0.1 only, on a free port; every process
it started is gone when it stops, also after ctrl-C.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from demo.airflow_api import AirflowApi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

_Found = TypeVar("_Found")

# The DAG processor and the scheduler would serve logs on all addresses; the API server reads the
# log files of this machine without them.
COMPONENTS = ("api-server", "scheduler --skip-serve-logs", "dag-processor")
TRIGGERER = "triggerer --skip-serve-logs"
_STOP_SECONDS = 15
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 1.0
_PASSWORDS = "passwords.json"
_DATABASE_SECONDS = 25
"""How long a process waits for another's transaction: less than a request to the API may take."""


class AirflowHome:
    """One Airflow, from an empty folder.

    Args:
        home: An empty or missing folder: `AIRFLOW_HOME`.
        dags: Folder of DAG files.
        env: Further environment of its processes.
        components: Its processes; add `TRIGGERER` for deferred tasks and watchers.
        users: Roles by the names of users, `admin` among them; without any, everybody is admin.
    """

    def __init__(
        self,
        home: Path,
        dags: Path,
        env: Mapping[str, str] | None = None,
        components: Sequence[str] = COMPONENTS,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self._components = components
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._passwords = {name: secrets.token_urlsafe(32) for name in users or ()}
        self.api = self.api_of("admin") if users else AirflowApi(self.url)
        self.env = self._environment(dags, {**self._with_users(users or {}), **(env or {})})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()

    def __enter__(self) -> Self:
        """Start it and wait until it answers."""
        try:
            self.start()
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def api_of(self, user: str) -> AirflowApi:
        """The API as one of the users reaches it."""
        return AirflowApi(self.url, (user, self._passwords[user]))

    def start(self) -> None:
        """Create the database and start the processes."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.joinpath(_PASSWORDS).write_text(json.dumps(self._passwords), encoding="utf-8")
        with (self.home / "migrate.log").open("wb") as log:
            migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
            done = subprocess.run(
                migrate, env=self.env, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{self.tail('migrate')}")
        for component in self._components:
            name = component.split()[0]
            with (self.home / f"{name}.log").open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "airflow", *component.split()],
                    env=self.env,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._sessions.add(self._processes[name].pid)

    def wait_until_healthy(self, timeout_seconds: float = 300) -> None:
        """Wait until the API answers and scheduler and DAG processor are at work."""
        self.wait(self._is_healthy, timeout_seconds, "Airflow to be healthy")

    def wait(self, look: Callable[[], _Found | None], timeout_seconds: float, what: str) -> _Found:
        """Poll until `look` finds something; refused connections count as nothing.

        Each question costs Airflow's API server time that its tasks could have, so what takes long
        is asked for less often.

        Raises:
            TimeoutError: It found nothing in time.
            RuntimeError: A process of Airflow ended.
        """
        deadline = time.monotonic() + timeout_seconds
        pause = _FIRST_PAUSE_SECONDS
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"airflow {name} ended:\n{self.tail(name)}")
            try:
                found = look()
            except OSError:
                found = None
            if found:
                return found
            time.sleep(pause)
            pause = min(1.2 * pause, _LONGEST_PAUSE_SECONDS)
        raise TimeoutError(f"waited {timeout_seconds:.0f} s for {what}")

    def stop(self) -> None:
        """End every process of this Airflow."""
        for process in self._processes.values():
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        for pid in self.pids():
            _signal(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Every process of this Airflow that is alive (none without `/proc`).

        Airflow's own processes are known by their session, since they write their title over
        their environment; what tasks started in sessions of its own is known by its environment.
        """
        mark = f"AIRFLOW_HOME={self.home}".encode()
        return [
            pid
            for pid, session, environ in _processes()
            if session in self._sessions or mark in environ.split(b"\0")
        ]

    def tail(self, name: str, lines: int = 30) -> str:
        """The end of a process's output."""
        text = (self.home / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _is_healthy(self) -> bool:
        health = self.api.health()
        return all(health[part]["status"] == "healthy" for part in ("scheduler", "dag_processor"))

    def _with_users(self, users: Mapping[str, str]) -> dict[str, str]:
        """The environment of an Airflow in which not everybody is admin."""
        if not users:
            return {}
        settings = {
            "ALL_ADMINS": "False",
            "USERS": ",".join(f"{name}:{role}" for name, role in users.items()),
            "PASSWORDS_FILE": str(self.home / _PASSWORDS),
        }
        return {
            f"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_{name}": text for name, text in settings.items()
        }

    def _environment(self, dags: Path, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of every process; nothing of an outer Airflow's leaks in."""
        secret = secrets.token_urlsafe(32)
        outer = {name: text for name, text in os.environ.items() if "AIRFLOW" not in name}
        settings = {
            "CORE__DAGS_FOLDER": str(dags),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "4",
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__INTERNAL_API_SECRET_KEY": secret,
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db?timeout={_DATABASE_SECONDS}",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__WORKERS": "1",
            "API__BASE_URL": self.url,
            "API__EXPOSE_STACKTRACE": "True",
            "API__SECRET_KEY": secret,
            "API_AUTH__JWT_SECRET": secret,
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        }
        return {
            **outer,
            **{f"AIRFLOW__{name}": text for name, text in settings.items()},
            "AIRFLOW_HOME": str(self.home),
            "CLOUDFILES_CACHE_DIR": str(self.home / "cache"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            **extra,
        }


def _free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal(pid: int, number: int) -> None:
    """Signal a process that may have ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_group(pid: int, number: int) -> None:
    """Signal a process group that may have ended by itself."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _processes() -> list[tuple[int, int, bytes]]:
    """Id, session and environment of each living process that may be read."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state ppid pgrp session ..."; the name may hold spaces and brackets
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            environ = (folder / "environ").read_bytes()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        if state != "Z":
            found.append((int(folder.name), int(session), environ))
    return found
