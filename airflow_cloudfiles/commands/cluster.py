"""Run `cloudfiles cluster`, which writes what submits a run to a cluster of any kind.

Writes the `spark-submit` line and the files that it names, for a cluster that this machine may not
reach. What it starts is what the operators start.
"""

from __future__ import annotations

import argparse
import uuid
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
)
from airflow_cloudfiles.commands.tables.jobs import add_stream, ingestion
from airflow_cloudfiles.engine.extensions.cluster.submission import (
    SCRIPT,
    Kubernetes,
    Resources,
    Standalone,
    Yarn,
)
from airflow_cloudfiles.engine.job.spark_command import IMAGE_PYTHON

if TYPE_CHECKING:
    Cluster = Kubernetes | Standalone | Yarn


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command, with one of its own for each kind of cluster."""
    text = "write the spark-submit line of an ingestion on a cluster, and the files that it names"
    kinds = add_group(commands, "cluster", text, title="kinds", metavar="kind")
    _add_kubernetes(_add(kinds, shared, "kubernetes", Kubernetes, "for pods of one image"))
    _add_yarn(_add(kinds, shared, "yarn", Yarn, "for containers of YARN"))
    found = _add(kinds, shared, "standalone", Standalone, "for workers of Spark's own cluster")
    found.add_argument("--master", required=True, metavar="URL", help="spark://host:7077")
    found.add_argument(
        "--python", required=True, metavar="PATH", help="Python of the workers, with this package"
    )


def _add(
    kinds: Commands,
    shared: Parser,
    name: str,
    kind: type[Cluster],
    text: str,
) -> Parser:
    """Add a kind of cluster, with the arguments that all have."""
    found = add_command(kinds, name, _write, help=text, parents=[shared])
    found.set_defaults(kind=kind)
    add_stream(found)
    found.add_argument("--run-id", metavar="NAME", help="names the run's report; default: random")
    defaults = Resources()
    for flag, value, what in (
        ("executors", defaults.executors, "how many"),
        ("executor-cores", defaults.cores, "cores of each"),
        ("executor-memory", defaults.memory, "memory of each"),
        ("driver-memory", defaults.driver_memory, "memory of the driver"),
    ):
        help_text = f"{what}; default: {value}"
        found.add_argument(f"--{flag}", type=type(value), default=value, help=help_text)
    found.add_pairs("--conf", "Spark configuration")
    what = "an environment variable of driver and executors; nothing secret"
    found.add_pairs("--env", what, dest="environment")
    found.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write the files there, and the specification of the run into the state; without it "
        "nothing is written",
    )
    return found


def _add_kubernetes(found: Parser) -> None:
    for flag, text in (("master", "k8s://https://host:port"), ("image", "with this package")):
        found.add_argument(f"--{flag}", required=True, help=text)
    found.add_argument(
        "--python",
        default=IMAGE_PYTHON,
        metavar="PATH",
        help=f"of the image; default: {IMAGE_PYTHON}",
    )
    found.add_argument("--namespace", default="default", help="of the pods; default: default")
    found.add_argument(
        "--service-account",
        default="cloudfiles",
        metavar="NAME",
        help="beginning of the names of both accounts; default: cloudfiles",
    )
    _add_deploy_mode(found)
    text = "of the service accounts, such as a role in the cloud"
    found.add_pairs("--annotation", text, dest="annotations")
    found.add_pairs("--label", "of the pods", dest="labels")
    found.add_argument(
        "--secret-env",
        dest="secret_variables",
        type=_secret_variable,
        action="append",
        default=[],
        metavar="VARIABLE=SECRET:KEY",
        help="an environment variable with the value of a key of a secret; may be repeated",
    )
    found.add_pairs("--secret-files", "the folder of the pods with the keys of a secret as files")


def _add_yarn(found: Parser) -> None:
    python = found.add_mutually_exclusive_group(required=True)
    python.add_argument("--python", metavar="PATH", help="Python of the nodes, with this package")
    python.add_argument("--archive", metavar="URI", help="an environment that venv-pack has packed")
    _add_deploy_mode(found)
    for flag in ("queue", "principal", "keytab"):
        found.add_argument(f"--{flag}", help=f"as spark-submit's --{flag}")


def _add_deploy_mode(found: Parser) -> None:
    found.add_argument(
        "--deploy-mode",
        choices=("cluster", "client"),
        default="cluster",
        help="where the driver runs: there, or where it is submitted; default: cluster",
    )


def _secret_variable(text: str) -> tuple[str, tuple[str, str]]:
    """Read `VARIABLE=SECRET:KEY`; what is written else may be a secret, and is not repeated."""
    variable, _, reference = text.partition("=")
    name, colon, key = reference.partition(":")
    if not (variable and name and colon and key):
        msg = "must be written VARIABLE=SECRET:KEY, with the name of a secret, not what it holds"
        raise argparse.ArgumentTypeError(msg)
    return variable, (name, key)


def _write(given: argparse.Namespace) -> Outcome:
    spec = ingestion(given, given.run_id or f"ingest-{uuid.uuid4().hex}")
    made = _cluster(given).submission(spec)
    if given.output is None:
        texts = [f"# {name}\n{text}" for name, text in made.all_files().items()]
        missing = f"# {spec.spec_key} below the checkpoint location\n{spec.sealed().decode()}"
        return Outcome(made.to_json(), "\n".join([*texts, missing]))
    made.write(given.output)
    return Outcome(made.to_json(), f"Written. Start it with {given.output / SCRIPT}")


def _cluster(given: argparse.Namespace) -> Cluster:
    """Build the cluster that the arguments describe; they are named like its fields."""
    found: dict[str, Any] = {
        "resources": Resources(
            executors=given.executors,
            cores=given.executor_cores,
            memory=given.executor_memory,
            driver_memory=given.driver_memory,
        )
    }
    for name in {each.name for each in fields(given.kind)} - found.keys():
        value = getattr(given, name)
        found[name] = dict(value) if isinstance(value, list) else value
    cluster: Cluster = given.kind(**found)
    return cluster
