"""`make bench-freshness`: how long after an object is written is its row visible to a reader?

Objects of one row are put one after the other, at random moments, into a local folder or a bucket
of an emulator; each row says when. A continuous query, a watched asset or a scheduled DAG ingests
them. A row is visible when the version of the table that has its data file is in the log. What
that took is read from the table afterwards, so nothing that looks takes part in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from airflow_cloudfiles.engine.discovery.services import set_up_notifications
from airflow_cloudfiles.engine.extensions.event_log.description import set_up_event_log
from airflow_cloudfiles.engine.storage.access import from_environment, to_environment
from demo.airflow_home import COMPONENTS, TRIGGERER, AirflowHome
from tests.support.aws_landing import connection
from tests.support.emulators.aws import Aws, ministack_server
from tests.support.emulators.processes import running

_PAUSE_SECONDS = (0.1, 0.9)
_WAIT_SECONDS = 120.0
_QUERY = """
import json, sys
from pyspark.sql import SparkSession
import airflow_cloudfiles

options, state, target = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
airflow_cloudfiles.register(spark)
frame = spark.readStream.format("cloudFiles").options(**options).load()
query = (
    frame.writeStream.format("deltalake").option("checkpointLocation", state)
    .trigger(processingTime="1 second").start(target)
)
query.awaitTermination()
"""
_DAG = """
import json, os
from datetime import UTC, datetime
from airflow.sdk import DAG, Asset, AssetWatcher
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger

stream = json.loads(os.environ["FRESHNESS_STREAM"])
schedule = "@continuous"
if os.environ["FRESHNESS_WATCHED"] == "yes":
    watched = {key: stream[key] for key in stream if key != "target"}
    trigger = CloudFilesTrigger(**watched, poke_interval=1)
    schedule = [Asset("landing", watchers=[AssetWatcher(name="arrivals", trigger=trigger)])]
start = datetime(2026, 1, 1, tzinfo=UTC)
with DAG("freshness", schedule=schedule, start_date=start, max_active_runs=1, catchup=False,
         is_paused_upon_creation=False):
    CloudFilesIngestOperator(task_id="ingest", engine="local", retries=0, **stream)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects land.

    Attributes:
        source: The folder or bucket, as a stream names it.
        put: Lands one object.
        environment: With which processes reach it.
        connection: With which Airflow reaches it; empty for a disk.
    """

    source: str
    put: Callable[[str, bytes], None]
    environment: Mapping[str, str]
    connection: Mapping[str, Any]


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Place]:
    """A folder of this machine."""
    landing = folder / "landing"
    landing.mkdir(parents=True)

    def put(name: str, content: bytes) -> None:
        hidden = landing / f".{name}"
        hidden.write_bytes(content)
        hidden.rename(landing / name)

    yield Place(str(landing), put, {}, {})


@contextlib.contextmanager
def bucket(folder: Path) -> Iterator[Place]:
    """A bucket of an emulator."""
    endpoint, server = ministack_server(folder / "ministack.log")
    with running(server):
        aws = Aws(endpoint)
        source = aws.bucket()
        s3, name = aws.client("s3"), source.removeprefix("s3://")

        def put(key: str, content: bytes) -> None:
            s3.put_object(Bucket=name, Key=key, Body=content)

        environment = to_environment(aws.access)
        yield Place(source, put, environment, connection(aws, "test-secret"))


@contextlib.contextmanager
def found_by(way: str, place: Place, folder: Path) -> Iterator[dict[str, str]]:
    """The options of a stream that finds its files in a way; an event log has its collector."""
    found = {"cloudFiles.format": "json", "cloudFiles.schemaHints": "id INT, written DOUBLE"}
    access = from_environment(place.environment)
    name = f"freshness-{uuid.uuid4().hex[:8]}"
    if way == "listing":
        yield found
    elif way == "sqs":
        made = set_up_notifications(place.source, name, access=access)
        yield {**found, **made.options}
    else:
        log = str(folder / "events")
        made = set_up_event_log(log, place.source, name, access=access)
        collect = ["events", "collect", "--events-location", log, "--poll-seconds", "1"]
        with _process(["-m", "airflow_cloudfiles.cli", *collect], place, folder / "collect.log"):
            yield {**found, **made.options}


@contextlib.contextmanager
def _process(arguments: Sequence[str], place: Place, log: Path) -> Iterator[None]:
    """A process of Python that reaches a place, and ends with this."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **place.environment},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


@contextlib.contextmanager
def query(place: Place, options: Mapping[str, str], folder: Path) -> Iterator[None]:
    """A continuous query that looks each second."""
    given = {**options, "path": place.source}
    arguments = ["-c", _QUERY, json.dumps(given), str(folder / "state"), str(folder / "table")]
    with _process(arguments, place, folder / "query.log"):
        yield


def _airflow(*, is_watched: bool) -> Callable[..., Any]:
    @contextlib.contextmanager
    def ingests(place: Place, options: Mapping[str, str], folder: Path) -> Iterator[None]:
        (folder / "dags").mkdir()
        (folder / "dags" / "freshness.py").write_text(_DAG, encoding="utf-8")
        stream = {
            "source": place.source,
            "format": "json",
            "checkpoint_location": str(folder / "state"),
            "target": str(folder / "table"),
            "options": {key: options[key] for key in options if key != "cloudFiles.format"},
            **({"conn_id": "landing"} if place.connection else {}),
        }
        env = {
            "FRESHNESS_STREAM": json.dumps(stream),
            "FRESHNESS_WATCHED": "yes" if is_watched else "no",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "PYTHONPATH": str(Path.cwd()),
        }
        if place.connection:
            env["AIRFLOW_CONN_LANDING"] = json.dumps(place.connection)
        with AirflowHome(
            folder / "airflow", folder / "dags", env, (*COMPONENTS, TRIGGERER)
        ) as home:
            home.wait(lambda: home.api.has_dag("freshness"), _WAIT_SECONDS, "the DAG")
            yield

    return ingests


ENGINES = {"query": query, "watcher": _airflow(is_watched=True), "dag": _airflow(is_watched=False)}
CASES = {
    "query, listing of a disk": ("query", local, "listing"),
    "query, listing of a bucket": ("query", bucket, "listing"),
    "query, SQS": ("query", bucket, "sqs"),
    "query, event log": ("query", bucket, "events"),
    "watcher, local, listing of a disk": ("watcher", local, "listing"),
    "watcher, local, SQS": ("watcher", bucket, "sqs"),
    "DAG, local, listing of a disk": ("dag", local, "listing"),
}


def freshness(table: Path) -> dict[int, float]:
    """How long after an object was written its row was visible, by its id, in seconds."""
    found: dict[int, float] = {}
    for version in sorted((table / "_delta_log").glob("*.json")):
        visible = version.stat().st_mtime
        actions = map(json.loads, version.read_text(encoding="utf-8").splitlines())
        for path in [each["add"]["path"] for each in actions if "add" in each]:
            rows = pq.read_table(table / unquote(path), columns=["id", "written"])
            for number, written in zip(*(column.to_pylist() for column in rows), strict=True):
                found[number] = visible - written
    return found


def measured(name: str, objects: int, work: Path) -> dict[str, Any]:
    """Measure one case: first an object that waits until all is at work, then the others."""
    engine, where, way = CASES[name]
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=work))
    table = folder / "table"
    with where(folder) as place:
        place.put("first.json", json.dumps({"id": -1, "written": time.time()}).encode())
        with (
            found_by(way, place, folder) as options,
            ENGINES[engine](place, options, folder),
        ):
            _wait(lambda: -1 in freshness(table), name, folder)
            time.sleep(5)
            for number in range(objects):
                time.sleep(random.uniform(*_PAUSE_SECONDS))
                row = {"id": number, "written": time.time()}
                place.put(f"{number:06}.json", json.dumps(row).encode())
                if sys.stderr.isatty():
                    print(f"\r{name}: {number + 1} of {objects}", end="", file=sys.stderr)
            _wait(lambda: len(freshness(table)) > objects, name, folder)
    seconds = sorted(value for number, value in freshness(table).items() if number >= 0)
    cuts = statistics.quantiles(seconds, n=20)
    return {
        "case": name,
        "objects": len(seconds),
        "p50": round(statistics.median(seconds), 2),
        "p95": round(cuts[18], 2),
        "most": round(seconds[-1], 2),
        "versions": len(list((table / "_delta_log").glob("*.json"))),
    }


def _wait(done: Callable[[], bool], name: str, folder: Path) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if done():
                return
        time.sleep(0.5)
    raise SystemExit(f"{name}: not all rows came within {_WAIT_SECONDS:.0f} s; see {folder}")


def main() -> None:
    """Measure what the arguments ask for, keep the result, print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness", description=__doc__)
    parser.add_argument("--objects", type=int, default=200, help="of each case; default 200")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="freshness-"))
    results = []
    for name in arguments.only:
        results.append(measured(name, arguments.objects, work))
        print(json.dumps(results[-1]), file=sys.stderr)
    about = {"when": datetime.now(tz=UTC).isoformat(), "cores": os.cpu_count()}
    kept = (
        Path(__file__).parent / "results" / f"freshness-{datetime.now(tz=UTC):%Y%m%d-%H%M%S}.json"
    )
    kept.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    print(
        "| | objects | p50 s | p95 s | most s | versions |\n| --- | --- | --- | --- | --- | --- |"
    )
    for each in results:
        print("| " + " | ".join(str(each[key]) for key in results[0]) + " |")
    print(f"\nKept as {kept}", file=sys.stderr)


if __name__ == "__main__":
    main()
