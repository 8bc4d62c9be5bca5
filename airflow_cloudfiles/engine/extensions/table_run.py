"""Optimize or vacuum a table for those who import neither `deltalake` nor PySpark.

In a process of its own, as the other jobs are: the command line starts fast, and a task's worker
can end it. It may be killed at any moment (`delta.optimize`, `delta.vacuum`). Operations on files
(`intake.file_operations`), starting over and explaining what was rescued, which look at the
table, are done in one, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_cloudfiles.engine.errors import RunFailedError, from_record
from airflow_cloudfiles.engine.storage.access import to_environment

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

RESULT: Final = "cloudfiles-result: "
"""What the last line of the process begins with."""
_MODULE: Final = "airflow_cloudfiles.engine.extensions.table_process"
_TAIL_LINES: Final = 20
_log = logging.getLogger(__name__)


Action = Literal["explain", "operate", "optimize", "quarantined rows", "start over", "vacuum"]
"""What is done to a table, or to files or the state of its stream."""


class TableRun:
    """A table that is being maintained.

    Args:
        action: What is done.
        arguments: Of the function that does it (`table_process`), as JSON has them.
        access: How the table is reached; `None`: the environment's own chain.
    """

    def __init__(
        self, action: Action, arguments: Mapping[str, Any], *, access: Access | None = None
    ) -> None:
        self._action = action
        environment = {**os.environ, **({} if access is None else to_environment(access))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, action],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
        # Not as an argument: a system limits how long one may be. If the process has ended, `wait`
        # says so.
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(dict(arguments)))

    def wait(self, on_log: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Pass on the lines of the process until it ends, and return its report.

        Args:
            on_log: Called with each line; `None` for the log.

        Raises:
            CloudFilesError: What it failed with; `RunFailedError` when it was killed.
        """
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        result: dict[str, Any] | None = None
        with self._process:
            for line in self._process.stdout or ():
                if line.startswith(RESULT):
                    result = json.loads(line.removeprefix(RESULT))
                else:
                    tail.append(line.rstrip("\n"))
                    (on_log or _log.info)(tail[-1])
        if result is None:
            lines = "\n".join(tail)
            raise RunFailedError(
                f"The process of {self._action} ended with exit code {self._process.returncode} "
                f"before its report. No row has changed: run again. Its last lines were:\n{lines}"
            )
        if "error" in result:
            raise from_record(result["error"])
        report: dict[str, Any] = result["report"]
        return report

    def kill(self) -> None:
        """End the process; harmless when it has ended."""
        self._process.kill()
