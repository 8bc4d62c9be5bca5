"""Where does a task's Spark run?

A Spark of the task's own, in a process beside it, unless arguments or a Spark connection name a
cluster. The connection is read here and not by Airflow's Spark provider, which would bring
`pyspark-client`, whose files overwrite those of `pyspark`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import LocalSpark, SparkSubmit
from airflow_cloudfiles.engine.job.spec import refuse_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_MASTER = "local[*]"

_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


class SparkConnection(Protocol):
    """What is read of an Airflow connection of type `spark`."""

    conn_id: str
    host: str | None
    port: int | None

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """The connection's extra fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkArguments:
    """Where and how a task wants its Spark, as its arguments say."""

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
    """Airflow connection of type `spark`; arguments go before what it says."""


def submission(
    spark: SparkArguments, connection: SparkConnection | None
) -> LocalSpark | SparkSubmit:
    """Decide how a job is started.

    Raises:
        OptionError: The connection or the configuration cannot be used.
    """
    extra = connection.extra_dejson if connection else {}
    master = spark.master or (_master(connection) if connection else DEFAULT_MASTER)
    deploy_mode = spark.deploy_mode or _extra(extra, "deploy-mode")
    submitted = bool(deploy_mode or spark.packages or spark.files or spark.py_files)
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


def _extra(extra: Mapping[str, Any], name: str) -> str | None:
    """An extra field of a connection, which Airflow's form and older ones spell differently."""
    value = extra.get(name) or extra.get(name.replace("-", "_"))
    return str(value) if value else None


def _master(connection: SparkConnection) -> str:
    """The master URL of a connection, as Airflow's Spark provider writes them.

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
    """The spark-submit of a connection: whoever edits connections may not choose any program."""
    if name is not None and name not in _BINARIES:
        raise OptionError(f"spark-binary must be one of {', '.join(_BINARIES)}; got {name!r}.")
    return name
