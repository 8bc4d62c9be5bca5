"""A run of a stream, in a process of its own: `python stream_process.py FOLDER OPTIONS`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from airflow_cloudfiles.engine.discovery.listing.state import load_state
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested

stream = Ingested(Path(sys.argv[1]), **json.loads(sys.argv[2]))
stream.run()
upkeep.after_run(str(stream.state), compacts=True, least=1, sweeps=True, retention_seconds=60)
print(json.dumps([time.time(), load_state(open_store(str(stream.state))).full_started]))  # noqa: T201
