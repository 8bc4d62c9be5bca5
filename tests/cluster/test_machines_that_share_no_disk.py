"""A cluster whose driver and workers share no disk; machines are lost while it works.

The source, the state and the table are in a cloud. Driver and workers are machines of their own
(`tests/support/machines.py`), and each has an identity of its own there. A gate before the store
holds a request of a task for as long as it takes to kill the task's executor, or its machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.job.launch import JobSpec, Run, SparkSubmit, launch
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, spark_home
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import Access, to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support import laws
from tests.support.emulators.azure import Azurite
from tests.support.emulators.gcp import Gcs
from tests.support.gate import Gate, Hold, Request, gate_before
from tests.support.machine_identity import Identities, identities
from tests.support.machines import Machine, require_machines
from tests.support.standalone_cluster import StandaloneCluster
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.emulator, pytest.mark.slow]

ROWS, FILES = 60, 4
"""Of each file, and of each micro-batch; two tasks share one."""
PADDING = "x" * 40_000
CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.extraJavaOptions": COORDINATOR_JVM,
    "spark.executor.extraJavaOptions": COORDINATOR_JVM,
    "spark.driver.host": "127.0.0.2",
    "spark.driver.bindAddress": "127.0.0.2",
    # Both executors are there before the first task.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1",
    "spark.speculation.minTaskRuntime": "1s",
}


@dataclass
class Cloud:
    """A cloud behind its gate: how the test and the driver reach it."""

    gate: Gate
    root: str
    """Where source, state and table are."""
    direct: Access
    of_driver: Access


@dataclass
class Site:
    """The cluster, its machines and its clouds."""

    cluster: StandaloneCluster
    here: Machine
    driver: Machine
    workers: tuple[Machine, Machine]
    submit: Path
    gates: dict[str, Gate]
    identities: Identities
    stores: dict[str, Any]


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, aws: Any, azurite: Azurite, gcs_xml: Gcs
) -> Iterator[Site]:
    """One cluster for all clouds: a machine finds the address and its identity of each."""
    require_machines()
    root = tmp_path_factory.mktemp("machines")
    with ExitStack() as stack:
        ports = {
            "aws": int(aws.endpoint.rsplit(":", 1)[1]),
            "azure": azurite.blob_port,
            "gcp": gcs_xml.port,
        }
        gates = {name: stack.enter_context(gate_before(port)) for name, port in ports.items()}
        given = stack.enter_context(identities())
        workers = tuple(
            Machine(name, root, address, {**_of_clouds(gates, azurite), **identity})
            for name, address, identity in (
                ("worker-1", "127.0.0.3", given.environment("worker-1")),
                ("worker-2", "127.0.0.4", {"AWS_SHARED_CREDENTIALS_FILE": f"{root}/home/aws"}),
            )
        )
        _write_key(workers[1], "worker-2-0")
        here = Machine("airflow", root, "127.0.0.1")
        driver = Machine("driver", root, "127.0.0.2")
        submit = driver.script("spark-submit", [f"{spark_home()}/bin/spark-submit"])
        logs = tmp_path_factory.mktemp("cluster")
        cluster = StandaloneCluster(logs, cores=1, memory="1g", machines=workers)
        stack.enter_context(cluster)
        stores = {"aws": aws, "azure": azurite, "gcp": gcs_xml}
        yield Site(cluster, here, driver, workers, submit, gates, given, stores)  # type: ignore[arg-type]


def _of_clouds(gates: dict[str, Gate], azurite: Azurite) -> dict[str, str]:
    """What the environment of a worker says of each cloud."""
    return {
        "AWS_ENDPOINT_URL_S3": gates["aws"].endpoint,
        "AWS_REGION": "us-east-1",
        "AZURE_STORAGE_CONNECTION_STRING": str(
            azurite.access_through(gates["azure"].port).connection_string
        ),
        **to_environment(Gcs.access_through(gates["gcp"].endpoint)),
    }


def _write_key(machine: Machine, key: str) -> None:
    """Put a key on a machine that nothing renews by itself."""
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret-of-it\n"
    (machine.folder / "home" / "aws").write_text(text, encoding="utf-8")


def _cloud(site: Site, name: str) -> Cloud:
    store, gate = site.stores[name], site.gates[name]
    root = store.container() if name == "azure" else store.bucket()
    through = store.access_through(gate.port if name == "azure" else gate.endpoint)
    if isinstance(through, AwsAccess):
        through = replace(through, access_key_id="driver")
    return Cloud(gate, root, store.access, through)


class Running:
    """A run whose lines are read while it goes on."""

    def __init__(self, run: Run, ended: Future[dict[str, Any]]) -> None:
        self._run = run
        self._ended = ended

    def lose_driver(self) -> None:
        """Kill all that runs on the driver's machine, as when it loses its power."""
        supervisor = psutil.Process(self._run.pid)
        for each in (supervisor, *supervisor.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def report(self) -> dict[str, Any]:
        """Wait for its end."""
        return self._ended.result(PATIENCE_SECONDS)


class Stream:
    """One stream of the cluster."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.cloud = site, _cloud(site, name)
        self.landed: Counter[str] = Counter()
        self.lines: list[str] = []
        self._runs = 0

    def land(self, *batches: str) -> None:
        """Put the files of micro-batches there."""
        store = open_store(f"{self.cloud.root}/in", self.cloud.direct)
        for batch in batches:
            for number in range(FILES):
                ids = [f"{batch}-{number}-{row}" for row in range(ROWS)]
                lines = (json.dumps({"id": each, "padding": PADDING}) for each in ids)
                store.put(f"{batch}/{number}.json", "\n".join(lines).encode())
                self.landed.update(ids)

    @contextmanager
    def running(self, **conf: str) -> Iterator[Running]:
        """A run on the cluster; its lines are in `lines`. Nothing is held when it has ended."""
        with ThreadPoolExecutor(1) as thread:
            run = self._launch(conf)
            try:
                yield Running(run, thread.submit(run.wait))
            finally:
                run.kill()  # if it has not ended
                self.cloud.gate.release_all()
                self.site.cluster.wait_until_idle()

    def _launch(self, conf: dict[str, str]) -> Run:
        self._runs += 1
        root = self.cloud.root
        spec = JobSpec(
            kind="ingest",
            source=f"{root}/in",
            format="json",
            checkpoint_location=f"{root}/state",
            target=f"{root}/table",
            run_id=f"run-{self._runs}",
            options={"cloudFiles.maxFilesPerTrigger": str(FILES)},
        )
        how = SparkSubmit(
            master=self.site.cluster.url,
            executor_python=sys.executable,
            binary=str(self.site.submit),
            conf={**CONF, **conf},
        )
        with pytest.MonkeyPatch.context() as patch:
            # What is handed over on a disk is on the disk of this machine, which no other one has.
            patch.setattr(tempfile, "tempdir", str(self.site.here.folder / "tmp"))
            return launch(spec, how, on_log=self.lines.append, access=self.cloud.of_driver)

    def ids(self) -> list[str]:
        """Of the rows of the table, as `deltalake` alone reads them."""
        table = self._table()
        found: list[str] = table.to_pyarrow_table(columns=["id"]).column("id").to_pylist()
        return found

    def check(self, *, leftovers: int) -> None:
        """Count each row: what has landed is in the table once, and nothing else is.

        Args:
            leftovers: How many data files lost tasks have left, at least, in no version.
        """
        found = Counter(self.ids())
        assert found == self.landed, (found - self.landed, self.landed - found)
        store = open_store(f"{self.cloud.root}/table", self.cloud.direct)
        written = [each.path for each in store.list() if each.path.endswith(".parquet")]
        assert len(written) - len(self._table().file_uris()) >= leftovers

    def _table(self) -> DeltaTable:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in to_environment(self.cloud.direct).items():
                patch.setenv(name, value)
            target = f"{self.cloud.root}/table"
            options = DeltaLocation.of(target).storage_options()
            return DeltaTable(target, storage_options=options)


def _is_of(machine: Machine, request: Request) -> bool:
    """Whether an executor of a machine asks."""
    return request.who.startswith(f"{machine.name}-")


def _hold_read(stream: Stream, batch: str, machine: Machine | None = None) -> Hold:
    """Hold the next task that reads a file of a micro-batch, on a machine or anywhere."""
    machines = stream.site.workers if machine is None else (machine,)
    return stream.cloud.gate.hold(
        lambda asked: asked.reads(f"/in/{batch}/") and any(_is_of(each, asked) for each in machines)
    )


def _hold_written(stream: Stream, machine: Machine | None = None) -> Hold:
    """Hold the next task that has written a data file."""
    return stream.cloud.gate.hold(
        lambda asked: asked.writes_data and (machine is None or _is_of(machine, asked)),
        answered=True,
    )


def test_a_machine_sees_no_folder_of_another(site: Site) -> None:
    everyone = (site.here, site.driver, *site.workers)
    for machine in everyone:
        (machine.folder / f"only-{machine.name}").touch()
    root = site.here.folder.parent
    for machine in everyone:
        seen = [each.name for each in everyone if machine.has(root / f"only-{each.name}")]
        assert seen == [machine.name]
        assert not any(machine.has(each.folder) for each in everyone)


def test_on_s3_each_row_is_in_the_table_once_whatever_is_lost(site: Site) -> None:
    stream = Stream(site, "aws")
    stream.land("a", "b", "c", "d")
    with stream.running() as run:
        _lose_an_executor(stream)
        _let_credentials_expire(stream)
        _lose_a_machine(stream)
        in_d = _hold_read(stream, "d")
        in_d.wait()
        written = _hold_written(stream)
        in_d.release()
        written.wait()
        run.lose_driver()
        with pytest.raises(RunFailedError, match="before it wrote a report"):
            run.report()
    assert len(stream.ids()) == 3 * FILES * ROWS, "the batch was committed before its task ended"

    stream.land("e")
    with stream.running(**SPECULATION) as run:
        in_e = _hold_read(stream, "e")
        slow = in_e.wait().who.rpartition("-")[0]
        written = _hold_written(stream, next(m for m in site.workers if m.name == slow))
        in_e.release()
        written.wait()
        report = run.report()  # another task does its work: it is held until after the end
    assert (report["files"], report["batches"]) == (2 * FILES, 2)
    stream.check(leftovers=3)
    _check_who_writes(stream.cloud.gate.seen)


def _check_who_writes(seen: list[Request]) -> None:
    """Executors write the data files, the driver the table's log, each with its own identity."""
    written = [request for request in seen if request.method == "PUT"]
    assert not any(request.writes_data for request in written if request.who == "driver")
    by_others = [request for request in written if request.who != "driver"]
    assert by_others
    assert all(request.writes_data for request in by_others)


def _lose_an_executor(stream: Stream) -> None:
    """Kill one in the midst of its task; the task begins again on another of the same machine."""
    first, second = stream.site.workers
    lost, other = _hold_read(stream, "a", first), _hold_read(stream, "a", second)
    lost.wait()
    other.wait()
    again = _hold_read(stream, "a", first)  # the other machine has no core left
    stream.site.cluster.kill_executors(first)
    lost.release()
    again.wait()
    again.release()
    other.release()


def _let_credentials_expire(stream: Stream) -> None:
    """End those of both machines during their tasks: one's are fetched, the other's are a file."""
    first, second = stream.site.workers
    gate = stream.cloud.gate
    holds = [_hold_read(stream, "b", each) for each in (first, second)]
    for each in holds:
        each.wait()
    gate.expired.update({stream.site.identities.renew(first.name), "worker-2-0"})
    _write_key(second, "worker-2-1")
    for each in holds:
        each.release()


def _lose_a_machine(stream: Stream) -> None:
    """Kill all of one when its task has written a data file, and start it again."""
    machine = stream.site.workers[1]
    in_c = _hold_read(stream, "c", machine)
    in_c.wait()
    refused = {request.who for request in stream.cloud.gate.refused}
    assert refused == set(), "what is renewed in time is never refused"
    written = _hold_written(stream, machine)
    in_c.release()
    written.wait()
    stream.site.cluster.lose(machine)
    written.release()
    stream.site.cluster.start_worker(machine)


@pytest.mark.parametrize("name", laws.some(("azure", "gcp"), 1, name="clouds of a cluster"))
def test_on_other_clouds_a_killed_executor_costs_no_row(site: Site, name: str) -> None:
    stream = Stream(site, name)
    stream.land("a")
    written = _hold_written(stream)
    with stream.running(**{"spark.cores.max": "1"}) as run:
        written.wait()
        site.cluster.kill_executors(*site.workers)
        written.release()
        assert run.report()["rows"] == FILES * ROWS
    stream.check(leftovers=1)
