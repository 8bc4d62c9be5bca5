"""The few calls of Airflow's REST API that the demo and the tests make."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

_ENDED = ("success", "failed")


class AirflowApi:
    """A client of one API server.

    Args:
        url: `http://127.0.0.1:<port>`.
        user: Name and password; `None` where everybody is admin.
    """

    def __init__(self, url: str, user: tuple[str, str] | None = None) -> None:
        self._url = url
        self._user = user
        self._token: str | None = None

    def health(self) -> dict[str, Any]:
        """Which parts of Airflow are at work."""
        return dict(self.call("GET", "/api/v2/monitor/health"))

    def has_dag(self, dag_id: str) -> bool:
        """Whether the DAG processor has read this DAG.

        Raises:
            RuntimeError: A DAG file does not import.
        """
        broken = self.call("GET", "/api/v2/importErrors")["import_errors"]
        if broken:
            raise RuntimeError(f"{broken[0]['filename']}: {broken[0]['stack_trace']}")
        dags = self.call("GET", f"/api/v2/dags?dag_id_pattern={dag_id}")["dags"]
        return any(dag["dag_id"] == dag_id for dag in dags)

    def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause or unpause a DAG."""
        self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run; returns its id."""
        body = {"logical_date": None, "conf": conf or {}}
        return str(self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG, oldest first."""
        found = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?order_by=run_after&limit=100")
        return list(found["dag_runs"])

    def run_ended(self, dag_id: str, run_id: str) -> str | None:
        """The final state of a run; `None` while it goes on."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}"
        state = str(self.call("GET", path)["state"])
        return state if state in _ENDED else None

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances"
        return list(self.call("GET", path)["task_instances"])

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """One task instance."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}"
        return dict(self.call("GET", path))

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Set a task's state, as a user does in the UI."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}"
        self.call("PATCH", path, {"new_state": state})

    def tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        """Every try of a task instance, oldest first."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/tries"
        found = self.call("GET", path)["task_instances"]
        return sorted(found, key=lambda each: int(each["try_number"]))

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
        """The log of one try, one JSON object a line, as Airflow shows it."""
        path = (
            f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}"
            f"/logs/{try_number}?full_content=true"
        )
        content = self.call("GET", path)["content"]
        return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What a task returned."""
        path = (
            f"/api/v2/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}"
            "/xcomEntries/return_value?deserialize=true"
        )
        return self.call("GET", path)["value"]

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the API.

        Raises:
            RuntimeError: It answered with an error.
            OSError: It cannot be reached.
        """
        return self._send(method, path, body, self.headers())

    def headers(self) -> dict[str, str]:
        """What says who asks."""
        if self._token is None:
            how, body = "GET", None
            if self._user is not None:
                how, body = "POST", {"username": self._user[0], "password": self._user[1]}
            self._token = str(self._send(how, "/auth/token", body, {})["access_token"])
        return {"Authorization": f"Bearer {self._token}"}

    def _send(self, method: str, path: str, body: object, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            headers={"Content-Type": "application/json", **headers},
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise RuntimeError(f"{method} {path}: HTTP {error.code}: {text[:500]}") from error


def _quoted(run_id: str) -> str:
    """A run id as part of a path (it holds `:` and `+`)."""
    return urllib.parse.quote(run_id, safe="")
