"""The named points at which tests kill a process, in the order in which each task passes them."""

from __future__ import annotations

INTAKE_POINTS = (
    "after-dedupe",
    "before-file-log-append",
    "after-file-log-append",
    "after-ledger-record",
    "after-listing",
)
"""The points that discovering files passes, in this order."""
INVENTORY_POINTS = ("after-inventory-file", "before-inventory-done")
"""The points that reading an inventory report passes besides, in this order."""
INVENTORY_POSITION_POINTS = ("before-inventory-position",)
"""The point that it passes then where a queue or an event log announces files."""
NOTIFICATION_POINTS = ("after-receive", "after-notification-record", "before-delete")
"""The points that draining a queue passes besides, in this order."""
EVENT_LOG_POINTS = (
    "after-receive",
    "before-event-log-append",
    "after-event-log-append",
    "before-delete",
    "after-collection",
    "before-file-log-append",
    "after-file-log-append",
    "before-event-position",
)
"""The points that a stream passes which drains a queue into an event log and reads the log, in this
order."""
WAITING_POINTS = ("before-waiting-note", "after-waiting-note", "after-waiting-record")
"""The points that letting files wait passes besides."""
NOTICE_POINTS = ("before-change-notice", "after-change-notice")
"""The points that noticing changed files passes besides, in this order."""
PLAN_POINTS = ("before-plan-append", "after-plan-append")
"""The points that planning a micro-batch passes, in this order."""
STREAM_POINTS = (
    "after-spark-offset",
    "before-read",
    "after-data-files",
    "before-sink-commit",
    "after-sink-columns",
    "after-sink-commit",
    "after-sink-record",
    "after-spark-commit",
    "before-schema-append",
    "after-schema-append",
)
"""The points of planning, reading and committing a micro-batch, and of a schema change."""
METADATA_POINTS = ("before-sink-metadata", "after-sink-columns")
"""The points that a commit passes besides when it changes the columns of a table by hand."""
JOB_POINTS = ("after-data-files", "after-file-results", "after-sink-commit", "after-sink-record")
"""The points that a batch of a job passes, in this order: a query records no results of files."""
WIDENING_POINTS = ("before-sink-widening", "after-sink-widening")
"""The points that a commit passes besides when it rewrites its table for a wider column."""
PROMOTION_POINTS = (
    "after-promotion-columns",
    "after-promotion-schema",
    "before-promotion-commit",
    "after-promotion-commit",
)
"""The points that promoting rescued data passes, in this order."""
QUARANTINE_POINTS = (
    "after-quarantine-note",
    "before-quarantine-commit",
    "after-quarantine-commit",
)
"""The points that putting rows of a batch aside passes, in this order."""
RELEASE_POINTS = (
    "after-release-mark",
    "before-release-commit",
    "before-sink-commit",
    "after-sink-commit",
    "after-release-commit",
)
"""The points that releasing rows passes, in this order."""
DISCARD_POINTS = ("after-discard",)
"""The point that discarding rows passes."""
REPLAY_POINTS = ("after-replay-decision", "before-sink-commit", "after-replay-commit")
"""The points that replaying a batch passes, in this order."""
CLEANING_POINTS = (
    "before-clean-copy",
    "after-clean-copy",
    "before-clean-delete",
    "after-clean-rename",
    "after-clean-delete",
    "before-clean-record",
    "after-clean-record",
)
"""The points that cleaning the source passes, in this order; the first two where it moves files,
the fourth on a local disk and, before the second, on an SFTP server."""
VACUUM_POINTS = ("after-part-of-vacuum",)
"""The point that vacuuming a table passes, once for each part of the files."""
OPTIMIZE_POINTS = ("before-optimize-commit", "after-optimize-commit")
"""The points that compacting a table passes, once for each group of files."""
COMPACTION_POINTS = (
    "before-pack",
    "after-pack-copy",
    "before-packed-removal",
    "after-packed-removal",
)
"""The points that packing old entries passes, in this order, once for each pack; the last two for
each hundred objects, and where old events are dropped."""
MOVE_POINTS = (
    "after-move-claim",
    "after-part-of-copy",
    "after-move-copy",
    "after-move-seal",
    "after-fence-mark",
    "after-fence",
    "after-second-copy",
    "after-move",
)
"""The points that moving a state passes, in this order."""
EXPORT_POINTS = ("before-export-ends",)
"""The point that exporting a state passes when the archive is whole and has no name yet."""
IMPORT_POINTS = ("after-import-claim", "after-part-of-import", "before-import-ends")
"""The points that importing a state passes, in this order."""
RELOCATION_POINTS = (
    "after-relocation-seal",
    "after-fence-mark",
    "after-fence",
    "after-adopted-versions",
    "before-relocation-ends",
)
"""The points that relocating a source passes, in this order; the fourth only where versions are
adopted."""
RESTART_POINTS = ("after-restart-seal", "after-part-of-restart", "after-restart")
"""The points that starting a stream over passes, in this order."""
QUERY_POINTS = ("before-query-start", "after-query-start", "after-query-note")
"""The points that a driver passes which has a Spark Connect server carry its run, in this order."""
TABLE_STREAM_POINTS = ("before-tracking-append", "after-tracking-append")
"""The points that a stream from a Delta table passes at a change of its schema, in this order."""
FILE_OPERATION_POINTS = (
    "before-file-operation",
    "after-file-operation-note",
    "before-file-log-append",
    "after-file-log-append",
    "after-file-operation",
)
"""The points that an operation on files passes, in this order."""
FORMER_ROWS_POINTS = ("after-kept-rows", "before-sink-commit", "after-sink-commit")
"""The points that the commit of a batch with replayed files passes, in this order."""

FOLLOWING_POINTS = (
    "after-dedupe",
    "after-file-operation-note",
    "before-file-log-append",
    "after-file-log-append",
    "after-ledger-record",
    "after-ledger-record:3",
    "after-plan-append",
    "after-data-files",
    *FORMER_ROWS_POINTS,
    "after-sink-record",
)
"""Of a run whose table follows its files."""
