"""What does a person need to submit a run by hand?

The command that an operator would start, for a cluster that this machine may not reach: written as
a script, beside the files that it names. The script holds no credentials.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state

SCRIPT = "submit.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the driver and the executors of a run are given.

    Attributes:
        executors: How many.
        cores: Of each executor.
        memory: Of each executor, as Spark writes it.
        driver_memory: Of the driver.
    """

    executors: int = 2
    cores: int = 1
    memory: str = "2g"
    driver_memory: str = "1g"

    def conf(self) -> dict[str, str]:
        """The configuration on Kubernetes and YARN."""
        return {"spark.executor.instances": str(self.executors), **self.of_each()}

    def of_each(self) -> dict[str, str]:
        """The configuration of one executor and of the driver, on every cluster."""
        return {
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.driver.memory": self.driver_memory,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run as it is submitted.

    Attributes:
        spec: What is to be done.
        how: The same `SparkSubmit` that an operator starts.
        files: What the command names, by file name, to be in the folder it is started in.
        notes: What has to be true, and what was not tried.
    """

    spec: JobSpec
    how: SparkSubmit
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def script(self) -> str:
        """The command as a script of a shell."""
        state = normalize_uri(self.spec.checkpoint_location)
        command = self.how.command(state, self.spec.run_id)
        lines = ["#!/bin/sh", *(f"# {note}" for note in self.notes), "set -eu"]
        if self.files:
            lines.append('cd "$(dirname "$0")"')
        environment = self.how.environment().items()
        lines += [f"export {name}={shlex.quote(value)}" for name, value in environment]
        return "\n".join([*lines, f"exec {_wrapped(command)}", ""])

    def all_files(self) -> dict[str, str]:
        """Everything to be in one folder, by file name."""
        return {SCRIPT: self.script(), **self.files}

    def to_json(self) -> dict[str, Any]:
        """For programs; `spark_conf` is what the operators take under that name."""
        state = normalize_uri(self.spec.checkpoint_location)
        return {
            "run_id": self.spec.run_id,
            "command": self.how.command(state, self.spec.run_id),
            "environment": self.how.environment(),
            "spark_conf": dict(self.how.conf),
            "files": self.all_files(),
            "notes": list(self.notes),
        }

    def write(self, folder: Path) -> None:
        """Write the files into a folder, and the specification into the state.

        Raises:
            StateUnreachableError: The store of the checkpoint location does not answer.
            StateError: The checkpoint location cannot be written.
            OSError: The folder cannot be written.
        """
        store = open_store(self.spec.checkpoint_location)
        with reaching_state(store):
            store.put(self.spec.spec_key, self.spec.to_json().encode())
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.all_files().items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / SCRIPT).chmod(0o755)


def _wrapped(command: list[str]) -> str:
    """A command with an option and its value on each line."""
    program, *words = command
    lines = [shlex.quote(program)]
    while words:
        has_value = words[0].startswith("--") and len(words) > 1
        taken, words = (words[:2], words[2:]) if has_value else (words[:1], words[1:])
        lines.append(shlex.join(taken))
    return " \\\n  ".join(lines)
