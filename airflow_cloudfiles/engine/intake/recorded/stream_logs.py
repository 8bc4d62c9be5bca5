"""What do the logs of a stream say: what is recorded, and how far is it committed?

Nothing here looks at the source, and nothing writes.
"""

from __future__ import annotations

from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.recorded.metrics import backlog, has_files
from airflow_cloudfiles.engine.intake.results import Backlog
from airflow_cloudfiles.engine.ledger.soundness import check_whole
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import Position, position
from airflow_cloudfiles.engine.storage import ObjectStore


class StreamLogs:
    """The logs of a stream, read only.

    Args:
        state: The checkpoint location.
        files: The file log in it.

    Attributes:
        state: The checkpoint location.
        files: The file log.
        plans: The plan log.
    """

    def __init__(self, state: ObjectStore, files: FileLog) -> None:
        self.state = state
        self.files = files
        self.plans = PlanLog(state)
        self._is_checked = False
        self._position: Position | None = None

    def head(self) -> Offset:
        """Give the position behind everything that is recorded now."""
        return self.files.head()

    def known_head(self) -> Offset:
        """Give the position behind everything that was recorded when the log was last read here.

        After `discover`, what it has found is before it. Asks nobody.
        """
        return self.files.known_head()

    def committed(self) -> Offset:
        """Give the position up to which the stream is committed.

        Returns:
            The end of the last committed batch; `START` when none was committed.

        Raises:
            CorruptedStateError: The state cannot be understood.
        """
        return self._committed().end

    def begin_at(self, committed: Position) -> None:
        """Take a position for the one that is committed, which the caller has read.

        For a job, which alone commits as long as it has its lock. `committed` does not ask again.

        Args:
            committed: What `position` gave under the lock.
        """
        self._position = committed

    def _committed(self) -> Position:
        return self._position or position(self.state, self.plans)

    def check(self) -> None:
        """Refuse a state that has lost entries of its file log; checks once.

        Done before the first entry is appended, and before batches are planned.

        Raises:
            CorruptedStateError: Entries are missing.
        """
        if not self._is_checked:
            check_whole(self.state, self.files, self.plans, self._position)
            self._is_checked = True

    def outstanding(self, *, up_to: Offset | None = None) -> Backlog:
        """Report what is recorded and not yet committed; discovers nothing.

        Args:
            up_to: Only what is before this position of the file log; `None` asks for its end.

        Raises:
            CorruptedStateError: Spark has committed more than is recorded.
        """
        return backlog(self.files, self.committed(), up_to or self.head(), self.state.uri)

    def has_work(self, *, up_to: Offset | None = None) -> bool:
        """Whether a batch is planned, or something is recorded, and not yet committed.

        Discovers nothing, and reads no further than the first entry that is to be ingested. What
        another process plans meanwhile is its own to finish.

        Args:
            up_to: As for `outstanding`; a planned batch counts wherever it ends.

        Raises:
            CorruptedStateError: The state cannot be understood.
        """
        start, plan = self.committed(), self.plans.known()
        if plan is not None and plan.end > start:
            return True
        end = up_to or self.head()
        first = start.entry + 1 if start.index > 0 else start.entry
        return (start.index > 0 and start < end) or has_files(self.files, range(first, end.entry))
