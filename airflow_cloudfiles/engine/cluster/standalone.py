"""How is a run submitted to a standalone cluster?

Python programs run in client mode there: the driver is where it is submitted. The workers have this
package at the same path as that machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cloudfiles.engine.cluster.submission import Resources, Submission
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone:
    """A standalone cluster, and how a run is to be there.

    Attributes:
        master: `spark://host:7077`.
        python: Of the workers and of the machine that submits, with this package.
        resources: Of the executors.
        environment: Variables of all executors; nothing secret.
        conf: More Spark configuration, which goes before that of this class.
    """

    master: str
    python: str
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.master.startswith("spark://"):
            raise OptionError(f"master must be spark://host:port, got {self.master!r}.")

    def submission(self, spec: JobSpec) -> Submission:
        """How to submit a run here.

        Raises:
            OptionError: The configuration holds a credential.
        """
        return Submission(
            spec=spec,
            how=SparkSubmit(
                master=self.master,
                conf=self.spark_conf(),
                binary="spark-submit",
                executor_python=self.python,
            ),
            notes=("Start it where the workers can reach this machine: it runs the driver.",),
        )

    def spark_conf(self) -> dict[str, str]:
        """The Spark configuration, which the operators take as `spark_conf`, too."""
        found = {
            "spark.pyspark.python": self.python,
            "spark.pyspark.driver.python": self.python,
            "spark.cores.max": str(self.resources.executors * self.resources.cores),
            **self.resources.of_each(),
        }
        for name, value in self.environment.items():
            found[f"spark.executorEnv.{name}"] = value
        return {**found, **self.conf}
