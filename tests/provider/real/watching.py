"""Two DAGs of `test_real_airflow.py` whose folders share an event log, as soon as there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_cloudfiles.triggers.file_events import CloudFilesEventsTrigger

WATCHED = Path(os.environ["STREAMS_ROOT"]) / "watched.json"

if WATCHED.exists():
    given = json.loads(WATCHED.read_text(encoding="utf-8"))
    for folder in ("orders", "clicks"):
        arrival = CloudFilesEventsTrigger(
            events_location=given["log"],
            source=f"{given['bucket']}/{folder}",
            conn_id="landing",
            poke_interval=2,
        )
        asset = Asset(folder, watchers=[AssetWatcher(name=folder, trigger=arrival)])
        with DAG(f"watches_{folder}", schedule=[asset]):

            @task
            def told(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
                """What the events say that started the run."""
                return [each.extra for found in triggering_asset_events.values() for each in found]

            told()
