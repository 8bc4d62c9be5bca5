"""Where Spark runs follows from the task's arguments and its Spark connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.launch import (
    LocalPython,
    LocalSpark,
    SparkConnect,
    SparkSubmit,
)
from airflow_cloudfiles.hooks.spark import SparkArguments, submission

pytestmark = pytest.mark.airflow


def _connection(host: str | None, port: int | None = None, **extra: str) -> Connection:
    return Connection(
        conn_id="spark", conn_type="spark", host=host, port=port, extra=json.dumps(extra)
    )


def test_spark_runs_beside_the_task_unless_configured_otherwise() -> None:
    assert submission(SparkArguments(), None) == LocalSpark(master="local[*]")
    two = SparkArguments(master="local[2]", driver_memory="2g")
    assert submission(two, None) == LocalSpark(master="local[2]", driver_memory="2g")


def test_the_engine_local_starts_no_spark() -> None:
    assert submission(SparkArguments(engine="local"), None) == LocalPython()
    zone = {"spark.sql.session.timeZone": "UTC"}
    assert submission(SparkArguments(engine="local", conf=zone), None) == LocalPython()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"master": "yarn"}, "master"),
        ({"conn_id": "spark"}, "spark_conn_id"),
        ({"remote": "sc://host"}, "spark_remote"),
        ({"conf": {"spark.executor.memory": "2g"}}, "spark_conf"),
        ({"driver_memory": "1g", "packages": ["a:b:1"]}, "driver_memory, packages"),
    ],
)
def test_the_engine_local_refuses_what_is_for_spark(given: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=f"starts no Spark, and {named} is for Spark"):
        submission(SparkArguments(engine="local", **given), None)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(OptionError, match="engine must be one of spark, local, got 'duckdb'"):
        submission(SparkArguments(engine="duckdb"), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "port", "master"),
    [
        ("spark://host", 7077, "spark://host:7077"),
        ("host", 7077, "spark://host:7077"),  # what is left of spark://host:7077 as a URI
        ("yarn", None, "yarn"),
        ("k8s://https://host", 6443, "k8s://https://host:6443"),
        ("k8s://https://host:6443", None, "k8s://https://host:6443"),
    ],
)
def test_a_connection_names_the_master(host: str, port: int | None, master: str) -> None:
    how = submission(SparkArguments(conn_id="spark"), _connection(host, port))
    assert isinstance(how, SparkSubmit)
    assert (how.master, how.deploy_mode) == (master, "client")


def test_a_connection_written_as_a_uri_names_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OURS", "spark://host:7077?deploy-mode=cluster&queue=q")
    how = submission(SparkArguments(conn_id="ours"), Connection.get("ours"))
    assert isinstance(how, SparkSubmit)
    assert (how.master, how.deploy_mode, how.queue) == ("spark://host:7077", "cluster", "q")


def test_a_local_connection_starts_no_spark_submit() -> None:
    how = submission(SparkArguments(conn_id="spark"), _connection("local[1]"))
    assert how == LocalSpark(master="local[1]")


def test_arguments_go_before_the_connection() -> None:
    arguments = SparkArguments(
        conn_id="spark",
        master="yarn",
        deploy_mode="client",
        driver_memory="3g",
        conf={"spark.executor.memory": "4g"},
        packages=["a:b:1"],
        files=["/f"],
        py_files=["/p.zip"],
    )
    connection = _connection(
        "spark://host", 7077, **{"deploy-mode": "cluster", "namespace": "ns", "principal": "me"}
    )
    assert submission(arguments, connection) == SparkSubmit(
        master="yarn",
        deploy_mode="client",
        conf={
            "spark.executor.memory": "4g",
            "spark.driver.memory": "3g",
            "spark.kubernetes.namespace": "ns",
        },
        packages=("a:b:1",),
        files=("/f",),
        py_files=("/p.zip",),
        principal="me",
    )


@pytest.mark.parametrize("binary", ["/tmp/evil", "spark-submit; rm -r /", "python"])
def test_a_connection_may_not_choose_any_program(binary: str) -> None:
    connection = _connection("yarn", **{"spark-binary": binary})
    with pytest.raises(OptionError, match="spark-binary"):
        submission(SparkArguments(conn_id="spark"), connection)


def test_a_connection_may_choose_a_spark_submit_by_name() -> None:
    how = submission(SparkArguments(), _connection("yarn", **{"spark-binary": "spark3-submit"}))
    assert isinstance(how, SparkSubmit)
    assert how.binary == "spark3-submit"


def test_a_connection_without_a_host_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="'spark' has no host"):
        submission(SparkArguments(conn_id="spark"), _connection(None))


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.in.lake.blob.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
    ],
)
def test_credentials_are_not_stored_beside_the_state(key: str) -> None:
    arguments = SparkArguments(conf={key: "hush"})
    with pytest.raises(OptionError, match="looks like a credential") as refused:
        submission(arguments, None)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        "spark.io.encryption.enabled",
        "spark.io.encryption.keySizeBits",
        "spark.hadoop.fs.gs.auth.service.account.json.keyfile",
        "spark.hadoop.fs.azure.account.auth.type",
    ],
)
def test_a_configuration_that_only_sounds_secret_is_taken(key: str) -> None:
    assert submission(SparkArguments(conf={key: "x"}), None)


def _server(host: str | None, **fields: object) -> Connection:
    return Connection(conn_id="server", conn_type="spark_connect", host=host, **fields)


@pytest.mark.parametrize(
    ("connection", "remote"),
    [
        (_server("sc://host", port=15003), "sc://host:15003/"),
        (_server("host"), "sc://host/"),
        (
            _server("host", login="me", password="a/b;c", extra='{"use_ssl": true}'),
            "sc://host/;user_id=me;token=a%2Fb%3Bc;use_ssl=true",
        ),
    ],
)
def test_a_connect_connection_names_a_server(connection: Connection, remote: str) -> None:
    how = submission(SparkArguments(conn_id="server"), connection)
    assert how == SparkConnect(remote)


def test_a_connect_connection_written_as_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OURS", "spark-connect://me:secret@host:15003?use_ssl=True")
    how = submission(SparkArguments(conn_id="ours"), Connection.get("ours"))
    assert how == SparkConnect("sc://host:15003/;user_id=me;token=secret;use_ssl=True")
    assert "secret" not in repr(how)


def test_an_argument_names_a_server_and_goes_before_the_connection() -> None:
    arguments = SparkArguments(conn_id="spark", remote="sc://other")
    assert submission(arguments, _connection("yarn")) == SparkConnect("sc://other")


@pytest.mark.parametrize(
    "arguments",
    [{"master": "yarn"}, {"driver_memory": "2g"}, {"packages": ["a:b:1"]}, {"files": ["/f"]}],
)
def test_what_only_a_driver_takes_is_refused_for_a_server(arguments: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="leave out master"):
        submission(SparkArguments(remote="sc://host", **arguments), None)


def test_a_connect_connection_without_a_host_is_refused() -> None:
    with pytest.raises(OptionError, match="'server' has no host"):
        submission(SparkArguments(conn_id="server"), _server(None))
