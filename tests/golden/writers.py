"""Which functions write, and in which format: a new one fails `test_formats` until it is here."""

from __future__ import annotations

WRITERS: dict[str, tuple[str, ...]] = {
    "cleaning/record.py:write_cleaned": ("cleaned",),
    "delta/stream/tracking.py:TrackingLog.append": ("delta_schema_tracking",),
    "discovery/listing/state.py:save_state": ("listing",),
    "job/connect/left_runs.py:write_run": ("left_run", "left_query"),
    "job/jvm_archive.py:Archive._write": ("jvm_archive",),
    "job/launch.py:launch": ("run",),
    "job/run.py:run": ("report",),
    "job/warm/instances.py:write_private": ("warm_spark",),
    "ledger/overwritten.py:note_overwritten": ("overwritten",),
    "ledger/rocksdb.py:RocksDBLedger.record": ("index_mark",),
    "ledger/snapshots.py:_upload": ("snapshot",),
    "ledger/soundness.py:mark_head.write": ("head",),
    "locks/file_lock.py:FileLock.write_note": ("lock",),
    "locks/lease.py:Lease._create": ("lease",),
    "locks/lease.py:Lease._renew": ("lease",),
    "locks/lease.py:Lease.try_acquire": ("lease",),
    "locks/run_lock.py:RunLock._try_acquire": ("lock",),
    "spark/server_checkpoint.py:prepare": ("spark_offset",),
    "state/compaction.py:Compaction._write": ("pack",),
    "state/metadata.py:allow_packs": ("metadata",),
    "state/metadata.py:open_metadata": ("metadata",),
    "state/numbered_log.py:NumberedLog.append": ("files", "plans", "sink", "replays", "schemas"),
    "state/progress.py:note": ("batch",),
    "state/progress.py:note_discovery.write": ("discovery",),
    "state/refused.py:note_refused": ("refused",),
    "state/spark_checkpoint.py:replace": ("spark_offset",),
}
"""Functions (below `engine`, class and function behind the colon), and the formats they write."""

_RUN = "for processes of the same run, gone with it"
_BYTES = "passes on bytes that others have made"
_MEMORY = "no file: a queue in memory, or a pipe"
_SCRIPT = "a script or a log of the same run"

NO_FORMAT: dict[str, str] = {
    "delta/data_files.py:_CloudFile.finish": "Parquet",
    "delta/write/log_commit.py:write_version": "Delta's log; our note in it is delta_commit_note",
    "discovery/queues/draining.py:Drain._hand_over": _MEMORY,
    "discovery/services/azure.py:EventSubscription.make": "a call of Azure's",
    "inference/workers.py:ProcessWorkers.learn": _MEMORY,
    "inference/workers.py:ProcessWorkers.learn.carry_out": _MEMORY,
    "inference/workers.py:_work": _MEMORY,
    "job/fork_server.py:main": "the name of the process",
    "job/forked_python.py:ForkServer.listen": _SCRIPT,
    "job/ingest.py:start": _RUN,
    "job/jvm.py:_launched": "a command line, named by the hash of all that it follows from",
    "job/run.py:_hand_back": _RUN,
    "job/warm/client.py:WarmDriver.__init__": _MEMORY,
    "job/warm/client.py:_start": _SCRIPT,
    "job/warm_server/connect_jvm.py:ConnectJvm.__init__": _SCRIPT,
    "job/warm_server/server.py:_launcher": _SCRIPT,
    "job/warm_server/server.py:_serve": "the name of the process",
    "ledger/snapshots.py:_fetch": "RocksDB's",
    "reading/bad_records.py:BadRecordWriter._flush": "Databricks' form, for people",
    "spark/checkpoint_mirror.py:CheckpointMirror._fetch": _BYTES,
    "spark/checkpoint_mirror.py:CheckpointMirror._publish": _BYTES,
    "spark/checkpoint_mirror.py:CheckpointMirror._write_notes": _RUN,
    "spark/handoff.py:add_line": _RUN,
    "spark/handoff.py:put": _RUN,
    "spark/tables/queries.py:started": _RUN,
    "storage/conditional.py:require_conditional_put": "an object that is removed at once",
    "storage/fetched_ahead.py:FetchedAhead.put": _BYTES,
    "storage/fetched_ahead.py:FetchedAhead.put_if_absent": _BYTES,
    "storage/fetched_ahead.py:FetchedAhead.put_if_match": _BYTES,
    "storage/fetched_ahead.py:FetchedAhead.put_if_unchanged": _BYTES,
    "storage/local.py:LocalStore._write_temporary": _BYTES,
    "testing.py:FailingStore.put": _BYTES,
    "testing.py:FailingStore.put_if_absent": _BYTES,
    "testing.py:FailingStore.put_if_match": _BYTES,
    "testing.py:LandingZone.write": "files of a test's source",
}
"""Functions that write what no other version reads, each with the reason."""
