"""How long does it take from an object in a bucket until Airflow has a run for it?"""

from __future__ import annotations

import logging
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo.airflow_home import AirflowHome

_log = logging.getLogger(__name__)


def log_wake_up(airflow: AirflowHome, dag_id: str, run_id: str, put: datetime) -> None:
    """Log the seconds from an object to the event of its asset, to the run, and to the run's start.

    They come in this order, after the object and before the run has ended.

    Args:
        airflow: A real Airflow.
        dag_id: The DAG that its arrival starts.
        run_id: The run that it has started, which has ended.
        put: When it was about to be put.
    """
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"
    run = airflow.api.call("GET", path)
    [event] = airflow.api.call("GET", f"{path}/upstreamAssetEvents")["asset_events"]
    moments = (event["timestamp"], run["queued_at"], run["start_date"], run["end_date"])
    seconds = [(datetime.fromisoformat(each) - put).total_seconds() for each in moments]
    assert all(before <= after for before, after in pairwise((0.0, *seconds))), seconds
    words = "the event after %.1f s, the run after %.1f s, started after %.1f s, ended after %.1f s"
    _log.warning("Of an object: " + words, *seconds)
