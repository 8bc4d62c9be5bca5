"""Choose where a task's Spark runs.

A Spark of the task's own, in a process beside it, unless arguments or a connection name a cluster
or a Spark Connect server. The connection is read here and not by Airflow's Spark provider, which
would bring `pyspark-client`, whose files overwrite those of `pyspark`.

Where a deferred task has its query is looked up where it is needed, in the triggerer or the worker:
a connection's token is in no argument of a trigger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.providers.common.compat.sdk import BaseHook

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import (
    LocalPython,
    LocalSpark,
    SparkConnect,
    SparkSubmit,
    remote_of,
)
from airflow_cloudfiles.engine.job.spec import refuse_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Connection

Engine = Literal["spark", "local"]
"""What carries the tasks of a run."""
DEFAULT_MASTER = "local[*]"

CONNECT_TYPE = "spark_connect"
"""The type of connection that Airflow's Spark provider has for a Spark Connect server."""
_ARGUMENTS = {"conf": "spark_conf", "conn_id": "spark_conn_id", "remote": "spark_remote"}
"""Arguments of a task that have another name here."""
_OF_SOURCES = {"spark.sql.casesensitive", "spark.sql.session.timezone"}
"""Configuration of Spark that a run without it heeds, in lower case."""
_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkArguments:
    """Where and how a task wants its Spark, as its arguments say."""

    engine: Engine = "spark"
    """`local`: processes of the worker carry the tasks, and there is no Spark."""
    master: str | None = None
    """`local[2]`, `spark://host:7077`, `yarn`, `k8s://…`; default: the connection's, or local."""
    deploy_mode: str | None = None
    """`client` or `cluster`."""
    driver_memory: str | None = None
    """Memory of the driver, such as `2g`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark configuration."""
    packages: Sequence[str] = ()
    """Maven coordinates of jars."""
    files: Sequence[str] = ()
    """Files placed in the working directory of each executor."""
    py_files: Sequence[str] = ()
    """Python files and archives for the executors' path."""
    conn_id: str | None = None
    """Airflow connection of type `spark` or `spark_connect`; arguments go before what it says."""
    remote: str | None = None
    """A Spark Connect server, `sc://host:port`, in place of everything else."""

    @property
    def is_submitted(self) -> bool:
        """Whether an argument only means something to `spark-submit`."""
        return bool(self.deploy_mode or self.packages or self.files or self.py_files)


def submission(
    spark: SparkArguments, connection: Connection | None
) -> LocalPython | LocalSpark | SparkSubmit | SparkConnect:
    """Decide how a job is started.

    Raises:
        OptionError: The connection or the configuration cannot be used.
    """
    if spark.engine != "spark":
        return _without_spark(spark)
    remote = spark.remote or _remote(connection)
    if remote:
        return _server(spark, remote)
    extra = connection.extra_dejson if connection else {}
    master = spark.master or (_master(connection) if connection else DEFAULT_MASTER)
    deploy_mode = spark.deploy_mode or _extra(extra, "deploy-mode")
    submitted = deploy_mode or spark.is_submitted
    if master.startswith("local") and not submitted:
        refuse_secrets(spark.conf)  # it is stored beside the state
        return LocalSpark(master=master, driver_memory=spark.driver_memory)
    conf = dict(spark.conf)
    for name, value in (
        ("spark.driver.memory", spark.driver_memory),
        ("spark.kubernetes.namespace", _extra(extra, "namespace")),
    ):
        if value:
            conf.setdefault(name, value)
    return SparkSubmit(
        master=master,
        deploy_mode=deploy_mode or "client",
        conf=conf,
        packages=tuple(spark.packages),
        files=tuple(spark.files),
        py_files=tuple(spark.py_files),
        queue=_extra(extra, "queue"),
        principal=_extra(extra, "principal"),
        keytab=_extra(extra, "keytab"),
        binary=_binary(_extra(extra, "spark-binary")),
    )


def _without_spark(spark: SparkArguments) -> LocalPython:
    """Choose processes of the worker, for which arguments about where Spark runs are refused.

    Raises:
        OptionError: There is such an argument, or no such engine.
    """
    if spark.engine not in get_args(Engine):
        raise OptionError(
            f"engine must be one of {', '.join(get_args(Engine))}, got {spark.engine!r}."
        )
    given = [each.name for each in fields(spark) if getattr(spark, each.name)]
    given.remove("engine")
    if not {key.lower() for key in spark.conf} - _OF_SOURCES:
        given = [name for name in given if name != "conf"]
    if names := [_ARGUMENTS.get(name, name) for name in given]:
        raise OptionError(
            f"engine='local' starts no Spark, and {', '.join(names)} is for Spark. Leave out one "
            "of them."
        )
    return LocalPython()


def _server(spark: SparkArguments, remote: str) -> SparkConnect:
    """Return a Spark Connect server, which was started with its own master, memory and jars."""
    if spark.master or spark.driver_memory or spark.is_submitted:
        raise OptionError(
            "A Spark Connect server has a master, memory, jars and files of its own: leave out "
            "master, deploy_mode, driver_memory, packages, files and py_files."
        )
    refuse_secrets(spark.conf)  # it is stored beside the state
    return SparkConnect(remote)


def _remote(connection: Connection | None) -> str | None:
    """Read the address in a Spark Connect connection, as Airflow's Spark provider writes it."""
    if connection is None or connection.conn_type != CONNECT_TYPE:
        return None
    if not connection.host:
        raise OptionError(
            f"Spark Connect connection {connection.conn_id!r} has no host. Set it to the server's, "
            "for instance sc://host."
        )
    return remote_of(
        connection.host,
        connection.port,
        user=connection.login,
        token=connection.password,
        use_ssl=connection.extra_dejson.get("use_ssl"),
    )


def _extra(extra: Mapping[str, Any], name: str) -> str | None:
    """Read a connection's extra field, which Airflow's form and older ones spell differently."""
    value = extra.get(name) or extra.get(name.replace("-", "_"))
    return str(value) if value else None


def _master(connection: Connection) -> str:
    """Build the master URL of a connection, as Airflow's Spark provider writes it.

    The host holds the scheme (`spark://host`, `k8s://https://host`, `yarn`, `local[2]`); a
    connection given as a URI has lost it, so a bare host with a port is a standalone master.
    """
    host = connection.host or ""
    if not host:
        raise OptionError(
            f"Spark connection {connection.conn_id!r} has no host. Set it to the master, for "
            "instance spark://host, yarn or k8s://https://host."
        )
    if connection.port and "://" not in host:
        return f"spark://{host}:{connection.port}"
    return f"{host}:{connection.port}" if connection.port else host


def _binary(name: str | None) -> str | None:
    """Check a connection's spark-submit: whoever edits connections may not choose any program."""
    if name is not None and name not in _BINARIES:
        raise OptionError(f"spark-binary must be one of {', '.join(_BINARIES)}; got {name!r}.")
    return name


def server_of(spark: SparkArguments) -> SparkConnect:
    """Look up the server that a task with `deferrable=True` runs on.

    Raises:
        OptionError: The arguments and the connection name none.
    """
    connection = BaseHook.get_connection(spark.conn_id) if spark.conn_id else None
    how = submission(spark, connection)
    if not isinstance(how, SparkConnect):
        raise OptionError(
            f"deferrable=True needs a Spark Connect server, and the connection {spark.conn_id!r} "
            "names none. Give a connection of type Spark Connect, or leave out deferrable."
        )
    return how


def check_deferrable(spark: SparkArguments) -> None:
    """Refuse arguments with which a task cannot defer, as far as they show when a DAG is parsed.

    Raises:
        OptionError: They name no server, or hold what a trigger must not.
    """
    if not spark.conn_id and not spark.remote:
        raise OptionError(
            "deferrable=True needs a Spark Connect server: set spark_conn_id to a connection of "
            "type Spark Connect, or spark_remote to its address. A Spark of the task's own ends "
            "with the task."
        )
    if spark.remote and SparkConnect(spark.remote).has_secrets:
        raise OptionError(
            "deferrable=True stores spark_remote in Airflow's database, and it has a token. Put "
            "the server into a connection of type Spark Connect, and name that by spark_conn_id."
        )
