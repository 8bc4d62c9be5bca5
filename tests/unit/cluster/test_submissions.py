"""What is submitted to a cluster by hand: keys that Spark has, quoted words, no credential."""

from __future__ import annotations

import re
import subprocess
import zipfile
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.cluster.submission import (
    SCRIPT,
    Kubernetes,
    Standalone,
    Submission,
    Yarn,
    to_yaml,
)
from airflow_cloudfiles.engine.job.launch import JobSpec, SparkSubmit
from airflow_cloudfiles.engine.job.spark_command import spark_home
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks.spark import SparkArguments, submission

K8S = Kubernetes(
    master="k8s://https://10.0.0.1:6443",
    image="registry.example/cloudfiles:1",
    namespace="lake",
    annotations={"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/lake"},
    labels={"azure.workload.identity/use": "true"},
    environment={"AWS_REGION": "eu-central-1"},
    secret_variables={"AWS_SECRET_ACCESS_KEY": ("landing", "secret_key")},
    secret_files={"gcp-key": "/etc/gcp"},
)
YARN = Yarn(
    archive="hdfs:///apps/env.tar.gz",
    queue="lake",
    principal="etl@EXAMPLE",
    keytab="/etc/security/etl.keytab",
    environment={"AWS_REGION": "eu-central-1"},
)
STANDALONE = Standalone(master="spark://m:7077", python="/opt/cloudfiles/bin/python")
CLUSTERS = {
    "kubernetes": K8S,
    "kubernetes-client": Kubernetes(master="k8s://https://h", image="i:1", deploy_mode="client"),
    "yarn": YARN,
    "yarn-client": Yarn(python="/opt/env/bin/python", deploy_mode="client"),
    "standalone": STANDALONE,
}
OF_ANY_NAME = ("Env.", "executorEnv.", "secretKeyRef.", "secrets.")
"""What follows these in a key is a name of the user's own."""


def _spec(**more: Any) -> JobSpec:
    fields = {
        "kind": "ingest",
        "source": "s3://acme/land ing",
        "format": "json",
        "checkpoint_location": "s3://acme/_state/it's $HOME",
        "target": "s3://acme/orders",
        "run_id": "by-hand-1",
        **more,
    }
    return JobSpec(**fields)


@cache
def _words_of_spark() -> frozenset[str]:
    """Every text in the classes of Spark that reads like a key, or a part of one."""
    found: set[str] = set()
    for jar in ("spark-core", "spark-kubernetes", "spark-yarn", "spark-common-utils"):
        for path in (spark_home() / "jars").glob(f"{jar}_*.jar"):
            with zipfile.ZipFile(path) as classes:
                for name in classes.namelist():
                    if re.search(r"(?i)(conf|yarn|k8s).*\.class$", name):
                        words = re.findall(rb"[A-Za-z][A-Za-z0-9.]{2,}", classes.read(name))
                        found.update(word.decode() for word in words)
    return frozenset(found)


def _is_known(key: str) -> bool:
    """Whether this version of Spark has a key; some are put together of two parts."""
    words = _words_of_spark()
    cuts = (key[: key.index(part) + len(part)] for part in OF_ANY_NAME if part in key)
    return any(cut in words for cut in (key, *cuts)) or any(
        key[:at] in words and key[at + 1 :] in {w.lstrip(".") for w in words}
        for at, letter in enumerate(key)
        if letter == "." and at > len("spark.kubernetes")
    )


def _conf(made: Submission) -> dict[str, str]:
    command = made.to_json()["command"]
    pairs = [b for a, b in pairwise(command) if a == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_key_is_one_of_the_installed_spark(name: str) -> None:
    assert not _is_known("spark.kubernetes.container.imagery")
    assert not _is_known("spark.yarn.maxAppAttempt")
    keys = _conf(CLUSTERS[name].submission(_spec()))
    assert [key for key in keys if not _is_known(key)] == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_option_is_one_of_the_installed_spark_submit(name: str) -> None:
    jar = next((spark_home() / "jars").glob("spark-launcher_*.jar"))
    with zipfile.ZipFile(jar) as classes:
        content = classes.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    command = CLUSTERS[name].submission(_spec()).to_json()["command"]
    options = {word for word in command if word.startswith("--")}
    assert {"--master", "--deploy-mode", "--conf"} <= options
    assert [option for option in options if option.encode() not in content] == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_shell_reads_back_the_command_that_an_operator_starts(name: str, tmp_path: Path) -> None:
    made = CLUSTERS[name].submission(_spec())
    program = tmp_path / "spark-submit"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$CLOUDFILES_LAUNCHED" "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "out"
    folder.mkdir()
    for file, text in made.all_files().items():
        (folder / file).write_text(text)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    words = subprocess.run(
        ["sh", folder / SCRIPT], env=path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    command = SparkSubmit.command(made.how, "s3://acme/_state/it's $HOME", "by-hand-1")
    assert words == ["submit", *command[1:]]


def test_the_operators_take_the_configuration_that_is_written() -> None:
    arguments = SparkArguments(master=K8S.master, deploy_mode="cluster", conf=K8S.spark_conf())
    how = submission(arguments, None)
    assert isinstance(how, SparkSubmit)
    mine = how.command("s", "r")
    assert mine[1:] == K8S.submission(_spec()).how.command("s", "r")[1:]


def test_pods_have_no_privileges_and_executors_no_token() -> None:
    files = K8S.submission(_spec()).files
    driver, executor = (
        yaml.safe_load(files[f"{role}-pod.yaml"]) for role in ("driver", "executor")
    )
    for pod in (driver, executor):
        assert pod["kind"] == "Pod"
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        container = pod["spec"]["containers"][0]["securityContext"]
        assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert "automountServiceAccountToken" not in driver["spec"]


def test_accounts_have_the_role_in_the_cloud_and_the_driver_alone_may_start_pods() -> None:
    made = K8S.submission(_spec())
    accounts = list(yaml.safe_load_all(made.files["accounts.yaml"]))
    kinds = [each["kind"] for each in accounts]
    assert kinds == ["ServiceAccount", "ServiceAccount", "Role", "RoleBinding"]
    assert all(each["metadata"]["namespace"] == "lake" for each in accounts)
    names = {each["metadata"]["name"] for each in accounts[:2]}
    assert names == {value for key, value in _conf(made).items() if "serviceAccountName" in key}
    assert [each["metadata"]["annotations"] for each in accounts[:2]] == [K8S.annotations] * 2
    assert accounts[3]["subjects"] == [
        {"kind": "ServiceAccount", "name": "cloudfiles-driver", "namespace": "lake"}
    ]
    assert accounts[3]["roleRef"]["name"] == accounts[2]["metadata"]["name"]


def test_credentials_are_named_and_never_given() -> None:
    conf = _conf(K8S.submission(_spec()))
    for role in ("driver", "executor"):
        prefix = f"spark.kubernetes.{role}"
        assert conf[f"{prefix}.secretKeyRef.AWS_SECRET_ACCESS_KEY"] == "landing:secret_key"
        assert conf[f"{prefix}.secrets.gcp-key"] == "/etc/gcp"


@pytest.mark.parametrize(
    "variable",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
        "STORAGE_SAS",
        "AZURE_CLIENT_SECRET",
        "CLOUDFILES_ACCESS",
    ],
)
@pytest.mark.parametrize("cluster", [K8S, YARN, STANDALONE])
def test_a_credential_as_a_plain_variable_is_refused(cluster: Any, variable: str) -> None:
    given = replace(cluster, environment={variable: "hunter2"})
    with pytest.raises(OptionError, match=variable) as caught:
        given.submission(_spec())
    assert "hunter2" not in str(caught.value)


def test_a_variable_whose_name_only_looks_alike_is_passed_on() -> None:
    names = ("KAFKA_SASL_MECHANISM", "DISASTER_ZONE", "AWS_REGION", "STORAGE_CONNECTION_COUNT")
    given = replace(K8S, environment=dict.fromkeys(names, "x")).submission(_spec())
    assert {f"spark.executorEnv.{name}" for name in names} <= set(_conf(given))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Kubernetes(master="https://h", image="i"),
        lambda: Kubernetes(master="k8s://h", image="i", namespace="Lake"),
        lambda: Kubernetes(
            master="k8s://h", image="i", secret_variables={"KEY": ("AKIA/abc+def", "x")}
        ),
        lambda: Kubernetes(master="k8s://h", image="i", environment={"A B": "x"}),
        Yarn,
        lambda: Yarn(python="/p", archive="hdfs:///a"),
        lambda: Yarn(archive="hdfs:///a", deploy_mode="client"),
        lambda: Yarn(python="/p", keytab="/k"),
        lambda: Standalone(master="yarn", python="/p"),
    ],
)
def test_what_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError):
        wrong()


def test_a_packed_environment_is_the_python_of_every_container() -> None:
    made = YARN.submission(_spec())
    words = made.to_json()["command"]
    assert words[words.index("--archives") + 1] == "hdfs:///apps/env.tar.gz#env"
    conf = _conf(made)
    assert conf["spark.pyspark.python"] == conf["spark.pyspark.driver.python"]
    assert conf["spark.pyspark.python"] == "./env/bin/python"
    assert conf["spark.yarn.maxAppAttempts"] == "1"


def test_a_driver_in_a_pod_starts_from_its_image_and_every_other_from_here() -> None:
    entries = {
        name: each.submission(_spec()).to_json()["command"][-3] for name, each in CLUSTERS.items()
    }
    assert entries.pop("kubernetes") == "local:///opt/cloudfiles/job.py"
    assert all(Path(entry).is_file() for entry in entries.values()), entries
    other = SparkSubmit(master="k8s://h", deploy_mode="cluster", entry_point="local:///job.py")
    assert other.command("s", "r")[-3] == "local:///job.py"


def test_files_are_written_and_the_specification_is_in_the_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = K8S.submission(_spec(checkpoint_location=str(state)))
    made.write(tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {SCRIPT, "accounts.yaml", "driver-pod.yaml", "executor-pod.yaml"}
    assert JobSpec.stored(open_store(str(state)), "by-hand-1") == made.spec, "as a driver reads it"


@pytest.mark.parametrize(
    "value",
    [
        {"a": "yes", "b": "1", "c": "a: b", "d": "#x", "e": "- x", "f": "", "g": "ö\n\t'\"\\"},
        {"true": True, "0": 0, "n": None, "x": [], "y": {}, "z": 1.5},
        {"list": [{"a": 1, "b": {"c": [1, "two"]}}, ["x", ["y"]], "z"]},
        {"a/b.c-d": "arn:aws:iam::1:role/x", "~": "~", "*": "*a", "null": "null"},
    ],
)
def test_yaml_reads_back_what_was_written(value: dict[str, Any]) -> None:
    assert yaml.safe_load(to_yaml(value)) == value
