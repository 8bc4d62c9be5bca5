"""What is tested in each cell?

Parts of the test suite, as arguments of pytest: what depends on the version of Python, Airflow or
Spark. `make test` runs the whole suite with the versions of the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """A part.

    Attributes:
        name: Heads its column.
        what: What passes when it passes, for the page.
        arguments: Of pytest.
        oldest_spark: The oldest minor version of Spark that has it.
    """

    name: str
    what: str
    arguments: tuple[str, ...]
    oldest_spark: str = "3.5"

    def is_for(self, spark: str) -> bool:
        """Whether a version of Spark has it."""
        return _numbers(spark) >= _numbers(self.oldest_spark)


def _numbers(version: str) -> list[int]:
    return [int(each) for each in version.split(".")[:2]]


_REAL: Final = (
    "schema_change_fails",
    "asks_a_person",
    "three_tasks",
    "mapped",
    "fail_on_new_columns",
    "arrival_fires",
)
"""Tests of a real Airflow; the others depend on the operating system, or need emulators."""

PARTS: Final = (
    Part(
        "imports",
        "each module of the package and each public name is imported, and no module of ours uses "
        "what is deprecated",
        ("tests/provider/test_every_module.py",),
    ),
    Part(
        "provider",
        "provider info, connection types, arguments, links, pages, callbacks and lineage; each "
        "DAG of `dags_examples` is parsed; sensors, triggers and operators as far as they start "
        "no Spark",
        ("tests/provider", "-m", "airflow and not spark and not slow and not emulator"),
    ),
    Part(
        "real Airflow",
        "scheduler, triggerer, DAG processor and API server, with a Spark for each task and Delta "
        "tables: a new column fails a task and a retry heals it, also of a mapped task; "
        "`failOnNewColumns` is not retried; links, XCom, lineage and the pages of the *Stream* "
        "tab; a change waits for a person and is accepted, in one task (from 3.3) and in three; a "
        "watcher starts a DAG when a file arrives, its asset event another DAG; a backfill",
        (
            "tests/provider/test_real_airflow.py",
            "-k",
            " or ".join(_REAL),
        ),
    ),
    Part(
        "jobs",
        "a standalone cluster, in client mode: inference, ingestion, a new column, an operator; "
        "this machine: functions over micro-batches, merges, replays, tasks that fail, a Delta "
        "table as the source; and what Spark's own `spark-submit` makes of the commands for "
        "Kubernetes and YARN",
        (
            "tests/cluster/test_submit_to_a_cluster.py",
            "tests/spark/test_spark_tasks.py",
            "tests/spark/test_transforms_spark.py",
            "tests/spark/test_table_runs_spark.py",
            "tests/cluster/test_submit_to_kubernetes.py",
            "tests/unit/cluster",
            "-k",
            "not queries_take_turns",
        ),
    ),
    Part(
        "Spark",
        "PySpark's protocol of Python data sources; queries into Delta and Parquet: inference, "
        "evolution, a restart with the new column, errors by class; jobs and queries on one state",
        (
            "tests/unit/spark/test_forked_python.py",
            "tests/spark/test_start_of_spark.py",
            "tests/spark/test_plain_pyspark.py",
            "tests/spark/test_jobs_and_queries.py",
            "-k",
            "not oldest",
        ),
        oldest_spark="4.2",
    ),
    Part(
        "Spark Connect",
        "a server of the same version: a query with `checkpointLocation`, a new column and the "
        "restart with it; a job behind a query; a client that is `pyspark-client` alone (of "
        "requirements/connect.lock), without Java",
        (
            "tests/connect/test_plain_pyspark_over_connect.py",
            "-k",
            "checkpoint_is_given or client_alone or jobs_go_on",
        ),
        oldest_spark="4.2",
    ),
)
