"""What has a run committed, when nobody here sees what Spark's Python processes write?

The sink logs a line for each micro-batch, where it runs. On a server that is another machine's log,
so the driver writes the same lines from the notes that the sink leaves in the state.
"""

from __future__ import annotations

import logging

from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state import run_history

_log = logging.getLogger(__name__)


class BatchLines:
    """Logs each micro-batch of a run once.

    Args:
        spec: The run.
        first: Number of its first micro-batch.
    """

    def __init__(self, spec: JobSpec, first: int) -> None:
        self._state = spec.checkpoint_location
        self._next = first

    @property
    def next_batch(self) -> int:
        """Number of the first micro-batch that is not in the log."""
        return self._next

    def log_new(self) -> None:
        """Log what was committed since the last call; that it cannot be read stops no run."""
        try:
            while found := run_history.notes(self._state, (self._next,)):
                self._next += 1
                _log.info("%s", found[0].line())
        except OSError as error:
            _log.debug("The notes of the micro-batches cannot be read: %s", error)
