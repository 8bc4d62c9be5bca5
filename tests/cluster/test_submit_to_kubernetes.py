"""Spark's own client of Kubernetes takes what `cloudfiles cluster kubernetes` writes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.extensions.cluster.submission import (
    SCRIPT,
    USER,
    Kubernetes,
    Submission,
)
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.launch import JobSpec
from airflow_cloudfiles.engine.job.spark_command import (
    COORDINATOR_JVM,
    DAEMON_MODULE,
    IMAGE_ENTRY_POINT,
    IMAGE_PYTHON,
    LAUNCHED,
    spark_home,
)
from tests.support.kubernetes_api import KubernetesApi, kubernetes_api
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _submission(api: KubernetesApi, state: Path, **more: Any) -> Submission:
    spec = JobSpec(
        kind="ingest",
        source="s3://acme/in",
        format="json",
        checkpoint_location=str(state),
        target="s3://acme/table",
        run_id="r.1_x",
    )
    cluster = Kubernetes(
        master=api.master,
        image="registry.example/cloudfiles:1",
        namespace="lake",
        labels={"azure.workload.identity/use": "true"},
        environment={"AWS_REGION": "eu-central-1"},
        secret_variables={"AWS_SECRET_ACCESS_KEY": ("landing", "secret_key")},
        secret_files={"gcp-key": "/etc/gcp"},
        **more,
    )
    return cluster.submission(spec)


def _start(made: Submission, folder: Path) -> subprocess.Popen[str]:
    """Start what was written, as a person does."""
    made.write(folder / "out")
    environment = {
        "PATH": f"{spark_home()}/bin:{os.environ['PATH']}",
        "JAVA_HOME": find_java(),
        "SPARK_SUBMIT_OPTS": COORDINATOR_JVM,
        "HOME": str(folder),
        "KUBECONFIG": str(folder / "none"),
    }
    return subprocess.Popen(
        [folder / "out" / SCRIPT],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_spark_asks_for_a_driver_as_the_template_and_the_configuration_say(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with kubernetes_api() as api:
        conf = {"spark.kubernetes.submission.waitAppCompletion": "false"}
        process = _start(_submission(api, state, conf=conf), tmp_path)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said[-3000:]
    driver = api.made("Pod")[0]
    _check_pod(driver)
    container = driver["spec"]["containers"][0]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert given[LAUNCHED] == "submit"
    assert given["PYSPARK_PYTHON"] == given["PYSPARK_DRIVER_PYTHON"] == IMAGE_PYTHON
    assert container["args"][-3:] == [IMAGE_ENTRY_POINT, f"file://{state}", "r.1_x"]
    assert driver["spec"]["serviceAccountName"] == "cloudfiles-driver"
    maps = {key: text for each in api.made("ConfigMap") for key, text in each["data"].items()}
    written = (tmp_path / "out" / "executor-pod.yaml").read_text()
    assert maps["podspec-configmap-key"] == written, "which the driver reads in its pod"
    asked = dict(re.findall(r"^([^#\s=]+)=(.*)$", maps["spark.properties"], re.MULTILINE))
    assert (
        asked["spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY"]
        == "landing\\:secret_key"
    )
    assert asked["spark.python.daemon.module"] == DAEMON_MODULE


def _check_pod(pod: dict[str, Any]) -> None:
    """It is as the template and the configuration say."""
    assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert pod["spec"]["securityContext"]["runAsUser"] == USER
    container = pod["spec"]["containers"][0]
    assert len(pod["spec"]["containers"]) == 1, "Spark's container is the one of the template"
    assert container["image"] == "registry.example/cloudfiles:1"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    given = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    secret = {"secretKeyRef": {"name": "landing", "key": "secret_key"}}
    assert given["AWS_SECRET_ACCESS_KEY"] == secret
    assert given["AWS_REGION"] == "eu-central-1"
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes[mounted["/etc/gcp"]]["secret"] == {"secretName": "gcp-key"}
