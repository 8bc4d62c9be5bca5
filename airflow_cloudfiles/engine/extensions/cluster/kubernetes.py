"""Write what a run on Kubernetes is submitted with.

The driver and the executors are pods of one image, which has this package. The service account of
a pod is its identity in the cloud (IRSA or Pod Identity on AWS, workload identity on Azure and
Google Cloud). Where there is none, a pod gets credentials from a secret of Kubernetes, which the
configuration names and does not hold.

As the part of YAML that JSON is, but for its lines: mappings and lists as indented blocks, and each
text in quotes that could be taken for something else. So no YAML library is needed to write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.cluster.submission import Resources, Submission
from airflow_cloudfiles.engine.job.spark_command import IMAGE_PYTHON, SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_TAKEN_FOR_ELSE = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def to_yaml(value: Mapping[str, Any]) -> str:
    """Write a document."""
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
