"""Jobs on a Spark Connect server: results, errors and guarantees are those of a local run."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys

import psutil
import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import (
    OptionError,
    RunFailedError,
    SparkServerError,
    SparkUnreachableError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from tests.support.connect_server import (
    MANY,
    ConnectServer,
    ConnectStream,
    Wire,
    each_once,
    free_port,
    ids,
    land,
)
from tests.support.landing import drop, rows
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SMALL = {"cloudFiles.maxFilesPerTrigger": "1"}
_MAIN = """
import json, sys
from airflow_cloudfiles.engine.job.launch import JobSpec, SparkConnect, launch
remote = SparkConnect(sys.stdin.readline().strip())
for line in sys.stdin:
    report = launch(JobSpec.from_json(line), remote, on_log=sys.stderr.write).wait()
    print(json.dumps(report), flush=True)
"""


def test_every_row_arrives_once_and_neither_a_token_nor_a_checkpoint_of_spark_s_is_left(
    server, stream, tmp_path
):
    land(stream, 3)
    # Spark itself notes the token for programs with a `foreachBatch` of their own.
    earlier = len(server.log())
    begun = stream.begin(server.remote)
    until(lambda: psutil.Process(begun.run.pid).children())
    driver = begun.driver()
    shown = [*driver.cmdline(), *(word for each in driver.parents() for word in each.cmdline())]
    assert "airflow_cloudfiles.engine.job" in shown
    first = begun.end().report
    land(stream, 2, first=3)
    second = stream.run(server.remote)

    assert (first["rows"], first["batches"]) == (9, 3)
    assert (second["rows"], second["batches"]) == (6, 2)
    assert ids(stream) == each_once(5)
    said = [found[1] for line in stream.log if (found := re.search(r"Batch (\d+): 1 file\b", line))]
    assert said == ["0", "1", "2", "3", "4"]

    kept = {path.name for path in stream.state.iterdir()}
    assert kept == {"_reports", "_runs", "_schemas", "_source"}
    until(lambda: not server.checkpoints())
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(server.token in word for word in (*shown, *stream.log))
    assert not any(server.token.encode() in content for content in written)
    assert server.token not in server.log()[earlier:]


def test_a_client_without_java_ingests_infers_and_promotes(
    server, stream, bare_python, without_java
):
    """B: only `pyspark-client` is installed, and no `java` can be found."""
    has_pyspark = "import importlib.metadata as m; m.version('pyspark')"
    probe = subprocess.run([bare_python, "-c", has_pyspark], capture_output=True, check=False)
    assert b"PackageNotFoundError" in probe.stderr

    land(stream, 3, extra={"zip": 1})

    def run(*specs: JobSpec) -> list[dict[str, object]]:
        given = [server.remote, *(json.dumps(json.loads(spec.to_json())) for spec in specs)]
        ended = subprocess.run(
            [bare_python, "-W", "error", "-c", _MAIN],
            input="".join(f"{line}\n" for line in given),
            env=without_java,
            text=True,
            capture_output=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        return [json.loads(line) for line in ended.stdout.splitlines()]

    stream.options["cloudFiles.schemaEvolutionMode"] = "rescue"
    stream.options["cloudFiles.schemaHints"] = "id STRING"
    inferred, ingested = run(stream.spec("infer"), stream.spec())
    assert inferred["schema_version"] == 0
    assert ingested["rows"] == 9
    drop(stream.source, "late.json", [{"id": 9, "extra": {"zip": 2}, "color": "red"}])
    rescued, promoted = run(stream.spec(), stream.spec("promote", promote={"color": "STRING"}))
    assert rescued["rescued_rows"] == 1
    assert promoted["rows"] == 1
    assert [row["color"] for row in rows(stream.target) if row["id"] == "9"] == ["red"]


def test_a_new_column_fails_the_run_by_name_and_the_next_has_it(server, stream):
    land(stream, 2)
    stream.run(server.remote)
    land(stream, 1, first=2, color="red")

    with pytest.raises(UnknownFieldException, match="color") as caught:
        stream.run(server.remote)
    assert caught.value.is_retryable
    assert type(caught.value) is UnknownFieldException
    stream.run(server.remote)

    assert ids(stream) == each_once(3)
    assert sum(row["color"] == "red" for row in rows(stream.target)) == 3


def test_a_run_that_is_ended_stops_its_tasks_and_no_other(server, tmp_path):
    one, other = (ConnectStream(tmp_path / name, **SMALL) for name in ("one", "other"))
    land(one, 2 * MANY)  # so that it has not ended when the other one begins
    land(other, MANY)
    ended, kept = one.begin(server.remote), other.begin(server.remote)
    until(lambda: one.batches() >= 1 and other.batches() >= 1)
    ended.run.kill()

    assert isinstance(ended.end().error, RunFailedError)
    assert "stopped by signal 15" in ended.error.message
    done = one.batches()
    assert kept.end().report["rows"] == 3 * MANY
    assert one.batches() == done, "the run went on without its client"
    one.take_the_rest_at_once()
    one.run(server.remote)
    assert (ids(one), ids(other)) == (each_once(2 * MANY), each_once(MANY))


def test_a_killed_client_leaves_nothing_that_keeps_the_next_run_out(server, stream):
    land(stream, MANY)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    assert "exit code 137" in begun.end().error.message

    stream.take_the_rest_at_once()
    stream.run(server.remote)
    assert ids(stream) == each_once(MANY)


def test_runs_on_a_server_and_local_ones_take_turns(server, stream):
    for turn in range(3):
        land(stream, 1, first=turn)
        if turn == 1:
            how = LocalSpark(master="local[2]")
            launch(stream.spec(), how, on_log=stream.log.append).wait()
        else:
            stream.run(server.remote)
        assert ids(stream) == each_once(turn + 1)


def test_a_second_run_does_not_begin_while_the_first_one_goes_on(server, stream):
    land(stream, 6)
    first, second = stream.begin(server.remote), stream.begin(server.remote)
    reports = [each.end().report for each in (first, second)]

    assert sum(report["rows"] for report in reports if report) == 18
    assert ids(stream) == each_once(6)


def test_a_killed_python_worker_of_the_server_loses_nothing(server, stream):
    land(stream, MANY)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    pythons = {process.pid for process in server.pythons()}
    workers = [each for each in server.pythons() if each.ppid() in pythons]
    assert workers
    for process in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    begun.end()
    if begun.error is not None:
        assert begun.error.is_retryable
        stream.take_the_rest_at_once()
        stream.run(server.remote)

    assert ids(stream) == each_once(MANY)


def test_a_restarted_server_fails_the_run_a_retry_finishes_it_and_more_runs_add_no_process(
    tmp_path, stream
):
    land(stream, MANY)
    server = ConnectServer(tmp_path / "server", python=sys.executable)
    try:
        server.start()
        begun = stream.begin(server.remote)
        until(lambda: stream.batches() >= 1)
        server.kill()
        server.start()
        assert isinstance(begun.end().error, SparkUnreachableError), begun.error
        assert begun.error.is_retryable
        assert f"localhost:{server.port}" in begun.error.message

        stream.take_the_rest_at_once()
        counts = []
        for number in range(3):
            stream.run(server.remote)
            counts.append(len(server.pythons()))
            assert ids(stream) == each_once(MANY + number)
            land(stream, 1, first=MANY + number)
        assert counts[-1] <= counts[0], counts
    finally:
        server.stop()


def test_a_client_that_loses_its_connection_finds_its_tasks_again(server, stream):
    land(stream, MANY)
    wire = Wire(server.port)
    try:
        begun = stream.begin(server.at(wire.port))
        until(lambda: stream.batches() >= 1)
        assert wire.cut() >= 1
        wire.mend()
        assert begun.end().report["rows"] == 3 * MANY, begun.error
    finally:
        wire.close()
    assert ids(stream) == each_once(MANY)


def test_a_wrong_token_is_refused_by_name_without_showing_it(server, stream):
    land(stream, 1)
    with pytest.raises(SparkServerError, match="refuses this client") as caught:
        stream.run(server.remote.replace(server.token, "wrongtoken"))
    assert not caught.value.is_retryable
    assert not any("wrongtoken" in text for text in (caught.value.message, *stream.log))
    assert stream.run(server.remote)["rows"] == 3


def test_a_server_without_the_package_is_refused_and_the_message_says_what_to_install(
    tmp_path, stream, bare_python, monkeypatch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    land(stream, 1)
    server = ConnectServer(tmp_path / "server", python=str(bare_python), is_bare=True)
    with server, pytest.raises(SparkServerError, match="no airflow_cloudfiles") as caught:
        stream.run(server.remote)
    assert "pip install '<path>[spark,delta]'" in caught.value.message
    assert not stream.target.exists()


def test_a_server_that_is_not_there_is_a_retryable_error(stream):
    land(stream, 1)
    with pytest.raises(SparkUnreachableError, match="does not answer") as caught:
        stream.run(f"sc://127.0.0.1:{free_port()}")
    assert caught.value.is_retryable


def test_the_configuration_of_a_run_is_its_session_s_own(server, stream):
    land(stream, 1)
    stream.run(server.remote, spark_conf={"spark.sql.shuffle.partitions": "7"})
    with pytest.raises(OptionError, match=r"spark\.executor\.memory is the server's"):
        stream.run(server.remote, spark_conf={"spark.executor.memory": "1g"})
    land(stream, 1, first=1)
    with pytest.raises(OptionError, match=r"refuses the Spark configuration spark\.sql\.warehouse"):
        stream.run(server.remote, spark_conf={"spark.sql.warehouse.dir": "/"})


@pytest.mark.airflow
def test_a_connection_of_airflow_leads_to_the_server(server, stream, monkeypatch):
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.hooks.spark import SparkArguments

    given = {"conn_type": "spark_connect", "host": "localhost", "port": server.port}
    monkeypatch.setenv("AIRFLOW_CONN_SERVER", json.dumps({**given, "password": server.token}))
    land(stream, 1)
    arguments = SparkArguments(
        conn_id="server", conf={"spark.sql.session.timeZone": "Europe/Vienna"}
    )
    run = CloudFilesHook().launch(stream.spec(), arguments, on_log=stream.log.append)
    assert run.wait()["rows"] == 3


def test_the_programs_of_the_page_run(server, tmp_path, repository):
    page = (repository / "docs" / "how-to" / "spark-connect.md").read_text()
    programs = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "Operator" not in block
    ]
    calls = ["print(ingest_on(remote, root)['rows'])", "stream_on(remote, root)"]
    for name, program, call in zip("ab", programs, calls, strict=True):
        root = tmp_path / name
        drop(root / "landing", "1.json", [{"id": 1}])
        main = f"{program}\nimport sys\nremote, root = sys.argv[1:]\n{call}\n"
        subprocess.run([sys.executable, "-c", main, server.remote, root], check=True)
        assert [row["id"] for row in rows(root / "table")] == ["1"]


def test_a_command_takes_the_server_of_the_environment(server, stream, capsys, monkeypatch):
    land(stream, 2)
    monkeypatch.setenv("SPARK_REMOTE", server.remote)
    given = {
        "source": stream.source,
        "format": "json",
        "checkpoint-location": stream.state,
        "target": stream.target,
    }
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]

    assert cli.main(["ingest", "--json", *words]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rows"] == 6
    assert "Connected to the Spark Connect server" in shown.err
    assert server.token not in shown.out + shown.err
