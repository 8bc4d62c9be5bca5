"""How is a run submitted to YARN?

The nodes have this package, or get it as a packed environment. Driver and executors have the
identity of their nodes in the cloud (an instance profile, a managed identity, a service account).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cloudfiles.engine.cluster.submission import Resources, Submission
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec

_UNPACKED = "env"
"""Name of the folder in which a packed environment is, below a container's working directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """A cluster of YARN, and how a run is to be there.

    Attributes:
        python: Of the nodes, with this package; not with `archive`.
        archive: URI of an environment that `venv-pack` has packed, which each container unpacks.
        deploy_mode: `cluster`: the driver is in a container, too; `client`: it runs where it is
            submitted, where `python` must be as well.
        queue: Of YARN.
        principal: Of Kerberos.
        keytab: Path of its key table.
        resources: Of the containers.
        environment: Variables of all containers; nothing secret.
        conf: More Spark configuration, which goes before that of this class.
    """

    python: str | None = None
    archive: str | None = None
    deploy_mode: str = "cluster"
    queue: str | None = None
    principal: str | None = None
    keytab: str | None = None
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.python is None) == (self.archive is None):
            raise OptionError("Give either python, which the nodes have, or archive.")
        if self.archive and self.deploy_mode == "client":
            raise OptionError(
                "A driver in client mode is not in a container that unpacks an archive, and plans "
                "with the Python of the executors. Use deploy_mode cluster, or install the "
                "environment on the nodes and here and give python."
            )
        if (self.principal is None) != (self.keytab is None):
            raise OptionError("principal and keytab go together: give both, or neither.")

    def submission(self, spec: JobSpec) -> Submission:
        """How to submit a run here.

        Raises:
            OptionError: A value cannot be used, or the configuration holds a credential.
        """
        return Submission(
            spec=spec,
            how=SparkSubmit(
                master="yarn",
                deploy_mode=self.deploy_mode,
                conf=self.spark_conf(),
                archives=(f"{self.archive}#{_UNPACKED}",) if self.archive else (),
                queue=self.queue,
                principal=self.principal,
                keytab=self.keytab,
                binary="spark-submit",
                executor_python=self._python(),
            ),
            notes=(
                "HADOOP_CONF_DIR must name the configuration of the cluster.",
                "Nothing of this was run on YARN.",
            ),
        )

    def spark_conf(self) -> dict[str, str]:
        """The Spark configuration, which the operators take as `spark_conf`, too."""
        found = {
            "spark.pyspark.python": self._python(),
            # Another try of the driver is the business of whoever asked for the run.
            "spark.yarn.maxAppAttempts": "1",
            **self.resources.conf(),
        }
        if self.deploy_mode == "cluster":
            found["spark.pyspark.driver.python"] = self._python()
        for name, value in self.environment.items():
            found[f"spark.yarn.appMasterEnv.{name}"] = value
            found[f"spark.executorEnv.{name}"] = value
        return {**found, **self.conf}

    def _python(self) -> str:
        return self.python or f"./{_UNPACKED}/bin/python"
