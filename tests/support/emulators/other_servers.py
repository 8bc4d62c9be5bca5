"""Other people's servers that speak S3 or SQS: `make other-servers` installs them.

With `OTHER_SERVERS=yes` in the environment, the tests of what a store promises run over these in
place of the ordinary emulators. With `AWS_SERVER=moto` or another name, the fixture `aws` is that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.job.java import find_java
from tests.support.emulators.aws import Aws
from tests.support.emulators.processes import Server, answers, free_port, program, running

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(sys.prefix) / "servers"
STORES = ["moto", "s3mock", "versity", "ceph"]
"""Servers that states and tables can be on."""


def kinds(*ordinary: str) -> list[str]:
    """The stores that a test is to run over: other people's where the environment says so."""
    return [*STORES, "swift"] if "OTHER_SERVERS" in os.environ else list(ordinary)


def _java(jars: str, main: str, *options: str) -> list[str]:
    """Give the command of a server in Java; skip the test without its jars."""
    folder = HOME / jars
    if not folder.exists():
        pytest.skip(f"{jars} is not installed: `make other-servers` does it")
    return [str(Path(find_java()) / "bin/java"), *options, "-cp", f"{folder}/*", main]


def _serve(command: list[str], port: int, log: Path, **environment: str) -> Iterator[Aws]:
    endpoint = f"http://127.0.0.1:{port}"
    server = Server(command, lambda: answers(endpoint), log / "log", environment=environment)
    with running(server):
        yield Aws(endpoint)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """S3, SQS and more, in Python."""
    port = free_port()
    command = [program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    yield from _serve(command, port, tmp_path_factory.mktemp("moto"))


@pytest.fixture(scope="session")
def s3mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """S3 of Adobe, in Java."""
    port, tls = free_port(), free_port()
    command = _java("s3mock", "com.adobe.testing.s3mock.S3MockApplication", "-Xmx512m")
    command += [f"--com.adobe.testing.s3mock.httpPort={port}", f"--server.port={tls}"]
    yield from _serve(command, port, tmp_path_factory.mktemp("s3mock"))


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """S3 before a POSIX file system, in Go."""
    folder = tmp_path_factory.mktemp("versity")
    (folder / "data").mkdir()
    server, endpoint = versity_server(folder / "data", folder / "log")
    with running(server):
        yield Aws(endpoint)


def versity_server(folder: Path, log: Path) -> tuple[Server, str]:
    """Versity's gateway before a folder, in which each folder is a bucket, and its address."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [program("versitygw"), "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    keys = {"ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "test-secret"}
    return Server(command, lambda: answers(endpoint), log, environment=keys), endpoint


@pytest.fixture(scope="session")
def gofakes3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """S3 in memory, in Go, of a version before it had conditional writes."""
    port = free_port()
    command = [program("gofakes3"), "-backend", "memory", "-host", f"127.0.0.1:{port}"]
    yield from _serve(command, port, tmp_path_factory.mktemp("gofakes3"))


@pytest.fixture(scope="session")
def elasticmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """SQS in memory, on Pekko."""
    port, folder = free_port(), tmp_path_factory.mktemp("elasticmq")
    address = f'node-address {{ host = "127.0.0.1", port = {port} }}'
    bind = f'rest-sqs {{ bind-hostname = "127.0.0.1", bind-port = {port} }}'
    conf = folder / "elasticmq.conf"
    conf.write_text(f"{address}\n{bind}\nrest-stats {{ enabled = false }}\n")
    command = _java("elasticmq", "org.elasticmq.server.Main", "-Xmx256m", f"-Dconfig.file={conf}")
    yield from _serve(command, port, folder)
