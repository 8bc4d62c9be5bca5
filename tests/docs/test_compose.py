"""The compose file of the page about Spark Connect: its form, its secrets, what its parts name."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cloudfiles.engine.job.spark_command import DEFAULT_PORT
from airflow_cloudfiles.engine.spark import daemon

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "compose"
_SECRET = re.compile(r"password|secret|token|key|sql_alchemy_conn", re.IGNORECASE)
_PINNED = re.compile(r":[a-z-]*\d")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file, with its anchors resolved."""
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


@pytest.mark.slow
def test_it_is_as_the_compose_specification_wants_it(tmp_path, compose):
    checker = Path(sys.executable).with_name("check-jsonschema")
    command = [checker, "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*command, FOLDER / "compose.yaml"], check=True)
    compose["services"]["connect"]["mem_limits"] = "6g"
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(yaml.safe_dump(compose))
    assert subprocess.run([*command, wrong], check=False, capture_output=True).returncode == 1


def test_every_part_that_is_named_is_declared(compose):
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", [])) <= set(services), name
        assert set(service.get("secrets", [])) <= set(compose["secrets"]), name
        for volume in service.get("volumes", []):
            where = volume.partition(":")[0]
            assert where.startswith("./") or where in compose["volumes"], name
        build = service.get("build")
        assert build is None or (FOLDER / build["context"] / build["dockerfile"]).is_file(), name
    assert services["connect"]["network_mode"] == "service:airflow-scheduler"
    assert "ports" not in services["connect"]


def test_images_are_pinned(compose):
    named = [service["image"] for service in compose["services"].values() if "image" in service]
    for path in FOLDER.glob("*.Dockerfile"):
        named += re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE)
    assert len(named) == 3
    assert all(_PINNED.search(image) for image in named), named


def test_secrets_are_files_and_each_service_has_those_that_it_reads(compose):
    for name, service in compose["services"].items():
        read = set()
        for variable, value in service.get("environment", {}).items():
            paths = re.findall(r"/run/secrets/([\w.]+)", str(value))
            read |= set(paths)
            if _SECRET.search(variable) and variable != "AIRFLOW__SECRETS__BACKEND":
                assert paths, f"{name}: {variable} holds the secret itself"
        assert read == set(service.get("secrets", [])), name
    page = (FOLDER.parent / "spark-connect.md").read_text()
    for secret, how in compose["secrets"].items():
        assert how == {"file": f"./secrets/{secret}"}
        assert f"secrets/{secret}" in page


def test_the_server_is_where_the_connection_and_the_health_check_look(compose):
    script = (FOLDER / "connect-server.sh").read_text()
    assert f"CONNECT_PORT:-{DEFAULT_PORT}" in script
    assert f"spark.python.daemon.module={daemon.__name__}" in script
    assert str(DEFAULT_PORT) in shlex.join(compose["services"]["connect"]["healthcheck"]["test"])
    connection = json.loads((FOLDER / "connections.json").read_text())["spark_server"]
    assert connection["port"] == DEFAULT_PORT


@pytest.mark.airflow
@pytest.mark.slow
def test_airflow_reads_its_secrets_and_the_connection_from_those_files(tmp_path, compose):
    made = _secrets_of_the_page(tmp_path)
    assert {path.name for path in made.iterdir()} == set(compose["secrets"])
    given = {
        name: str(value).replace("/run/secrets", str(made))
        for name, value in compose["services"]["airflow-scheduler"]["environment"].items()
    }
    database = given["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"].removeprefix("cat ")
    password = (made / "database_password").read_text()
    assert f"airflow:{password}@postgres/airflow" in Path(database).read_text()
    given["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"] = f"echo sqlite:////{tmp_path}/airflow.db"
    program = """
from airflow.configuration import conf
from airflow.models import Connection
from airflow.secrets.local_filesystem import LocalFilesystemBackend
from airflow_cloudfiles.hooks.spark import SparkArguments, submission
print(conf.get("core", "fernet_key"), conf.get("api_auth", "jwt_secret"))
backend = LocalFilesystemBackend(**conf.getjson("secrets", "backend_kwargs"))
print(submission(SparkArguments(), backend.get_connection("spark_server")).remote)
"""
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **given, "AIRFLOW_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    keys, remote = found.stdout.splitlines()[-2:]
    secrets = {path.name: path.read_text() for path in made.iterdir()}
    assert keys == f"{secrets['fernet_key']} {secrets['jwt_secret']}"
    assert remote == f"sc://localhost:15002/;token={secrets['connect_token']}"


def _secrets_of_the_page(folder: Path) -> Path:
    """Do what the page says, but for the start of the containers."""
    copy = folder / "compose"
    shutil.copytree(FOLDER, copy)
    page = (FOLDER.parent / "spark-connect.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    (block,) = (each for each in blocks if "compose" in each)
    lines = [
        line for line in block.splitlines() if not line.startswith(("cd ", "docker ", "make "))
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    subprocess.run(["sh", "-eu", "-c", "\n".join(lines)], cwd=copy, env=environment, check=True)
    assert (copy / "secrets").stat().st_mode & 0o77 == 0
    return copy / "secrets"
