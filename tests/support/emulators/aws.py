"""S3, SQS, SNS, EventBridge and STS, as ministack gives them; a second S3; and a proxy with faults.

What two implementations of S3 agree on is more likely what S3 does.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_client
from tests.support.emulators.processes import Server, answers, free_port, listens, program, running
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGION = "us-east-1"


class Aws:
    """Something that speaks protocols of AWS: how to reach it, and new buckets and queues.

    Attributes:
        endpoint: Its address.
        access: With which it is reached.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.access = AwsAccess(
            access_key_id="test",
            secret_access_key="test-secret",
            region=REGION,
            endpoint_urls={"": endpoint},
            path_style=True,
        )

    def access_through(self, endpoint: str) -> AwsAccess:
        """The same behind a proxy at another address.

        Nobody has made a client with it yet: no connection of an earlier test is open, whose
        requests the rules of a proxy that looks at connections would not see.
        """
        name = uuid.uuid4().hex
        return replace(self.access, endpoint_urls={"": endpoint}, role_session_name=name)

    def client(self, service: str) -> Any:
        """Amazon's own client, to see and to do what the package does not."""
        return aws_client(service, self.access)

    def bucket(self) -> str:
        """Make a new bucket and give its URI."""
        name = f"bucket-{uuid.uuid4().hex}"
        self.client("s3").create_bucket(Bucket=name)
        return f"s3://{name}"

    def queue(self, **attributes: str) -> str:
        """Make a new queue and give its URL."""
        name = f"queue-{uuid.uuid4().hex}"
        made = self.client("sqs").create_queue(QueueName=name, Attributes=attributes)
        return str(made["QueueUrl"])


class Microburst:
    """A proxy that lets through, breaks or answers by itself what its rules say.

    Attributes:
        endpoint: Its address, for a client.
        port: Of that address.
    """

    def __init__(self, port: int, control_port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._control = f"http://127.0.0.1:{control_port}/_microburst"

    def rules(self, rules: list[dict[str, Any]]) -> None:
        """Replace the rules; an empty list lets everything through."""
        self._call("POST", "rules", json.dumps(rules).encode())

    def fired(self) -> list[dict[str, Any]]:
        """Tell what the rules did since they were set last."""
        found = json.loads(self._call("GET", "fired"))
        events: list[dict[str, Any]] = found if isinstance(found, list) else found["fired"]
        return events

    def reset(self) -> None:
        """Let everything through, and forget what was done."""
        self.rules([])
        self._call("DELETE", "fired")

    def _call(self, method: str, name: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            f"{self._control}/{name}",
            data=body,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read())


@pytest.fixture(scope="session")
def aws(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """One ministack for the whole run; take a bucket or queue of your own from it.

    `AWS_SERVER=moto` in the environment puts another server in its place (`other_servers.py`).
    """
    if "AWS_SERVER" in os.environ:
        yield request.getfixturevalue(os.environ["AWS_SERVER"])
        return
    endpoint, server = ministack_server(tmp_path_factory.mktemp("ministack") / "log")
    with running(server):
        yield Aws(endpoint)


@pytest.fixture
def aws_serving(tmp_path: Path) -> Iterator[Callable[[Path], Aws]]:
    """Give `start(folder)`: a ministack that serves `folder/<bucket>/<key>` as it finds it.

    Thousands of files are faster written than put.
    """
    with contextlib.ExitStack() as stack:

        def start(folder: Path) -> Aws:
            environment = {"S3_PERSIST": "1", "S3_DATA_DIR": str(folder)}
            endpoint, server = ministack_server(
                tmp_path / f"ministack-{uuid.uuid4().hex}", environment
            )
            stack.enter_context(running(server))
            return Aws(endpoint)

        yield start


def seaweed_server(folder: Path) -> tuple[Server, str]:
    """A seaweedfs that keeps its data and its log in a folder, and the address it will have."""
    ports = {
        name: free_port()
        for name in (
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "s3.port",
            "s3.port.grpc",
        )
    }
    command = [program("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += ["-volume.max=5000", "-master.volumeSizeLimitMB=16", "-volume.minFreeSpace=1MiB"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    return Server(command, lambda: _takes_objects(endpoint), folder / "log"), endpoint


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """One seaweedfs for the whole run: a second S3, and nothing but S3."""
    server, endpoint = seaweed_server(tmp_path_factory.mktemp("seaweedfs"))
    with running(server):
        yield Aws(endpoint)


@pytest.fixture(scope="session")
def _proxies(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], tuple[Microburst, Server]]]:
    """Proxies by protocol and upstream; each stays up for the whole run."""
    proxies: dict[tuple[str, str], tuple[Microburst, Server]] = {}
    yield proxies
    for _, server in proxies.values():
        server.stop()


@pytest.fixture
def microburst(
    _proxies: dict[tuple[str, str], tuple[Microburst, Server]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Microburst]]:
    """Give `start(upstream, protocol="http")`: a proxy in front of an address, without rules.

    In `tcp` and `grpc` mode, the upstream is `host:port`; in `http` mode, a URL.
    """
    used: list[Microburst] = []

    def start(upstream: str, protocol: str = "http") -> Microburst:
        if (protocol, upstream) not in _proxies:
            _proxies[protocol, upstream] = _start_proxy(
                upstream, protocol, tmp_path_factory.mktemp("microburst") / "log"
            )
        used.append(_proxies[protocol, upstream][0])
        return used[-1]

    yield start
    for proxy in used:
        proxy.reset()


def ministack_server(log: Path, environment: dict[str, str] | None = None) -> tuple[str, Server]:
    """A ministack that logs to a file, and the address it will have."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = Server(
        [program("ministack")],
        lambda: answers(f"{endpoint}/_ministack/health"),
        log,
        environment={
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "MINISTACK_REGION": REGION,
            "LOG_LEVEL": "WARNING",
            **(environment or {}),
        },
    )
    return endpoint, server


def _start_proxy(upstream: str, protocol: str, log: Path) -> tuple[Microburst, Server]:
    port = free_port()
    control_port = port if protocol == "http" else free_port()
    command = [program("microburst"), "--upstream", upstream, "--protocol", protocol]
    command += ["--host", "127.0.0.1", "--port", str(port), "--control-port", str(control_port)]
    server = Server(command, lambda: listens(port) and listens(control_port), log)
    server.start()
    return Microburst(port, control_port), server


def _takes_objects(endpoint: str) -> bool:
    """Whether a seaweedfs is up as far as its volumes: the S3 port listens long before."""
    if not answers(endpoint):
        return False
    from botocore.exceptions import BotoCoreError, ClientError

    client = Aws(endpoint).client("s3")
    try:
        client.create_bucket(Bucket="probe")
        client.put_object(Bucket="probe", Key="probe", Body=b"probe")
    except (BotoCoreError, ClientError):
        return False
    return True
