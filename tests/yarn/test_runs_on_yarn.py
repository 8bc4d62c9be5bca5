"""Runs on a real YARN: in cluster and in client mode, while containers are lost.

Source, state and table are in S3, behind a gate that holds a request of a task for as long as it
takes to kill a container.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.extensions.cluster.submission import SCRIPT, Resources, Yarn
from airflow_cloudfiles.engine.job.launch import JobSpec, Run, SparkSubmit, launch
from airflow_cloudfiles.engine.job.spark_command import spark_home
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.emulators.aws import Aws
from tests.support.gate import Gate, Hold, gate_before
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yarn_cluster import DRIVER, EXECUTOR, OF_THIS_MACHINE, YarnCluster

pytestmark = [pytest.mark.spark, pytest.mark.emulator, pytest.mark.slow]

SMALL = Resources(executors=1, memory="512m", driver_memory="512m")
ROWS, FILES = 50, 4


class Stream:
    """A stream whose runs are on YARN."""

    def __init__(self, yarn: YarnCluster, packed: str, gate: Gate, aws: Aws, folder: Path) -> None:
        self.yarn, self.packed, self.gate, self.folder = yarn, packed, gate, folder
        self.root = aws.bucket()
        self.lines: list[str] = []
        self.landed: Counter[str] = Counter()
        keys = folder / "keys"
        keys.write_text("[default]\naws_access_key_id = node\naws_secret_access_key = s\n")
        self.of_nodes = {
            "AWS_ENDPOINT_URL_S3": gate.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        }

    def land(self, name: str, **more: str) -> None:
        """Put files there."""
        store = open_store(f"{self.root}/in")
        for number in range(FILES):
            ids = [f"{name}-{number}-{row}" for row in range(ROWS)]
            lines = "".join(json.dumps({"id": each, **more}) + "\n" for each in ids)
            store.put(f"{name}-{number}.json", lines.encode())
            self.landed.update(ids)

    def spec(self, run_id: str) -> JobSpec:
        """What a run is to do; its application has the name of the stream, too."""
        return JobSpec(
            kind="ingest",
            source=f"{self.root}/in",
            format="json",
            checkpoint_location=f"{self.root}/state",
            target=f"{self.root}/table",
            run_id=self.run_id(run_id),
        )

    def run_id(self, run_id: str) -> str:
        """Tell its runs from those of other tests."""
        return f"{run_id}-{self.root[-8:]}"

    def name(self, run_id: str) -> str:
        """What YARN calls the application of a run."""
        return f"cloudfiles-{self.run_id(run_id)}"

    def submit(self, run_id: str, **conf: str) -> subprocess.CompletedProcess[str]:
        """Start what `cloudfiles cluster yarn` writes, as a person does."""
        cluster = Yarn(
            archive=self.packed,
            resources=SMALL,
            environment=self.of_nodes,
            conf={**OF_THIS_MACHINE, **conf},
        )
        folder = self.folder / run_id
        cluster.submission(self.spec(run_id)).write(folder)
        return subprocess.run(
            [folder / SCRIPT],
            env={
                **self.yarn.environment(),
                "PATH": f"{spark_home()}/bin:{os.environ['PATH']}",
                "HOME": str(self.folder),
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def launch(self, run_id: str, **conf: str) -> Run:
        """Start a run in cluster mode as a task does."""
        cluster = Yarn(
            archive=self.packed,
            resources=SMALL,
            environment=self.of_nodes,
            conf={**OF_THIS_MACHINE, **conf},
        )
        how = SparkSubmit(
            master="yarn",
            deploy_mode="cluster",
            archives=(f"{self.packed}#env",),
            conf=cluster.spark_conf(),
            executor_python="./env/bin/python",
            env=self.yarn.environment(),
        )
        return launch(self.spec(run_id), how, on_log=self.lines.append)

    def hold_written(self) -> Hold:
        """Hold the next executor that has written a data file, before it knows."""
        return self.gate.hold(lambda asked: asked.writes_data, answered=True)

    def report(self, run_id: str) -> dict[str, Any]:
        """What the state has of how a run went."""
        found: dict[str, Any] = json.loads(
            open_store(f"{self.root}/state").get(f"_reports/{self.run_id(run_id)}.json")
        )
        return found

    def check(self, *, leftovers: int = 0) -> None:
        """Count each row: what has landed is in the table once, and nothing else is.

        Args:
            leftovers: How many data files lost tasks have left, at least, in no version.
        """
        location = DeltaLocation.of(f"{self.root}/table")
        table = DeltaTable(location.table_uri, storage_options=location.storage_options())
        found = Counter(table.to_pyarrow_table(columns=["id"]).column("id").to_pylist())
        assert found == self.landed, (found - self.landed, self.landed - found)
        written = [e for e in open_store(f"{self.root}/table").list() if "part-" in e.path]
        assert len(written) - len(table.file_uris()) >= leftovers


@pytest.fixture
def stream(
    yarn: YarnCluster, packed: str, aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stream]:
    """One with files, in a bucket of its own."""
    for name, value in {**to_environment(aws.access), **yarn.environment()}.items():
        monkeypatch.setenv(name, value)
    with gate_before(int(aws.endpoint.rsplit(":", 1)[1])) as gate:
        made = Stream(yarn, packed, gate, aws, tmp_path)
        made.land("a")
        yield made


@contextmanager
def _meanwhile(stream: Stream, *work: Any, **conf: str) -> Iterator[Future[Any]]:
    """Do something in a thread; nothing is held when the block has ended."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(*work, **conf)
        finally:
            stream.gate.release_all()


def test_a_lost_container_costs_no_row(stream: Stream) -> None:
    """In cluster mode, with the package in an archive, from the script of `cluster yarn`."""
    written = stream.hold_written()
    with _meanwhile(stream, stream.submit, "lost") as submitted:
        written.wait()
        drivers = {each.cmdline()[0] for each in stream.yarn.containers("__main__.py")}
        assert "./env/bin/python" in drivers, "that of the archive"
        stream.yarn.kill(EXECUTOR)
        written.release()
        done = submitted.result(PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout[-3000:]
    application = stream.yarn.ended(stream.name("lost"))
    assert application["finalStatus"] == "SUCCEEDED"
    assert stream.report("lost")["rows"] == FILES * ROWS
    stream.check(leftovers=1)
    said = stream.yarn.logs(application["id"])
    assert f"{FILES * ROWS} rows" in said, "the log of the driver is with YARN"
    containers = set(re.findall(r"container_\d+_\d+_\d+_\d+", said))
    assert len(containers) == 3, "of the driver, the executor that was lost, and the one after it"


def test_a_killed_application_master_is_started_again_by_yarn(stream: Stream) -> None:
    written = stream.hold_written()
    conf = {"spark.yarn.maxAppAttempts": "2"}
    with _meanwhile(stream, lambda: stream.launch("twice", **conf).wait()) as ended:
        written.wait()
        stream.yarn.kill(DRIVER)
        written.release()
        report = ended.result(PATIENCE_SECONDS)
    assert report["rows"] == FILES * ROWS
    application = stream.yarn.ended(stream.name("twice"))
    assert application["finalStatus"] == "SUCCEEDED"
    assert stream.yarn.attempts(application["id"]) == 2
    stream.check(leftovers=1)


def test_a_run_that_lost_its_application_master_is_finished_by_the_next(stream: Stream) -> None:
    written = stream.hold_written()
    with _meanwhile(stream, lambda: stream.launch("first").wait()) as ended:
        written.wait()
        stream.yarn.kill(DRIVER)
        written.release()
        # The container is killed process by process: Python may have the time to say so.
        with pytest.raises(RunFailedError, match=r"before it wrote a report|JVM has ended"):
            ended.result(PATIENCE_SECONDS)
    application = stream.yarn.ended(stream.name("first"))
    assert application["finalStatus"] == "FAILED"
    assert stream.yarn.attempts(application["id"]) == 1, "a retry is Airflow's"
    stream.land("b")
    assert stream.launch("second").wait()["rows"] == 2 * FILES * ROWS
    stream.check(leftovers=1)


@pytest.mark.airflow
def test_an_operator_runs_its_driver_here_and_its_tasks_on_yarn(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In client mode, through a connection of Airflow."""
    from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator

    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "spark", "host": "yarn"}))
    cluster = Yarn(
        python=sys.executable,
        deploy_mode="client",
        resources=SMALL,
        environment={**stream.of_nodes, "PYTHONPATH": str(Path.cwd())},
        conf=OF_THIS_MACHINE,
    )
    ingest = CloudFilesIngestOperator(
        task_id="ingest",
        source=f"{stream.root}/in",
        format="json",
        checkpoint_location=f"{stream.root}/state",
        target=f"{stream.root}/table",
        spark_conn_id="lake",
        spark_conf=cluster.spark_conf(),
    )

    def execute(number: int) -> dict[str, Any]:
        run_id = stream.run_id("r")
        ti = SimpleNamespace(
            dag_id="d", run_id=run_id, task_id="ingest", map_index=-1, try_number=number
        )
        found: dict[str, Any] = ingest.execute({"ti": ti})  # type: ignore[typeddict-item]
        return found

    assert execute(1)["rows"] == FILES * ROWS
    name = f"cloudfiles-d.{stream.run_id('r')}.ingest.1"
    assert stream.yarn.ended(name)["finalStatus"] == "SUCCEEDED"
    stream.check()
