"""Tell what the tasks of a DAG do, as they do it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from demo.narrator import say, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.airflow_home import AirflowHome

_QUIET = (None, "none", "scheduled", "queued", "removed")
QUIET_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Try:
    """One try of one task instance."""

    run: int
    task: str
    number: int
    state: str
    error: str = ""


@dataclass(slots=True)
class Watch:
    """The tries of a DAG's tasks, told when they change.

    Attributes:
        airflow: The Airflow that runs the DAG.
        dag_id: The DAG.
        tries: The newest state of every try, in the order in which they began.
    """

    airflow: AirflowHome
    dag_id: str
    tries: dict[tuple[int, str, int], Try] = field(default_factory=dict)

    def until(self, done: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        """Tell every change until `done`.

        Raises:
            RuntimeError: A task failed for good.
            TimeoutError: It was not done in time.
        """
        quiet_since = time.monotonic()

        def look() -> bool:
            nonlocal quiet_since
            if self._look():
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > QUIET_SECONDS:
                quiet_since = time.monotonic()
                self._tell_what_goes_on()
            return done()

        self.airflow.wait(look, timeout_seconds, what)

    def ended(self, task: str) -> list[Try]:
        """The finished tries of a task."""
        return [
            each
            for each in self.tries.values()
            if each.task == task and each.state in {"success", "failed"}
        ]

    def is_busy(self, task: str) -> bool:
        """Whether a try of a task is going on or about to be repeated."""
        last = {(each.run, each.task): each for each in self.tries.values() if each.task == task}
        return any(each.state != "success" for each in last.values())

    def _tell_what_goes_on(self) -> None:
        """Say that the demo is alive while nothing changes."""
        running = [each for each in self.tries.values() if each.state == "running"]
        for each in running:
            say(f"run {each.run} · {each.task} · try {each.number} · still running")

    def _look(self) -> bool:
        """Ask for all tries once and tell what changed; returns whether anything did."""
        api = self.airflow.api
        before = dict(self.tries)
        for number, run in enumerate(api.runs(self.dag_id), 1):
            run_id = str(run["dag_run_id"])
            for task in api.tasks(self.dag_id, run_id):
                if task["state"] in _QUIET and not task["try_number"]:
                    continue
                for each in api.tries(self.dag_id, run_id, task["task_id"]):
                    self._tell(number, run_id, each)
        return self.tries != before

    def _tell(self, run: int, run_id: str, found: dict[str, object]) -> None:
        """Tell one try if it is new or has changed."""
        task, state = str(found["task_id"]), found["state"]
        number = int(str(found["try_number"]))
        key = (run, task, number)
        known = self.tries.get(key)
        if state in _QUIET or (known is not None and known.state == state):
            return
        # the current try is shown as up_for_retry, and as failed once the next one begins
        again = state == "up_for_retry"
        if known is not None and known.state == "failed" and again:
            return
        error = known.error if known else ""
        if (state == "failed" or again) and not error:
            error = self._error(run_id, task, number)
        self.tries[key] = Try(run, task, number, "failed" if again else str(state), error)
        if known is None or self.tries[key].state != known.state:
            say(f"run {run} · {task} · try {number} · {self.tries[key].state}")
            if error:
                show(error)
            if state == "success":
                self._show_result(run_id, task)

    def _error(self, run_id: str, task: str, number: int) -> str:
        """The exception that ended a try, from the task's log."""
        log = self.airflow.api.log(self.dag_id, run_id, task, number)
        for line in reversed(log.splitlines()):
            for detail in json.loads(line).get("error_detail") or []:
                return f"{detail['exc_type']}: {detail['exc_value']}"
        return "no exception in the log:\n" + log[-3000:]

    def _show_result(self, run_id: str, task: str) -> None:
        """The gist of what a task returned."""
        try:
            value = self.airflow.api.xcom(self.dag_id, run_id, task)
        except RuntimeError:  # a task that returned nothing has no XCom
            return
        names = (
            "files",
            "bytes",
            "rows",
            "rescued_rows",
            "schema_version",
            "target_version",
            "sampled_files",
            "created",
        )
        show(", ".join(f"{name} {value[name]}" for name in names if name in value))
