"""Plain PySpark over Spark Connect: the documented snippets, and the errors of a server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.spark.fork_server import launcher
from tests.support import laws
from tests.support.connect_server import ConnectServer, ConnectStream, each_once, ids, land
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_BEGIN = """
import contextlib, io, json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import airflow_cloudfiles

spark = SparkSession.builder.remote(remote).create()
airflow_cloudfiles.register(spark)

def reader(**options):
    return spark.readStream.format("cloudFiles").options(**{"cloudFiles.format": "json", **options})

def write(frame, name="table"):
    return (
        frame.writeStream.format("deltalake")
        .option("checkpointLocation", str(root / "state"))
        .option("mergeSchema", "true")
        .trigger(availableNow=True)
        .start(str(root / name))
    )

def is_direct(query):
    # The plan of its last micro-batch has what tasks have written, and no rows.
    with contextlib.redirect_stdout(io.StringIO()) as said:
        query.explain()
    return "written_by_task" in said.getvalue()

def caught(call):
    try:
        call()
    except Exception as error:
        return [[kind.__name__ for kind in type(error).__mro__], str(error)]
"""


_PROCESS = """
import contextlib, json, sys, traceback
from pathlib import Path

def carry_out(remote, root, program):
    names = {"__name__": "program", "remote": remote, "root": Path(root)}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(program, names)
        return {"found": names["found"]}
    except BaseException:
        return {"failed": traceback.format_exc()}

for line in sys.stdin:
    print(json.dumps(carry_out(*json.loads(line))), flush=True)
"""
Runs = Callable[..., Any]


@contextlib.contextmanager
def _process(folder: Path, python: Path | str = sys.executable) -> Iterator[Runs]:
    """A process that carries out programs of users, each with a session of its own."""
    # A file, since pyspark-client takes `python -c` for its own doctests.
    program, log = folder / "process.py", folder / "process.log"
    program.write_text(_PROCESS)
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [python, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def run(server: ConnectServer, root: Path, body: str) -> Any:
            """Run a program; give what it assigns to `found`."""
            program = f"{_BEGIN}\n{body}\nspark.stop()"
            print(json.dumps([server.remote, str(root), program]), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline() or "{}")
            assert "found" in answer, answer.get("failed") or log.read_text()[-3000:]
            return answer["found"]

        try:
            yield run
        finally:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Run a program in a process that other tests use, too: PySpark is imported once."""
    with _process(tmp_path_factory.mktemp("programs")) as runs:
        yield runs


def test_a_checkpoint_is_given_once_and_a_retry_has_the_new_column(server, tmp_path, run):
    drop(tmp_path / "in", "1.json", [{"id": 1}])
    body = """
frame = reader().load(str(root / "in"))
query = write(frame.where("id is not null").select("*"))
query.awaitTermination()
(root / "in" / "2.json").write_text(json.dumps({"id": 2, "color": "red"}))
query = write(reader().load(str(root / "in")))
found = [frame.schema.simpleString(), caught(query.awaitTermination)]
write(reader().load(str(root / "in"))).awaitTermination()
batch = spark.read.format("cloudFiles").option("cloudFiles.format", "json").schema("id INT")
batch = batch.option("cloudFiles.metadataColumns", "file_name").load(str(root / "in"))
found.append(sorted(list(row) for row in batch.collect()))
"""
    schema, (kinds, message), batch = run(server, tmp_path, body)

    assert batch == [[1, "1.json"], [2, "2.json"]]

    assert schema == "struct<id:string,_rescued_data:string>"
    assert "UnknownFieldException" in kinds
    assert "StreamingQueryException" in kinds
    assert '{"color":"red"}' in message
    found = sorted((row["id"], row["color"]) for row in rows(tmp_path / "table"))
    assert found == [("1", None), ("2", "red")]


def test_a_given_schema_gets_the_rescued_data_and_a_table_below_the_source_is_no_source(
    server, tmp_path, run
):
    drop(tmp_path, "1.json", [{"id": 1, "other": 2}])
    body = """
for _ in range(2):
    rescue = {"cloudFiles.schemaEvolutionMode": "rescue"}
    rescue["cloudFiles.metadataColumns"] = "file_name"
    frame = reader(**rescue).schema("id INT").load(str(root))
    write(frame).awaitTermination()
found = frame.schema.simpleString()
"""
    given = "struct<id:int,_rescued_data:string,file_name:string>"
    assert run(server, tmp_path, body) == given
    (row,) = rows(tmp_path / "table")
    assert (row["id"], row["file_name"]) == (1, "1.json")
    assert json.loads(row["_rescued_data"])["other"] == 2


_REFUSED = {
    'reader(**{"cloudFiles.formats": "x"}).load(str(root))': (
        "UnknownOptionError",
        "cloudFiles.formats",
    ),
    'reader().load(str(root / "nothing"))': ("SourceNotFoundError", "nothing"),
    'write(given("id INT").union(given("id INT")))': ("OptionError", "several cloudFiles sources"),
    'to_table(given("id INT")).start(str(root / "t"))': (
        "OptionError",
        "needs .option('checkpointLocation'",
    ),
    """to_table(given("id INT")).option("checkpointLocation", str(root / "s"))
    .clusterBy("id").start(str(root / "t"))""": ("OptionError", "cannot write clustered"),
}
"""What a user writes, and the error's class and a part of its message."""


def test_an_error_is_ours_by_class_and_message(server, tmp_path, run):
    calls = "\n".join(f"found.append(caught(lambda: {body}))" for body in _REFUSED)
    body = f"""
def given(schema):
    return reader().schema(schema).load(str(root))

def to_table(frame):
    return frame.writeStream.format("deltalake")

found = []
{calls}
"""
    found = run(server, tmp_path, body)
    assert len(found) == len(_REFUSED)
    for (kinds, text), (kind, message) in zip(found, _REFUSED.values(), strict=True):
        assert kind in kinds, text
        assert message in text


def test_another_version_of_the_package_or_of_python_is_refused_by_name(server, tmp_path, run):
    drop(tmp_path / "in", "1.json", [{"id": 1}])
    body = """
from airflow_cloudfiles.engine.spark import connect
version, connect.__version__ = connect.__version__, "0.0.9"
found = [caught(lambda: reader().load(str(root / "in")))]
connect.__version__ = version
own, sys.version_info = sys.version_info, (3, 99, *sys.version_info[2:])
try:
    airflow_cloudfiles.register(spark)
    found.append(caught(lambda: reader().load(str(root / "in"))))
finally:
    sys.version_info = own
"""
    (version, refused), (python, other) = run(server, tmp_path, body)

    assert version[0] == python[0] == "SparkServerError"
    assert "has airflow_cloudfiles 0.1.0, the client has 0.0.9" in refused
    assert "the client Python 3.99" in other
    assert f"runs Python {sys.version_info[0]}.{sys.version_info[1]}" in other
    assert not (tmp_path / "state").exists()


def test_a_view_and_a_configuration_are_seen_by_their_own_session_only(server, tmp_path, run):
    drop(tmp_path / "in", "1.json", [{"id": 1}])
    body = """
reader(**{"checkpointLocation": str(root / "state")}).load(
    str(root / "in")
).createTempView("landed")
spark.conf.set("spark.sql.shuffle.partitions", "7")
write(spark.sql("SELECT id FROM landed")).awaitTermination()
other = SparkSession.builder.remote(remote).create()
found = [other.catalog.tableExists("landed"), other.conf.get("spark.sql.shuffle.partitions")]
other.stop()
"""
    assert run(server, tmp_path, body) == [False, "2"]
    assert rows(tmp_path / "table") == [{"id": "1"}]


def test_the_older_client_alone_does_the_same(
    server, tmp_path, bare_python, monkeypatch, repository
):
    monkeypatch.setenv("PYTHONPATH", str(repository))
    drop(tmp_path / "in", "1.json", [{"id": 1}])
    body = """
import pyspark
query = write(reader().load(str(root / "in")))
query.awaitTermination()
found = pyspark.__version__
"""
    with _process(tmp_path, bare_python) as run:
        assert run(server, tmp_path, body).startswith("4.")
    assert rows(tmp_path / "table") == [{"id": "1", "_rescued_data": None}]


def test_a_plain_query_does_not_read_again_what_jobs_have_ingested(server, tmp_path, run):
    """Spark's checkpoint knows nothing of jobs, and another sink would have their rows twice."""
    stream = ConnectStream(tmp_path)
    land(stream, 2)
    body = """
(
    reader().load(str(root / "in")).writeStream.format("json")
    .option("checkpointLocation", str(root / "state")).trigger(availableNow=True)
    .start(str(root / "other"))
)
"""
    for _ in range(2):  # before it has a checkpoint, and when it has one
        stream.run(server.remote)
        kinds, message = run(
            server, tmp_path, f"found = caught(lambda: {body.strip()}.awaitTermination())"
        )
        assert "StateConflictError" in kinds
        assert "run the job in its place" in message
        assert not list((tmp_path / "other").glob("*.json"))
        land(stream, 1, first=2)
    stream.run(server.remote)
    assert ids(stream) == each_once(3)


def test_jobs_go_on_behind_a_plain_query_and_it_may_repeat_its_batch(server, tmp_path, run):
    stream = ConnectStream(tmp_path)
    land(stream, 1)
    plain = 'write(reader().load(str(root / "in"))).awaitTermination()\nfound = None'
    run(server, tmp_path, plain)
    (tmp_path / "state" / "commits" / "0").unlink()
    (tmp_path / "state" / "commits" / ".0.crc").unlink()
    land(stream, 1, first=1)
    run(server, tmp_path, plain)
    assert ids(stream) == each_once(2)
    land(stream, 1, first=2)
    assert stream.run(server.remote)["rows"] == 3
    assert ids(stream) == each_once(3)


_CHANGES = {
    "frame": True,
    'frame.select("C", "a")': True,
    'frame.select("*")': True,
    'frame.drop("b", "_rescued_data").drop(f.col("c"))': True,
    'frame.withColumnRenamed("b", "B2").alias("q").withColumn("A", f.col("c"))': True,
    'frame.select(f.col("a").cast("string").alias("z"), frame["c"], "`b`")': True,
    'frame.toDF("p", "q", "r", "s")': True,
    'frame.withColumnsRenamed({"a": "x", "b": "a", "x": "y"})': True,
    'frame.select(f.col("a").cast("long"))': False,
    'frame.withColumn("a", f.upper("a"))': False,
    'frame.where("a > 0")': False,
    'frame.dropDuplicates(["a"])': False,
    'frame.select("*", f.lit(1).alias("one"))': False,
}
"""What a query does with a frame, and whether its tasks write what they read."""


def test_the_rows_of_a_query_pass_only_where_they_must(server, tmp_path, run):
    drop(tmp_path / "in", "1.json", [{"a": "1", "b": "x", "c": "2"}, {"a": "3", "b": "y"}])
    always = ("frame", 'frame.where("a > 0")')
    changes = laws.some([*_CHANGES], 4, name="rows over Connect", always=always)
    body = f"""
from pyspark.sql import functions as f
batch = spark.read.format("cloudFiles").option("cloudFiles.format", "json")
batch = batch.load(str(root / "in"))
found = []
for number, change in enumerate({changes!r}):
    state = root / f"state-{{number}}"
    frame = eval(change, {{"f": f, "frame": reader().load(str(root / "in"))}})
    writer = frame.writeStream.format("deltalake").option("checkpointLocation", str(state))
    query = writer.trigger(availableNow=True).start(str(root / str(number)))
    ended = caught(query.awaitTermination)
    wanted = [row.asDict() for row in eval(change, {{"f": f, "frame": batch}}).collect()]
    count = query.lastProgress.numInputRows
    found.append([change, ended, is_direct(query), count, frame.schema.names, wanted])
"""
    seen = run(server, tmp_path, body)
    assert [(change, direct) for change, _, direct, *_ in seen] == [
        (change, _CHANGES[change]) for change in changes
    ]
    for number, (change, ended, _, count, names, wanted) in enumerate(seen):
        assert (ended, count) == (None, 2), change
        found = rows(tmp_path / str(number))
        assert list(found[0]) == names
        assert sorted(map(str, found)) == sorted(map(str, wanted))


def test_a_new_column_leaves_no_file_of_the_others(server, tmp_path, run):
    source, target = tmp_path / "in", tmp_path / "table"
    drop(source, "1.json", [{"a": "1"}])
    body = """
query = write(reader().load(str(root / "in")))
found = [caught(query.awaitTermination), is_direct(query)]
"""
    assert run(server, tmp_path, body) == [None, True]
    drop(source, "2.json", [{"a": "x" * 100}] * 60_000)
    drop(source, "3.json", [{"a": "y" * 100}] * 60_000 + [{"a": "3", "b": "new"}])
    (kinds, message), _ = run(server, tmp_path, body)
    assert "UnknownFieldException" in kinds
    assert "3.json" in message
    names = {Path(uri).name for uri in DeltaTable(str(target)).file_uris()}
    assert {each.name for each in target.rglob("*.parquet")} == names
    assert run(server, tmp_path, body) == [None, True]
    assert len(rows(target)) == 120_002


_DIRECT = """
query = write(reader().load(str(root / "in")))
found = caught(query.awaitTermination) is None
"""
_LATE = """#!/bin/sh
case "$*" in
*foreach_batch_worker*) if rm {order} 2>/dev/null; then sleep 12; fi ;; # Spark waits for ten
esac
exec {python} "$@"
"""


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConnectServer, Path]]:
    """A server and its folder: `order` names where its Python dies, `late` has it start late."""
    folder = tmp_path_factory.mktemp("disturbed")
    python = folder / "python"
    python.write_text(_LATE.format(order=folder / "late", python=launcher() or sys.executable))
    python.chmod(0o700)
    environment = {CRASH_AT: f"@{folder / 'order'}"}
    with ConnectServer(folder / "server", python=str(python), environment=environment) as server:
        yield server, folder


def test_each_row_is_there_once_where_the_process_that_commits_is_killed(disturbed, tmp_path, run):
    killed, folder = disturbed
    order, points = folder / "order", ("before-read", "before-sink-commit", "after-sink-commit")
    for number, point in enumerate(points):
        drop(tmp_path / "in", f"{number}.json", [{"id": str(number)}] * 3)
        order.write_text(point)
        assert not run(killed, tmp_path, _DIRECT)
        assert not order.exists(), "nobody was killed"
        assert run(killed, tmp_path, _DIRECT)
        kept = Counter(row["id"] for row in rows(tmp_path / "table"))
        assert kept == {str(each): 3 for each in range(number + 1)}


def test_a_query_starts_again_where_the_servers_python_was_too_slow(disturbed, tmp_path, run):
    server, folder = disturbed
    drop(tmp_path / "in", "1.json", [{"id": "1"}])
    (folder / "late").touch()
    assert run(server, tmp_path, _DIRECT)
    assert not (folder / "late").exists(), "nobody was late"
    assert [row["id"] for row in rows(tmp_path / "table")] == ["1"]


def test_rows_pass_where_the_server_lacks_what_its_functions_need(tmp_path, run):
    (tmp_path / "lacks").mkdir()
    (tmp_path / "lacks" / "grpc.py").write_text("raise ImportError('grpc is not installed')\n")
    drop(tmp_path / "in", "1.json", [{"id": "1"}])
    body = """
query = write(reader().load(str(root / "in")))
found = [caught(query.awaitTermination), is_direct(query)]
"""
    path = os.pathsep.join([str(tmp_path / "lacks"), os.environ.get("PYTHONPATH", "")])
    own = {"python": sys.executable, "environment": {"PYTHONPATH": path}}
    with ConnectServer(tmp_path / "server", **own) as plain:
        assert run(plain, tmp_path, body) == [None, False]
    assert [row["id"] for row in rows(tmp_path / "table")] == ["1"]
