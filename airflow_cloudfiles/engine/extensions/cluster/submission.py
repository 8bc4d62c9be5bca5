"""Write what a person needs to submit a run by hand, to a standalone cluster, YARN or Kubernetes.

The command that an operator would start, for a cluster that this machine may not reach: written as
a script, beside the files that it names. The script holds no credentials.

On a standalone cluster Python programs run in client mode: the driver is where it is submitted. The
workers have this package at the same path as that machine.

The nodes of YARN have this package, or get it as a packed environment. Driver and executors have
the identity of their nodes in the cloud (an instance profile, a managed identity, a service
account).

On Kubernetes the driver and the executors are pods of one image, which has this package. The
service account of a pod is its identity in the cloud (IRSA or Pod Identity on AWS, workload
identity on Azure and Google Cloud). Where there is none, a pod gets credentials from a secret of
Kubernetes, which the configuration names and does not hold.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import IMAGE_PYTHON, SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state

SCRIPT = "submit.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the driver and the executors of a run are given.

    Attributes:
        executors: How many.
        cores: Of each executor.
        memory: Of each executor, as Spark writes it.
        driver_memory: Of the driver.
    """

    executors: int = 2
    cores: int = 1
    memory: str = "2g"
    driver_memory: str = "1g"

    def conf(self) -> dict[str, str]:
        """Build the configuration on Kubernetes and YARN."""
        return {"spark.executor.instances": str(self.executors), **self.of_each()}

    def of_each(self) -> dict[str, str]:
        """Build the configuration of one executor and of the driver, on every cluster."""
        return {
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.driver.memory": self.driver_memory,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run as it is submitted.

    Attributes:
        spec: What is to be done.
        how: The same `SparkSubmit` that an operator starts.
        files: What the command names, by file name, to be in the folder it is started in.
        notes: What has to be true, and what was not tried.
    """

    spec: JobSpec
    how: SparkSubmit
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def script(self) -> str:
        """Write the command as a shell script."""
        state = normalize_uri(self.spec.checkpoint_location)
        command = self.how.command(state, self.spec.run_id)
        lines = ["#!/bin/sh", *(f"# {note}" for note in self.notes), "set -eu"]
        if self.files:
            lines.append('cd "$(dirname "$0")"')
        environment = self.how.environment().items()
        lines += [f"export {name}={shlex.quote(value)}" for name, value in environment]
        return "\n".join([*lines, f"exec {_wrapped(command)}", ""])

    def all_files(self) -> dict[str, str]:
        """Collect everything that belongs into one folder, by file name."""
        return {SCRIPT: self.script(), **self.files}

    def to_json(self) -> dict[str, Any]:
        """Encode it for programs; `spark_conf` is what the operators take under that name."""
        state = normalize_uri(self.spec.checkpoint_location)
        return {
            "run_id": self.spec.run_id,
            "command": self.how.command(state, self.spec.run_id),
            "environment": self.how.environment(),
            "spark_conf": dict(self.how.conf),
            "files": self.all_files(),
            "notes": list(self.notes),
        }

    def write(self, folder: Path) -> None:
        """Write the files into a folder, and the specification into the state.

        Raises:
            StateUnreachableError: The store of the checkpoint location does not answer.
            StateError: The checkpoint location cannot be written.
            OSError: The folder cannot be written.
        """
        store = open_store(self.spec.checkpoint_location)
        with reaching_state(store):
            store.put(self.spec.spec_key, self.spec.sealed())
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.all_files().items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / SCRIPT).chmod(0o755)


def _wrapped(command: list[str]) -> str:
    """Wrap a command so that each line has an option and its value."""
    program, *words = command
    lines = [shlex.quote(program)]
    while words:
        has_value = words[0].startswith("--") and len(words) > 1
        taken, words = (words[:2], words[2:]) if has_value else (words[:1], words[1:])
        lines.append(shlex.join(taken))
    return " \\\n  ".join(lines)


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
        """Say how to submit a run here.

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
        """Build the Spark configuration, which the operators take as `spark_conf`, too."""
        found = {
            "spark.pyspark.python": self.python,
            "spark.pyspark.driver.python": self.python,
            "spark.cores.max": str(self.resources.executors * self.resources.cores),
            **self.resources.of_each(),
        }
        for name, value in self.environment.items():
            found[f"spark.executorEnv.{name}"] = value
        return {**found, **self.conf}


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
        """Say how to submit a run here.

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
            notes=("HADOOP_CONF_DIR must name the configuration of the cluster.",),
        )

    def spark_conf(self) -> dict[str, str]:
        """Build the Spark configuration, which the operators take as `spark_conf`, too."""
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


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_TAKEN_FOR_ELSE = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def to_yaml(value: Mapping[str, Any]) -> str:
    """Write a document of YAML.

    As the part of it that JSON is, but for its lines: mappings and lists as indented blocks, and
    each text in quotes that could be taken for something else. So no YAML library is needed.
    """
    return "\n".join(_block(value, "")) + "\n"


def _block(value: Mapping[str, Any] | Sequence[Any], indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", each, indent + "  ")
        return
    for each in value:
        if _is_block(each):
            first, *others = _block(each, indent + "  ")
            yield f"{indent}- {first.strip()}"
            yield from others
        else:
            yield f"{indent}- {_scalar(each)}"


def _entry(start: str, value: Any, indent: str) -> Iterator[str]:
    if _is_block(value):
        yield start
        yield from _block(value, indent)
    else:
        yield f"{start} {_scalar(value)}"


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    if is_plain and value.lower() not in _TAKEN_FOR_ELSE:
        return str(value)
    return json.dumps(value)


USER = 185
"""The user of the image that the documentation builds, which is that of Spark's own images."""
DRIVER, EXECUTOR = "driver", "executor"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERBS = ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"]
_OF_DRIVER = ["pods", "services", "configmaps", "persistentvolumeclaims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """A cluster of Kubernetes, and how a run is to be there.

    Attributes:
        master: `k8s://https://host:port`; the credentials of whoever submits are in a kubeconfig.
        image: With this package; all pods are of it.
        python: Of the image, and in client mode of the machine that submits at the same path.
            Without it Spark would have pods use that of who submits.
        namespace: Of the pods.
        service_account: `<this>-driver` and `<this>-executor` are the accounts of the pods.
        annotations: Of both accounts, such as the role that they have in the cloud.
        labels: Of all pods.
        deploy_mode: `cluster`: the driver is a pod, too; `client`: it runs where it is submitted.
        resources: Of the pods.
        environment: Variables of all pods; nothing secret.
        secret_variables: Variables by name, each the name of a secret and a key in it.
        secret_files: Names of secrets, each with the folder where its keys are files.
        conf: More Spark configuration, which goes before that of this class.
    """

    master: str
    image: str
    python: str = IMAGE_PYTHON
    namespace: str = "default"
    service_account: str = "cloudfiles"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    deploy_mode: str = "cluster"
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    secret_files: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.master.startswith("k8s://"):
            raise OptionError(f"master must be k8s://https://host:port, got {self.master!r}.")
        secrets = [name for name, _ in self.secret_variables.values()]
        for name in (self.namespace, self.service_account, *secrets, *self.secret_files):
            if not _NAME.fullmatch(name):
                raise OptionError(
                    f"{name!r} is no name of an object of Kubernetes: lower-case letters, digits, "
                    "- and . only. A secret is named, never given."
                )
        for variable in (*self.environment, *self.secret_variables):
            if not _VARIABLE.fullmatch(variable):
                raise OptionError(f"{variable!r} is no name of an environment variable.")

    def submission(self, spec: JobSpec) -> Submission:
        """Say how to submit a run here.

        Raises:
            OptionError: A value cannot be used, or the configuration holds a credential.
        """
        return Submission(
            spec=spec,
            how=SparkSubmit(
                master=self.master,
                deploy_mode=self.deploy_mode,
                conf=self.spark_conf(),
                binary="spark-submit",
                executor_python=self.python,
            ),
            files={
                "driver-pod.yaml": to_yaml(self.pod(DRIVER)),
                "executor-pod.yaml": to_yaml(self.pod(EXECUTOR)),
                "accounts.yaml": "---\n".join(map(to_yaml, self.accounts())),
            },
            notes=(
                "Once: kubectl apply -f accounts.yaml",
                "Secrets that are named must be in the namespace; kubectl create secret makes one.",
                "Spark's submission was tried with a stand-in for the API server; no pod was run.",
            ),
        )

    def spark_conf(self) -> dict[str, str]:
        """Build the Spark configuration, which the operators take as `spark_conf`, too."""
        prefix = "spark.kubernetes"
        found = {
            f"{prefix}.namespace": self.namespace,
            f"{prefix}.container.image": self.image,
            f"{prefix}.authenticate.driver.serviceAccountName": self._account(DRIVER),
            f"{prefix}.authenticate.executor.serviceAccountName": self._account(EXECUTOR),
            f"{prefix}.driver.podTemplateFile": "driver-pod.yaml",
            f"{prefix}.executor.podTemplateFile": "executor-pod.yaml",
            "spark.pyspark.python": self.python,
            **self.resources.conf(),
        }
        if self.deploy_mode == "cluster":
            found["spark.pyspark.driver.python"] = self.python
        for name, value in self.environment.items():
            found[f"{prefix}.driverEnv.{name}"] = value
            found[f"spark.executorEnv.{name}"] = value
        for role in (DRIVER, EXECUTOR):
            for variable, (name, key) in self.secret_variables.items():
                found[f"{prefix}.{role}.secretKeyRef.{variable}"] = f"{name}:{key}"
            for name, folder in self.secret_files.items():
                found[f"{prefix}.{role}.secrets.{name}"] = folder
        return {**found, **self.conf}

    def pod(self, role: str) -> dict[str, Any]:
        """Build the template of the pods of a role: what Spark's configuration has no keys for."""
        labels = {"app.kubernetes.io/name": "cloudfiles", **self.labels}
        # An executor asks Kubernetes for nothing: it has no token to do so.
        token = {} if role == DRIVER else {"automountServiceAccountToken": False}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"labels": labels},
            "spec": {
                **token,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": USER,
                    "fsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": f"spark-kubernetes-{role}",
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
            },
        }

    def accounts(self) -> list[dict[str, Any]]:
        """Build the service accounts, and what the driver's may do: start and remove executors."""
        named = {"name": self._account(DRIVER), "namespace": self.namespace}
        return [
            *(self._service_account(role) for role in (DRIVER, EXECUTOR)),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": named,
                "rules": [{"apiGroups": [""], "resources": _OF_DRIVER, "verbs": _VERBS}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": named,
                "subjects": [{"kind": "ServiceAccount", **named}],
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": self._account(DRIVER),
                },
            },
        ]

    def _service_account(self, role: str) -> dict[str, Any]:
        annotated = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": self._account(role),
                "namespace": self.namespace,
                **annotated,
            },
        }

    def _account(self, role: str) -> str:
        return f"{self.service_account}-{role}"
